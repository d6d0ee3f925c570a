//! What became of every part of the network.

use serde::{Deserialize, Serialize};

/// What became of every part of the network, layer by layer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ElementMap {
    /// From the input to the output.
    pub layers: Vec<LayerMap>,
    /// The tables in front of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<Numbers>,
    /// What answers behind them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Numbers>,
}

/// How a part's numbers are kept and multiplied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Numbers {
    /// Bits of its stored weights; `None`: floats.
    pub bits: Option<u32>,
    /// What it is computed in: "int8".
    pub precision: Option<String>,
}

/// What became of one layer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LayerMap {
    /// The attention block as a whole.
    pub attention: State,
    /// Its heads; of the original model, so that removed ones are counted.
    pub heads: Vec<State>,
    /// The feed-forward block as a whole.
    pub ffn: State,
    /// How wide the feed-forward block still is inside.
    pub width: Option<Width>,
    /// Its weight groups, of the original model; empty where neurons went one by one, and [`LayerMap::width`] is all there is
    /// to say.
    pub groups: Vec<State>,
    /// What is done to tokens in this layer, in words: "half dropped".
    pub tokens: Option<String>,
    /// How attention is computed where that is not exact, in words: "chosen keys".
    pub computed: Option<String>,
    /// What its linear maps are multiplied in: "int8".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Bits of the feed-forward block's stored weights; `None`: floats.
    pub bits: Option<u32>,
    /// Bits of attention's where they differ from these; 0: floats.
    pub attention_bits: Option<u32>,
}

/// What became of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As published.
    #[default]
    Kept,
    /// Part of it is gone, or it is computed more cheaply.
    Approximated,
    /// Gone from the file and from the program.
    Removed,
}

/// Part of a width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Width {
    /// What is left.
    pub left: usize,
    /// What there was.
    pub of: usize,
}
