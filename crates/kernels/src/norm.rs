//! Normalisation of rows.

use crate::epilogue::Place;
use crate::math::exp;
use crate::rows::{Element, Elements, Rows, RowsMut};
use crate::simd::{Level, Simd, kernel};

/// What is done to each row, by address.
struct Job {
    from: Place,
    to: Place,
    rows: usize,
    width: usize,
    weight: *const f32,
    bias: *const f32,
    eps: f32,
}

#[inline(always)]
unsafe fn load<S: Simd>(place: &Place, row: usize, at: usize, n: usize) -> S::F {
    unsafe {
        let p = place.at(row, at);
        match (place.element, n == S::LANES) {
            (Element::F32, true) => S::load(p.cast()),
            (Element::F32, false) => S::load_n(p.cast(), n),
            (Element::Bf16, true) => S::load_bf16(p.cast()),
            (Element::Bf16, false) => S::load_bf16_n(p.cast(), n),
        }
    }
}

#[inline(always)]
unsafe fn store<S: Simd>(place: &Place, row: usize, at: usize, n: usize, v: S::F) {
    unsafe {
        let p = place.at(row, at);
        match (place.element, n == S::LANES) {
            (Element::F32, true) => S::store(p.cast(), v),
            (Element::F32, false) => S::store_n(p.cast(), v, n),
            (Element::Bf16, true) => S::store_bf16(p.cast(), v),
            (Element::Bf16, false) => S::store_bf16_n(p.cast(), v, n),
        }
    }
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
unsafe fn layer<S: Simd>(job: &Job) {
    let width = job.width as f32;
    for row in 0..job.rows {
        // SAFETY: the job's addresses are valid for its rows and width.
        unsafe {
            let mut sum = S::splat(0.0);
            vectors::<S>(job.width, |at, n| sum = S::add(sum, load::<S>(&job.from, row, at, n)));
            let mean = S::sum(sum) / width;
            // The squares of the differences, not the difference of the squares: no cancellation.
            let mut squares = S::splat(0.0);
            let mut at = 0;
            while at + S::LANES <= job.width {
                let d = S::sub(load::<S>(&job.from, row, at, S::LANES), S::splat(mean));
                squares = S::fma(d, d, squares);
                at += S::LANES;
            }
            let mut variance = S::sum(squares);
            while at < job.width {
                let d = S::sum(load::<S>(&job.from, row, at, 1)) - mean;
                variance += d * d;
                at += 1;
            }
            let inverse = S::splat(1.0 / (variance / width + job.eps).sqrt());
            vectors::<S>(job.width, |at, n| {
                let y = S::mul(S::sub(load::<S>(&job.from, row, at, n), S::splat(mean)), inverse);
                let y = S::fma(y, S::load_n(job.weight.add(at), n), S::load_n(job.bias.add(at), n));
                store::<S>(&job.to, row, at, n, y);
            });
        }
    }
}
kernel!(layer_at = layer(job: &Job));

#[inline(always)]
unsafe fn affine<S: Simd>(job: &Job) {
    for row in 0..job.rows {
        // SAFETY: as in `layer`.
        unsafe {
            vectors::<S>(job.width, |at, n| {
                let x = load::<S>(&job.from, row, at, n);
                let y = S::fma(x, S::load_n(job.weight.add(at), n), S::load_n(job.bias.add(at), n));
                store::<S>(&job.to, row, at, n, y);
            });
        }
    }
}
kernel!(affine_at = affine(job: &Job));

#[inline(always)]
unsafe fn softmax<S: Simd>(job: &Job) {
    for row in 0..job.rows {
        // SAFETY: as in `layer`.
        unsafe {
            let mut most = f32::NEG_INFINITY;
            let mut high = S::splat(f32::NEG_INFINITY);
            let mut at = 0;
            while at + S::LANES <= job.width {
                high = S::max(high, load::<S>(&job.from, row, at, S::LANES));
                at += S::LANES;
            }
            while at < job.width {
                most = most.max(S::sum(load::<S>(&job.from, row, at, 1)));
                at += 1;
            }
            let most = most.max(S::largest(high)).max(f32::MIN);
            let mut total = 0.0;
            vectors::<S>(job.width, |at, n| {
                let e = exp::<S>(S::sub(load::<S>(&job.from, row, at, n), S::splat(most)));
                store::<S>(&job.to, row, at, n, e);
                let mut lanes = [0f32; 16];
                S::store(lanes.as_mut_ptr(), e);
                total += if n == S::LANES { S::sum(e) } else { lanes[..n].iter().sum() };
            });
            vectors::<S>(job.width, |at, n| {
                let e = load::<S>(&job.to, row, at, n);
                store::<S>(&job.to, row, at, n, S::mul(e, S::splat(1.0 / total)));
            });
        }
    }
}
kernel!(softmax_at = softmax(job: &Job));

fn in_place(x: &mut RowsMut, weight: &[f32], bias: &[f32], eps: f32) -> Job {
    let place = Place::of(x);
    Job { from: place, to: place, rows: x.count(), width: x.width(), weight: weight.as_ptr(), bias: bias.as_ptr(), eps }
}

fn check(width: usize, weight: &[f32], bias: &[f32]) {
    assert_eq!((weight.len(), bias.len()), (width, width), "weight and bias of a norm");
}

/// `out = (x - mean) / sqrt(var + eps) * weight + bias`, row by row. `x` and `out` may have different element types.
pub fn layer_norm(x: Rows, weight: &[f32], bias: &[f32], eps: f32, mut out: RowsMut) {
    check(x.width(), weight, bias);
    assert_eq!((x.count(), x.width()), (out.count(), out.width()), "result of a norm");
    let data = match x.data() {
        Elements::F32(d) => d.as_ptr().cast::<u8>(),
        Elements::Bf16(d) => d.as_ptr().cast(),
    };
    let from = Place { data: data.cast_mut(), element: x.element(), stride: x.stride() };
    let job = Job { from, ..in_place(&mut out, weight, bias, eps) };
    // SAFETY: shapes were compared; `from` is only read.
    unsafe { layer_at(Level::active(), &job) }
}

/// [`layer_norm`] in place.
pub fn layer_norm_in_place(mut x: RowsMut, weight: &[f32], bias: &[f32], eps: f32) {
    check(x.width(), weight, bias);
    // SAFETY: shapes were compared.
    unsafe { layer_at(Level::active(), &in_place(&mut x, weight, bias, eps)) }
}

/// `x = x * weight + bias` in place, row by row (MobileBERT's NoNorm).
pub fn affine_in_place(mut x: RowsMut, weight: &[f32], bias: &[f32]) {
    check(x.width(), weight, bias);
    // SAFETY: shapes were compared.
    unsafe { affine_at(Level::active(), &in_place(&mut x, weight, bias, 0.0)) }
}

/// Softmax of each row in place.
pub fn softmax_in_place(mut x: RowsMut) {
    // SAFETY: softmax reads neither weight nor bias.
    unsafe { softmax_at(Level::active(), &in_place(&mut x, &[], &[], 0.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 64 }, failure_persistence: None, ..Default::default() })]
        #[test]
        fn norms_and_softmax_match_the_reference(
            rows in 1usize..5,
            x in prop::collection::vec(-8f32..8.0, 1..if cfg!(miri) { 20 } else { 200 }),
            offset in prop::sample::select(vec![0f32, 30.0]),
        ) {
            let width = x.len();
            let data: Vec<f32> = (0..rows).flat_map(|r| x.iter().map(move |v| v * (r + 1) as f32 + offset)).collect();
            let weight: Vec<f32> = (0..width).map(|i| 0.5 + (i % 7) as f32 * 0.1).collect();
            let bias: Vec<f32> = (0..width).map(|i| (i % 5) as f32 - 2.0).collect();
            let mut want = vec![0f32; data.len()];
            reference::layer_norm(Rows::f32(&data, width), &weight, &bias, 1e-5, RowsMut::f32(&mut want, width));
            for level in Level::all_available() {
                let mut got = data.clone();
                // SAFETY: available level, equal shapes.
                unsafe { layer_at(level, &in_place(&mut RowsMut::f32(&mut got, width), &weight, &bias, 1e-5)) };
                for (g, w) in got.iter().zip(&want) {
                    // One row of one element has no variance: eps decides, and rounding of the mean shows.
                    prop_assert!((g - w).abs() <= 5e-4 * (1.0 + w.abs()), "{level:?} layer norm: {g} for {w}");
                }
                let mut got = data.clone();
                // SAFETY: as above.
                unsafe { softmax_at(level, &in_place(&mut RowsMut::f32(&mut got, width), &[], &[], 0.0)) };
                for (row, got) in data.chunks(width).zip(got.chunks(width)) {
                    let mut want = row.to_vec();
                    reference::softmax(&mut want);
                    for (g, w) in got.iter().zip(&want) {
                        prop_assert!((g - w).abs() <= 2e-6, "{level:?} softmax: {g} for {w}");
                    }
                }
                let mut got = data.clone();
                // SAFETY: as above.
                unsafe { affine_at(level, &in_place(&mut RowsMut::f32(&mut got, width), &weight, &bias, 0.0)) };
                for (i, g) in got.iter().enumerate() {
                    let want = data[i] * weight[i % width] + bias[i % width];
                    prop_assert!((g - want).abs() <= 1e-5 * (1.0 + want.abs()));
                }
            }
        }
    }
}
