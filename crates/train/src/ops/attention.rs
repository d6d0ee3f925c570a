//! Attention over packed sequences.

use super::host::{Computed, Matrix, operation, workers};
use super::memory::{Kept, take};
use burn::tensor::Tensor;
use sparing_kernels::RowsMut;
use sparing_kernels::attention::{Attention, ScoreBias, Span};
use sparing_kernels::training::{self, Dropout};
use std::sync::Arc;

/// What to attend with.
#[derive(Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) heads: usize,
    pub(crate) head_width: usize,
    pub(crate) scale: f32,
    pub(crate) causal: bool,
}

impl Heads {
    fn attention(&self) -> Attention<'static> {
        let Heads { heads, head_width, scale, causal } = *self;
        Attention { heads, head_width, scale, causal, window: None, bias: ScoreBias::None, indices: &[] }
    }
}

/// `dropout(softmax(q kᵀ scale)) v`: `[queries + 2 keys, width]` as [`super::projections`] makes it to `[queries, width]`.
pub(crate) fn attention(stacked: Tensor<2>, heads: Heads, spans: Arc<[Span]>, dropout: Option<Dropout>) -> Tensor<2> {
    operation([stacked], |[stacked]| {
        let [all, width] = stacked.shape;
        let queries = spans.last().map_or(0, |s| s.queries.end);
        let keys = (all - queries) / 2;
        let w = workers();
        let parts = move |rows: &Matrix| -> [std::ops::Range<usize>; 3] {
            debug_assert_eq!(rows.shape[0], queries + 2 * keys);
            [0..queries, queries..queries + keys, queries + keys..queries + 2 * keys]
        };
        let [q, k, v] = parts(stacked).map(|range| stacked.rows().range(range));
        let mut values = take(queries * width);
        let pairs: usize = spans.iter().map(|s| s.queries.len() * s.keys.len()).sum();
        let mut probabilities = Kept::new(heads.heads * pairs);
        let out = RowsMut::f32(&mut values, width);
        let what = heads.attention();
        training::attention(&w.team, &what, q, k, v, &spans, dropout, &mut probabilities, out, &w.attention);
        let stacked = stacked.clone();
        let back = move |gradient: &Matrix, _: [bool; 1]| {
            let w = workers();
            let [q, k, v] = parts(&stacked).map(|range| stacked.rows().range(range));
            let mut found = take(all * width);
            let (dq, rest) = found.split_at_mut(queries * width);
            let (dk, dv) = rest.split_at_mut(keys * width);
            let to = (RowsMut::f32(dq, width), RowsMut::f32(dk, width), RowsMut::f32(dv, width));
            let (what, g) = (heads.attention(), gradient.rows());
            let p = &probabilities;
            training::attention_gradient(&w.team, &what, (q, k, v), &spans, dropout, p, g, to, &w.attention);
            [Some(found)]
        };
        Computed { values, shape: [queries, width], back }
    })
}
