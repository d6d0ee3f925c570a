//! The model that comes with the program: MiniLM-L6 fine-tuned on SST-2, which tells whether a review is positive.
//!
//! `model/README.md` says how it was made. Its dev set is [`sparing-tasks`]' built-in one.
//!
//! [`sparing-tasks`]: https://docs.rs/sparing-tasks

use sparing_model::{Error, LoadOptions, Model};

/// The files of the model directory.
const FILES: [(&str, &[u8]); 6] = [
    ("config.json", include_bytes!("../model/config.json")),
    ("calibration.safetensors", include_bytes!("../model/calibration.safetensors")),
    ("model.safetensors", include_bytes!("../model/model.safetensors")),
    ("tokenizer.json", include_bytes!("../model/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../model/tokenizer_config.json")),
    ("special_tokens_map.json", include_bytes!("../model/special_tokens_map.json")),
];

/// Its card: what it begins with, how it was made, and its licence.
pub const CARD: &str = include_str!("../model/README.md");

/// Reads the built-in model.
pub fn model(options: &LoadOptions) -> Result<Model, Error> {
    let files = FILES.iter().map(|(name, content)| (name.to_string(), *content)).collect();
    Model::load_from_memory(files, options)
}
