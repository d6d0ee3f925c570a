//! From text to token ids and back.

mod build;
mod encode;
mod growth;
mod guard;
mod processor;
mod special;

use crate::directory::Directory;
use crate::weights::one_line;
use crate::{Architecture, Error, Family, Sequence};
pub(crate) use build::definition;
use guard::guarded;
use special::Special;
use tokenizers::PostProcessorWrapper;

/// Turns text into the token ids its model was trained on.
///
/// Read from `tokenizer.json`, else from WordPiece's `vocab.txt`, else from BPE's `vocab.json` and `merges.txt`.
/// Padding and truncation that a `tokenizer.json` may ask for are ignored: nothing is ever padded, and the caller or
/// [`Tokenizer::max_tokens`] says where to cut.
pub struct Tokenizer {
    /// Without its post-processor, so that texts can be cut between tokenising and adding special tokens.
    inner: tokenizers::Tokenizer,
    processor: Option<PostProcessorWrapper>,
    /// What errors call the file it is from.
    file: String,
    special: Special,
    /// Token types a sequence may have; `None`: sequences get none. XLNet only compares them, any number will do.
    types: Option<usize>,
    max_tokens: Option<usize>,
}

/// One or two texts, tokenised.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    /// What the executor runs.
    pub sequence: Sequence,
    /// The tokens as the vocabulary spells them, one per id.
    pub tokens: Vec<String>,
    /// Where each token stands in its text, `start..end` in bytes; `(0, 0)` for special tokens.
    pub offsets: Vec<(usize, usize)>,
    /// Which text a token comes from: 0 the first, 1 the second, `None` for special tokens.
    pub texts: Vec<Option<u8>>,
    /// Whether text was left out.
    pub truncated: bool,
}

impl Tokenizer {
    /// Reads the tokenizer of a directory; `None` if there is none. An error if it can produce an id that the word
    /// table does not have.
    pub(crate) fn read(directory: &Directory, architecture: &Architecture) -> Result<Option<Tokenizer>, Error> {
        let Some(definition) = definition(directory, architecture.family)? else { return Ok(None) };
        let names = ["tokenizer.json", "vocab.txt", "vocab.json"];
        let file = directory.label(names.into_iter().find(|name| directory.holds(name)).unwrap_or(names[0]));
        let mut inner = guarded(&file, || {
            tokenizers::Tokenizer::from_bytes(&definition).map_err(|e| {
                Error::new(format!("{file}: not a tokenizer this version reads ({})", one_line(&e.to_string())))
            })
        })?;
        growth::check(&inner, &file)?;
        let processor = inner.get_post_processor().cloned();
        if let Some(processor) = &processor {
            processor::check(processor, &file)?;
        }
        inner.with_post_processor(None::<PostProcessorWrapper>).with_padding(None);
        inner.with_truncation(None).map_err(|e| Error::new(format!("{file}: {}", one_line(&e.to_string()))))?;

        let rows = architecture.embeddings.vocabulary;
        if let Some((token, id)) = inner.get_vocab(true).into_iter().max_by_key(|(_, id)| *id)
            && id as usize >= rows
        {
            return Err(Error::new(format!(
                "the tokenizer and the weights do not belong together: token \"{}\" has id {id}, the word table has {rows} rows",
                one_line(&token)
            )));
        }
        let types = match (architecture.family, &architecture.embeddings.token_types) {
            (Family::XlNet, _) => Some(usize::MAX),
            (_, Some(table)) if table.rows > 1 => Some(table.rows),
            _ => None,
        };
        let special = Special::read(directory, &inner)?;
        let max_tokens = [architecture.max_tokens, special.max_tokens].into_iter().flatten().min();
        Ok(Some(Tokenizer { inner, processor, file, special, types, max_tokens }))
    }

    /// The longest sequence, special tokens included, that texts are cut to by default: the smallest of what the
    /// network, `tokenizer_config.json` and `sentence_bert_config.json` allow.
    pub fn max_tokens(&self) -> Option<usize> {
        self.max_tokens
    }

    /// Makes texts be cut earlier.
    pub(crate) fn limit(&mut self, max_tokens: usize) {
        self.max_tokens = Some(self.max_tokens.map_or(max_tokens, |most| most.min(max_tokens)));
    }

    /// Number of tokens, added ones included.
    pub fn vocabulary(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The token of this id as the vocabulary spells it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The mask token (`[MASK]`, `<mask>`) and its id.
    pub fn mask(&self) -> Option<(&str, u32)> {
        self.special.mask.as_ref().map(|(name, id)| (name.as_str(), *id))
    }

    /// The id of the mask token.
    pub fn mask_id(&self) -> Option<u32> {
        self.mask().map(|(_, id)| id)
    }

    /// The id that ends a text (`<|endoftext|>`, `</s>`, `[SEP]`), where generation stops.
    pub fn end_id(&self) -> Option<u32> {
        self.special.end
    }

    /// Ids of special tokens, sorted.
    pub fn special_ids(&self) -> &[u32] {
        &self.special.ids
    }

    /// Whether this id is a special token.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.ids.binary_search(&id).is_ok()
    }

    /// All that decides which ids a text becomes: two tokenizers with the same description give the same.
    pub fn description(&self) -> Result<String, Error> {
        let told = |e: String| Error::new(format!("{}: cannot be written down ({})", self.file, one_line(&e)));
        let inner = self.inner.to_string(false).map_err(|e| told(e.to_string()))?;
        let processor = serde_json::to_string(&self.processor).map_err(|e| told(e.to_string()))?;
        Ok(format!("{inner} {processor} {:?} {:?}", self.types, self.max_tokens))
    }

    /// The text of these ids.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, Error> {
        guarded(&self.file, || self.inner.decode(ids, skip_special).map_err(undecoded))
    }

    /// Decodes one id after another: each call gives the text that became certain (a character may span several
    /// tokens), `None` while nothing did.
    pub fn stream(&self, skip_special: bool) -> impl FnMut(u32) -> Result<Option<String>, Error> + '_ {
        let mut stream = self.inner.decode_stream(skip_special);
        move |id| guarded(&self.file, || stream.step(id).map_err(undecoded))
    }
}

fn undecoded(e: tokenizers::Error) -> Error {
    Error::new(format!("cannot decode: {}", one_line(&e.to_string())))
}
