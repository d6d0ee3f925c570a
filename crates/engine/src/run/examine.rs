//! A run of the exact model with economised values computed beside it.

use super::{Machine, rows};
use crate::arena::Arena;
use crate::profile::Clock;
use crate::program::{Program, RowSet, Segment, Values};
use crate::values::{Economy, Sums};
use sparing_kernels::Rows;

impl Machine {
    /// Runs a program with economised values, but exactly; `examined` gets what economised values would have done.
    pub(crate) fn run_examined(&self, program: &Program, arena: &mut Arena, examined: &mut Vec<Sums>) {
        let mut clock = Clock::stopped();
        // The economised result of the layer at hand, until the exact one is there.
        let mut beside: Option<(Sums, Vec<f32>)> = None;
        for segment in &program.segments {
            match segment {
                Segment::Values(values) => {
                    self.values(values, arena, &mut clock);
                    self.attend(&values.attend, arena, None);
                    let economy = &self.constants.economies[values.economy];
                    let mut sums = self.describe(values, economy, arena);
                    sums.spent = spent(economy, arena);
                    beside = Some((sums, self.context(values, arena)));
                    self.exact_values(values, arena);
                }
                Segment::Attend(attend) => {
                    self.attend(attend, arena, None);
                    if let Some((mut sums, got)) = beside.take() {
                        let queries = arena.layout.count(attend.queries);
                        let want = rows(&arena.full, attend.out, queries);
                        compare(&mut sums, &got, want, attend.heads, attend.head_width);
                        examined.push(sums);
                    }
                }
                Segment::RowLocal(local) => self.row_local(local, arena, false, None),
                other => self.move_rows(other, arena),
            }
        }
    }

    /// What attention returned.
    fn context(&self, values: &Values, arena: &Arena) -> Vec<f32> {
        let queries = arena.layout.count(values.attend.queries);
        let all = rows(&arena.full, values.attend.out, queries);
        let mut copy = vec![0.0; queries * all.width()];
        copy.chunks_exact_mut(all.width()).enumerate().for_each(|(row, to)| all.read_row(row, to));
        copy
    }

    /// The bound of Theorem 2: mean over heads of `alpha · beta · ||W_h||_F`.
    fn describe(&self, values: &Values, economy: &Economy, arena: &Arena) -> Sums {
        let tokens = arena.layout.count(RowSet::All);
        let x = rows(&arena.full, values.input, tokens);
        let mut row = vec![0.0; x.width()];
        let mut length = |token: usize| {
            x.read_row(token, &mut row);
            row.iter().map(|x| (*x as f64).powi(2)).sum::<f64>().sqrt()
        };
        let beta = (0..tokens).map(&mut length).sum::<f64>() / tokens.max(1) as f64;
        let bound = economy.rule.alpha as f64 * beta * economy.mean_frobenius;
        Sums { layer: values.attend.layer, bound, ..Sums::default() }
    }
}

/// Per sequence and token, the share of the exact cost, mean over heads.
fn spent(economy: &Economy, arena: &mut Arena) -> Vec<Vec<f32>> {
    let mut all = vec![0f32; arena.layout.count(RowSet::All)];
    let exact = economy.rule.cost(economy.rule.inputs as u32, true) as f32 * economy.rule.heads as f32;
    for head in arena.values.heads.iter_mut().take(economy.rule.heads) {
        let picks = head.get_mut().unwrap_or_else(|e| e.into_inner());
        let full = economy.rule.cost(0, true) as f32 / exact;
        picks.full.iter().for_each(|pick| all[pick.row as usize] += full);
        picks.cheap.iter().for_each(|pick| all[pick.row as usize] += economy.rule.cost_of(pick.budget) as f32 / exact);
    }
    arena.layout.sequences.iter().map(|rows| all[rows.clone()].to_vec()).collect()
}

/// Adds up the differences.
fn compare(sums: &mut Sums, got: &[f32], want: Rows, heads: usize, width: usize) {
    let mut row = vec![0.0; heads * width];
    for (number, got) in got.chunks_exact(heads * width).enumerate() {
        want.read_row(number, &mut row);
        for (got, want) in got.chunks_exact(width).zip(row.chunks_exact(width)) {
            let error: f64 = got.iter().zip(want).map(|(a, b)| ((a - b) as f64).powi(2)).sum();
            sums.squared_error += error;
            sums.squared_size += want.iter().map(|x| (*x as f64).powi(2)).sum::<f64>();
            sums.error += error.sqrt();
            sums.rows += 1.0;
        }
    }
}
