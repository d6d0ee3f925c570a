//! Tokenizers from the files that came before `tokenizer.json`: WordPiece's `vocab.txt`, byte-level BPE's `vocab.json`
//! and `merges.txt`. Both are turned into the `tokenizer.json` they would be.

use crate::config::Config;
use crate::directory::Directory;
use crate::weights::one_line;
use crate::{Error, Family};
use serde_json::{Map, Value, json};

/// The bytes of a `tokenizer.json`; `None` if the directory holds no tokenizer that can be read.
pub(crate) fn definition(directory: &Directory, family: Family) -> Result<Option<Vec<u8>>, Error> {
    if let Some(text) = directory.read("tokenizer.json")? {
        return Ok(Some(text));
    }
    let settings = match directory.read("tokenizer_config.json")? {
        Some(text) => Config::parse("tokenizer_config.json", &text)?,
        None => Config::parse("tokenizer_config.json", b"{}")?,
    };
    let names = Specials::read(&settings, family);
    let definition = if let Some(vocab) = directory.read("vocab.txt")? {
        word_piece(&vocab, &settings, &names)?
    } else if let (Some(vocab), Some(merges)) = (directory.read("vocab.json")?, directory.read("merges.txt")?) {
        byte_level(&vocab, &merges, &settings, &names, family)?
    } else {
        return Ok(None);
    };
    Ok(Some(definition.to_string().into_bytes()))
}

/// The special tokens by role, as the family calls them unless `tokenizer_config.json` says otherwise.
struct Specials {
    unknown: String,
    separator: String,
    padding: String,
    class: String,
    mask: String,
    /// Two separators between the texts of a pair.
    twice: bool,
}

impl Specials {
    fn read(settings: &Config, family: Family) -> Specials {
        let angled = ["<unk>", "</s>", "<pad>", "<s>", "<mask>"];
        let defaults = match family {
            Family::Roberta | Family::Longformer => angled,
            Family::MpNet => ["[UNK]", "</s>", "<pad>", "<s>", "<mask>"],
            Family::Gpt2 => ["<|endoftext|>", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>", ""],
            _ => ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"],
        };
        let get = |field, default: &str| token_name(settings.get(field)).unwrap_or(default).to_string();
        Specials {
            unknown: get("unk_token", defaults[0]),
            separator: get("sep_token", defaults[1]),
            padding: get("pad_token", defaults[2]),
            class: get("cls_token", defaults[3]),
            mask: get("mask_token", defaults[4]),
            twice: matches!(family, Family::Roberta | Family::Longformer | Family::MpNet),
        }
    }

    /// The `added_tokens` entries of those that the vocabulary holds.
    fn added(&self, vocabulary: &Map<String, Value>) -> Vec<Value> {
        let mut seen = Vec::new();
        let mut added = Vec::new();
        for name in [&self.padding, &self.unknown, &self.class, &self.separator, &self.mask] {
            let Some(id) = vocabulary.get(name.as_str()).filter(|_| !seen.contains(&name)) else { continue };
            seen.push(name);
            // A mask swallows the space before it where words begin with one.
            let lstrip = self.twice && name == &self.mask;
            added.push(json!({
                "id": id, "content": name, "single_word": false, "lstrip": lstrip, "rstrip": false,
                "normalized": false, "special": true
            }));
        }
        added.sort_by_key(|token| token["id"].as_u64());
        added
    }

    /// `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]` (`<s> A </s></s> B </s>` with two separators, all of type 0).
    fn template(&self, vocabulary: &Map<String, Value>) -> Result<Value, Error> {
        let id = |name: &str| {
            let missing =
                || Error::new(format!("the vocabulary holds no \"{}\", which this family needs", one_line(name)));
            vocabulary.get(name).cloned().ok_or_else(missing)
        };
        let (class, separator) = (id(&self.class)?, id(&self.separator)?);
        let special = |name: &str, t: u32| json!({ "SpecialToken": { "id": name, "type_id": t } });
        let text = |name: &str, t: u32| json!({ "Sequence": { "id": name, "type_id": t } });
        let second = u32::from(!self.twice);
        let first = [special(&self.class, 0), text("A", 0), special(&self.separator, 0)];
        let mut pair = first.to_vec();
        if self.twice {
            pair.push(special(&self.separator, 0));
        }
        pair.extend([text("B", second), special(&self.separator, second)]);
        let token = |name: &str, id: Value| json!({ "id": name, "ids": [id], "tokens": [name] });
        Ok(json!({
            "type": "TemplateProcessing", "single": first, "pair": pair,
            "special_tokens": { &self.class: token(&self.class, class), &self.separator: token(&self.separator, separator) }
        }))
    }
}

/// A token's name: a string, or the `content` of an object.
pub(super) fn token_name(value: Option<&Value>) -> Option<&str> {
    value.and_then(|v| v.as_str().or_else(|| v.get("content")?.as_str()))
}

/// BERT's tokenizer: one token per line, its id the line's number.
fn word_piece(vocab: &[u8], settings: &Config, names: &Specials) -> Result<Value, Error> {
    let text = std::str::from_utf8(vocab).map_err(|_| Error::new("vocab.txt: not valid UTF-8"))?;
    let mut vocabulary = Map::new();
    for (id, token) in text.lines().enumerate() {
        vocabulary.insert(token.trim_end().to_string(), json!(id));
    }
    if !vocabulary.contains_key(&names.unknown) {
        let missing = format!("vocab.txt: holds no \"{}\", the unknown token", one_line(&names.unknown));
        return Err(Error::new(missing));
    }
    let lower = settings.flag("do_lower_case", true)?;
    let strip = settings.get("strip_accents").and_then(Value::as_bool);
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": names.added(&vocabulary),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "lowercase": lower, "strip_accents": strip,
            "handle_chinese_chars": settings.flag("tokenize_chinese_chars", true)?
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": names.template(&vocabulary)?,
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": names.unknown, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary
        }
    }))
}

/// GPT-2's tokenizer, and RoBERTa's, which adds its special tokens.
fn byte_level(
    vocab: &[u8],
    merges: &[u8],
    settings: &Config,
    names: &Specials,
    family: Family,
) -> Result<Value, Error> {
    let bad = |e: serde_json::Error| {
        Error::new(format!("vocab.json: not an object of tokens to ids ({})", one_line(&e.to_string())))
    };
    let vocabulary: Map<String, Value> = serde_json::from_slice(vocab).map_err(bad)?;
    let text = std::str::from_utf8(merges).map_err(|_| Error::new("merges.txt: not valid UTF-8"))?;
    let mut pairs = Vec::new();
    for (number, line) in text.lines().enumerate() {
        // The first line names the version; "#" alone can also begin a merge.
        if line.is_empty() || number == 0 && line.starts_with("#version") {
            continue;
        }
        match line.split(' ').collect::<Vec<_>>()[..] {
            [a, b] => pairs.push(json!([a, b])),
            _ => return Err(Error::new(format!("merges.txt: line {} is not two symbols", number + 1))),
        }
    }
    let space = settings.flag("add_prefix_space", false)?;
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": true });
    let post_processor = if family == Family::Gpt2 {
        byte_level.clone()
    } else {
        let id = |name: &str| {
            vocabulary.get(name).cloned().ok_or_else(|| {
                Error::new(format!("vocab.json: holds no \"{}\", which this family needs", one_line(name)))
            })
        };
        json!({
            "type": "RobertaProcessing", "trim_offsets": true, "add_prefix_space": space,
            "sep": [names.separator, id(&names.separator)?], "cls": [names.class, id(&names.class)?]
        })
    };
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": names.added(&vocabulary),
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": post_processor,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
            "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": pairs
        }
    }))
}
