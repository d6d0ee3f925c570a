//! One small trait over vectors of f32, so that element-wise kernels are written once.
//!
//! A kernel is a generic `#[inline(always)]` function over [`Simd`]; the [`kernel!`] macro makes the entry that picks
//! the instruction set at run time and compiles the function once under each one's target features. Everything on the
//! way must be `#[inline(always)]`, or the vector instructions end up behind calls.

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod avx2;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod avx512;
pub(crate) mod portable;

use crate::isa::Isa;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::isa::has_bf16;

/// An instruction set as the kernels see it: AVX-512 with and without bf16 products are two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Portable,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx2,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512Bf16,
}

impl Level {
    pub(crate) fn of(isa: Isa) -> Level {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        match isa {
            Isa::Avx512 if isa.available() && has_bf16(isa) => return Level::Avx512Bf16,
            Isa::Avx512 if isa.available() => return Level::Avx512,
            Isa::Avx2 if isa.available() => return Level::Avx2,
            _ => {}
        }
        let _ = isa;
        Level::Portable
    }

    /// The level of the instruction set in use.
    pub(crate) fn active() -> Level {
        static ACTIVE: std::sync::OnceLock<Level> = std::sync::OnceLock::new();
        *ACTIVE.get_or_init(|| Level::of(crate::isa::active()))
    }

    /// Every level this machine can run.
    #[cfg(test)]
    pub(crate) fn all_available() -> Vec<Level> {
        let mut all = vec![Level::Portable];
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            if Isa::Avx2.available() {
                all.push(Level::Avx2);
            }
            if Isa::Avx512.available() {
                all.push(Level::Avx512);
                if has_bf16(Isa::Avx512) {
                    all.push(Level::Avx512Bf16);
                }
            }
        }
        all
    }

    /// Columns of a weight panel: two vectors.
    pub(crate) fn panel(self) -> usize {
        match self {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Level::Avx512 | Level::Avx512Bf16 => 32,
            _ => 16,
        }
    }

    /// Whether bf16 pairs are multiplied as such.
    pub(crate) fn multiplies_bf16(self) -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return self == Level::Avx512Bf16;
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        false
    }
}

/// A vector of f32 lanes under one instruction set.
///
/// # Safety
/// Every method needs the instruction set to be available, and pointers valid for the lanes they touch.
#[allow(clippy::missing_safety_doc)]
pub(crate) trait Simd: Copy {
    type F: Copy;
    const LANES: usize;

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, v: Self::F);
    /// The first `n` lanes (`n <= LANES`); the others are zero.
    unsafe fn load_n(p: *const f32, n: usize) -> Self::F;
    unsafe fn store_n(p: *mut f32, v: Self::F, n: usize);
    unsafe fn load_bf16(p: *const u16) -> Self::F;
    unsafe fn load_bf16_n(p: *const u16, n: usize) -> Self::F;
    unsafe fn store_bf16(p: *mut u16, v: Self::F);
    unsafe fn store_bf16_n(p: *mut u16, v: Self::F, n: usize);
    /// Lane i of the result is `bf16(lo[i]) | bf16(hi[i]) << 16`.
    unsafe fn store_bf16_pairs(p: *mut u32, lo: Self::F, hi: Self::F);
    /// Signed 32-bit integers, converted.
    unsafe fn load_i32(p: *const i32) -> Self::F;
    /// Rounds to the nearest integer in 0..=255 and stores bytes.
    unsafe fn store_u8(p: *mut u8, v: Self::F);
    /// Four vectors to the nearest bytes, signed ones or not; word i is lane i's four bytes, the first one lowest.
    #[inline(always)]
    unsafe fn store_quads<const SIGNED: bool>(p: *mut u32, four: [Self::F; 4]) {
        unsafe {
            let bytes = to_bytes::<Self, SIGNED>(four);
            for lane in 0..Self::LANES {
                p.add(lane).write_unaligned(u32::from_le_bytes(bytes.map(|bytes| bytes[lane])));
            }
        }
    }
    /// The same where a word is of four neighbouring lanes: four words, one of each vector, then so many words further on
    /// those of the next four lanes.
    #[inline(always)]
    unsafe fn store_quads_across<const SIGNED: bool>(p: *mut u32, step: usize, four: [Self::F; 4]) {
        unsafe {
            let bytes = to_bytes::<Self, SIGNED>(four);
            for quad in 0..Self::LANES / 4 {
                for (i, bytes) in bytes.iter().enumerate() {
                    let word = u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 * quad + byte]));
                    p.add(quad * step + i).write_unaligned(word);
                }
            }
        }
    }
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger; `b` where either is not a number.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller; `b` where either is not a number.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// To the nearest integer.
    unsafe fn round(a: Self::F) -> Self::F;
    /// `a * 2^n` for integral `n` in -126..=127.
    unsafe fn scale2(a: Self::F, n: Self::F) -> Self::F;
    /// `v` where `low <= at <= high`, minus infinity elsewhere.
    unsafe fn keep_between(v: Self::F, at: Self::F, low: Self::F, high: Self::F) -> Self::F;
    /// `v` where `at < limit`, zero elsewhere.
    unsafe fn keep_below(v: Self::F, at: Self::F, limit: Self::F) -> Self::F;
    /// Bit i: whether lane i is above zero.
    unsafe fn positives(a: Self::F) -> u32;
    unsafe fn sum(a: Self::F) -> f32;
    unsafe fn largest(a: Self::F) -> f32;
    /// The two halves of `LANES` bf16 pairs.
    unsafe fn load_bf16_pairs(p: *const u32) -> (Self::F, Self::F);
    /// `LANES` words `bf16(lo[i]) | bf16(hi[i]) << 16`, as bits.
    #[inline(always)]
    unsafe fn pairs(lo: Self::F, hi: Self::F) -> Self::F {
        let mut words = [0u32; 16];
        unsafe {
            Self::store_bf16_pairs(words.as_mut_ptr(), lo, hi);
            Self::load(words.as_ptr().cast())
        }
    }
    /// `sum + a.lo * b.lo + a.hi * b.hi` for a pair of bf16 and a vector of pairs (as bits).
    #[inline(always)]
    unsafe fn dot_pairs(a: u32, b: Self::F, sum: Self::F) -> Self::F {
        let mut words = [0u32; 16];
        unsafe {
            Self::store(words.as_mut_ptr().cast(), b);
            let (low, high) = Self::load_bf16_pairs(words.as_ptr());
            let sum = Self::fma(Self::splat(f32::from_bits(a << 16)), low, sum);
            Self::fma(Self::splat(f32::from_bits(a & 0xffff_0000)), high, sum)
        }
    }
    /// Transposes a block of `rows <= LANES` rows (`step_from` words apart) and `LANES` columns of 32-bit words. Always
    /// writes `LANES` words per column, zeros beyond `rows`.
    #[inline(always)]
    unsafe fn transpose(from: *const u32, step_from: usize, rows: usize, to: *mut u32, step_to: usize) {
        unsafe { Self::transpose_rows(|i| from.wrapping_add(i * step_from), rows, to, step_to) }
    }
    /// [`Simd::transpose`] of rows that stand anywhere.
    unsafe fn transpose_rows(row: impl Fn(usize) -> *const u32, rows: usize, to: *mut u32, step_to: usize);
    /// Brings a cache line near.
    unsafe fn prefetch(p: *const u32);
}

/// Four vectors rounded to bytes, as bits.
#[inline(always)]
unsafe fn to_bytes<S: Simd, const SIGNED: bool>(four: [S::F; 4]) -> [[u8; 16]; 4] {
    let mut bytes = [[0u8; 16]; 4];
    // Signed bytes are shifted by 128 on the way through unsigned ones; flipping the top bit shifts back.
    let (shift, flip) = if SIGNED { (128.0, 0x80) } else { (0.0, 0) };
    for (bytes, v) in bytes.iter_mut().zip(four) {
        // SAFETY: the caller's promise.
        unsafe {
            let v = S::add(S::round(v), S::splat(shift));
            S::store_u8(bytes.as_mut_ptr(), S::min(S::max(v, S::splat(0.0)), S::splat(255.0)));
        }
        bytes.iter_mut().for_each(|byte| *byte ^= flip);
    }
    bytes
}

/// Defines the run-time entry of a generic kernel: `entry(level, arguments)` runs `generic::<S>(arguments)`.
macro_rules! kernel {
    ($(#[$meta:meta])* $vis:vis $entry:ident = $generic:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)?) => {
        $(#[$meta])*
        $vis unsafe fn $entry(level: $crate::simd::Level, $($arg: $type),*) $(-> $ret)? {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2($($arg: $type),*) $(-> $ret)? {
                unsafe { $generic::<$crate::simd::avx2::Avx2>($($arg),*) }
            }
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            unsafe fn avx512($($arg: $type),*) $(-> $ret)? {
                unsafe { $generic::<$crate::simd::avx512::Avx512<false>>($($arg),*) }
            }
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")]
            unsafe fn avx512bf16($($arg: $type),*) $(-> $ret)? {
                unsafe { $generic::<$crate::simd::avx512::Avx512<true>>($($arg),*) }
            }
            // SAFETY: a level other than portable exists only if the machine has it; the rest is the caller's promise.
            unsafe {
                match level {
                    $crate::simd::Level::Portable => $generic::<$crate::simd::portable::Portable>($($arg),*),
                    #[cfg(all(target_arch = "x86_64", not(miri)))]
                    $crate::simd::Level::Avx2 => avx2($($arg),*),
                    #[cfg(all(target_arch = "x86_64", not(miri)))]
                    $crate::simd::Level::Avx512 => avx512($($arg),*),
                    #[cfg(all(target_arch = "x86_64", not(miri)))]
                    $crate::simd::Level::Avx512Bf16 => avx512bf16($($arg),*),
                }
            }
        }
    };
}
pub(crate) use kernel;
