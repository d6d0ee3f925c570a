//! What a mechanism is given: rows, where they end, and its tensors.

use super::work::moved;
use crate::Parameters;
use crate::layers;
use crate::ops::on_host;
use burn::tensor::{Device, Tensor, TensorData};
use sparing_model::Error;
use std::ops::Range;

/// Added to scores that must not count: large enough that nothing is left of them, and still a number.
pub(crate) const HIDDEN: f32 = -1e9;
/// The length from which [`Input::one_by_one`] is worth it.
pub const ONE_BY_ONE: usize = 512;

/// What a layer's attention reads.
pub struct Input<'a> {
    /// `[batch, length, width]`.
    pub x: Tensor<3>,
    /// Real tokens of each sequence; what is behind them is padding.
    pub lengths: &'a [usize],
    /// Heads.
    pub heads: usize,
    /// No token sees a later one.
    pub causal: bool,
    /// What is known of all sequences.
    pub layout: Layout,
    /// Without gradients, on the CPU, from this length on heads are taken one by one: what is in between stays small.
    pub one_by_one: usize,
    /// Decides what is drawn in this pass.
    pub seed: u64,
    /// Where the layer's tensors are.
    pub parameters: &'a Parameters,
    /// What their names begin with.
    pub prefix: &'a str,
    /// Queries, keys and values of all heads, if they are known already: to time attention alone.
    pub known: Option<&'a Heads>,
}

/// What is known of all sequences of a task, whatever this batch holds of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Tokens of the longest there may be, with those before it. A number of parts is counted by it, so that padding
    /// changes none.
    pub longest: usize,
    /// Tokens before the first of each sequence that are not of it.
    pub before: usize,
    /// Pixels of a row, if sequences are pictures.
    pub columns: Option<usize>,
}

impl Layout {
    /// Sequences of up to `longest` tokens with nothing before them.
    pub fn of(longest: usize) -> Layout {
        Layout { longest, before: 0, columns: None }
    }
}

/// Queries, keys and values of some heads of some sequences. A group is one head of one sequence.
#[derive(Clone)]
pub struct Heads {
    /// `[groups, length, head width]`.
    pub query: Tensor<3>,
    /// `[groups, length, head width]`.
    pub key: Tensor<3>,
    /// `[groups, length, head width]`.
    pub value: Tensor<3>,
    /// Real tokens of each group.
    pub lengths: Vec<usize>,
    /// No token sees a later one.
    pub causal: bool,
    /// Which groups these are; the head of group `g` is `g % heads`.
    pub groups: Range<usize>,
    /// Heads of a sequence.
    pub heads: usize,
}

impl Input<'_> {
    /// Sequences, tokens of each with padding, width.
    pub fn dims(&self) -> [usize; 3] {
        self.x.dims()
    }

    /// A tensor of this layer by its own name.
    pub fn tensor(&self, name: &str) -> Result<Tensor<2>, Error> {
        Ok(self.parameters.get(&format!("{}.{name}", self.prefix))?.value.clone())
    }

    /// A linear map of all rows, folded into heads: `[batch * heads, length, outputs / heads]`.
    pub fn mapped(&self, name: &str) -> Result<Tensor<3>, Error> {
        match (self.known, name) {
            (Some(known), "query.weight") => return Ok(known.query.clone()),
            (Some(known), "key.weight") => return Ok(known.key.clone()),
            (Some(known), "value.weight") => return Ok(known.value.clone()),
            _ => {}
        }
        let [batch, length, width] = self.dims();
        self.folded_map(self.x.clone().reshape([batch * length, width]), name)
    }

    /// A linear map of rows `[batch * n, width]`, folded into heads: `[batch * heads, n, outputs / heads]`.
    pub fn folded_map(&self, rows: Tensor<2>, name: &str) -> Result<Tensor<3>, Error> {
        Ok(folded(layers::linear(rows, self.tensor(name)?, None), self.dims()[0], self.heads))
    }

    /// The rows, padding zero.
    pub fn present_rows(&self) -> Tensor<3> {
        without_padding(self.x.clone(), self.lengths)
    }

    /// Queries, keys and values of all heads.
    pub fn all(&self) -> Result<Heads, Error> {
        let value = self.mapped("value.weight")?;
        Ok(self.heads_of(self.mapped("query.weight")?, self.mapped("key.weight")?, value))
    }

    /// All heads with these queries, keys and values, `[batch * heads, length, head width]`.
    pub fn heads_of(&self, query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Heads {
        self.some_heads_of(self.heads, query, key, value)
    }

    /// The same where each sequence has this many heads.
    pub fn some_heads_of(&self, heads: usize, query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Heads {
        let lengths: Vec<usize> = self.lengths.iter().flat_map(|real| std::iter::repeat_n(*real, heads)).collect();
        let groups = 0..lengths.len();
        Heads { query, key, value, lengths, causal: self.causal, groups, heads }
    }

    /// Attention that takes every head by itself: all at once, or one by one where memory matters more than the number
    /// of operations. `[groups, length, head width]`.
    pub fn by_head(&self, mix: impl Fn(&Heads) -> Result<Tensor<3>, Error>) -> Result<Tensor<3>, Error> {
        self.each(&self.all()?, mix)
    }

    /// The same with these heads; there may be fewer keys than queries.
    pub fn each(&self, all: &Heads, mix: impl Fn(&Heads) -> Result<Tensor<3>, Error>) -> Result<Tensor<3>, Error> {
        let device = self.x.device();
        if device.is_autodiff() || !on_host(&device) || self.dims()[1] < self.one_by_one {
            return mix(all);
        }
        let each: Result<Vec<_>, Error> = all.groups.clone().map(|group| mix(&all.only(group))).collect();
        Ok(Tensor::cat(each?, 0))
    }
}

/// Rows `[batch * length, heads * width]` as `[batch * heads, length, width]`.
pub(crate) fn folded(rows: Tensor<2>, batch: usize, heads: usize) -> Tensor<3> {
    let [all, outputs] = rows.dims();
    let (length, width) = (all / batch, outputs / heads);
    rows.reshape([batch, length, heads, width]).swap_dims(1, 2).reshape([batch * heads, length, width])
}

/// The way back: `[batch * heads, length, width]` as rows `[batch * length, heads * width]`.
pub(crate) fn unfolded(groups: Tensor<3>, heads: usize) -> Tensor<2> {
    let [all, length, width] = groups.dims();
    let batch = all / heads;
    groups.reshape([batch, heads, length, width]).swap_dims(1, 2).reshape([batch * length, heads * width])
}

/// Numbers of the host on a device, in the graph of gradients if that is one.
pub(crate) fn constant<const D: usize>(values: Vec<f32>, shape: [usize; D], device: &Device) -> Tensor<D> {
    moved(values.len());
    let plain = Tensor::from_data(TensorData::new(values, shape), &device.clone().without_autodiff());
    if device.is_autodiff() { plain.autodiff() } else { plain }
}

/// The numbers without their history.
pub(crate) fn plain<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.device().is_autodiff() { tensor.inner() } else { tensor }
}

/// Numbers without a history in the graph of gradients that another tensor is in.
pub(crate) fn like<const D: usize>(plain: Tensor<D>, other: &Tensor<D>) -> Tensor<D> {
    if other.device().is_autodiff() { plain.autodiff() } else { plain }
}

/// The places of tokens as numbers, `[1, length, 1]`, without a history.
pub(crate) fn places(length: usize, device: &Device) -> Tensor<3> {
    constant((0..length).map(|at| at as f32).collect(), [1, length, 1], &device.clone().without_autodiff())
}

impl Heads {
    /// Groups, tokens with padding, head width.
    pub fn dims(&self) -> [usize; 3] {
        self.query.dims()
    }

    /// Where the numbers are.
    pub fn device(&self) -> Device {
        self.query.device()
    }

    fn only(&self, group: usize) -> Heads {
        let at = group - self.groups.start;
        let one = |rows: &Tensor<3>| rows.clone().slice_dim(0, at..at + 1);
        Heads {
            query: one(&self.query),
            key: one(&self.key),
            value: one(&self.value),
            lengths: vec![self.lengths[at]],
            causal: self.causal,
            groups: group..group + 1,
            heads: self.heads,
        }
    }

    /// Queries over the root of their width, so that their products with keys are scores.
    pub fn scaled_query(&self) -> Tensor<3> {
        let width = self.dims()[2];
        self.query.clone().mul_scalar(1.0 / (width as f64).sqrt())
    }

    /// What to add to scores of keys so that padding does not count, `[groups, 1, length]`; `length` may reach beyond the
    /// tokens there are. `None`: nothing is padded.
    pub fn padding(&self, length: usize) -> Option<Tensor<3>> {
        padding(&self.lengths, length, &self.device())
    }

    /// 1 for tokens and 0 for padding, `[groups, length, 1]`; `None`: nothing is padded.
    pub fn present(&self, length: usize) -> Option<Tensor<3>> {
        present(&self.lengths, length, &self.device())
    }

    /// Rows of these groups, `[groups, length, any width]`, those of padding zero.
    pub fn without_padding(&self, rows: Tensor<3>) -> Tensor<3> {
        without_padding(rows, &self.lengths)
    }

    /// The tokens from this one on, which are then all there are.
    pub fn after(&self, first: usize) -> Heads {
        let length = self.dims()[1];
        let rest = |rows: &Tensor<3>| rows.clone().slice_dim(1, first..length);
        Heads {
            query: rest(&self.query),
            key: rest(&self.key),
            value: rest(&self.value),
            lengths: self.lengths.iter().map(|real| real.saturating_sub(first)).collect(),
            ..self.clone()
        }
    }

    /// A tensor `[heads, rest]` for these groups: `[groups, rows, rest / rows]`.
    pub fn own(&self, tensor: Tensor<2>, rows: usize) -> Tensor<3> {
        let [heads, rest] = tensor.dims();
        let groups = self.groups.len();
        let tensor = tensor.reshape([heads, rows, rest / rows]);
        if groups == 1 {
            let head = self.groups.start % heads;
            return tensor.slice_dim(0, head..head + 1);
        }
        let shape = [groups / heads, heads, rows, rest / rows];
        tensor.reshape([1, heads, rows, rest / rows]).expand(shape).reshape([groups, rows, rest / rows])
    }
}

fn padding(lengths: &[usize], length: usize, device: &Device) -> Option<Tensor<3>> {
    if lengths.iter().all(|real| *real >= length) {
        return None;
    }
    let mut values = vec![0.0; lengths.len() * length];
    for (row, real) in values.chunks_exact_mut(length).zip(lengths) {
        row[(*real).min(length)..].fill(HIDDEN);
    }
    Some(constant(values, [lengths.len(), 1, length], device))
}

fn without_padding(rows: Tensor<3>, lengths: &[usize]) -> Tensor<3> {
    match present(lengths, rows.dims()[1], &rows.device()) {
        Some(present) => rows * present,
        None => rows,
    }
}

fn present(lengths: &[usize], length: usize, device: &Device) -> Option<Tensor<3>> {
    let shown = |hidden: Tensor<3>| hidden.div_scalar(-HIDDEN).add_scalar(1.0).reshape([lengths.len(), length, 1]);
    padding(lengths, length, device).map(shown)
}
