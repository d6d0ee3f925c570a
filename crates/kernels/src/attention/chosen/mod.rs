//! Attention over keys that are chosen first: sign matching (Appendix B of "Approximate computing for Transformers",
//! 2021) and its rivals. Choosing costs a pass over queries and keys; everything after it is exact attention over the kept
//! keys.

mod grouped;
mod score;

use super::{Attention, Job, ScoreBias, Span, Workspace, check, each_head, exact};
use crate::epilogue::Place;
use crate::rows::{Element, Elements, ElementsMut};
use crate::simd::Level;
use crate::{Aligned, Buffer, PerWorker, Rows, RowsMut, Scratch, Team};

/// What keys are chosen by, in each head on its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum By {
    /// The keys whose signs differ in the fewest columns from the majority sign of all queries. Zero is not positive; half
    /// of the queries are a majority.
    Sign,
    /// The longest keys.
    Norm,
    /// The keys with the most numbers of an absolute value above this.
    Value(f32),
    /// Every query has keys of its own: those whose largest number stands in the same column as its largest, and those
    /// whose smallest does; of either the ones with the largest absolute value there.
    Grouped,
}

/// Which keys are kept.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    /// What they are chosen by; of equal keys the earlier ones are kept.
    pub by: By,
    /// How many are kept of so many, per head, or per column and end for [`By::Grouped`]. As many or more: attention is
    /// exact, to the bit.
    pub keep: &'a (dyn Fn(usize) -> usize + Sync),
    /// Rows of k that come before all others; empty: none do.
    pub pinned: &'a [bool],
}

/// Working memory of one thread.
#[derive(Default)]
pub(super) struct Space {
    /// Sign bits, `[words][keys]`.
    bits: Vec<u64>,
    /// How many queries are positive, by column.
    positive: Aligned<f32>,
    /// Their majority, in words.
    signs: Vec<u64>,
    /// What a key is chosen by: the smallest.
    scores: Vec<u32>,
    /// Scores and keys, as numbers to be compared.
    order: Vec<u64>,
    /// Kept keys, ascending.
    kept: Vec<usize>,
    /// Where queries stand among the kept keys.
    positions: Vec<usize>,
    groups: grouped::Groups,
    q: Gathered,
    k: Gathered,
    v: Gathered,
    out: Gathered,
    row: Vec<f32>,
}

/// Rows that stand together.
struct Gathered(Buffer);

impl Default for Gathered {
    fn default() -> Self {
        Gathered(Buffer::new(Element::F32))
    }
}

impl Gathered {
    /// Room for so many rows.
    fn rows_mut(&mut self, element: Element, count: usize, width: usize) -> RowsMut<'_> {
        if self.0.rows(0, width).element() != element {
            self.0 = Buffer::new(element);
        }
        self.0.rows_mut(count, width)
    }

    /// Copies of these rows.
    fn take(&mut self, from: Rows, picks: &[usize]) -> Rows<'_> {
        let (width, stride) = (from.width(), from.stride());
        match (from.data(), self.rows_mut(from.element(), picks.len(), width).data()) {
            (Elements::F32(from), ElementsMut::F32(to)) => copy(from, stride, picks, to, width),
            (Elements::Bf16(from), ElementsMut::Bf16(to)) => copy(from, stride, picks, to, width),
            _ => unreachable!("room is made for the same type"),
        }
        self.0.rows(picks.len(), width)
    }
}

fn copy<T: Copy>(from: &[T], stride: usize, picks: &[usize], to: &mut [T], width: usize) {
    for (row, to) in picks.iter().zip(to.chunks_exact_mut(width)) {
        to.copy_from_slice(&from[row * stride..row * stride + width]);
    }
}

/// `out = softmax(q k'ᵀ · scale + bias) v'` over the chosen keys k' of every span and head, by the whole team.
///
/// Causal: a quarter of the kept keys is chosen among the first quarter of all keys, the others among the rest; a query
/// sees the kept keys that are not in its future. A query without any keeps its own value. There is no window, and no bias
/// that depends on the query itself.
pub fn attend_chosen(
    team: &Team,
    attention: &Attention,
    choice: &Choice,
    q: Rows,
    k: Rows,
    v: Rows,
    spans: &[Span],
    mut out: RowsMut,
    scratch: &PerWorker<Scratch>,
) {
    check(attention, &q, &k, &v, spans, &out);
    assert!(choice.pinned.is_empty() || choice.pinned.len() >= k.count(), "a flag for every key");
    assert!(attention.window.is_none(), "keys are chosen among all, not in a window");
    assert!(!matches!(attention.bias, ScoreBias::PerQuery(_)), "no bias that depends on the query");
    attend_chosen_at(Level::active(), team, attention, choice, [q, k, v], spans, Place::of(&mut out), scratch);
}

pub(super) fn attend_chosen_at(
    level: Level,
    team: &Team,
    attention: &Attention,
    choice: &Choice,
    qkv: [Rows; 3],
    spans: &[Span],
    out: Place,
    scratch: &PerWorker<Scratch>,
) {
    each_head(team, attention, qkv, spans, out, scratch, &|_, job, space| {
        let keep = (choice.keep)(job.k.count()).max(1);
        // SAFETY: the level is available and the job is as `each_head` promises.
        unsafe {
            if job.k.count() <= keep {
                return exact(level, job, space);
            }
            // Moved out so that the rest can be lent to attention.
            let mut own = std::mem::take(&mut space.chosen);
            let pinned = choice.pinned.get(job.span.keys.clone()).unwrap_or_default();
            match choice.by {
                By::Grouped => grouped::attend(level, job, keep, pinned, &mut own, space),
                by => {
                    score::keys(level, job, by, &mut own);
                    pick(keep, job.attention.causal, pinned, &mut own);
                    over(level, job, None, &mut own, space);
                }
            }
            space.chosen = own;
        }
    });
}

/// Fills `kept` with the keys of the smallest scores: pinned ones first, earlier ones of equals first.
fn pick(keep: usize, causal: bool, pinned: &[bool], own: &mut Space) {
    let Space { scores, order, kept, .. } = own;
    let free = |key: usize| !pinned.get(key).copied().unwrap_or(false);
    order.clear();
    order.extend(scores.iter().enumerate().map(|(key, score)| {
        // A bit, 32 bits and 31 bits, in the order of their weight.
        (free(key) as u64) << 63 | (*score as u64) << 31 | key as u64
    }));
    let mut done = 0;
    if causal && keep >= 4 {
        done = keep / 4;
        order[..scores.len() / 4].select_nth_unstable(done - 1);
    }
    order[done..].select_nth_unstable(keep - done - 1);
    kept.clear();
    kept.extend(order[..keep].iter().map(|word| (*word & ((1 << 31) - 1)) as usize));
    kept.sort_unstable();
}

/// Attention of the job's queries, or of some of them, over the keys in `own.kept`.
///
/// # Safety
/// As for [`exact`].
unsafe fn over(level: Level, job: &Job, queries: Option<&[usize]>, own: &mut Space, space: &mut Workspace) {
    let Space { kept, positions, q, k, v, out, row, .. } = own;
    let count = queries.map_or(job.q.count(), <[usize]>::len);
    let query = |i: usize| queries.map_or(i, |queries| queries[i]);
    let causal = job.attention.causal;
    // How many of the kept keys a query sees: they are in order.
    let seen = |i: usize| match causal {
        true => kept.partition_point(|key| *key <= job.position(query(i))),
        false => kept.len(),
    };
    positions.clear();
    positions.extend((0..count).map(|i| seen(i).saturating_sub(1)));
    if !kept.is_empty() {
        let of_kept = |_: usize, _: usize, i: usize, bias: &mut [f32]| {
            let (numbers, start) = match job.attention.bias {
                ScoreBias::ByDistance { table, reach } => {
                    (table, job.head * (2 * reach + 1) + reach - job.position(query(i)))
                }
                ScoreBias::ByKey(numbers) => (numbers, job.span.keys.start),
                ScoreBias::None | ScoreBias::PerQuery(_) => return,
            };
            bias.iter_mut().zip(&*kept).for_each(|(bias, key)| *bias = numbers[start + key]);
        };
        let bias = match job.attention.bias {
            ScoreBias::None => ScoreBias::None,
            _ => ScoreBias::PerQuery(&of_kept),
        };
        let attention = Attention { indices: positions, bias, ..*job.attention };
        let span = |first: usize| Span {
            queries: first..first + count,
            keys: 0..kept.len(),
            positions: 0..count,
            globals: 0..0,
        };
        let (k, v) = (k.take(job.k, kept), v.take(job.v, kept));
        // SAFETY: the rows were gathered for these queries and keys; the results are the job's, or as many rows of our own.
        unsafe {
            match queries {
                None => {
                    let span = span(job.span.queries.start);
                    exact(level, &Job { attention: &attention, span: &span, k, v, ..*job }, space);
                }
                Some(queries) => {
                    let (span, q) = (span(0), q.take(job.q, queries));
                    let mut together = out.rows_mut(job.out.element, count, job.k.width());
                    let out = Place::of(&mut together);
                    let index = job.index;
                    exact(level, &Job { attention: &attention, span: &span, index, head: 0, q, k, v, out }, space);
                    row.resize(job.k.width(), 0.0);
                    for i in 0..count {
                        together.as_rows().read_row(i, row);
                        write(job, query(i), row);
                    }
                }
            }
        }
    }
    if kept.is_empty() || causal {
        row.resize(job.k.width(), 0.0);
        for i in (0..count).filter(|i| seen(*i) == 0) {
            job.v.read_row(job.position(query(i)), row);
            // SAFETY: the query's place is the job's.
            unsafe { write(job, query(i), row) };
        }
    }
}

/// Writes a query's result.
///
/// # Safety
/// The query is the job's.
unsafe fn write(job: &Job, query: usize, values: &[f32]) {
    let (row, column) = job.place(query);
    // SAFETY: a head's width of elements at the query's place.
    unsafe {
        let to = job.out.at(row, column);
        match job.out.element {
            Element::F32 => to.cast::<f32>().copy_from_nonoverlapping(values.as_ptr(), values.len()),
            Element::Bf16 => {
                for (i, x) in values.iter().enumerate() {
                    *to.cast::<u16>().add(i) = crate::f32_to_bf16(*x);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
