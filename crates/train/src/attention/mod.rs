//! Attention mechanisms, one file each, all behind one small trait: see `docs/zoo.md`.
//!
//! A mechanism turns rows into rows of heads: it makes queries, keys and values of them if it wants any, and mixes. Its
//! knobs are data. Plain tensor operations, so that gradients and GPUs come by themselves.

mod axial;
mod bigbird;
mod blocks;
mod choose;
mod compressed;
mod etc;
mod fresh;
mod full;
mod globals;
mod image;
mod input;
mod kernelised;
mod kind;
mod linear;
mod linformer;
mod lite;
mod local;
mod longformer;
mod matching;
mod network;
mod nystrom;
mod performer;
mod permute;
mod picture;
mod recurrent;
mod reformer;
mod relative;
mod routing;
mod sampled;
mod set;
mod sinkhorn;
mod sparse;
mod synthesizer;
#[cfg(test)]
mod tests;
mod work;

pub use axial::Axial;
pub use bigbird::BigBird;
pub use compressed::MemoryCompressed;
pub use etc::Etc;
pub use fresh::{Begin, Fresh, Sizes};
pub use full::Full;
pub use image::Image;
pub use input::{Heads, Input, Layout, ONE_BY_ONE};
pub use kind::{Kind, catalogue};
pub use linear::Linear;
pub use linformer::Linformer;
pub use lite::LongShort;
pub use local::Local;
pub use longformer::Longformer;
pub use matching::SignMatching;
pub use network::SoftmaxNetwork;
pub use nystrom::Nystrom;
pub use performer::{Function, Performer};
pub use recurrent::{Compressive, TransformerXl};
pub use reformer::Reformer;
pub use routing::Routing;
pub use sampled::{Graded, MonteCarlo};
pub use set::Set;
pub use sinkhorn::Sinkhorn;
pub use sparse::{Fixed, Strided};
pub use synthesizer::{Scores, Synthesizer};
pub use work::{Work, counted};

pub(crate) use input::{constant, unfolded};

use burn::tensor::Tensor;
use sparing_model::Error;
use std::ops::RangeInclusive;

/// One way to attend.
pub trait Attention {
    /// Refuses knobs that make no sense.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Refuses pictures with rows of so many pixels, if sequences are pictures, where they do not fit its knobs.
    fn fits(&self, _columns: Option<usize>) -> Result<(), Error> {
        Ok(())
    }

    /// Whether there is a form in which no token sees a later one.
    fn causal(&self) -> bool {
        false
    }

    /// Learned tokens that it wants before the first of every sequence.
    fn prefix(&self) -> usize {
        0
    }

    /// Tensors of a layer: by default maps to queries, keys and values, without biases.
    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        projections(sizes)
    }

    /// Attends: `[batch * heads, length, head width]`.
    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error>;
}

/// Maps to queries, keys and values.
pub(crate) fn projections(sizes: &Sizes) -> Vec<Fresh> {
    ["query.weight", "key.weight", "value.weight"]
        .map(|name| Fresh::map(name, sizes.attention_width, sizes.width))
        .to_vec()
}

/// Refuses a number outside a range, in one line that names it.
pub(crate) fn knob(of: &str, name: &str, value: usize, range: RangeInclusive<usize>) -> Result<(), Error> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(Error::new(format!("{of}: {name} is {value}; a number from {least} to {most} is expected")))
}

/// For [`Attention::check`]: tokens, or parts of a sequence, no more than any sequence has.
pub(crate) fn tokens(name: &str, value: usize) -> Result<(), Error> {
    knob("attention", name, value, 0..=MOST_TOKENS)
}

/// The same, and not none.
pub(crate) fn some_tokens(name: &str, value: usize) -> Result<(), Error> {
    knob("attention", name, value, 1..=MOST_TOKENS)
}

/// For [`Attention::check`]: how often something is repeated.
pub(crate) fn rounds(name: &str, value: usize) -> Result<(), Error> {
    knob("attention", name, value, 1..=1000)
}

const MOST_TOKENS: usize = 1 << 20;
