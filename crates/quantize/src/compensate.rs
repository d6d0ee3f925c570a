//! Rounding errors made up for: what one weight's rounding does to an output is taken back by the weights that are not
//! rounded yet, as far as the inputs that both are multiplied with go together (GPTQ, Frantar et al. 2022,
//! <https://arxiv.org/abs/2210.17323>, after Optimal Brain Surgeon).

use crate::cholesky;
use crate::round::{each_row, integer};
use sparing_kernels::{Epilogue, Format, PackedMatrix, Rows, RowsMut, Scratch, gemm};
use sparing_model::Integers;

/// Rows that are multiplied together.
const ROWS: usize = 512;
/// Share of the mean square that is added to every input's: few examples say little about rare inputs.
const DAMPING: f64 = 0.01;

/// Sums of products of a linear map's inputs: `Σ x xᵀ` over the rows it reads.
#[derive(Clone, Default)]
pub struct Products {
    inputs: usize,
    /// `[inputs, inputs]`.
    sum: Vec<f32>,
    pending: Vec<f32>,
}

impl Products {
    /// Takes in rows of this width.
    pub fn add(&mut self, rows: &[f32], inputs: usize) {
        self.inputs = inputs;
        self.pending.extend_from_slice(rows);
        if self.pending.len() >= ROWS * inputs {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let (inputs, rows) = (self.inputs, self.pending.len() / self.inputs.max(1));
        if rows == 0 {
            return;
        }
        self.sum.resize(inputs * inputs, 0.0);
        let turned: Vec<f32> = (0..inputs).flat_map(|i| self.pending.iter().skip(i).step_by(inputs).copied()).collect();
        let packed = PackedMatrix::pack(&turned, inputs, rows, Format::F32);
        let mut out = vec![0.0; inputs * inputs];
        let epilogue = Epilogue { residual: Some(Rows::f32(&self.sum, inputs)), ..Epilogue::default() };
        let to = RowsMut::f32(&mut out, inputs);
        gemm(Rows::f32(&turned, rows), &packed, &epilogue, to, &mut Scratch::default());
        self.sum = out;
        self.pending.clear();
    }

    /// `Σ x xᵀ`, row-major `[inputs, inputs]`; empty if nothing was seen.
    pub fn sums(&self) -> Vec<f32> {
        let mut whole = self.clone();
        whole.flush();
        whole.sum
    }

    /// Of some of the inputs.
    pub fn of_inputs(&self, kept: &[usize]) -> Products {
        let (all, inputs) = (self.sums(), self.inputs);
        let kept = if all.is_empty() { &[] } else { kept };
        let pairs = kept.iter().flat_map(|i| kept.iter().map(move |j| i * inputs + j));
        let sum = pairs.map(|place| all[place]).collect();
        Products { inputs: kept.len(), sum, pending: vec![] }
    }

    /// How errors are made up for; `None` if nothing was seen.
    pub(crate) fn compensation(&self) -> Option<Compensation> {
        let sum = self.sums();
        if sum.is_empty() { None } else { Compensation::new(&sum, self.inputs) }
    }
}

/// The order in which inputs are rounded, and what each error does to those that come after.
pub struct Compensation {
    /// Inputs, the last to be rounded first.
    order: Vec<usize>,
    /// Lower triangle, row by row: the inverse of the Cholesky factor of the products in that order.
    inverse: Vec<Vec<f32>>,
}

impl Compensation {
    fn new(sum: &[f32], inputs: usize) -> Option<Compensation> {
        let square = |i: usize| f64::from(sum[i * inputs + i]);
        let mean = (0..inputs).map(square).sum::<f64>() / inputs as f64;
        if !(mean.is_finite() && mean > 0.0) {
            return None;
        }
        // Large inputs are rounded first, while there are many others left to make up for it.
        let mut order: Vec<usize> = (0..inputs).collect();
        order.sort_by(|a, b| square(*a).total_cmp(&square(*b)).then(a.cmp(b)));
        let damped = |i: usize, j: usize| {
            let product = f64::from(sum[order[i] * inputs + order[j]]);
            if i == j { product + DAMPING * mean } else { product }
        };
        let lower = (0..inputs).map(|i| (0..=i).map(|j| damped(i, j)).collect()).collect();
        let inverse = cholesky::invert(&cholesky::factor(lower, 1e-9 * mean));
        let inverse = inverse.into_iter().map(|row| row.into_iter().map(|x| x as f32).collect()).collect();
        Some(Compensation { order, inverse })
    }

    /// Inputs of the maps that it is for.
    pub fn inputs(&self) -> usize {
        self.order.len()
    }

    /// Rounds again with the scales that are there.
    pub(crate) fn round(&self, values: &[f32], bits: u32, found: &mut Integers) {
        let most = ((1u32 << (bits - 1)) - 1) as f32;
        each_row(values, self.order.len(), found, &|_, row, out, scale| {
            let mut left: Vec<f32> = self.order.iter().map(|i| row[*i]).collect();
            let inverse = 1.0 / *scale;
            for (at, lower) in self.inverse.iter().enumerate().rev() {
                let q = integer(left[at] * inverse, most);
                out[self.order[at]] = q as i8;
                let error = (left[at] - q * *scale) / lower[at];
                left.iter_mut().zip(&lower[..at]).for_each(|(w, l)| *w -= error * l);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ScaleChoice, round_matrix};

    /// Repeatable numbers between -1 and 1.
    fn numbers(seed: u64, count: usize) -> Vec<f32> {
        let mut state = seed | 1;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| draw()).collect()
    }

    #[test]
    fn outputs_are_nearer_on_inputs_that_go_together() {
        let (rows, inputs, outputs) = (700, 37, 9);
        // Inputs that are mixtures of a few causes.
        let (causes, mix) = (numbers(1, rows * 5), numbers(2, 5 * inputs));
        let noise = numbers(3, rows * inputs);
        let x: Vec<f32> = (0..rows * inputs)
            .map(|i| {
                let (row, column) = (i / inputs, i % inputs);
                (0..5).map(|c| causes[row * 5 + c] * mix[c * inputs + column]).sum::<f32>() + 0.1 * noise[i]
            })
            .collect();
        let w = numbers(4, outputs * inputs);
        let mut products = Products::default();
        x.chunks(64 * inputs).for_each(|part| products.add(part, inputs));
        let compensation = products.compensation().unwrap();
        // The sums are those of the slow way.
        let sums = products.sums();
        for (i, j) in [(0, 0), (3, 30), (36, 5)] {
            let want: f64 = (0..rows).map(|r| f64::from(x[r * inputs + i]) * f64::from(x[r * inputs + j])).sum();
            assert!((f64::from(sums[i * inputs + j]) - want).abs() < 1e-2, "{i} {j}");
        }
        let error = |found: &Integers| -> f64 {
            let missing =
                |o: usize, j: usize| w[o * inputs + j] - f32::from(found.values[o * inputs + j]) * found.scales[o];
            x.chunks(inputs)
                .flat_map(|row| (0..outputs).map(move |o| (row, o)))
                .map(|(row, o)| row.iter().enumerate().map(|(j, x)| f64::from(x * missing(o, j))).sum::<f64>().powi(2))
                .sum()
        };
        let mut found = round_matrix(&w, inputs, &|_| None, 3, ScaleChoice::Searched);
        let before = error(&found);
        compensation.round(&w, 3, &mut found);
        let after = error(&found);
        assert!(after < before / 3.0, "{before} {after}");
        assert!(found.values.iter().all(|q| q.abs() <= 3));
    }

    #[test]
    fn some_inputs_go_together_as_they_did_among_all() {
        let (rows, inputs) = (90, 11);
        let x = numbers(5, rows * inputs);
        let kept = [0, 3, 4, 9];
        let (mut all, mut few) = (Products::default(), Products::default());
        all.add(&x, inputs);
        let part: Vec<f32> = x.chunks(inputs).flat_map(|row| kept.map(|i| row[i])).collect();
        few.add(&part, kept.len());
        let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-3;
        assert!(all.of_inputs(&kept).sums().iter().zip(&few.sums()).all(near));
        assert!(Products::default().of_inputs(&[]).sums().is_empty());
    }

    #[test]
    fn nothing_seen_is_nothing_to_go_by() {
        assert!(Products::default().compensation().is_none());
        let mut zeros = Products::default();
        zeros.add(&[0.0; 12], 4);
        assert!(zeros.compensation().is_none());
    }
}
