//! Finding the weight files of a directory: one file, or the shards an index names.

use super::Weights;
use super::file::{Bytes, one_line};
use crate::Error;
use crate::directory::Directory;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Component, Path};

/// The single file.
pub(crate) const SINGLE: &str = "model.safetensors";
/// The list of shards.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// The most shards anybody publishes is a few hundred.
const MAX_SHARDS: usize = 10_000;

impl Weights {
    /// Maps the weights of a Hugging Face directory: `model.safetensors`, or the shards that
    /// `model.safetensors.index.json` names.
    pub fn open(directory: &Path) -> Result<Weights, Error> {
        Weights::open_in(&Directory::Disk(directory.to_path_buf()))
    }

    /// The same for a directory that may be in memory.
    pub(crate) fn open_in(directory: &Directory) -> Result<Weights, Error> {
        let mut weights = Weights::default();
        if directory.holds(SINGLE) {
            weights.join(directory, SINGLE, "")?;
            return Ok(weights);
        }
        if let Some(index) = directory.read(INDEX)? {
            let shards = shards(&index).map_err(|why| Error::new(format!("{}: {why}", directory.label(INDEX))))?;
            for shard in shards {
                weights.join(directory, &shard, "")?;
            }
            return Ok(weights);
        }
        let torch = ["pytorch_model.bin", "pytorch_model.bin.index.json"].iter().find(|name| directory.holds(name));
        Err(Error::new(match torch {
            Some(torch) => format!(
                "{}: a pickle would have to be executed to be read; convert it with python -c \"from transformers import \
                 AutoModel; AutoModel.from_pretrained('DIR').save_pretrained('DIR')\" (AutoModelFor... to keep a head)",
                directory.label(torch)
            ),
            None => {
                format!("{} is not there, nor {INDEX}; is it a Hugging Face model directory?", directory.label(SINGLE))
            }
        }))
    }

    /// Takes in one more file of the directory; its tensors are called `prefix` + their name.
    pub(crate) fn join(&mut self, directory: &Directory, relative: &str, prefix: &str) -> Result<(), Error> {
        let bytes = match directory {
            Directory::Disk(path) => Bytes::map(&path.join(relative))?,
            Directory::Memory(files) => Bytes::Held(files.get(relative).cloned().unwrap_or_default()),
        };
        self.add(relative.to_string(), &directory.label(relative), bytes, prefix)
    }
}

/// The distinct shards an index names, in order. Only plain file names: an index must not point out of its directory.
pub(crate) fn shards(index: &[u8]) -> Result<Vec<String>, String> {
    let index: Value =
        serde_json::from_slice(index).map_err(|e| format!("not valid JSON ({})", one_line(&e.to_string())))?;
    let map =
        index.get("weight_map").and_then(Value::as_object).ok_or("has no \"weight_map\" of tensor names to files")?;
    let mut shards = BTreeSet::new();
    for (tensor, file) in map {
        let file =
            file.as_str().ok_or_else(|| format!("\"weight_map\": \"{}\" does not name a file", one_line(tensor)))?;
        if !is_plain_name(file) {
            return Err(format!(
                "\"weight_map\" names \"{}\", which is not a file name inside the directory",
                one_line(file)
            ));
        }
        shards.insert(file.to_string());
    }
    match shards.len() {
        0 => Err("\"weight_map\" is empty".into()),
        n if n > MAX_SHARDS => Err(format!("\"weight_map\" names {n} files; {MAX_SHARDS} is the limit")),
        _ => Ok(shards.into_iter().collect()),
    }
}

/// Whether this is one file name and nothing more.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    !name.contains(['\\', '\0']) && matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
}
