//! Attention over packed sequences: exact, or over keys that are chosen first.
//!
//! One task is one sequence and head. `strip` takes a panel of queries at a time; `few` is for one or two queries
//! (the first row of a classifier, the next token of a generation), where laying out keys would cost more than the work itself.
//! `chosen` picks some of the keys and hands them to those two; `network` has a small network in softmax's place.

mod chosen;
mod few;
mod importance;
mod network;
mod strip;

use crate::epilogue::Place;
use crate::simd::Level;
use crate::{Aligned, PerWorker, Rows, RowsMut, Scratch, Team};
pub use chosen::{By, Choice, attend_chosen};
pub use importance::{Kept, Pooling, importance};
pub use network::{Heads, ShareNetwork, attend_network};
use std::ops::Range;

/// Working memory of one thread.
#[derive(Default)]
pub(crate) struct Workspace {
    keys: Aligned<u32>,
    values: Aligned<u32>,
    queries: Aligned<u32>,
    scores: Aligned<f32>,
    bias: Aligned<f32>,
    result: Aligned<f32>,
    rows: Aligned<f32>,
    staging: Aligned<u32>,
    /// Pooled probabilities, one vector or one row of queries per key.
    pooled: Aligned<f32>,
    chosen: chosen::Space,
    network: network::Space,
}

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
    /// A number of each row of k, the same for every query and head: how much more a key counts.
    ByKey(&'a [f32]),
    /// `f(span, head, query, out)` fills one number per key of the span. For positions that depend on the query itself.
    PerQuery(&'a BiasFn<'a>),
}

/// See [`ScoreBias::PerQuery`].
pub type BiasFn<'a> = dyn Fn(usize, usize, usize, &mut [f32]) + Sync + 'a;

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
    attend_kept(team, attention, q, k, v, spans, out, None, scratch);
}

/// [`attend`], but probabilities that [`importance`] kept for these very queries, keys and spans are not computed again.
pub fn attend_kept(
    team: &Team,
    attention: &Attention,
    q: Rows,
    k: Rows,
    v: Rows,
    spans: &[Span],
    out: RowsMut,
    kept: Option<&Kept>,
    scratch: &PerWorker<Scratch>,
) {
    check(attention, &q, &k, &v, spans, &out);
    let mut out = out;
    let place = Place::of(&mut out);
    if let Some(kept) = kept {
        kept.check(attention, spans);
    }
    attend_at(Level::active(), team, attention, q, k, v, spans, place, kept, scratch);
}

fn check(attention: &Attention, q: &Rows, k: &Rows, v: &Rows, spans: &[Span], out: &RowsMut) {
    let width = attention.heads * attention.head_width;
    for rows in [q, k, v, &out.as_rows()] {
        assert_eq!(rows.width(), width, "heads * head width");
    }
    assert_eq!(q.element(), k.element(), "q and k of one type");
    assert_eq!(k.element(), v.element(), "k and v of one type");
    for span in spans {
        assert!(span.queries.end <= q.count().min(out.count()), "queries {:?}", span.queries);
        check_keys(attention, span, k.count().min(v.count()));
    }
}

fn check_keys(attention: &Attention, span: &Span, rows: usize) {
    assert!(span.keys.end <= rows, "keys {:?}", span.keys);
    let (queries, keys) = (span.queries.len(), span.keys.len());
    assert!(span.positions.is_empty() || span.positions.len() == queries, "positions {:?}", span.positions);
    assert!(!span.positions.is_empty() || queries <= keys, "more queries than keys");
    for i in span.positions.clone().chain(span.globals.clone()) {
        assert!(attention.indices[i] < keys, "position {} of {keys}", attention.indices[i]);
    }
    if let ScoreBias::ByDistance { table, reach } = attention.bias {
        assert!(keys <= reach + 1 && table.len() == attention.heads * (2 * reach + 1), "bias table");
    }
    if let ScoreBias::ByKey(numbers) = attention.bias {
        assert!(span.keys.end <= numbers.len(), "a bias for every key");
    }
}

/// The most queries that take the way of [`few`].
const FEW: usize = 2;

fn attend_at(
    level: Level,
    team: &Team,
    attention: &Attention,
    q: Rows,
    k: Rows,
    v: Rows,
    spans: &[Span],
    out: Place,
    kept: Option<&Kept>,
    scratch: &PerWorker<Scratch>,
) {
    each_head(team, attention, [q, k, v], spans, out, scratch, &|task, job, space| {
        // SAFETY: the level is available and the job is as `each_head` promises.
        unsafe {
            match kept.and_then(|kept| kept.of(task)) {
                Some((kept, step)) => strip::mix(level, job, kept, step, space),
                None => exact(level, job, space),
            }
        }
    });
}

/// # Safety
/// The level is available; the job's views and result are consistent (see [`attend`]).
unsafe fn exact(level: Level, job: &Job, space: &mut Workspace) {
    // SAFETY: the caller's promise.
    unsafe {
        if job.q.count() <= FEW {
            few::attend_at(level, job, space);
        } else {
            strip::attend(level, job, space);
        }
    }
}

/// Calls `work` for every span and head, by the whole team. Spans were compared with the views (see [`check`]), and no two
/// jobs have results in common: each has its span's rows and its head's columns.
fn each_head(
    team: &Team,
    attention: &Attention,
    [q, k, v]: [Rows; 3],
    spans: &[Span],
    out: Place,
    scratch: &PerWorker<Scratch>,
    work: &(dyn Fn(usize, &Job, &mut Workspace) + Sync),
) {
    team.run(spans.len() * attention.heads, &|task, worker| {
        let (index, head) = (task / attention.heads, task % attention.heads);
        let span = &spans[index];
        let columns = head * attention.head_width..(head + 1) * attention.head_width;
        let job = Job {
            attention,
            span,
            index,
            head,
            q: q.range(span.queries.clone()).columns(columns.clone()),
            k: k.range(span.keys.clone()).columns(columns.clone()),
            v: v.range(span.keys.clone()).columns(columns.clone()),
            out,
        };
        work(task, &job, &mut scratch.get(worker).attention);
    });
}

/// One sequence and head.
struct Job<'a> {
    attention: &'a Attention<'a>,
    span: &'a Span,
    index: usize,
    head: usize,
    q: Rows<'a>,
    k: Rows<'a>,
    v: Rows<'a>,
    /// The whole result.
    out: Place,
}

impl Job<'_> {
    fn position(&self, query: usize) -> usize {
        self.attention.position(self.span, query)
    }

    /// Row and column of a query's result.
    fn place(&self, query: usize) -> (usize, usize) {
        (self.span.queries.start + query, self.head * self.attention.head_width)
    }

    /// The bias of one query for all keys, if there is any.
    fn bias(&self, query: usize, out: &mut [f32]) {
        match self.attention.bias {
            ScoreBias::None => out.fill(0.0),
            ScoreBias::ByDistance { table, reach } => {
                let start = self.head * (2 * reach + 1) + reach - self.position(query);
                out.copy_from_slice(&table[start..start + out.len()]);
            }
            ScoreBias::ByKey(numbers) => out.copy_from_slice(&numbers[self.span.keys.clone()]),
            ScoreBias::PerQuery(fill) => fill(self.index, self.head, query, out),
        }
    }
}

#[cfg(test)]
mod tests;
