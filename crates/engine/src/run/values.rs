//! Values within budgets: importance, budgets, staircase.

use super::local::chunk_rows;
use super::rearrange::taking;
use super::{Machine, rows};
use crate::arena::Arena;
use crate::layout::Layout;
use crate::profile::Clock;
use crate::program::{Attend, Part, Positions, RowSet, Values};
use crate::values::{Economy, HeadPicks, Space};
use sparing_kernels::attention::{Pooling as PooledBy, importance};
use sparing_kernels::staircase::{Part as Work, encode};
use sparing_kernels::{Chunks, Epilogue, gemm};
use sparing_model::Pooling;
use std::sync::{Mutex, MutexGuard, PoisonError};

impl Machine {
    /// Runs a segment of economised values.
    pub(super) fn values(&self, step: &Values, arena: &mut Arena, clock: &mut Clock) {
        let began = clock.now();
        let economy = &self.constants.economies[step.economy];
        let tokens = arena.layout.count(RowSet::All);
        if tokens == 0 {
            return;
        }
        self.importance(&step.attend, economy.rule.pooling, arena);
        clock.add(Some(step.attend.layer), Part::Importance, began);
        let began = clock.now();
        let Arena { full, layout, scratch, values: space, .. } = arena;
        let draws = economy.draws(space.seed);
        let all_dense = self.pick(step, economy, draws.as_deref(), layout, space);
        if all_dense {
            self.exact_values(step, arena);
            return clock.add(Some(step.attend.layer), Part::Qkv, began);
        }
        let view = step.attend.v;
        taking(full, view, |full, out| {
            let x = rows(full, step.input, tokens);
            let out = out.rows_mut(tokens, view.stride).columns(view.start..view.end);
            let heads: Vec<MutexGuard<HeadPicks>> = space.heads[..economy.rule.heads].iter().map(lock).collect();
            let parts = heads.iter().enumerate().flat_map(|(h, picks)| economy.parts(h, picks, draws.as_deref()));
            let parts: Vec<Work> = parts.filter(|part| !part.picks.is_empty()).collect();
            encode(&self.team, x, economy.rule.width, &parts, out, scratch);
        });
        clock.add(Some(step.attend.layer), Part::Qkv, began);
    }

    /// The values themselves, by the product that exact programs run.
    pub(super) fn exact_values(&self, step: &Values, arena: &mut Arena) {
        let Arena { full, layout, scratch, .. } = arena;
        let packed = &self.constants.matrices[self.constants.economies[step.economy].matrix];
        let (tokens, view) = (layout.count(RowSet::All), step.attend.v);
        taking(full, view, |full, out| {
            let x = rows(full, step.input, tokens);
            let epilogue = Epilogue { bias: packed.bias.as_deref(), ..Epilogue::default() };
            let chunk = chunk_rows(tokens, self.team.threads());
            let chunks = Chunks::new(out.rows_mut(tokens, view.stride).columns(view.start..view.end), chunk);
            self.team.run(tokens.div_ceil(chunk), &|index, worker| {
                let rows = x.range(index * chunk..tokens.min((index + 1) * chunk));
                gemm(rows, &packed.matrix, &epilogue, chunks.take(index), &mut scratch.get(worker));
            });
        });
    }

    /// Attention that every token gets, `[heads, tokens]`.
    pub(super) fn importance(&self, attend: &Attend, pooling: Pooling, arena: &mut Arena) {
        let Arena { full, layout, scratch, wave, values: space, .. } = arena;
        let Space { importance: pooled, kept, kept_for, .. } = space;
        *kept_for = None;
        let tokens = layout.count(RowSet::All);
        let mut out = pooled.rows_mut(attend.heads, tokens);
        for head in 0..attend.heads {
            out.row_f32(head).fill(0.0);
        }
        let queries = layout.count(attend.queries);
        if queries == 0 {
            return;
        }
        let (q, k) = (rows(full, attend.q, queries), rows(full, attend.k, tokens));
        let pooling = match pooling {
            Pooling::Max => PooledBy::Max,
            Pooling::Mean => PooledBy::Sum,
            Pooling::Median => PooledBy::Median,
        };
        let whole = pooling == PooledBy::Median;
        // Positions that depend on the query come in waves, which overwrite each other.
        let keep = !matches!(attend.positions, Positions::Relative(_));
        self.scored(attend, layout, wave, scratch, q, whole, &mut |attention, spans| {
            let kept = keep.then_some(&mut *kept);
            importance(&self.team, attention, q, k, spans, pooling, out.borrow(), kept, scratch);
        });
        *kept_for = keep.then(|| attend.clone());
    }

    /// Decides what is computed how. Returns whether everything is exact.
    fn pick(
        &self,
        step: &Values,
        economy: &Economy,
        draws: Option<&crate::values::Draws>,
        layout: &Layout,
        space: &mut Space,
    ) -> bool {
        let Space { importance, heads, dense, queries, spent, .. } = space;
        let pooled = importance.rows(economy.rule.heads, layout.count(RowSet::All));
        queries.clear();
        queries.resize(layout.sequences.len(), 0);
        let spans = layout.spans(step.attend.queries);
        for (span, sequence) in spans.spans.iter().zip(&spans.sequences) {
            queries[*sequence] = span.queries.len();
        }
        if heads.len() < economy.rule.heads {
            heads.resize_with(economy.rule.heads, Mutex::default);
        }
        dense.clear();
        for (rows, queries) in layout.sequences.iter().zip(&*queries) {
            let of = |head: usize| &pooled.row_f32(head)[rows.clone()];
            dense.push(economy.rule.is_dense(*queries, &mut lock(&heads[0]), of));
            spent.add_sequence(&economy.rule, rows.len());
        }
        let (heads, dense, queries) = (&*heads, &*dense, &*queries);
        self.team.run(economy.rule.heads, &|head, _| {
            let mut picks = lock(&heads[head]);
            picks.clear();
            let draws = draws.map(|draws| &draws.heads[head].by_budget[..]);
            for (number, rows) in layout.sequences.iter().enumerate() {
                let of = &pooled.row_f32(head)[rows.clone()];
                economy.rule.pick(&mut picks, rows.clone(), of, queries[number], dense[number], draws);
            }
            picks.sort();
        });
        for head in &heads[..economy.rule.heads] {
            spent.join(&lock(head).spent);
        }
        dense.iter().all(|dense| *dense)
    }
}

/// Nobody panics while holding one of these; if somebody did, the run is lost anyway.
fn lock(picks: &Mutex<HeadPicks>) -> MutexGuard<'_, HeadPicks> {
    picks.lock().unwrap_or_else(PoisonError::into_inner)
}
