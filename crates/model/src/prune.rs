//! Removing heads, feed-forward neurons and whole blocks from a model that was read: smaller tensors, and a plan that says
//! what is left. Tensors that stay as they are are shared with the model they come from, so that a search can try many.

use crate::elements::shared_alike;
use crate::weights::{Cut, OwnedTensor};
use crate::{AttentionPosition, Error, Layer, LayerElements, Linear, Matrix, Model, Plan, Weights, Widths};
use std::collections::{BTreeMap, BTreeSet};

/// What to remove, and what to put in the place of numbers that go on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Edits {
    /// By layer.
    pub layers: BTreeMap<usize, LayerEdit>,
}

/// What to do to one layer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LayerEdit {
    /// Heads to keep, by the number they were published with, ascending; `None`: those that are there.
    pub heads: Option<Vec<usize>>,
    /// New numbers for the projection behind attention.
    pub output: NewNumbers,
    /// What to do to feed-forward blocks, by their number; everyone but MobileBERT has block 0 only.
    pub ffns: BTreeMap<usize, FfnEdit>,
}

/// What to do to one feed-forward block.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FfnEdit {
    /// Inner neurons to keep, by their present number, ascending; `None`: all.
    pub neurons: Option<Vec<usize>>,
    /// New numbers for the map from the inner width back.
    pub down: NewNumbers,
}

/// New numbers for a linear map, as they stand after the cut. They are stored in the type of the old ones, but as f32 where
/// those were integers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewNumbers {
    /// Row-major `[outputs, inputs left]`, whatever the file's layout.
    pub weight: Option<Vec<f32>>,
    /// `[outputs]`.
    pub bias: Option<Vec<f32>>,
}

impl Model {
    /// The model after some edits. It runs and is saved like one that was read; nothing on disk is touched.
    pub fn pruned(&self, edits: &Edits) -> Result<Model, Error> {
        let mut architecture = self.architecture.clone();
        let mut plan = self.plan.clone();
        let mut surgery = Surgery::new(&self.weights);
        let layers = architecture.layers.len();
        for (number, edit) in &edits.layers {
            let layer = architecture
                .layers
                .get_mut(*number)
                .ok_or_else(|| Error::new(format!("there is no layer {number} to prune; the model has {layers}")))?;
            let before = layer.clone();
            surgery.layer(&before, layer, edit).map_err(|e| Error::new(format!("layer {number}: {e}")))?;
            note(&mut plan, *number, &before, layer);
        }
        shared_alike(&architecture)?;
        // A network that several layers share goes with the last of them.
        let left = architecture.replacements();
        let gone = self.architecture.replacements().into_keys().filter(|name| !left.contains_key(name));
        surgery.removed.extend(gone);
        let weights = self.weights.edit(surgery.changed.into_values(), &surgery.removed)?;
        architecture.check(&weights)?;
        let (tokenizer, directory) = (self.tokenizer.clone(), self.directory.clone());
        Ok(Model { architecture, plan, weights, tokenizer, directory, pruned: true, calibration: None })
    }
}

/// Writes into the plan what is left of a layer, and what its maps are called now.
fn note(plan: &mut Plan, number: usize, before: &Layer, after: &Layer) {
    let mut elements = plan.elements.take().unwrap_or_default();
    let mut left: LayerElements = elements.layers.remove(&number).unwrap_or_default();
    left.heads = after.attention.kept.clone();
    if before.ffns != after.ffns || left.width.is_some() {
        left.width = Some(Widths::of(after));
    }
    if left != LayerElements::default() {
        elements.layers.insert(number, left);
    }
    plan.elements = Some(elements).filter(|elements| !elements.layers.is_empty());
    let Some(quantization) = &mut plan.quantization else { return };
    let ranges = &mut quantization.activations.ranges;
    // Taken out first, put in after: a part of a fused tensor may get the name that another part had.
    let moved: Vec<_> = maps(before).map(|map| ranges.remove(&map.weight.name())).collect();
    for (map, range) in maps(after).zip(moved) {
        if let Some(range) = range.filter(|_| !map.is_empty()) {
            ranges.insert(map.weight.name(), range);
        }
    }
}

/// The maps of a layer that an edit may change.
fn maps(layer: &Layer) -> impl Iterator<Item = &Linear> {
    let blocks = layer.ffns.iter().flat_map(|ffn| [&ffn.up, &ffn.down]);
    layer.attention.by_head().into_iter().chain([&layer.attention.output]).chain(blocks)
}

/// Tensors that change.
struct Surgery<'a> {
    weights: &'a Weights,
    changed: BTreeMap<String, OwnedTensor>,
    removed: BTreeSet<String>,
    /// What was left of tensors that were cut, and whether those are rows: layers that share one cut it once.
    cuts: BTreeMap<String, (bool, Vec<usize>)>,
    /// Tensors that have new numbers.
    renewed: BTreeSet<String>,
}

impl<'a> Surgery<'a> {
    fn new(weights: &'a Weights) -> Surgery<'a> {
        let (changed, removed, cuts, renewed) = Default::default();
        Surgery { weights, changed, removed, cuts, renewed }
    }

    fn layer(&mut self, before: &Layer, after: &mut Layer, edit: &LayerEdit) -> Result<(), Error> {
        if let Some(heads) = &edit.heads {
            after.attention.keep(heads).map_err(Error::new)?;
            self.heads(before, heads)?;
            if heads.is_empty() {
                // Where there are no scores, nothing makes shares of them.
                after.attention.network = None;
            }
        }
        self.renew(&after.attention.output, &edit.output)?;
        let blocks = after.ffns.len();
        for (block, edit) in &edit.ffns {
            let ffn = after.ffns.get_mut(*block).ok_or_else(|| {
                Error::new(format!("there is no feed-forward block {block}; the layer has {blocks}, from 0 on"))
            })?;
            if let Some(neurons) = &edit.neurons {
                let (there, old) = (ffn.up.outputs, &before.ffns[*block]);
                if let Some(pair) = neurons.windows(2).find(|pair| pair[0] >= pair[1]) {
                    let [a, b] = [pair[0], pair[1]];
                    return Err(Error::new(format!("neurons {a} and {b} are not in ascending order, each once")));
                }
                if let Some(neuron) = neurons.last().filter(|neuron| **neuron >= there) {
                    return Err(Error::new(format!("there is no neuron {neuron}; the block has {there}, from 0 on")));
                }
                ffn.keep(neurons.len()).map_err(Error::new)?;
                if neurons.len() < there {
                    self.outputs(&[&old.up], neurons)?;
                    self.inputs(&old.down, neurons)?;
                }
            }
            self.renew(&ffn.down, &edit.down)?;
        }
        Ok(())
    }

    fn heads(&mut self, layer: &Layer, heads: &[usize]) -> Result<(), Error> {
        let attention = &layer.attention;
        let (there, width) = (attention.numbers(), attention.head_width);
        if there == heads {
            return Ok(());
        }
        let places: Vec<usize> = (0..there.len()).filter(|place| heads.binary_search(&there[*place]).is_ok()).collect();
        let columns: Vec<usize> = places.iter().flat_map(|place| place * width..(place + 1) * width).collect();
        self.outputs(&attention.by_head(), &columns)?;
        self.inputs(&attention.output, &columns)?;
        if let AttentionPosition::Relative { content_bias, position_bias, segment_bias, segments, .. } =
            &attention.position
        {
            for name in [content_bias, position_bias, segment_bias] {
                self.cut(name, Cut::Rows(&places))?;
            }
            self.cut(segments, Cut::Columns(&columns))?;
        }
        Ok(())
    }

    /// Leaves these outputs of maps, which may be parts of one tensor.
    fn outputs(&mut self, maps: &[&Linear], outputs: &[usize]) -> Result<(), Error> {
        // By tensor: whether it is stored input-major, and what is left of it.
        let mut left: BTreeMap<&str, (bool, Vec<usize>)> = BTreeMap::new();
        for map in maps {
            let (name, in_out, slice) = tensor(&map.weight)?;
            let from = |slice: Slice| outputs.iter().map(move |o| slice.map_or(0, |s| s.0) + o);
            left.entry(name).or_insert((in_out, vec![])).1.extend(from(slice));
            if let Some(bias) = &map.bias {
                left.entry(&bias.name).or_insert((false, vec![])).1.extend(from(bias.slice));
            }
        }
        for (name, (in_out, left)) in left {
            self.cut(name, if in_out { Cut::Columns(&left) } else { Cut::Rows(&left) })?;
        }
        Ok(())
    }

    /// Leaves these inputs of a map.
    fn inputs(&mut self, map: &Linear, inputs: &[usize]) -> Result<(), Error> {
        let (name, in_out, _) = tensor(&map.weight)?;
        self.cut(name, if in_out { Cut::Rows(inputs) } else { Cut::Columns(inputs) })
    }

    fn cut(&mut self, name: &str, cut: Cut) -> Result<(), Error> {
        let left = match cut {
            Cut::Rows(rows) => (true, rows.to_vec()),
            Cut::Columns(columns) => (false, columns.to_vec()),
        };
        if let Some(before) = self.cuts.get(name) {
            // By now it may have new numbers, which stay.
            return if *before == left { Ok(()) } else { Err(shared(name)) };
        }
        self.cuts.insert(name.to_string(), left);
        if cut.is_empty() {
            self.removed.insert(name.to_string());
        } else {
            self.changed.insert(name.to_string(), self.weights.owned(name)?.cut(cut));
        }
        Ok(())
    }

    /// Puts new numbers in a map's place; `map` as it is after the cut.
    fn renew(&mut self, map: &Linear, numbers: &NewNumbers) -> Result<(), Error> {
        let wrong = |what: &str, found: usize, wanted: usize| {
            let name = map.weight.name();
            Error::new(format!("{found} new numbers for the {what} of \"{name}\", which has {wanted}"))
        };
        if let Some(new) = numbers.weight.as_ref().filter(|new| !(map.is_empty() && new.is_empty())) {
            if new.len() != map.outputs * map.inputs || new.is_empty() {
                return Err(wrong("weight", new.len(), map.outputs * map.inputs));
            }
            let (name, in_out, slice) = tensor(&map.weight)?;
            if slice.is_some() {
                return Err(Error::new(format!("\"{name}\" holds several maps: one of them cannot get new numbers")));
            }
            let at = |i: usize| if in_out { new[i % map.outputs * map.inputs + i / map.outputs] } else { new[i] };
            self.put(name, (0..new.len()).map(at).collect())?;
        }
        if let Some(new) = &numbers.bias {
            let bias = map.stored_bias().filter(|bias| bias.slice.is_none());
            let bias = bias.ok_or_else(|| Error::new(format!("\"{}\" has no bias of its own", map.weight.name())))?;
            if new.len() != map.outputs {
                return Err(wrong("bias", new.len(), map.outputs));
            }
            self.put(&bias.name, new.clone())?;
        }
        Ok(())
    }

    fn put(&mut self, name: &str, values: Vec<f32>) -> Result<(), Error> {
        let old = match self.changed.remove(name) {
            Some(cut) => cut,
            None => self.weights.owned(name)?,
        };
        let new = old.with_values(&values);
        if !self.renewed.insert(name.to_string()) && old != new {
            return Err(shared(name));
        }
        self.changed.insert(name.to_string(), new);
        Ok(())
    }
}

fn shared(name: &str) -> Error {
    Error::new(format!("tensor \"{name}\" is shared by layers: the same must be left in all of them"))
}

/// `start..end` of a fused tensor.
type Slice = Option<(usize, usize)>;

/// The tensor that holds a layer's matrix: its name, whether it is stored input-major, the part of it.
fn tensor(matrix: &Matrix) -> Result<(&str, bool, Slice), Error> {
    match matrix {
        Matrix::Tensor { name, in_out, slice } => Ok((name, *in_out, *slice)),
        Matrix::ConcatInputs(_) => Err(Error::new(format!("{}: joined matrices cannot be pruned", matrix.name()))),
    }
}
