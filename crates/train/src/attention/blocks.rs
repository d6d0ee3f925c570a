//! Sequences in blocks: how local and sparse kinds skip work. What is not looked at is not gathered.

use super::input::{HIDDEN, Heads, constant};
use super::work::{moved, product, softmax};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// `[groups, length, width]` as `[groups, blocks, size, width]`, zeros behind the end.
pub(crate) fn split(x: Tensor<3>, size: usize) -> Tensor<4> {
    let [groups, length, width] = x.dims();
    let blocks = length.div_ceil(size).max(1);
    extended(x, blocks * size).reshape([groups, blocks, size, width])
}

/// Zeros behind the end up to a length.
pub(crate) fn extended(x: Tensor<3>, to: usize) -> Tensor<3> {
    let [groups, length, width] = x.dims();
    if to == length {
        return x;
    }
    let zeros = Tensor::zeros([groups, to - length, width], &x.device());
    Tensor::cat(vec![x, zeros], 1)
}

/// Blocks end to end, without what was put behind the end.
pub(crate) fn join(x: Tensor<4>, length: usize) -> Tensor<3> {
    let [groups, blocks, size, width] = x.dims();
    x.reshape([groups, blocks * size, width]).slice_dim(1, 0..length)
}

/// Which blocks each block looks at, as many for all; `None` where there is no such block.
pub(crate) struct Table(Vec<Vec<Option<usize>>>);

impl Table {
    /// The blocks of each block; shorter lists are filled up with nothing.
    pub(crate) fn new(lists: Vec<Vec<Option<usize>>>) -> Table {
        let most = lists.iter().map(Vec::len).max().unwrap_or(0);
        let filled = |mut list: Vec<Option<usize>>| {
            list.resize(most, None);
            list
        };
        Table(lists.into_iter().map(filled).collect())
    }

    /// `before` blocks before each, itself and `after` blocks after it.
    pub(crate) fn window(blocks: usize, before: usize, after: usize) -> Table {
        let list = |block: usize| {
            let places = (0..=before + after).map(move |place| (block + place).checked_sub(before));
            places.map(|place| place.filter(|place| *place < blocks)).collect()
        };
        Table((0..blocks).map(list).collect())
    }

    fn each(&self) -> usize {
        self.0.first().map_or(0, Vec::len)
    }

    /// `[groups, blocks, size, width]` to `[groups, blocks, each * size, width]`.
    pub(crate) fn gather(&self, x: Tensor<4>) -> Tensor<4> {
        let [groups, blocks, size, width] = x.dims();
        let of = x.dims()[1];
        debug_assert!(self.0.iter().flatten().flatten().all(|block| *block < of));
        if self.each() == 1 && self.0.iter().enumerate().all(|(block, list)| list[0] == Some(block)) {
            return x;
        }
        let flat: Vec<i32> = self.0.iter().flatten().map(|block| block.unwrap_or(0) as i32).collect();
        let (rows, count) = (self.0.len(), flat.len());
        moved(groups * count * size * width);
        let flat = Tensor::<1, Int>::from_data(TensorData::new(flat, [count]), &x.device().without_autodiff());
        let found = x.reshape([groups, blocks, size * width]).select(1, flat);
        found.reshape([groups, rows, self.each() * size, width])
    }

    /// What to add to the scores of gathered keys: hides places where there is no block, and keys that `hidden` says are
    /// hidden from everybody. `[1, blocks, 1, each * size]`; `None` if nothing is hidden.
    pub(crate) fn mask(&self, size: usize, hidden: impl Fn(usize) -> bool, device: &Device) -> Option<Tensor<4>> {
        let key = |block: &Option<usize>, at: usize| match block {
            Some(block) if !hidden(block * size + at) => 0.0,
            _ => HIDDEN,
        };
        let all = self.0.iter().flatten();
        let values: Vec<f32> = all.flat_map(|block| (0..size).map(move |at| key(block, at))).collect();
        let any = values.iter().any(|value| *value != 0.0);
        any.then(|| constant(values, [1, self.0.len(), 1, self.each() * size], device))
    }

    /// Padding of gathered keys, `[groups, blocks, 1, each * size]`.
    pub(crate) fn padding(&self, heads: &Heads, blocks: usize, size: usize) -> Option<Tensor<4>> {
        let padding = heads.padding(blocks * size)?;
        let groups = heads.dims()[0];
        let gathered = self.gather(padding.reshape([groups, blocks, size, 1]));
        Some(gathered.swap_dims(2, 3))
    }
}

/// What to add to scores within a window of blocks, the same for every block: hides what `seen(query, key)` does not see,
/// places counted from the query's block's first token. `[1, 1, size, (before + 1 + after) * size]`.
pub(crate) fn band(
    size: usize,
    before: usize,
    after: usize,
    seen: impl Fn(isize, isize) -> bool,
    device: &Device,
) -> Tensor<4> {
    let keys = (before + 1 + after) * size;
    let key = |query: usize, at: usize| {
        if seen(query as isize, at as isize - (before * size) as isize) { 0.0 } else { HIDDEN }
    };
    let values: Vec<f32> = (0..size).flat_map(|query| (0..keys).map(move |at| key(query, at))).collect();
    constant(values, [1, 1, size, keys], device)
}

/// Adds masks that are there.
pub(crate) fn masked(scores: Tensor<4>, masks: impl IntoIterator<Item = Option<Tensor<4>>>) -> Tensor<4> {
    masks.into_iter().flatten().fold(scores, |scores, mask| scores + mask)
}

/// Some keys of every block of queries: scores `[groups, blocks, size, keys]`, values `[groups, blocks, keys, width]`, or
/// `[groups, 1, keys, width]` if all blocks have the same.
pub(crate) struct Part {
    pub(crate) scores: Tensor<4>,
    pub(crate) values: Tensor<4>,
}

/// One softmax over the keys of all parts, and their values mixed: `[groups, blocks, size, width]`.
pub(crate) fn together(parts: Vec<Part>) -> Tensor<4> {
    let sizes: Vec<usize> = parts.iter().map(|part| part.scores.dims()[3]).collect();
    let (scores, values): (Vec<_>, Vec<_>) = parts.into_iter().map(|part| (part.scores, part.values)).unzip();
    let shares = if scores.len() == 1 { scores.into_iter().next() } else { Some(Tensor::cat(scores, 3)) };
    let shares = softmax(shares.unwrap_or_else(|| unreachable!("attention over no keys")));
    let mut start = 0;
    let mut sum: Option<Tensor<4>> = None;
    for (keys, values) in sizes.into_iter().zip(values) {
        let part = shares.clone().slice_dim(3, start..start + keys);
        start += keys;
        let mixed = broadcast(part, values);
        sum = Some(match sum {
            Some(sum) => sum + mixed,
            None => mixed,
        });
    }
    sum.unwrap_or_else(|| unreachable!("attention over no keys"))
}

/// `[groups, blocks, rows, inner]` times `[groups, blocks or 1, inner, columns]`, without copying what all blocks share.
pub(crate) fn broadcast(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    let ([groups, blocks, rows, inner], [_, shared, _, columns]) = (a.dims(), b.dims());
    if shared == blocks {
        return product(a, b);
    }
    let a = a.reshape([groups, 1, blocks * rows, inner]);
    product(a, b).reshape([groups, blocks, rows, columns])
}
