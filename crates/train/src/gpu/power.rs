//! PowerNorm (Shen et al. 2020, <https://arxiv.org/abs/2003.07845>) with its approximate gradient.

use super::operation::{Computed, operation};
use super::sums::column_sums;
use burn::tensor::Tensor;

/// The share that running statistics keep of themselves at every pass, forward and backward, as published.
const KEEP: f64 = 0.9;

/// What a norm divides by, and what it remembers. All `[1, width]`, without history.
pub(crate) struct Power {
    /// Running mean of `x²`.
    pub(crate) phi: Tensor<2>,
    /// The running statistic of the way back (the paper's ν).
    pub(crate) nu: Tensor<2>,
    /// Every row's share of a mean, `[rows, 1]`: zero for padding.
    pub(crate) share: Tensor<2>,
    pub(crate) eps: f32,
    /// Divide by the batch's own statistic (the paper's warm-up) instead of the running one.
    pub(crate) batch: bool,
}

/// Which statistic has changed.
pub(crate) enum Changed {
    Phi,
    Nu,
}

/// `x / ψ w + b` of rows `[rows, width]`; weight and bias `[1, width]`. `tell` gets new running statistics: of φ now, of ν on
/// the way back.
///
/// With the batch's own ψ the gradient is exact: `(g - x̂ mean(g x̂)) / ψ`. With the running one, which depends on all batches
/// before, ν stands for what they would say: `(g - ν x̂) / ψ`, `ν ← ν (1 - (1 - α) mean(x̂²)) + (1 - α) mean(g x̂)`.
pub(crate) fn power_norm(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Tensor<2>,
    power: Power,
    tell: impl Fn(Changed, Tensor<2>) + Send + 'static,
) -> Tensor<2> {
    operation([x, weight, bias], move |[x, weight, bias]| {
        let Power { phi, nu, share, eps, batch } = power;
        let mean = {
            let share = share.clone();
            move |x: Tensor<2>| column_sums(x * share.clone())
        };
        let square = mean(x.clone() * x.clone());
        tell(Changed::Phi, phi.clone().mul_scalar(KEEP) + square.clone().mul_scalar(1.0 - KEEP));
        let inverse = if batch { square } else { phi }.add_scalar(eps).sqrt().recip();
        let normal = x * inverse.clone();
        let values = normal.clone() * weight.clone() + bias;
        let back = move |g: Tensor<2>, wanted: [bool; 3]| {
            let dw = wanted[1].then(|| column_sums(g.clone() * normal.clone()));
            let db = wanted[2].then(|| column_sums(g.clone()));
            let g = g * weight;
            let along = mean(g.clone() * normal.clone());
            let energy = mean(normal.clone() * normal.clone());
            let kept = nu.clone() - nu.clone() * energy.mul_scalar(1.0 - KEEP);
            tell(Changed::Nu, kept + along.clone().mul_scalar(1.0 - KEEP));
            let dx = wanted[0].then(|| {
                // Padding has no part in the statistics, and gets no gradient from them.
                let present = share.clone().sign();
                (g - normal * if batch { along } else { nu } * present) * inverse
            });
            [dx, dw, db]
        };
        Computed { values, back }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{leaf, numbers, values};
    use burn::tensor::{Device, TensorData};
    use std::sync::{Arc, Mutex};

    const ROWS: usize = 9;
    const WIDTH: usize = 5;
    const EPS: f64 = 1e-3;

    /// What the paper's algorithms 1 and 2 say, a number at a time: values, gradients of rows, weight and bias, new φ and ν.
    struct Reference([Vec<f64>; 6]);

    impl Reference {
        fn new([x, w, b, g, phi, nu]: [&[f64]; 6], real: &[bool], batch: bool) -> Reference {
            let count = real.iter().filter(|real| **real).count() as f64;
            let [mut y, mut dx] = [vec![0.0; ROWS * WIDTH], vec![0.0; ROWS * WIDTH]];
            let [mut dw, mut db, mut new_phi, mut new_nu] = std::array::from_fn(|_| vec![0.0; WIDTH]);
            for c in 0..WIDTH {
                let mean = |of: &dyn Fn(usize) -> f64| {
                    (0..ROWS).filter(|row| real[*row]).map(|row| of(row * WIDTH + c)).sum::<f64>() / count
                };
                let square = mean(&|i| x[i] * x[i]);
                let psi = (if batch { square } else { phi[c] } + EPS).sqrt();
                let energy = mean(&|i| (x[i] / psi) * (x[i] / psi));
                let along = mean(&|i| g[i] * w[c] * x[i] / psi);
                new_phi[c] = 0.9 * phi[c] + 0.1 * square;
                new_nu[c] = nu[c] * (1.0 - 0.1 * energy) + 0.1 * along;
                for (row, real) in real.iter().enumerate() {
                    let i = row * WIDTH + c;
                    let normal = x[i] / psi;
                    y[i] = normal * w[c] + b[c];
                    let statistic = if batch { along } else { nu[c] };
                    dx[i] = (g[i] * w[c] - if *real { statistic * normal } else { 0.0 }) / psi;
                    dw[c] += g[i] * normal;
                    db[c] += g[i];
                }
            }
            Reference([y, dx, dw, db, new_phi, new_nu])
        }
    }

    /// Running statistics, and the batch's own, with rows of padding that are larger than all others.
    #[test]
    fn the_approximate_gradient_and_both_statistics_are_the_published_ones() {
        let real: Vec<bool> = (0..ROWS).map(|row| ![2, 7, 8].contains(&row)).collect();
        let far: Vec<f32> = real.iter().flat_map(|real| [if *real { 1.0 } else { 20.0 }; WIDTH]).collect();
        let plain = Device::flex();
        let constant = |numbers: &[f32], shape: [usize; 2]| {
            Tensor::<2>::from_data(TensorData::new(numbers.to_vec(), shape), &plain)
        };
        let [x, w, b] = [(1, ROWS), (2, 1), (3, 1)].map(|(seed, rows)| leaf(seed, [rows, WIDTH]));
        let x = (x.clone().inner() * constant(&far, [ROWS, WIDTH])).autodiff().require_grad();
        let phi: Vec<f32> = numbers(4, WIDTH).iter().map(|x| 0.2 + x.abs()).collect();
        let nu = numbers(5, WIDTH);
        let pull = numbers(6, ROWS * WIDTH);
        let count = real.iter().filter(|real| **real).count() as f32;
        let share: Vec<f32> = real.iter().map(|real| if *real { 1.0 / count } else { 0.0 }).collect();
        for batch in [false, true] {
            let told = Arc::new(Mutex::new([None, None]));
            let power = Power {
                phi: constant(&phi, [1, WIDTH]),
                nu: constant(&nu, [1, WIDTH]),
                share: constant(&share, [ROWS, 1]),
                eps: EPS as f32,
                batch,
            };
            let heard = told.clone();
            let tell = move |changed: Changed, value: Tensor<2>| {
                let place = match changed {
                    Changed::Phi => 0,
                    Changed::Nu => 1,
                };
                assert!(heard.lock().unwrap()[place].replace(values(value)).is_none());
            };
            let y = power_norm(x.clone(), w.clone(), b.clone(), power, tell);
            let mut gradients = (y.clone() * constant(&pull, [ROWS, WIDTH]).autodiff()).sum().backward();
            let [dx, dw, db] = [&x, &w, &b].map(|input| values(input.grad_remove(&mut gradients).unwrap()));
            let [new_phi, new_nu] = std::mem::take(&mut *told.lock().unwrap()).map(Option::unwrap);
            let found = [values(y), dx, dw, db, new_phi, new_nu];
            let wide = |x: &[f32]| x.iter().copied().map(f64::from).collect::<Vec<f64>>();
            let [rows, weight, bias] = [&x, &w, &b].map(|input| wide(&values(input.clone())));
            let given = [rows, weight, bias, wide(&pull), wide(&phi), wide(&nu)];
            let want = Reference::new(given.each_ref().map(Vec::as_slice), &real, batch);
            let names = ["values", "rows", "weight", "bias", "phi", "nu"];
            for ((name, found), want) in names.iter().zip(&found).zip(&want.0) {
                assert_eq!(found.len(), want.len());
                let far = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() / (1.0 + b.abs());
                let far = found.iter().zip(want).map(far).fold(0.0, f64::max);
                assert!(far < 2e-6, "{name}, batch {batch}: {far:e}");
            }
        }
    }
}
