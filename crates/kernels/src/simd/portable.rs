//! Eight lanes of plain Rust.

use super::Simd;
use crate::rows::{bf16_to_f32, f32_to_bf16};

#[derive(Clone, Copy)]
pub(crate) struct Portable;

const L: usize = 8;
type V = [f32; L];

#[inline(always)]
fn map(a: V, f: impl Fn(f32) -> f32) -> V {
    std::array::from_fn(|i| f(a[i]))
}

#[inline(always)]
fn zip(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Portable {
    type F = V;
    const LANES: usize = L;

    #[inline(always)]
    unsafe fn splat(x: f32) -> V {
        [x; L]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> V {
        unsafe { p.cast::<V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: V) {
        unsafe { p.cast::<V>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_n(p: *const f32, n: usize) -> V {
        std::array::from_fn(|i| if i < n { unsafe { *p.add(i) } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn store_n(p: *mut f32, v: V, n: usize) {
        for (i, x) in v.iter().enumerate().take(n) {
            unsafe { *p.add(i) = *x };
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> V {
        std::array::from_fn(|i| bf16_to_f32(unsafe { *p.add(i) }))
    }
    #[inline(always)]
    unsafe fn load_bf16_n(p: *const u16, n: usize) -> V {
        std::array::from_fn(|i| if i < n { bf16_to_f32(unsafe { *p.add(i) }) } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: V) {
        unsafe { Self::store_bf16_n(p, v, L) }
    }
    #[inline(always)]
    unsafe fn store_bf16_n(p: *mut u16, v: V, n: usize) {
        for (i, x) in v.iter().enumerate().take(n) {
            unsafe { *p.add(i) = f32_to_bf16(*x) };
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_pairs(p: *mut u32, lo: V, hi: V) {
        for i in 0..L {
            unsafe { *p.add(i) = f32_to_bf16(lo[i]) as u32 | (f32_to_bf16(hi[i]) as u32) << 16 };
        }
    }
    #[inline(always)]
    unsafe fn load_i32(p: *const i32) -> V {
        std::array::from_fn(|i| unsafe { *p.add(i) } as f32)
    }
    #[inline(always)]
    unsafe fn store_u8(p: *mut u8, v: V) {
        for (i, x) in v.iter().enumerate() {
            unsafe { *p.add(i) = x.round_ties_even() as u8 };
        }
    }
    #[inline(always)]
    unsafe fn add(a: V, b: V) -> V {
        zip(a, b, |x, y| x + y)
    }
    #[inline(always)]
    unsafe fn sub(a: V, b: V) -> V {
        zip(a, b, |x, y| x - y)
    }
    #[inline(always)]
    unsafe fn mul(a: V, b: V) -> V {
        zip(a, b, |x, y| x * y)
    }
    #[inline(always)]
    unsafe fn div(a: V, b: V) -> V {
        zip(a, b, |x, y| x / y)
    }
    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        // Not mul_add: without the instruction that would be a library call per lane.
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn max(a: V, b: V) -> V {
        zip(a, b, |x, y| if x > y { x } else { y })
    }
    #[inline(always)]
    unsafe fn min(a: V, b: V) -> V {
        zip(a, b, |x, y| if x < y { x } else { y })
    }
    #[inline(always)]
    unsafe fn round(a: V) -> V {
        map(a, f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn scale2(a: V, n: V) -> V {
        zip(a, n, |x, n| x * f32::from_bits(((n as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn keep_between(v: V, at: V, low: V, high: V) -> V {
        std::array::from_fn(|i| if at[i] >= low[i] && at[i] <= high[i] { v[i] } else { f32::NEG_INFINITY })
    }
    #[inline(always)]
    unsafe fn positives(a: V) -> u32 {
        a.iter().enumerate().fold(0, |bits, (i, x)| bits | ((*x > 0.0) as u32) << i)
    }
    #[inline(always)]
    unsafe fn sum(a: V) -> f32 {
        a.iter().sum()
    }
    #[inline(always)]
    unsafe fn largest(a: V) -> f32 {
        a.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(p: *const u32) -> (V, V) {
        let words: [u32; L] = std::array::from_fn(|i| unsafe { p.add(i).read_unaligned() });
        (words.map(|w| f32::from_bits(w << 16)), words.map(|w| f32::from_bits(w & 0xffff_0000)))
    }
    #[inline(always)]
    unsafe fn keep_below(v: V, at: V, limit: V) -> V {
        std::array::from_fn(|i| if at[i] < limit[i] { v[i] } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn transpose_rows(row: impl Fn(usize) -> *const u32, rows: usize, to: *mut u32, step_to: usize) {
        for j in 0..L {
            for i in 0..L {
                unsafe {
                    let word = if i < rows { row(i).add(j).read_unaligned() } else { 0 };
                    *to.add(j * step_to + i) = word;
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u32) {}
}
