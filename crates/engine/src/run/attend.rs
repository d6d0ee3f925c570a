//! Attention segments: the kernel does the work; positions that depend on the query are prepared here.

use super::rearrange::{copy_row, taking};
use super::tokens::always_stays;
use super::{Machine, rows};
use crate::arena::Arena;
use crate::generate::Cache;
use crate::layout::{Layout, Spans};
use crate::program::{Attend, Positions, RowSet};
use crate::relative::{BLOCK, SEGMENT_COLUMNS};
use sparing_kernels::attention::{Attention, Choice, ScoreBias, Span, attend_chosen, attend_kept, attend_network};
use sparing_kernels::{Buffer, Chunks, Element, Epilogue, PerWorker, Rows, RowsMut, Scratch, gemm};

/// Bytes of position scores to hold at a time.
const WAVE_BYTES: usize = 32 << 20;

/// Working memory for position scores of relative attention: one wave of queries at a time, so that memory grows
/// with the length of the longest input and not with its square.
pub(crate) struct Wave {
    /// `[tasks][heads][height]` rows of scores by distance.
    scores: Buffer,
    spans: Vec<Span>,
    tasks: Vec<Task>,
    /// First task of each span.
    first_tasks: Vec<usize>,
    /// Sequence of each span.
    sequences: Vec<usize>,
}

impl Default for Wave {
    fn default() -> Self {
        Wave {
            scores: Buffer::new(Element::F32),
            spans: Vec::new(),
            tasks: Vec::new(),
            first_tasks: Vec::new(),
            sequences: Vec::new(),
        }
    }
}

/// Queries whose position scores are computed together: neighbours, so that they share distances.
#[derive(Clone)]
struct Task {
    /// First query row.
    query: usize,
    /// Queries.
    count: usize,
    /// Blocks of distances `key - query` they need.
    first_block: i64,
    blocks: usize,
    segments: bool,
}

impl Machine {
    /// Runs an attention segment.
    pub(super) fn attend(&self, step: &Attend, arena: &mut Arena, cache: Option<&mut Cache>) {
        let Arena { full, layout, scratch, wave, values, .. } = arena;
        let queries = layout.count(step.queries);
        if queries == 0 {
            return;
        }
        // Probabilities of this attention, if its values needed them.
        // For this attention only: the next one of these rows may have other keys.
        let kept = values.kept_for.take().filter(|kept| kept == step).map(|_| &values.kept);
        let tokens = layout.count(RowSet::All);
        values.pinned.clear();
        if step.keys.is_some_and(|keys| keys.ends) {
            let rows = layout.sequences.iter().flat_map(|rows| rows.clone().map(move |row| (rows, row)));
            values.pinned.extend(rows.map(|(rows, row)| always_stays(layout, rows, row)));
        }
        taking(full, step.out, |full, out| {
            let q = rows(full, step.q, queries);
            let (mut k, mut v) = (rows(full, step.k, tokens), rows(full, step.v, tokens));
            if let Some(cache) = cache {
                (k, v) = cache.append(step.layer, layout.past, k, v);
            }
            let mut out = out.rows_mut(queries, step.out.stride).columns(step.out.start..step.out.end);
            self.scored(step, layout, wave, scratch, q, false, &mut |attention, spans| {
                let out = out.borrow();
                match (step.network, step.keys) {
                    (Some(network), _) => {
                        let network = &self.constants.networks[network];
                        attend_network(&self.team, attention, network, q, k, v, spans, out, scratch);
                    }
                    (None, None) => attend_kept(&self.team, attention, q, k, v, spans, out, kept, scratch),
                    (None, Some(keys)) => {
                        let choice = Choice { by: keys.by, keep: &|of| keys.keep.of(of), pinned: &values.pinned };
                        attend_chosen(&self.team, attention, &choice, q, k, v, spans, out, scratch);
                    }
                }
            });
        });
    }

    /// Calls `work` with the scores' description for all queries: once, or wave by wave where positions depend on the
    /// query. `whole`: a sequence's queries stay together.
    pub(super) fn scored(
        &self,
        step: &Attend,
        layout: &Layout,
        wave: &mut Wave,
        scratch: &PerWorker<Scratch>,
        q: Rows,
        whole: bool,
        work: &mut dyn FnMut(&Attention, &[Span]),
    ) {
        let buckets;
        let bias = match step.positions {
            Positions::Buckets(number) => {
                buckets = self.constants.buckets[number].up_to(layout.longest);
                ScoreBias::ByDistance { table: &buckets.table, reach: buckets.reach }
            }
            // What stands for several tokens counts as often.
            Positions::None if !layout.log_sizes.is_empty() => ScoreBias::ByKey(&layout.log_sizes),
            Positions::None | Positions::Relative(_) => ScoreBias::None,
        };
        let attention = Attention {
            heads: step.heads,
            head_width: step.head_width,
            scale: step.scale,
            causal: step.causal,
            window: step.window,
            bias,
            indices: &layout.indices,
        };
        let spans = layout.spans(step.queries);
        let Positions::Relative(number) = step.positions else {
            return work(&attention, &spans.spans);
        };
        // Neighbouring queries share nearly all distances; selected ones stand anywhere.
        let height = if step.queries == RowSet::All { BLOCK } else { 1 };
        let relative = &self.constants.relatives[number];
        let table = relative.up_to(layout.longest, &self.team, scratch);
        let mut next = (0, 0);
        while next.0 < spans.spans.len() {
            next = wave.plan(&attention, spans, &layout.mixed_types, height, next, whole);
            let width = wave.width();
            let Wave { scores, spans, tasks, first_tasks, sequences } = &mut *wave;
            let chunks = Chunks::new(scores.rows_mut(tasks.len() * step.heads * height, width), height);
            self.team.run(tasks.len() * step.heads, &|index, worker| {
                let (task, head) = (&tasks[index / step.heads], index % step.heads);
                let mut scratch = scratch.get(worker);
                let columns = head * step.head_width..(head + 1) * step.head_width;
                let q = q.range(task.query..task.query + task.count).columns(columns);
                let mut out = chunks.take(index).range(0..task.count);
                let mut product = |matrix, bias, at: usize, width: usize| {
                    let epilogue = Epilogue { bias: Some(bias), ..Epilogue::default() };
                    gemm(q, matrix, &epilogue, out.borrow().columns(at..at + width), &mut scratch);
                };
                for block in 0..task.blocks {
                    let (matrix, bias) = table.block(head, task.first_block + block as i64);
                    product(matrix, bias, block * BLOCK, BLOCK);
                }
                if task.segments {
                    let (matrix, bias) = relative.segment(head);
                    product(matrix, bias, width - SEGMENT_COLUMNS, 2);
                }
            });
            let scores = scores.rows(tasks.len() * step.heads * height, width);
            let fill = |span: usize, head: usize, query: usize, out: &mut [f32]| {
                let number = first_tasks[span] + query / height;
                let task = &tasks[number];
                let row = scores.row_f32((number * step.heads + head) * height + query % height);
                let position = attention.position(&spans[span], query);
                // Key 0 is at distance -position.
                let from = (-(position as i64) - task.first_block * BLOCK as i64) as usize;
                out.copy_from_slice(&row[from..from + out.len()]);
                if task.segments {
                    let types = &layout.types[layout.sequences[sequences[span]].clone()];
                    let (same, other) = (row[width - SEGMENT_COLUMNS], row[width - SEGMENT_COLUMNS + 1]);
                    for (score, key) in out.iter_mut().zip(types) {
                        *score += if *key == types[position] { same } else { other };
                    }
                }
            };
            let attention = Attention { bias: ScoreBias::PerQuery(&fill), ..attention };
            work(&attention, spans);
        }
    }
}

impl Wave {
    /// Width of a row of scores.
    fn width(&self) -> usize {
        self.tasks.iter().map(|task| task.blocks).max().unwrap_or(0) * BLOCK + SEGMENT_COLUMNS
    }

    /// Fills the wave with queries from `(span, query)` on and returns where the next wave begins.
    fn plan(
        &mut self,
        attention: &Attention,
        all: &Spans,
        mixed_types: &[bool],
        height: usize,
        from: (usize, usize),
        whole: bool,
    ) -> (usize, usize) {
        self.spans.clear();
        self.tasks.clear();
        self.first_tasks.clear();
        self.sequences.clear();
        let (mut number, mut query) = from;
        let mut most_blocks = 0;
        while number < all.spans.len() {
            let (span, sequence) = (&all.spans[number], all.sequences[number]);
            let keys = span.keys.len();
            let (first_query, first_task) = (query, self.tasks.len());
            while query < span.queries.len() {
                let count = height.min(span.queries.len() - query);
                let low = attention.position(span, query) as i64;
                let high = attention.position(span, query + count - 1) as i64;
                let first_block = (-high).div_euclid(BLOCK as i64);
                let blocks = ((keys as i64 - 1 - low).div_euclid(BLOCK as i64) - first_block + 1) as usize;
                let most = most_blocks.max(blocks);
                let chunks = (self.tasks.len() + 1) * attention.heads;
                let full = chunks > Chunks::MOST || chunks * height * (most * BLOCK + SEGMENT_COLUMNS) * 4 > WAVE_BYTES;
                if full && !self.tasks.is_empty() && !(whole && query > 0) {
                    break;
                }
                most_blocks = most;
                let segments = mixed_types[sequence];
                self.tasks.push(Task { query: span.queries.start + query, count, first_block, blocks, segments });
                query += count;
            }
            if query > first_query {
                // The layout's indices begin with 0, 1, 2 ..: they serve as positions of consecutive queries.
                let positions = if span.positions.is_empty() {
                    let low = attention.position(span, first_query);
                    low..low + query - first_query
                } else {
                    span.positions.start + first_query..span.positions.start + query
                };
                let queries = span.queries.start + first_query..span.queries.start + query;
                self.spans.push(Span { queries, positions, ..span.clone() });
                self.first_tasks.push(first_task);
                self.sequences.push(sequence);
            }
            if query < span.queries.len() {
                return (number, query);
            }
            (number, query) = (number + 1, 0);
        }
        (number, 0)
    }
}

impl Cache {
    /// Adds the new tokens' keys and values to a layer's and returns all of them.
    fn append(&mut self, layer: usize, past: usize, k: Rows, v: Rows) -> (Rows<'_>, Rows<'_>) {
        let (keys, values) = &mut self.layers[layer];
        let (width, total) = (k.width(), past + k.count());
        for (from, to) in [(k, &mut *keys), (v, &mut *values)] {
            let mut to: RowsMut = to.rows_mut(total, width);
            for row in 0..from.count() {
                copy_row(from, row, &mut to, past + row);
            }
        }
        (keys.rows(total, width), values.rows(total, width))
    }
}
