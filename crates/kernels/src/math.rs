//! Vector exp, erf, tanh and the activations made of them, at f32 accuracy.

// Coefficients are written as published.
#![allow(clippy::excessive_precision)]

use crate::Activation;
use crate::simd::Simd;

/// `c[0] + c[1] x + c[2] x² + …` by Horner's rule.
#[inline(always)]
unsafe fn polynomial<S: Simd, const N: usize>(x: S::F, c: [f32; N]) -> S::F {
    unsafe {
        let mut y = S::splat(c[N - 1]);
        for k in (0..N - 1).rev() {
            y = S::fma(y, x, S::splat(c[k]));
        }
        y
    }
}

/// `e^x`; below -87.3 the result is about 1e-38 instead of a smaller number, above 88.3 it stays at e^88.3.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    unsafe {
        let x = S::min(S::max(x, S::splat(-87.3)), S::splat(88.3));
        let n = S::round(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
        // x - n ln 2, with ln 2 in two parts so that the product is exact (Cody and Waite).
        let r = S::fma(n, S::splat(-0.693_359_4), x);
        let r = S::fma(n, S::splat(2.121_944_4e-4), r);
        let tail = polynomial::<S, 6>(
            r,
            [5.000_000_1e-1, 1.666_666_5e-1, 4.166_579_6e-2, 8.333_452e-3, 1.398_199_9e-3, 1.987_569_1e-4],
        );
        let y = S::fma(S::mul(r, r), tail, S::add(r, S::splat(1.0)));
        S::scale2(y, n)
    }
}

/// `2^x` for x <= 0, for softmax: results below 2^-126 become (nearly) zero. The relative error is below 2e-7
/// plus what the rounding of x itself brings.
#[inline(always)]
pub(crate) unsafe fn exp2_negative<S: Simd>(x: S::F) -> S::F {
    unsafe {
        let x = S::max(x, S::splat(-126.0));
        let n = S::round(x);
        let y = polynomial::<S, 7>(
            S::sub(x, n),
            [1.0, 6.931_472e-1, 2.402_264_7e-1, 5.550_329e-2, 9.618_489e-3, 1.339_993_2e-3, 1.534_581_2e-4],
        );
        S::scale2(y, n)
    }
}

/// [`exp2_negative`] to about 1e-4, all that survives a bf16 result.
#[inline(always)]
pub(crate) unsafe fn exp2_negative_coarse<S: Simd>(x: S::F) -> S::F {
    unsafe {
        let x = S::max(x, S::splat(-126.0));
        let n = S::round(x);
        let y = polynomial::<S, 4>(S::sub(x, n), [9.999_281e-1, 6.932_61e-1, 2.426_111_5e-1, 5.517_166_6e-2]);
        S::scale2(y, n)
    }
}

/// The error function: a rational minimax approximation on [-4, 4] (the one Eigen uses), constant beyond.
#[inline(always)]
unsafe fn erf<S: Simd>(x: S::F) -> S::F {
    unsafe {
        let x = S::min(S::max(x, S::splat(-4.0)), S::splat(4.0));
        let x2 = S::mul(x, x);
        let p = polynomial::<S, 7>(
            x2,
            [
                -1.609_603_3e-2,
                -2.954_599_8e-3,
                -7.349_906_3e-4,
                -5.692_506_4e-5,
                -2.101_024e-6,
                2.770_681_4e-8,
                -2.726_142_3e-10,
            ],
        );
        let q =
            polynomial::<S, 5>(x2, [-1.426_473_9e-2, -7.373_329e-3, -1.682_827e-3, -2.133_740_6e-4, -1.456_607_2e-5]);
        S::div(S::mul(x, p), q)
    }
}

/// Between -most and most. What is not a number stays so: a broken model must not look sound.
#[inline(always)]
unsafe fn clamp<S: Simd>(x: S::F, most: f32) -> S::F {
    unsafe { S::min(S::splat(most), S::max(S::splat(-most), x)) }
}

/// The hyperbolic tangent: a rational minimax approximation on [-7.9, 7.9] (the one Eigen uses), constant beyond.
#[inline(always)]
unsafe fn tanh<S: Simd>(x: S::F) -> S::F {
    unsafe {
        let x = clamp::<S>(x, 7.905_311);
        let x2 = S::mul(x, x);
        let p = polynomial::<S, 7>(
            x2,
            [
                4.893_524_6e-3,
                6.372_619_3e-4,
                1.485_722_4e-5,
                5.122_297e-8,
                -8.604_672e-11,
                2.000_188e-13,
                -2.760_768_5e-16,
            ],
        );
        let q = polynomial::<S, 4>(x2, [4.893_525_2e-3, 2.268_434_6e-3, 1.185_347_05e-4, 1.198_258_4e-6]);
        S::div(S::mul(x, p), q)
    }
}

/// A non-linearity known at compile time, so that the loop around it has no branch.
pub(crate) trait Function {
    unsafe fn apply<S: Simd>(x: S::F) -> S::F;
}

macro_rules! function {
    ($name:ident, |$x:ident| $body:expr) => {
        pub(crate) struct $name;
        impl Function for $name {
            #[inline(always)]
            unsafe fn apply<S: Simd>($x: S::F) -> S::F {
                #[allow(unused_unsafe)]
                unsafe {
                    $body
                }
            }
        }
    };
}

function!(Identity, |x| x);
function!(Relu, |x| S::max(S::splat(0.0), x));
function!(Tanh, |x| tanh::<S>(x));
function!(Gelu, |x| {
    let half = S::mul(x, S::splat(0.5));
    S::fma(half, erf::<S>(S::mul(x, S::splat(std::f32::consts::FRAC_1_SQRT_2))), half)
});
// GELU to 3e-4, for results that are rounded to bf16: an odd polynomial for Phi(x) - 1/2 on [-3.9, 3.9] (scaled so that it
// ends at 1/2), without the division, which costs as much as all the rest.
function!(GeluCoarse, |x| {
    let u = S::min(S::max(x, S::splat(-3.9)), S::splat(3.9));
    let p = polynomial::<S, 8>(
        S::mul(u, u),
        [
            3.989_077_6e-1,
            -6.624_324_4e-2,
            9.714_710_4e-3,
            -1.065_169_8e-3,
            8.362_168_8e-5,
            -4.374_086_7e-6,
            1.344_775_5e-7,
            -1.817_755_8e-9,
        ],
    );
    S::mul(x, S::fma(u, p, S::splat(0.5)))
});
function!(GeluTanh, |x| {
    let half = S::mul(x, S::splat(0.5));
    let cubic = S::fma(S::mul(S::mul(x, x), x), S::splat(0.044_715), x);
    S::fma(half, tanh::<S>(S::mul(cubic, S::splat(0.797_884_6))), half)
});
function!(Clip, |x| clamp::<S>(x, 1.0));
function!(Silu, |x| S::div(x, S::add(S::splat(1.0), exp::<S>(S::sub(S::splat(0.0), x)))));

/// The derivative of a non-linearity, for training.
pub(crate) trait Slope: Function {
    unsafe fn slope<S: Simd>(x: S::F) -> S::F;
}

macro_rules! slope {
    ($name:ident, |$x:ident| $body:expr) => {
        impl Slope for $name {
            #[inline(always)]
            unsafe fn slope<S: Simd>($x: S::F) -> S::F {
                #[allow(unused_unsafe)]
                unsafe {
                    $body
                }
            }
        }
    };
}

slope!(Identity, |_x| S::splat(1.0));
// One from the smallest normal number on, zero up to zero.
slope!(Relu, |x| S::min(S::mul(S::max(x, S::splat(0.0)), S::splat(1e38)), S::splat(1.0)));
slope!(Tanh, |x| {
    let t = tanh::<S>(x);
    S::fma(S::sub(S::splat(0.0), t), t, S::splat(1.0))
});
// Φ(x) + x φ(x)
slope!(Gelu, |x| {
    let half = S::splat(0.5);
    let cumulative = S::fma(erf::<S>(S::mul(x, S::splat(std::f32::consts::FRAC_1_SQRT_2))), half, half);
    let density = S::mul(exp::<S>(S::mul(S::mul(x, x), S::splat(-0.5))), S::splat(0.398_942_28));
    S::fma(x, density, cumulative)
});
slope!(GeluTanh, |x| {
    let (half, one) = (S::splat(0.5), S::splat(1.0));
    // Beyond, the slope is 0 or 1, and the cubic would only magnify the rounding of tanh.
    let x = S::min(S::max(x, S::splat(-6.0)), S::splat(6.0));
    let x2 = S::mul(x, x);
    let cubic = S::fma(S::mul(x2, x), S::splat(0.044_715), x);
    let t = tanh::<S>(S::mul(cubic, S::splat(0.797_884_6)));
    let inner = S::mul(S::fma(x2, S::splat(3.0 * 0.044_715), one), S::splat(0.797_884_6));
    let rise = S::mul(S::fma(S::sub(S::splat(0.0), t), t, one), inner);
    S::fma(S::mul(half, x), rise, S::fma(half, t, half))
});
// One within, zero from the bounds on.
slope!(Clip, |x| {
    let one = S::splat(1.0);
    let above = S::min(S::mul(S::max(S::add(x, one), S::splat(0.0)), S::splat(1e38)), one);
    let below = S::min(S::mul(S::max(S::sub(one, x), S::splat(0.0)), S::splat(1e38)), one);
    S::mul(above, below)
});
slope!(Silu, |x| {
    let one = S::splat(1.0);
    let s = S::div(one, S::add(one, exp::<S>(S::sub(S::splat(0.0), x))));
    S::mul(s, S::fma(x, S::sub(one, s), one))
});

/// Runs `$body` with `$f` standing for the activation's [`Function`] type.
macro_rules! with_activation {
    ($activation:expr, $f:ident => $body:expr) => {
        match $activation {
            $crate::Activation::Identity => {
                type $f = $crate::math::Identity;
                $body
            }
            $crate::Activation::Gelu => {
                type $f = $crate::math::Gelu;
                $body
            }
            $crate::Activation::GeluTanh => {
                type $f = $crate::math::GeluTanh;
                $body
            }
            $crate::Activation::Relu => {
                type $f = $crate::math::Relu;
                $body
            }
            $crate::Activation::Tanh => {
                type $f = $crate::math::Tanh;
                $body
            }
            $crate::Activation::Silu => {
                type $f = $crate::math::Silu;
                $body
            }
            $crate::Activation::Clip => {
                type $f = $crate::math::Clip;
                $body
            }
        }
    };
}
pub(crate) use with_activation;

#[inline(always)]
unsafe fn apply_slice<S: Simd>(activation: Activation, x: &mut [f32]) {
    with_activation!(activation, A => unsafe {
        let mut i = 0;
        while i < x.len() {
            let n = S::LANES.min(x.len() - i);
            let p = x.as_mut_ptr().add(i);
            S::store_n(p, A::apply::<S>(S::load_n(p, n)), n);
            i += n;
        }
    })
}

/// `y = dy * slope(x)`.
#[inline(always)]
unsafe fn slope_slice<S: Simd>(activation: Activation, x: &[f32], dy: &[f32], y: &mut [f32]) {
    with_activation!(activation, A => unsafe {
        let mut i = 0;
        while i < x.len() {
            let n = S::LANES.min(x.len() - i);
            let slope = A::slope::<S>(S::load_n(x.as_ptr().add(i), n));
            S::store_n(y.as_mut_ptr().add(i), S::mul(slope, S::load_n(dy.as_ptr().add(i), n)), n);
            i += n;
        }
    })
}

crate::simd::kernel!(slope_at = slope_slice(activation: Activation, x: &[f32], dy: &[f32], y: &mut [f32]));

/// The gradient before an activation of `x`, from the one behind it: `out = gradient * slope(x)`.
pub fn activation_gradient(activation: Activation, x: &[f32], gradient: &[f32], out: &mut [f32]) {
    assert!(x.len() == gradient.len() && x.len() == out.len(), "one gradient per element");
    // SAFETY: the active level is available; the kernel stays inside the slices.
    unsafe { slope_at(crate::simd::Level::active(), activation, x, gradient, out) }
}

crate::simd::kernel!(apply_at = apply_slice(activation: Activation, x: &mut [f32]));

/// Applies the activation to every element.
pub fn activate(activation: Activation, x: &mut [f32]) {
    // SAFETY: the active level is available; the kernel stays inside the slice.
    unsafe { apply_at(crate::simd::Level::active(), activation, x) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;
    use crate::simd::{Level, kernel};

    #[inline(always)]
    unsafe fn map_exp<S: Simd>(which: u8, x: &mut [f32]) {
        for chunk in x.chunks_exact_mut(S::LANES) {
            unsafe {
                let v = S::load(chunk.as_ptr());
                let y = match which {
                    0 => exp::<S>(v),
                    1 => exp2_negative::<S>(v),
                    _ => exp2_negative_coarse::<S>(v),
                };
                S::store(chunk.as_mut_ptr(), y);
            }
        }
    }
    #[inline(always)]
    unsafe fn map_coarse_gelu<S: Simd>(x: &mut [f32]) {
        for chunk in x.chunks_exact_mut(S::LANES) {
            // SAFETY: whole vectors of the slice.
            unsafe { S::store(chunk.as_mut_ptr(), GeluCoarse::apply::<S>(S::load(chunk.as_ptr()))) };
        }
    }
    kernel!(map_coarse_gelu_at = map_coarse_gelu(x: &mut [f32]));

    #[test]
    fn coarse_gelu_is_good_enough_for_bf16() {
        for level in Level::all_available() {
            let x = grid(-8.0, 8.0);
            let mut y = x.clone();
            // SAFETY: available level.
            unsafe { map_coarse_gelu_at(level, &mut y) };
            for (x, y) in x.iter().zip(&y) {
                let want = reference::activate(Activation::Gelu, *x);
                assert!((y - want).abs() <= 3e-4f32.max(want.abs() / 512.0), "{level:?} at {x}: {y} for {want}");
            }
        }
    }

    kernel!(map_exp_at = map_exp(which: u8, x: &mut [f32]));

    fn grid(low: f32, high: f32) -> Vec<f32> {
        let n = if cfg!(miri) { 64 } else { 65536 };
        (0..n).map(|i| low + (high - low) * i as f32 / (n - 1) as f32).collect()
    }

    #[test]
    fn exponentials_reach_their_stated_accuracy() {
        for level in Level::all_available() {
            for (which, low, high, most) in [(0u8, -87.0, 88.0, 3e-7), (1, -30.0, 0.0, 3e-7), (2, -30.0, 0.0, 1.5e-4)] {
                let x = grid(low, high);
                let mut y = x.clone();
                // SAFETY: available level, whole vectors.
                unsafe { map_exp_at(level, which, &mut y) };
                for (x, y) in x.iter().zip(&y) {
                    let want = if which == 0 { (*x as f64).exp() } else { (*x as f64).exp2() };
                    let error = ((*y as f64 - want) / want).abs();
                    assert!(error <= most, "{level:?} {which} at {x}: {y} for {want}, error {error:e}");
                }
            }
        }
    }

    #[test]
    fn slopes_match_double_precision() {
        use Activation::*;
        for level in Level::all_available() {
            for activation in [Identity, Gelu, GeluTanh, Relu, Tanh, Silu, Clip] {
                let x = grid(-12.0, 12.0);
                let dy = vec![2.0; x.len()];
                let mut y = vec![f32::NAN; x.len()];
                // SAFETY: available level.
                unsafe { slope_at(level, activation, &x, &dy, &mut y) };
                for (x, y) in x.iter().zip(&y) {
                    let want = 2.0 * reference::slope(activation, *x);
                    assert!((y - want).abs() <= 1e-5, "{level:?} {activation:?} at {x}: {y} for {want}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_a_number_stays_so() {
        use Activation::*;
        for level in Level::all_available() {
            for activation in [Identity, Gelu, GeluTanh, Relu, Tanh, Silu, Clip] {
                let mut y = vec![0.5; 37];
                (y[3], y[36]) = (f32::NAN, f32::NAN);
                // SAFETY: available level.
                unsafe { apply_at(level, activation, &mut y) };
                for (i, y) in y.iter().enumerate() {
                    assert_eq!(y.is_nan(), i == 3 || i == 36, "{level:?} {activation:?} at {i}: {y}");
                }
            }
        }
    }

    #[test]
    fn activations_match_double_precision() {
        use Activation::*;
        for level in Level::all_available() {
            for activation in [Identity, Gelu, GeluTanh, Relu, Tanh, Silu, Clip] {
                let x = grid(-12.0, 12.0);
                let mut y = x.clone();
                // SAFETY: available level.
                unsafe { apply_at(level, activation, &mut y) };
                for (x, y) in x.iter().zip(&y) {
                    let want = reference::activate(activation, *x);
                    let error = (y - want).abs();
                    assert!(error <= 4e-7 * (1.0 + x.abs()), "{level:?} {activation:?} at {x}: {y} for {want}");
                }
            }
        }
    }
}
