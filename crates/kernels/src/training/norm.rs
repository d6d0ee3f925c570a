//! Layer norm of `dropout(x) + stream`, and the way back.

use super::Dropout;
use super::dropout::factors;
use super::sums::add_in_order;
use crate::simd::{Level, Simd, kernel};
use crate::{Chunks, Rows, RowsMut, Team};

/// Rows that one task takes.
const ROWS: usize = 32;

/// What goes into a norm: rows of `weight.len()` elements.
#[derive(Clone, Copy)]
pub struct Normed<'a> {
    /// The rows.
    pub x: &'a [f32],
    /// What is dropped of them.
    pub dropout: Option<Dropout>,
    /// Added to them after that.
    pub stream: Option<&'a [f32]>,
    /// Factor per column.
    pub weight: &'a [f32],
    /// Summand per column.
    pub bias: &'a [f32],
    /// Added to the variance.
    pub eps: f32,
}

/// Results of some rows.
struct Place<'a> {
    first: usize,
    normal: &'a mut [f32],
    inverse: &'a mut [f32],
    out: &'a mut [f32],
}

/// Calls `f(at, n)` for each vector of a row.
#[inline(always)]
fn vectors<S: Simd>(width: usize, mut f: impl FnMut(usize, usize)) {
    let mut at = 0;
    while at < width {
        let n = S::LANES.min(width - at);
        f(at, n);
        at += n;
    }
}

#[inline(always)]
unsafe fn forward<S: Simd>(job: &Normed, place: &mut Place) {
    let width = job.weight.len();
    for row in 0..place.inverse.len() {
        let begin = (place.first + row) * width;
        let x = &job.x[begin..begin + width];
        let stream = job.stream.map(|s| &s[begin..begin + width]);
        let normal = &mut place.normal[row * width..(row + 1) * width];
        let out = &mut place.out[row * width..(row + 1) * width];
        // SAFETY: all slices have `width` elements (and so have weight and bias: checked by the caller).
        unsafe {
            if let Some(dropout) = &job.dropout {
                // The result's place serves for the factors until the result is there.
                factors::<S>(dropout, begin, out);
            }
            let mut sum = S::splat(0.0);
            vectors::<S>(width, |at, n| {
                let mut v = S::load_n(x.as_ptr().add(at), n);
                if job.dropout.is_some() {
                    v = S::mul(v, S::load_n(out.as_ptr().add(at), n));
                }
                if let Some(stream) = stream {
                    v = S::add(v, S::load_n(stream.as_ptr().add(at), n));
                }
                S::store_n(normal.as_mut_ptr().add(at), v, n);
                sum = S::add(sum, v);
            });
            let mean = S::sum(sum) / width as f32;
            let whole = width - width % S::LANES;
            let mut squares = S::splat(0.0);
            let mut at = 0;
            while at < whole {
                let d = S::sub(S::load(normal.as_ptr().add(at)), S::splat(mean));
                squares = S::fma(d, d, squares);
                at += S::LANES;
            }
            let rest: f32 = normal[whole..].iter().map(|v| (v - mean) * (v - mean)).sum();
            let variance = (S::sum(squares) + rest) / width as f32;
            let inverse = 1.0 / (variance + job.eps).sqrt();
            place.inverse[row] = inverse;
            vectors::<S>(width, |at, n| {
                let v = S::load_n(normal.as_ptr().add(at), n);
                let v = S::mul(S::sub(v, S::splat(mean)), S::splat(inverse));
                S::store_n(normal.as_mut_ptr().add(at), v, n);
                let (weight, bias) = (job.weight.as_ptr().add(at), job.bias.as_ptr().add(at));
                S::store_n(out.as_mut_ptr().add(at), S::fma(v, S::load_n(weight, n), S::load_n(bias, n)), n);
            });
        }
    }
}
kernel!(forward_at = forward(job: &Normed, place: &mut Place));

/// `out = layer_norm(dropout(x) + stream)`. Keeps what the way back needs: the normalised rows before weight and bias, and
/// one over each row's deviation.
pub fn norm(team: &Team, job: &Normed, normal: &mut [f32], inverse: &mut [f32], out: &mut [f32]) {
    let width = job.weight.len();
    let (len, rows) = (job.x.len(), inverse.len());
    assert!(job.bias.len() == width && len == rows * width, "norm of {len} by {width}");
    assert!(normal.len() == len && out.len() == len && job.stream.is_none_or(|s| s.len() == len), "rows");
    let each = ROWS.max(rows.div_ceil(Chunks::MOST));
    let tasks = rows.div_ceil(each);
    let normals = Chunks::new(RowsMut::f32(normal, width), each);
    let inverses = Chunks::new(RowsMut::f32(inverse, 1), each);
    let outs = Chunks::new(RowsMut::f32(out, width), each);
    team.run(tasks, &|task, _| {
        let (mut normal, mut inverse, mut out) = (normals.take(task), inverses.take(task), outs.take(task));
        let (normal, inverse, out) = (normal.all_f32(), inverse.all_f32(), out.all_f32());
        let mut place = Place { first: task * each, normal, inverse, out };
        // SAFETY: the active level is available, lengths were checked.
        unsafe { forward_at(Level::active(), job, &mut place) };
    });
}

/// What the gradient of a norm is made of.
#[derive(Clone, Copy)]
pub struct NormGradient<'a> {
    /// The gradient of the result.
    pub gradient: &'a [f32],
    /// As [`norm`] left it.
    pub normal: &'a [f32],
    /// As [`norm`] left it.
    pub inverse: &'a [f32],
    /// Factor per column.
    pub weight: &'a [f32],
    /// As it was in [`Normed`].
    pub dropout: Option<Dropout>,
}

/// Gradients of some rows.
struct Back<'a> {
    first: usize,
    /// Of the sum.
    sum: &'a mut [f32],
    /// Of what was dropped from, if there is dropout.
    x: Option<&'a mut [f32]>,
    /// Of weight, then bias.
    columns: &'a mut [f32],
}

#[inline(always)]
unsafe fn backward<S: Simd>(job: &NormGradient, back: &mut Back) {
    let width = job.weight.len();
    let (weights, biases) = back.columns.split_at_mut(width);
    for row in 0..back.sum.len() / width {
        let begin = (back.first + row) * width;
        let gradient = &job.gradient[begin..begin + width];
        let normal = &job.normal[begin..begin + width];
        let sum = &mut back.sum[row * width..(row + 1) * width];
        // SAFETY: all slices have `width` elements.
        unsafe {
            let (mut plain, mut along) = (S::splat(0.0), S::splat(0.0));
            vectors::<S>(width, |at, n| {
                let g = S::load_n(gradient.as_ptr().add(at), n);
                let v = S::load_n(normal.as_ptr().add(at), n);
                let gw = S::mul(g, S::load_n(job.weight.as_ptr().add(at), n));
                plain = S::add(plain, gw);
                along = S::fma(gw, v, along);
                let p = weights.as_mut_ptr().add(at);
                S::store_n(p, S::fma(g, v, S::load_n(p, n)), n);
                let p = biases.as_mut_ptr().add(at);
                S::store_n(p, S::add(g, S::load_n(p, n)), n);
            });
            let plain = S::splat(S::sum(plain) / width as f32);
            let along = S::splat(S::sum(along) / width as f32);
            let inverse = S::splat(job.inverse[back.first + row]);
            vectors::<S>(width, |at, n| {
                let g = S::load_n(gradient.as_ptr().add(at), n);
                let v = S::load_n(normal.as_ptr().add(at), n);
                let gw = S::mul(g, S::load_n(job.weight.as_ptr().add(at), n));
                let d = S::sub(S::sub(gw, plain), S::mul(v, along));
                S::store_n(sum.as_mut_ptr().add(at), S::mul(d, inverse), n);
            });
            if let (Some(x), Some(dropout)) = (&mut back.x, &job.dropout) {
                let x = &mut x[row * width..(row + 1) * width];
                factors::<S>(dropout, begin, x);
                vectors::<S>(width, |at, n| {
                    let p = x.as_mut_ptr().add(at);
                    S::store_n(p, S::mul(S::load_n(p, n), S::load_n(sum.as_ptr().add(at), n)), n);
                });
            }
        }
    }
}
kernel!(backward_at = backward(job: &NormGradient, back: &mut Back));

/// Gradients of [`norm`]: `sum` of the stream (and of `x`, without dropout), `x` with dropout, and of weight and bias.
pub fn norm_gradient(
    team: &Team,
    job: &NormGradient,
    sum: &mut [f32],
    x: Option<&mut [f32]>,
    weight: &mut [f32],
    bias: &mut [f32],
) {
    let width = job.weight.len();
    let (len, rows) = (job.gradient.len(), job.inverse.len());
    assert!(len == rows * width && job.normal.len() == len && sum.len() == len, "norm of {len} by {width}");
    assert!(x.as_ref().is_none_or(|x| x.len() == len) && x.is_some() == job.dropout.is_some(), "dropout");
    let each = ROWS.max(rows.div_ceil(Chunks::MOST));
    let tasks = rows.div_ceil(each);
    let mut partial = vec![0f32; tasks * 2 * width];
    let sums = Chunks::new(RowsMut::f32(sum, width), each);
    let xs = x.map(|x| Chunks::new(RowsMut::f32(x, width), each));
    let partials = Chunks::new(RowsMut::f32(&mut partial, 2 * width), 1);
    team.run(tasks, &|task, _| {
        let (mut sum, mut columns) = (sums.take(task), partials.take(task));
        let mut x = xs.as_ref().map(|x| x.take(task));
        let x = x.as_mut().map(RowsMut::all_f32);
        let mut back = Back { first: task * each, sum: sum.all_f32(), x, columns: columns.all_f32() };
        // SAFETY: the active level is available, lengths were checked.
        unsafe { backward_at(Level::active(), job, &mut back) };
    });
    let partial = Rows::f32(&partial, 2 * width);
    add_in_order(partial.columns(0..width), weight);
    add_in_order(partial.columns(width..2 * width), bias);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::numbers;

    /// The loss `Σ out · pull` in double precision.
    fn loss(job: &Normed, factors: &[f32], pull: &[f32]) -> f64 {
        let width = job.weight.len();
        let mut loss = 0.0;
        for begin in (0..job.x.len()).step_by(width) {
            let row: Vec<f64> = (begin..begin + width)
                .map(|i| f64::from(job.x[i]) * f64::from(factors[i]) + job.stream.map_or(0.0, |s| f64::from(s[i])))
                .collect();
            let mean = row.iter().sum::<f64>() / width as f64;
            let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width as f64;
            for (c, v) in row.iter().enumerate() {
                let normal = (v - mean) / (variance + f64::from(job.eps)).sqrt();
                let out = normal * f64::from(job.weight[c]) + f64::from(job.bias[c]);
                loss += out * f64::from(pull[begin + c]);
            }
        }
        loss
    }

    #[test]
    fn gradients_are_differences() {
        for (rows, width, drop, stream) in
            [(1, 5, false, false), (3, 16, true, true), (if cfg!(miri) { 2 } else { 70 }, 37, true, true)]
        {
            let len = rows * width;
            let (x, s, pull) = (numbers(1, len, 2.0), numbers(2, len, 2.0), numbers(3, len, 1.0));
            let (weight, bias) = (numbers(4, width, 1.0), numbers(5, width, 1.0));
            let dropout = drop.then(|| Dropout::new(77, 0.3));
            let mut factors = vec![1f32; len];
            if let Some(dropout) = &dropout {
                dropout.factors(0, &mut factors);
            }
            let stream = stream.then_some(&s[..]);
            let job = Normed { x: &x, dropout, stream, weight: &weight, bias: &bias, eps: 1e-5 };
            let (mut normal, mut inverse, mut out) = (vec![0f32; len], vec![0f32; rows], vec![0f32; len]);
            let team = Team::new(2);
            norm(&team, &job, &mut normal, &mut inverse, &mut out);
            let got: f64 = out.iter().zip(&pull).map(|(o, p)| f64::from(*o) * f64::from(*p)).sum();
            assert!((got - loss(&job, &factors, &pull)).abs() < 1e-3);

            let (mut ds, mut dx) = (vec![0f32; len], vec![0f32; len]);
            let (mut dw, mut db) = (vec![0f32; width], vec![0f32; width]);
            let back = NormGradient { gradient: &pull, normal: &normal, inverse: &inverse, weight: &weight, dropout };
            norm_gradient(&team, &back, &mut ds, drop.then_some(&mut dx[..]), &mut dw, &mut db);
            let dx = if drop { &dx } else { &ds };
            let step = 1e-2f32;
            let slope = |up: &Normed, down: &Normed| {
                (loss(up, &factors, &pull) - loss(down, &factors, &pull)) / f64::from(2.0 * step)
            };
            let moved = |v: &[f32], i: usize, by: f32| {
                let mut v = v.to_vec();
                v[i] += by;
                v
            };
            for i in (0..len).step_by(len.div_ceil(23)) {
                let (up, down) = (moved(&x, i, step), moved(&x, i, -step));
                let want = slope(&Normed { x: &up, ..job }, &Normed { x: &down, ..job });
                assert!((f64::from(dx[i]) - want).abs() < 2e-3 * (1.0 + want.abs()), "{} for {want}", dx[i]);
                if stream.is_some() {
                    let (up, down) = (moved(&s, i, step), moved(&s, i, -step));
                    let want = slope(&Normed { stream: Some(&up), ..job }, &Normed { stream: Some(&down), ..job });
                    assert!((f64::from(ds[i]) - want).abs() < 2e-3 * (1.0 + want.abs()), "{} for {want}", ds[i]);
                }
            }
            for c in 0..width {
                let (up, down) = (moved(&weight, c, step), moved(&weight, c, -step));
                let want = slope(&Normed { weight: &up, ..job }, &Normed { weight: &down, ..job });
                assert!((f64::from(dw[c]) - want).abs() < 1e-3 * (1.0 + want.abs()), "{} for {want}", dw[c]);
                let want: f32 = (0..rows).map(|r| pull[r * width + c]).sum();
                assert!((db[c] - want).abs() < 1e-4, "{} for {want}", db[c]);
            }
            for level in Level::all_available() {
                let (mut n, mut i, mut o) = (vec![0f32; len], vec![0f32; rows], vec![0f32; len]);
                let mut place = Place { first: 0, normal: &mut n, inverse: &mut i, out: &mut o };
                // SAFETY: available level, whole rows.
                unsafe { forward_at(level, &job, &mut place) };
                assert!(o.iter().zip(&out).all(|(a, b)| (a - b).abs() < 1e-5), "{level:?}");
                let (mut s, mut x, mut columns) = (vec![0f32; len], vec![0f32; len], vec![0f32; 2 * width]);
                let to = drop.then_some(&mut x[..]);
                let mut place = Back { first: 0, sum: &mut s, x: to, columns: &mut columns };
                // SAFETY: as above.
                unsafe { backward_at(level, &back, &mut place) };
                assert!(s.iter().zip(&ds).all(|(a, b)| (a - b).abs() < 1e-5), "{level:?}");
                assert!(columns.iter().zip(dw.iter().chain(&db)).all(|(a, b)| (a - b).abs() < 1e-4), "{level:?}");
            }
        }
    }
}
