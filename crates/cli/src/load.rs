//! From a name on the command line to a model.

use crate::failure::Failure;
use sparing_model::Model;
use std::path::Path;

/// Reads a directory, or fetches a Hub id.
pub fn open(name: &str) -> Result<Model, Failure> {
    Ok(Model::load(Path::new(name))?)
}

/// What to call a model in reports: the directory's own name, or the Hub id as given.
pub fn short_name(name: &str) -> String {
    let last =
        Path::new(name).canonicalize().ok().and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()));
    last.unwrap_or_else(|| name.to_string())
}
