//! Encoding: texts to sequences, with truncation and windows.
//!
//! Truncation follows the reference. One text keeps its first tokens. Of a pair, the longer text gives way first, then
//! both alike ("longest first"). Special tokens are always kept.
//!
//! A long text is not tokenised whole only to be cut: as much of its beginning is taken as certainly fills the
//! sequence, up to a space, and more only if that was not enough. A text without any space is cut inside its one word.

use super::guard::guarded;
use super::{Encoded, Tokenizer};
use crate::weights::one_line;
use crate::{Error, Sequence};
use tokenizers::utils::truncation::{TruncationDirection, TruncationParams, TruncationStrategy, truncate_encodings};
use tokenizers::{Encoding, PostProcessor};

/// Characters taken per wanted token at first: two to three times what languages need.
const CHARACTERS_PER_TOKEN: usize = 12;
/// Tokens beyond the wanted ones, so that the cut's neighbourhood is never among those used.
const MARGIN: usize = 16;

impl Tokenizer {
    /// Tokenises one text, or a pair, with special tokens, cut to `max_tokens` (by default [`Tokenizer::max_tokens`]).
    ///
    /// Empty text is fine where there are special tokens; an error where nothing at all would be left to run.
    pub fn encode(&self, text: &str, pair: Option<&str>, max_tokens: Option<usize>) -> Result<Encoded, Error> {
        let Some(most) = self.most(max_tokens) else {
            let second = pair.map(|p| self.raw(p)).transpose()?;
            return self.finish(self.raw(text)?, second, false);
        };
        let room = self.room(most, pair.is_some())?;
        let (first, first_cut) = self.beginning(text, room)?;
        let second = pair.map(|p| self.beginning(p, room)).transpose()?;
        let cut = first_cut || second.as_ref().is_some_and(|s| s.1);
        let second = second.map(|s| s.0);
        let truncated = cut || first.len() + second.as_ref().map_or(0, Encoding::len) > room;
        let params = TruncationParams {
            direction: TruncationDirection::Right,
            max_length: room,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
        };
        let (first, second) = truncate_encodings(first, second, &params).map_err(failed)?;
        self.finish(first, second, truncated)
    }

    /// Tokenises a question and a context of any length: as many sequences of at most `max_tokens` as the context
    /// needs, neighbours sharing `overlap` tokens of it (the reference's `stride`). A question that would take more
    /// than half of a sequence is cut to half. All of the context is tokenised.
    pub fn encode_windows(
        &self,
        question: &str,
        context: &str,
        max_tokens: Option<usize>,
        overlap: usize,
    ) -> Result<Vec<Encoded>, Error> {
        let most = self.most(max_tokens).unwrap_or(usize::MAX / 2);
        let room = self.room(most, true)?;
        let (mut first, question_cut) = self.beginning(question, room)?;
        let truncated = question_cut || first.len() > room / 2;
        first.truncate(room / 2, 0, TruncationDirection::Right);
        first.take_overflowing();
        let space = room - first.len();
        if overlap >= space {
            return Err(Error::new(format!(
                "windows that share {overlap} tokens do not move on: beside the question there is room for {space}; ask for a smaller overlap"
            )));
        }
        let mut context = self.raw(context)?;
        context.truncate(space, overlap, TruncationDirection::Right);
        let mut parts = context.take_overflowing();
        parts.insert(0, context);
        parts.into_iter().map(|part| self.finish(first.clone(), Some(part), truncated)).collect()
    }

    /// The limit to apply: the caller's, but never more than the model has positions for.
    fn most(&self, asked: Option<usize>) -> Option<usize> {
        [asked, self.max_tokens].into_iter().flatten().min()
    }

    /// Tokens of text that fit beside the special ones.
    fn room(&self, most: usize, pair: bool) -> Result<usize, Error> {
        let added = self.processor.as_ref().map_or(0, |p| p.added_tokens(pair));
        most.checked_sub(added).filter(|room| *room > 0).ok_or_else(|| {
            Error::new(format!("at most {most} tokens leave no room for text beside {added} special ones; allow more"))
        })
    }

    /// The tokens of a text without special ones.
    fn raw(&self, text: &str) -> Result<Encoding, Error> {
        guarded(&self.file, || self.inner.encode(text, false).map_err(failed))
    }

    /// At least `wanted` + 1 tokens of the text's beginning, or all there are; and whether text was left out.
    fn beginning(&self, text: &str, wanted: usize) -> Result<(Encoding, bool), Error> {
        let mut characters = wanted.saturating_add(MARGIN).saturating_mul(CHARACTERS_PER_TOKEN);
        loop {
            let part = prefix(text, characters);
            let encoding = self.raw(part)?;
            if part.len() == text.len() || encoding.len() > wanted.saturating_add(MARGIN) {
                return Ok((encoding, part.len() < text.len()));
            }
            characters = characters.saturating_mul(4);
        }
    }

    /// Adds special tokens and types.
    fn finish(&self, first: Encoding, second: Option<Encoding>, truncated: bool) -> Result<Encoded, Error> {
        let encoding = match &self.processor {
            Some(processor) => guarded(&self.file, || processor.process(first, second, true).map_err(failed))?,
            None => {
                let mut parts = vec![first];
                parts.extend(second);
                for (i, part) in parts.iter_mut().enumerate() {
                    part.set_sequence_id(i);
                    part.set_type_ids(vec![i as u32; part.len()]);
                }
                Encoding::merge(parts, false)
            }
        };
        if encoding.is_empty() {
            return Err(Error::new("the text has no tokens, and this tokenizer adds none; give some text"));
        }
        let types = match self.types {
            None => vec![],
            Some(rows) => {
                if let Some(t) = encoding.get_type_ids().iter().find(|t| **t as usize >= rows) {
                    return Err(Error::new(format!(
                        "the tokenizer gives token type {t}, the model has {rows}; they do not belong together"
                    )));
                }
                encoding.get_type_ids().to_vec()
            }
        };
        Ok(Encoded {
            texts: texts(&encoding),
            sequence: Sequence { ids: encoding.get_ids().to_vec(), types },
            tokens: encoding.get_ids().iter().map(|id| self.token(*id).unwrap_or_default()).collect(),
            offsets: encoding.get_offsets().to_vec(),
            truncated,
        })
    }
}

/// Which text each token is from.
fn texts(encoding: &Encoding) -> Vec<Option<u8>> {
    let special = encoding.get_special_tokens_mask();
    encoding
        .get_sequence_ids()
        .iter()
        .zip(special)
        .map(|(text, special)| text.filter(|_| *special == 0).and_then(|t| u8::try_from(t).ok()))
        .collect()
}

/// The first `characters` of a text, cut back to the last white space among them if there is one in the second half.
fn prefix(text: &str, characters: usize) -> &str {
    let Some((end, _)) = text.char_indices().nth(characters) else { return text };
    let head = &text[..end];
    match head.rfind(char::is_whitespace) {
        Some(space) if space > end / 2 => &head[..space],
        _ => head,
    }
}

pub(super) fn failed(e: tokenizers::Error) -> Error {
    Error::new(format!("cannot tokenise: {}", one_line(&e.to_string())))
}

#[cfg(test)]
mod tests {
    use super::prefix;

    #[test]
    fn prefixes_end_at_spaces() {
        assert_eq!(prefix("one two three", 9), "one two");
        assert_eq!(prefix("one", 9), "one");
        assert_eq!(prefix("ééééééééé", 3), "ééé");
        assert_eq!(prefix("a bcdefghijk", 8), "a bcdefg");
    }
}
