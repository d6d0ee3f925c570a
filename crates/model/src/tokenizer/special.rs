//! Special tokens, and the length a tokenizer was configured for.

use super::build::token_name;
use crate::Error;
use crate::config::Config;
use crate::directory::Directory;

/// What is known of a tokenizer's special tokens.
pub(super) struct Special {
    pub(super) mask: Option<(String, u32)>,
    pub(super) end: Option<u32>,
    /// Sorted.
    pub(super) ids: Vec<u32>,
    /// `model_max_length`, when it is a real limit.
    pub(super) max_tokens: Option<usize>,
}

impl Special {
    pub(super) fn read(directory: &Directory, tokenizer: &tokenizers::Tokenizer) -> Result<Special, Error> {
        let mut files = Vec::new();
        for name in ["tokenizer_config.json", "special_tokens_map.json"] {
            if let Some(text) = directory.read(name)? {
                files.push(Config::parse(name, &text)?);
            }
        }
        // The files' word first, then the usual spellings.
        let find = |field: &str, usual: &[&str]| {
            let named = files.iter().filter_map(|file| token_name(file.get(field)));
            named.chain(usual.iter().copied()).find_map(|name| Some((name.to_string(), tokenizer.token_to_id(name)?)))
        };
        let mut ids: Vec<u32> =
            tokenizer.get_added_tokens_decoder().iter().filter(|(_, t)| t.special).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        let length = files.iter().find_map(|file| file.get("model_max_length")?.as_f64());
        Ok(Special {
            mask: find("mask_token", &["[MASK]", "<mask>"]),
            end: find("eos_token", &["<|endoftext|>", "</s>", "[SEP]", "<sep>"]).map(|(_, id)| id),
            ids,
            // "No limit" is written as a huge number.
            max_tokens: length.filter(|n| (1.0..1e9).contains(n)).map(|n| n as usize),
        })
    }
}
