//! How much attention every key gets: the same scores and softmax as in attention, pooled over the queries instead of
//! mixing values.

use super::strip::{Block, Strip, longest_block, softmax_at};
use super::{Attention, Job, Span, Workspace, check_keys};
use crate::epilogue::Place;
use crate::rows::Element;
use crate::simd::{Level, Simd, kernel};
use crate::{Aligned, PerWorker, Rows, RowsMut, Scratch, Team};

/// How the probabilities that all queries give to a key become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The largest.
    Max,
    /// Their sum: divide by the number of queries for the mean.
    Sum,
    /// The middle one (the upper of two). Holds a head's probabilities, `queries * keys` numbers.
    Median,
}

/// Probabilities of short sequences, kept between [`importance`] and [`super::attend`].
#[derive(Default)]
pub struct Kept {
    numbers: Aligned<f32>,
    /// Where the panels of each span and head begin, and how far apart they are; `None`: not kept.
    places: Vec<Option<(usize, usize)>>,
    spans: Vec<Span>,
}

impl Kept {
    /// Numbers to keep at most: what does not fit is computed twice, which is faster than memory at some point.
    const MOST: usize = 12 << 20;

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.places.clear();
        self.spans.clear();
    }

    /// Makes room for these spans.
    fn begin(&mut self, level: Level, attention: &Attention, spans: &[Span], longest: usize) {
        self.clear();
        self.spans.extend_from_slice(spans);
        let (panel, mut at) = (level.panel(), 0);
        for span in spans {
            // Sums, and a row of probabilities per key, with one more for an odd pair.
            let step = (span.keys.len() + 3) * panel;
            let panels = span.queries.len().div_ceil(panel);
            let fits = |at: usize| at + panels * step <= Kept::MOST;
            let wanted = attention.window.is_none() && span.keys.len() <= longest && span.queries.len() > super::FEW;
            for _ in 0..attention.heads {
                let keep = wanted && fits(at);
                self.places.push(keep.then_some((at, step)));
                at += if keep { panels * step } else { 0 };
            }
        }
        self.numbers.ensure(at);
    }

    /// Address and step of the panels of a span and head.
    pub(super) fn of(&self, task: usize) -> Option<(*const f32, usize)> {
        let (at, step) = self.places.get(task).copied().flatten()?;
        Some((self.numbers.as_slice()[at..].as_ptr(), step))
    }

    /// Asserts that they are these spans'.
    pub(super) fn check(&self, attention: &Attention, spans: &[Span]) {
        assert!(self.spans == spans && self.places.len() == spans.len() * attention.heads, "kept for other spans");
    }
}

/// Addresses to write to.
#[derive(Clone, Copy)]
struct Keeping<'a> {
    numbers: *mut f32,
    places: &'a [Option<(usize, usize)>],
}

// SAFETY: every task writes to its own place.
unsafe impl Send for Keeping<'_> {}
// SAFETY: as above.
unsafe impl Sync for Keeping<'_> {}

/// For every span and head, the pooled probabilities of its keys, joined to what is in `out`, `[heads, rows of k]`: the
/// larger of the two, or their sum for [`Pooling::Sum`]. Begin with zeros; queries of a span may then come in several
/// calls (but for the median). `kept` gets the probabilities of short sequences, for [`super::attend`].
pub fn importance(
    team: &Team,
    attention: &Attention,
    q: Rows,
    k: Rows,
    spans: &[Span],
    pooling: Pooling,
    mut out: RowsMut,
    kept: Option<&mut Kept>,
    scratch: &PerWorker<Scratch>,
) {
    let width = attention.heads * attention.head_width;
    assert_eq!((q.width(), k.width()), (width, width), "heads * head width");
    assert_eq!(q.element(), k.element(), "q and k of one type");
    assert_eq!(out.element(), Element::F32, "importance is f32");
    assert_eq!((out.count(), out.width()), (attention.heads, k.count()), "heads x keys");
    for (i, span) in spans.iter().enumerate() {
        assert!(span.queries.end <= q.count(), "queries {:?}", span.queries);
        check_keys(attention, span, k.count());
        // Tasks write the keys of their span.
        assert!(spans[..i].last().is_none_or(|last| last.keys.end <= span.keys.start), "spans follow each other");
    }
    importance_at(Level::active(), team, attention, q, k, spans, pooling, Place::of(&mut out), kept, scratch);
}

pub(super) fn importance_at(
    level: Level,
    team: &Team,
    attention: &Attention,
    q: Rows,
    k: Rows,
    spans: &[Span],
    pooling: Pooling,
    out: Place,
    kept: Option<&mut Kept>,
    scratch: &PerWorker<Scratch>,
) {
    // Where bf16 is widened first, attention does not see the same numbers.
    let same = k.element() == Element::F32 || level.multiplies_bf16();
    let keeping = kept.map(|kept| {
        kept.begin(level, attention, spans, if same { longest_block(level, k.element()) } else { 0 });
        Keeping { numbers: kept.numbers.as_mut_slice().as_mut_ptr(), places: &kept.places }
    });
    team.run(spans.len() * attention.heads, &|task, worker| {
        let (index, head) = (task / attention.heads, task % attention.heads);
        let span = &spans[index];
        let columns = head * attention.head_width..(head + 1) * attention.head_width;
        let k = k.range(span.keys.clone()).columns(columns.clone());
        let q = q.range(span.queries.clone()).columns(columns);
        let job = Job { attention, span, index, head, q, k, v: k, out };
        let space = &mut scratch.get(worker).attention;
        // SAFETY: the level is available, all ranges were compared with the views, and each task writes only its own
        // head's row and its own span's keys.
        unsafe {
            // Through a reference: the closure then captures the whole, which may be sent.
            let keep =
                keeping.as_ref().and_then(|k: &Keeping| k.places[task].map(|(at, step)| (k.numbers.add(at), step)));
            pool(level, &job, pooling, keep, space);
        }
    });
}

/// # Safety
/// The job's views are consistent, its result is `[heads, keys]` of f32; `keep` has room for its panels.
unsafe fn pool(level: Level, job: &Job, pooling: Pooling, keep: Option<(*mut f32, usize)>, space: &mut Workspace) {
    if job.k.element() == Element::Bf16 && !level.multiplies_bf16() {
        // No bf16 products here: the same in f32.
        let widened = [job.q, job.k].map(|rows| {
            let mut data = vec![0f32; rows.count() * rows.width()];
            for (row, out) in data.chunks_exact_mut(rows.width()).enumerate() {
                rows.read_row(row, out);
            }
            data
        });
        let (q, k) = (Rows::f32(&widened[0], job.k.width()), Rows::f32(&widened[1], job.k.width()));
        // SAFETY: the caller's promise.
        return unsafe { pool(level, &Job { q, k, v: k, ..*job }, pooling, None, space) };
    }
    let strip = Strip::new(level, job);
    let (keys, queries, panel) = (job.k.count(), job.q.count(), strip.panel);
    // Per key one vector for the running result, or all queries.
    let wide = if pooling == Pooling::Median { queries.next_multiple_of(panel) } else { panel / 2 };
    space.pooled.ensure(keys * wide);
    space.pooled.as_mut_slice()[..keys * wide].fill(0.0);
    // SAFETY: everything is grown before it is used.
    unsafe {
        strip.lay_out_keys(space);
        for (number, first) in (0..queries).step_by(panel).enumerate() {
            let count = panel.min(queries - first);
            let (positions, at, biased) = strip.prepare(first, count, space);
            let visible = strip.visible(at.clone());
            let globals = &job.attention.indices[job.span.globals.clone()];
            let outside = |key: &usize| !(visible.contains(key) || job.attention.causal && *key >= at.end);
            let others: Vec<usize> = match job.attention.window {
                Some(_) => globals.iter().copied().filter(outside).collect(),
                None => Vec::new(),
            };
            space.scores.ensure((visible.len() + others.len() + 2) * panel);
            space.result.ensure(4 * panel);
            strip.scores(visible.clone(), space);
            for (i, key) in others.iter().enumerate() {
                strip.score_of(*key, visible.len() + i, space);
            }
            let masked = strip.masked(&visible, &at);
            let (keys, others) = (visible, &others[..]);
            // What is kept must be what attention would compute.
            let pairs = strip.pairs && keep.is_some();
            let block = Block { keys, others, positions: &positions, biased, masked, first: true, pairs };
            softmax_at(level, job, &block, space);
            if let Some((to, step)) = keep {
                let to = to.add(number * step);
                let rows = if pairs { block.keys.len().div_ceil(2) } else { block.keys.len() };
                space.result.as_slice().as_ptr().add(panel).copy_to_nonoverlapping(to, panel);
                space.scores.as_slice().as_ptr().copy_to_nonoverlapping(to.add(panel), rows * panel);
            }
            join_at(level, &block, first, count, wide, pooling, space);
        }
        finish_at(level, job, queries, wide, pooling, space);
    }
}

/// Adds a panel's probabilities to the pooled ones.
#[inline(always)]
unsafe fn join<S: Simd>(
    block: &Block,
    first: usize,
    count: usize,
    wide: usize,
    pooling: Pooling,
    space: &mut Workspace,
) {
    let panel = 2 * S::LANES;
    // SAFETY: scores hold a row of `panel` for every key of the block; `pooled` has `wide` numbers per key.
    unsafe {
        let scores = space.scores.as_slice().as_ptr();
        let sums = space.result.as_slice().as_ptr().add(panel);
        let pooled = space.pooled.as_mut_slice().as_mut_ptr();
        // Lanes without a query count for nothing.
        let inverse = [0, S::LANES].map(|lane| {
            let ones: [f32; 16] = std::array::from_fn(|i| if lane + i < count { 1.0 } else { 0.0 });
            S::div(S::load(ones.as_ptr()), S::max(S::load(sums.add(lane)), S::splat(1e-30)))
        });
        for (i, key) in block.keys.clone().chain(block.others.iter().copied()).enumerate() {
            let half = |lane: usize| {
                if block.pairs {
                    let pair = S::load_bf16_pairs(scores.add(i / 2 * panel + lane).cast());
                    return if i % 2 == 0 { pair.0 } else { pair.1 };
                }
                S::load(scores.add(i * panel + lane))
            };
            let low = S::mul(half(0), inverse[0]);
            let high = S::mul(half(S::LANES), inverse[1]);
            let to = pooled.add(key * wide);
            match pooling {
                Pooling::Max => S::store(to, S::max(S::load(to), S::max(low, high))),
                Pooling::Sum => S::store(to, S::add(S::load(to), S::add(low, high))),
                Pooling::Median => {
                    S::store(to.add(first), low);
                    S::store(to.add(first + S::LANES), high);
                }
            }
        }
    }
}
kernel!(join_at = join(block: &Block, first: usize, count: usize, wide: usize, pooling: Pooling, space: &mut Workspace));

/// One number per key.
#[inline(always)]
unsafe fn finish<S: Simd>(job: &Job, queries: usize, wide: usize, pooling: Pooling, space: &mut Workspace) {
    for key in 0..job.k.count() {
        let row = &mut space.pooled.as_mut_slice()[key * wide..(key + 1) * wide];
        // SAFETY: the key's place in the result is this task's alone; a row has a vector at least.
        unsafe {
            let to = job.out.at(job.head, job.span.keys.start + key).cast::<f32>();
            match pooling {
                Pooling::Max => *to = (*to).max(S::largest(S::load(row.as_ptr()))),
                Pooling::Sum => *to += S::sum(S::load(row.as_ptr())),
                Pooling::Median => {
                    let (_, middle, _) = row[..queries].select_nth_unstable_by(queries / 2, f32::total_cmp);
                    *to = (*to).max(*middle);
                }
            }
        }
    }
}
kernel!(finish_at = finish(job: &Job, queries: usize, wide: usize, pooling: Pooling, space: &mut Workspace));
