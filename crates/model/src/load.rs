//! A whole model: what a Hugging Face directory holds.

use crate::{Architecture, Error, Plan, Weights};
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

impl Model {
    /// Reads a Hugging Face directory.
    pub fn load(directory: &Path) -> Result<Model, Error> {
        let _ = directory;
        todo!()
    }
}
