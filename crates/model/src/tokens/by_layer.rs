//! A number that a plan sets for all layers, and for single ones.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A number of every layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByLayer {
    /// In all layers but those named.
    #[serde(alias = "cut")]
    pub all: f32,
    /// Layers that differ.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layers: BTreeMap<usize, f32>,
}

impl ByLayer {
    /// The same in all layers.
    pub fn new(all: f32) -> Self {
        ByLayer { all, layers: BTreeMap::new() }
    }

    /// A layer's number.
    pub fn of(&self, layer: usize) -> f32 {
        self.layers.get(&layer).copied().unwrap_or(self.all)
    }

    /// Every number that is set.
    pub(super) fn numbers(&self) -> impl Iterator<Item = f32> {
        self.layers.values().copied().chain([self.all])
    }
}
