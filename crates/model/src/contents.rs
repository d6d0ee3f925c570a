//! What a saved model consists of. Replacing a model means deleting its directory: nothing else may go with it.

use crate::directory::Directory;
use crate::sentence;
use crate::weights::{INDEX, SINGLE, shard_names};
use std::fs::{self, DirEntry};
use std::io::Result;
use std::path::{Path, PathBuf};

/// Files that are carried over unchanged.
pub(crate) const COMPANIONS: [&str; 14] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
];

/// What else commands leave in a model's directory: quantize and calibrate, optimize, train, train ticket, and optimize while it trains.
const LEFT: [&str; 11] = [
    SINGLE,
    INDEX,
    crate::CALIBRATION_FILE,
    "sparing.json",
    "report.json",
    "report.html",
    "training.json",
    "train.jsonl",
    "loss.svg",
    "ticket.json",
    "rounding.txt",
];

/// What people and their programs put beside a model because it is one, or without being asked.
const BESIDE: [&str; 3] = ["README.md", ".gitattributes", ".DS_Store"];
/// What licences are called, whatever comes behind.
const LICENCES: [&str; 4] = ["LICENSE", "LICENCE", "NOTICE", "COPYING"];

/// Whether a directory has what no model is without.
pub(crate) fn is_model(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).is_file();
    has("config.json") && (has(SINGLE) || has(INDEX))
}

/// Something in a directory that is no part of a saved model, if there is any; the first by name. Links are none, wherever they
/// lead: nobody here makes them.
pub(crate) fn stranger(directory: &Path) -> Result<Option<PathBuf>> {
    let source = Directory::Disk(directory.to_path_buf());
    // What cannot be read names nothing.
    let modules = sentence::folders(&source).unwrap_or_default();
    let shards = source.read(INDEX).ok().flatten().and_then(|index| shard_names(&index).ok()).unwrap_or_default();
    let is_module = |name: &str| name == "1_Pooling" || modules.iter().any(|module| module == name);
    let is_file = |name: &str| {
        COMPANIONS.contains(&name)
            || LEFT.contains(&name)
            || BESIDE.contains(&name)
            || LICENCES.iter().any(|licence| name.starts_with(licence))
            || shards.iter().any(|shard| shard == name)
    };
    for entry in entries(directory)? {
        let name = entry.file_name();
        let (kind, text) = (entry.file_type()?, name.to_str().unwrap_or_default());
        if kind.is_dir() && is_module(text) {
            if let Some(inside) = stranger_in_module(&entry.path())? {
                return Ok(Some(Path::new(&name).join(inside)));
            }
        } else if !(kind.is_file() && is_file(text)) {
            return Ok(Some(name.into()));
        }
    }
    Ok(None)
}

/// The same for a folder of a sentence encoder: settings, and the weights of a dense module.
fn stranger_in_module(folder: &Path) -> Result<Option<PathBuf>> {
    for entry in entries(folder)? {
        let name = entry.file_name();
        if !(entry.file_type()?.is_file() && ["config.json", SINGLE].iter().any(|known| name == *known)) {
            return Ok(Some(name.into()));
        }
    }
    Ok(None)
}

/// What is in a directory, by name: what is told must not depend on the file system.
fn entries(directory: &Path) -> Result<Vec<DirEntry>> {
    let mut entries = fs::read_dir(directory)?.collect::<Result<Vec<_>>>()?;
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_known_by_what_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let found = || stranger(folder.path()).unwrap().map(|path| path.display().to_string());
        for name in COMPANIONS.iter().chain(&LEFT).chain(&BESIDE).chain(&["LICENSE.txt", "1_Pooling/config.json"]) {
            put(name, "");
        }
        assert!(is_model(folder.path()));
        assert_eq!(found(), None, "broken indices name nothing, and are no reason to stop");
        put(INDEX, r#"{"weight_map": {"a": "part-1.safetensors"}}"#);
        put("modules.json", r#"[{"type": "m.Dense", "path": "2_Dense"}]"#);
        for name in ["part-1.safetensors", "2_Dense/config.json", "2_Dense/model.safetensors"] {
            put(name, "");
        }
        assert_eq!(found(), None);
        for other in ["part-2.safetensors", "app.js", "2_Dense/notes.txt", "1_Pooling/deep/er", "3_Dense/config.json"] {
            put(other, "");
            let named = found().unwrap_or_default();
            assert!(!named.is_empty() && other.starts_with(&named), "{other}: {named}");
            let top = folder.path().join(&named);
            if top.is_dir() { fs::remove_dir_all(top).unwrap() } else { fs::remove_file(top).unwrap() }
        }
        assert_eq!(found(), None);
        // A folder is no file, whatever it is called.
        fs::remove_file(folder.path().join("README.md")).unwrap();
        put("README.md/chapter.txt", "");
        assert_eq!(found().as_deref(), Some("README.md"));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("1_Pooling")).unwrap();
        assert_eq!(stranger(folder.path()).unwrap(), Some("1_Pooling".into()));
    }
}
