//! A whole model: what a Hugging Face directory holds.

use crate::weights::one_line;
use crate::{Architecture, Error, HeadChoice, Plan, Weights};
use std::path::Path;

/// A model as its directory describes it.
pub struct Model {
    /// The network.
    pub architecture: Architecture,
    /// What is economised.
    pub plan: Plan,
    /// The numbers.
    pub weights: Weights,
}

/// How to read a directory.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// The head to put on top; by default the one the configuration names.
    pub head: Option<HeadChoice>,
}

impl Model {
    /// Reads a Hugging Face directory.
    pub fn load(directory: &Path) -> Result<Model, Error> {
        Model::load_with(directory, &LoadOptions::default())
    }

    /// Reads a Hugging Face directory with a head of the caller's choice.
    pub fn load_with(directory: &Path, options: &LoadOptions) -> Result<Model, Error> {
        if !directory.is_dir() {
            return Err(Error::new(format!("{}: is not a directory", directory.display())));
        }
        let config = read(directory, "config.json")?.ok_or_else(|| {
            Error::new(format!("{}: holds no config.json; is it a Hugging Face model directory?", directory.display()))
        })?;
        let weights = Weights::open(directory)?;
        let architecture = Architecture::from_config(&config, options.head, &|name| weights.contains(name))?;
        architecture.check(&weights)?;
        let plan = match read(directory, "sparing.json")? {
            None => Plan::default(),
            Some(text) => serde_json::from_slice(&text).map_err(|e| {
                Error::new(format!("sparing.json: not a plan this version knows ({})", one_line(&e.to_string())))
            })?,
        };
        Ok(Model { architecture, plan, weights })
    }
}

/// A small file of the directory; `None` if it is not there.
pub(crate) fn read(directory: &Path, name: &str) -> Result<Option<Vec<u8>>, Error> {
    match std::fs::read(directory.join(name)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::new(format!("{}: cannot be read ({e})", directory.join(name).display()))),
    }
}
