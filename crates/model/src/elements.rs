//! The part of a plan that says what is left of each layer. What is not left is gone: from the file, from memory and from
//! the time a run takes.

use crate::{Architecture, Attention, AttentionPosition, Bias, Error, Ffn, Layer, Linear, Matrix};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is left of the layers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elements {
    /// By layer, from 0 on; a layer that is not named is whole.
    pub layers: BTreeMap<usize, LayerElements>,
}

/// What is left of one layer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerElements {
    /// The heads that are left, by the number they were published with, ascending; `None`: all. Where none are left, the
    /// attention block is the bias of its output projection, added to the residual, and its norm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<Vec<usize>>,
    /// Inner width that is left of the feed-forward block; `None`: all. Where it is 0, the block is the bias of its second
    /// map, added to the residual, and its norm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<Widths>,
}

/// Inner widths of a layer's feed-forward blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Widths {
    /// Of the only block.
    One(usize),
    /// Of each of several (MobileBERT).
    Each(Vec<usize>),
}

impl Widths {
    /// In the order of the blocks.
    pub fn list(&self) -> &[usize] {
        match self {
            Widths::One(width) => std::slice::from_ref(width),
            Widths::Each(widths) => widths,
        }
    }

    /// As they are written: one number for one block.
    pub(crate) fn of(layer: &Layer) -> Widths {
        match &layer.ffns[..] {
            [ffn] => Widths::One(ffn.up.outputs),
            ffns => Widths::Each(ffns.iter().map(|ffn| ffn.up.outputs).collect()),
        }
    }
}

impl Elements {
    /// Takes from an architecture what is not left. The error is one line that names layer and element.
    pub fn apply(&self, architecture: &mut Architecture) -> Result<(), Error> {
        let layers = architecture.layers.len();
        for (number, left) in &self.layers {
            let wrong = |what: String| Error::new(format!("elements: layer {number}: {what}"));
            let layer = architecture
                .layers
                .get_mut(*number)
                .ok_or_else(|| Error::new(format!("elements: there is no layer {number}; the model has {layers}")))?;
            if let Some(heads) = &left.heads {
                layer.attention.keep(heads).map_err(wrong)?;
            }
            if let Some(widths) = &left.width {
                let (widths, blocks) = (widths.list(), layer.ffns.len());
                if widths.len() != blocks {
                    let given = widths.len();
                    return Err(wrong(format!("{given} widths for {blocks} feed-forward blocks; give one for each")));
                }
                layer.ffns.iter_mut().zip(widths).try_for_each(|(ffn, width)| ffn.keep(*width)).map_err(wrong)?;
            }
        }
        shared_alike(architecture)
    }
}

/// Layers that share weights must have the same left.
pub(crate) fn shared_alike(architecture: &Architecture) -> Result<(), Error> {
    let mut attentions = BTreeMap::new();
    let mut ffns = BTreeMap::new();
    for (number, layer) in architecture.layers.iter().enumerate() {
        let (a, left) = (&layer.attention, layer.attention.numbers());
        let (first, theirs) = attentions.entry(a.output.weight.name()).or_insert_with(|| (number, left.clone()));
        let (mut with, mut alike) = (*first, *theirs == left);
        for ffn in &layer.ffns {
            let (first, width) = *ffns.entry(ffn.down.weight.name()).or_insert((number, ffn.up.outputs));
            if width != ffn.up.outputs {
                (with, alike) = (first, false);
            }
        }
        if !alike {
            return Err(Error::new(format!(
                "elements: layers {with} and {number} share their weights (ALBERT): the same must be left of both"
            )));
        }
    }
    Ok(())
}

impl Linear {
    /// Whether there is no matrix: no inputs, or no outputs.
    pub fn is_empty(&self) -> bool {
        self.inputs == 0 || self.outputs == 0
    }

    /// The bias, if there is one and it has elements.
    pub fn stored_bias(&self) -> Option<&Bias> {
        self.bias.as_ref().filter(|_| self.outputs > 0)
    }

    /// Leaves so many outputs; a part of a fused tensor (GPT-2's `c_attn`) stays the same part of it.
    fn keep_outputs(&mut self, outputs: usize) {
        let before = self.outputs;
        if before == outputs {
            return;
        }
        let narrower = |slice: &mut Option<(usize, usize)>| {
            *slice = slice.map(|(start, _)| (start / before * outputs, (start / before + 1) * outputs));
        };
        if let Matrix::Tensor { slice, .. } = &mut self.weight {
            narrower(slice);
        }
        if let Some(bias) = &mut self.bias {
            narrower(&mut bias.slice);
        }
        self.outputs = outputs;
    }
}

impl Attention {
    /// The numbers that the heads were published with, in order.
    pub fn numbers(&self) -> Vec<usize> {
        self.kept.clone().unwrap_or_else(|| (0..self.heads).collect())
    }

    /// The maps whose outputs are heads side by side.
    pub(crate) fn by_head(&self) -> Vec<&Linear> {
        let mut maps = vec![&self.query, &self.key, &self.value];
        if let Some(w) = &self.window {
            maps.extend([&w.global_query, &w.global_key, &w.global_value]);
        }
        if let AttentionPosition::Relative { projection, .. } = &self.position {
            maps.push(projection);
        }
        maps
    }

    /// Goes on with these heads alone.
    pub(crate) fn keep(&mut self, heads: &[usize]) -> Result<(), String> {
        let there = self.numbers();
        if let Some(pair) = heads.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(format!("heads {} and {} are not in ascending order, each once", pair[0], pair[1]));
        }
        if let Some(head) = heads.iter().find(|head| there.binary_search(head).is_err()) {
            return Err(match &self.kept {
                None => format!("there is no head {head}; the layer has {}, from 0 on", self.heads),
                Some(kept) => format!("there is no head {head} any more; left are {kept:?}"),
            });
        }
        if heads == there {
            return Ok(());
        }
        let width = heads.len() * self.head_width;
        for map in [&mut self.query, &mut self.key, &mut self.value] {
            map.keep_outputs(width);
        }
        if let Some(w) = &mut self.window {
            for map in [&mut w.global_query, &mut w.global_key, &mut w.global_value] {
                map.keep_outputs(width);
            }
        }
        if let AttentionPosition::Relative { projection, .. } = &mut self.position {
            projection.keep_outputs(width);
        }
        self.output.inputs = width;
        self.heads = heads.len();
        self.kept = Some(heads.to_vec());
        Ok(())
    }
}

impl Ffn {
    /// Goes on with this inner width.
    pub(crate) fn keep(&mut self, width: usize) -> Result<(), String> {
        if width > self.up.outputs {
            return Err(format!("a feed-forward width of {width} where the block has {}", self.up.outputs));
        }
        self.up.keep_outputs(width);
        self.down.inputs = width;
        Ok(())
    }
}
