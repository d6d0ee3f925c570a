//! A candidate before it is made: what is left of each layer, and how the rest is computed.

use serde::{Deserialize, Serialize};
use sparing_model::{AttentionPlan, Bits, LayerBits, Precision};
use sparing_quantize::Part;
use std::collections::{BTreeMap, BTreeSet};

/// What is economised where, in the words of the search. The empty recipe is the model as it came.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Recipe {
    /// Blocks that lose something, by site ([`crate::Anatomy::sites`]).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left: BTreeMap<usize, Left>,
    /// Economies of attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionPlan>,
    /// How linear maps are multiplied; `None`: as the model's plan says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Sites that stay in bf16 where the rest is int8.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub bf16: BTreeSet<usize>,
    /// Bits of the stored weights; `None`: as they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<Bits>,
    /// Layers whose bits differ.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layer_bits: BTreeMap<usize, LayerBits>,
}

/// What is left of a block's units: heads, or inner neurons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Left {
    /// So many of them, those that can be spared least; the rest makes up for the others.
    Best(usize),
    /// These, as they are.
    Only(Vec<usize>),
    /// So many, and nobody knows any more which: they were trained since.
    Count(usize),
    /// All, but what these bring is multiplied by a number: for slopes of the loss.
    Dimmed(Vec<usize>, f32),
}

impl Left {
    /// How many units are left, of so many.
    pub fn count(&self, all: usize) -> usize {
        match self {
            Left::Best(count) | Left::Count(count) => *count,
            Left::Only(units) => units.len(),
            Left::Dimmed(..) => all,
        }
    }
}

impl Recipe {
    /// Sets the bits of a part, or of a layer's.
    pub fn set_bits(&mut self, part: Part, layer: Option<usize>, bits: u32) {
        let all = self.bits.get_or_insert_with(Bits::default);
        let place = match (part, layer) {
            (Part::Attention, Some(layer)) => &mut self.layer_bits.entry(layer).or_default().attention,
            (Part::Ffn, Some(layer)) => &mut self.layer_bits.entry(layer).or_default().ffn,
            (Part::Attention, None) => &mut all.attention,
            (Part::Ffn, None) => &mut all.ffn,
            (Part::Embeddings, _) => &mut all.embeddings,
            (Part::Head, _) => &mut all.head,
        };
        *place = Some(bits);
    }

    /// One line that is the same for the same recipe.
    pub fn key(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
