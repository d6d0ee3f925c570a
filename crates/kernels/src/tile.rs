//! The innermost loop: a tile of rows times one panel of packed weights.
//!
//! A tile is `C[mr][panel] (+)= A[mr][k] · B[k][panel]`, where a panel is two vectors wide. B holds one 32-bit word per
//! column and step: an f32, a pair of bf16 or four bytes along k. A holds one word per row and step, `a_step` words
//! between steps. All accumulators stay in registers for the whole loop, so per step there are two loads of B, `mr`
//! broadcasts of A (folded into the multiply) and `2 mr` multiply-adds: the multipliers are the only bottleneck.

use crate::Format;
use crate::simd::portable::Portable;
use crate::simd::{Level, Simd};

/// `tile(mr, steps, a, a_step, b, c, c_step, accumulate)`; C is f32, or i32 for [`Format::Int8`].
pub(crate) type TileFn = unsafe fn(usize, usize, *const u32, usize, *const u32, *mut u32, usize, bool);

/// The tile kernel of a level and format.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub run: TileFn,
    /// Most rows.
    pub rows: usize,
    /// Rows of A are f32 although B holds bf16 pairs: two words of A per step.
    pub wide: bool,
}

/// Multiply-add of one row's word(s) with one vector of B.
trait Product {
    type B: Copy;
    type Sum: Copy;
    const LANES: usize;
    /// Words of A per step.
    const A_WORDS: usize;
    unsafe fn zero() -> Self::Sum;
    unsafe fn load(b: *const u32) -> Self::B;
    unsafe fn step(sum: Self::Sum, a: *const u32, a_step: usize, b: Self::B) -> Self::Sum;
    unsafe fn store(c: *mut u32, sum: Self::Sum, accumulate: bool);
    unsafe fn prefetch(p: *const u32);
}

#[inline(always)]
unsafe fn tile<P: Product, const MR: usize>(
    steps: usize,
    mut a: *const u32,
    a_step: usize,
    mut b: *const u32,
    c: *mut u32,
    c_step: usize,
    accumulate: bool,
) {
    unsafe {
        let mut sums = [[P::zero(); 2]; MR];
        let panel = 2 * P::LANES;
        macro_rules! step {
            ($a:expr, $b:expr) => {
                let (a, b) = ($a, $b);
                let (b0, b1) = (P::load(b), P::load(b.add(P::LANES)));
                // A dozen steps ahead: the panel comes from the second-level cache or beyond. The pointer may run
                // past the matrix; a prefetch of nothing is no access.
                P::prefetch(b.wrapping_add(12 * panel));
                P::prefetch(b.wrapping_add(12 * panel + P::LANES));
                for i in 0..MR {
                    sums[i][0] = P::step(sums[i][0], a.add(i), a_step, b0);
                    sums[i][1] = P::step(sums[i][1], a.add(i), a_step, b1);
                }
            };
        }
        let a_step_words = P::A_WORDS * a_step;
        for _ in 0..steps / 2 {
            step!(a, b);
            step!(a.add(a_step_words), b.add(panel));
            a = a.wrapping_add(2 * a_step_words);
            b = b.wrapping_add(2 * panel);
        }
        if steps % 2 == 1 {
            step!(a, b);
        }
        for (i, sum) in sums.iter().enumerate() {
            P::store(c.add(i * c_step), sum[0], accumulate);
            P::store(c.add(i * c_step + P::LANES), sum[1], accumulate);
        }
    }
}

/// f32 times f32.
struct Floats<S>(S);

impl<S: Simd> Product for Floats<S> {
    type B = S::F;
    type Sum = S::F;
    const LANES: usize = S::LANES;
    const A_WORDS: usize = 1;
    #[inline(always)]
    unsafe fn zero() -> S::F {
        unsafe { S::splat(0.0) }
    }
    #[inline(always)]
    unsafe fn load(b: *const u32) -> S::F {
        unsafe { S::load(b.cast()) }
    }
    #[inline(always)]
    unsafe fn step(sum: S::F, a: *const u32, _: usize, b: S::F) -> S::F {
        unsafe { S::fma(S::splat(*a.cast::<f32>()), b, sum) }
    }
    #[inline(always)]
    unsafe fn store(c: *mut u32, sum: S::F, accumulate: bool) {
        unsafe {
            let c = c.cast::<f32>();
            S::store(c, if accumulate { S::add(S::load(c), sum) } else { sum });
        }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u32) {
        unsafe { S::prefetch(p) }
    }
}

/// f32 times bf16 pairs, for machines that cannot multiply bf16.
struct WidePairs<S>(S);

impl<S: Simd> Product for WidePairs<S> {
    type B = (S::F, S::F);
    type Sum = S::F;
    const LANES: usize = S::LANES;
    const A_WORDS: usize = 2;
    #[inline(always)]
    unsafe fn zero() -> S::F {
        unsafe { S::splat(0.0) }
    }
    #[inline(always)]
    unsafe fn load(b: *const u32) -> (S::F, S::F) {
        unsafe { S::load_bf16_pairs(b) }
    }
    #[inline(always)]
    unsafe fn step(sum: S::F, a: *const u32, a_step: usize, b: (S::F, S::F)) -> S::F {
        unsafe {
            let a = a.cast::<f32>();
            S::fma(S::splat(*a.add(a_step)), b.1, S::fma(S::splat(*a), b.0, sum))
        }
    }
    #[inline(always)]
    unsafe fn store(c: *mut u32, sum: S::F, accumulate: bool) {
        unsafe { Floats::<S>::store(c, sum, accumulate) }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u32) {
        unsafe { S::prefetch(p) }
    }
}

/// Unsigned bytes times signed bytes in plain Rust.
struct PortableBytes;

impl Product for PortableBytes {
    type B = [[i8; 4]; 8];
    type Sum = [i32; 8];
    const LANES: usize = Portable::LANES;
    const A_WORDS: usize = 1;
    #[inline(always)]
    unsafe fn zero() -> [i32; 8] {
        [0; 8]
    }
    #[inline(always)]
    unsafe fn load(b: *const u32) -> [[i8; 4]; 8] {
        unsafe { b.cast::<[[i8; 4]; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn step(mut sum: [i32; 8], a: *const u32, _: usize, b: [[i8; 4]; 8]) -> [i32; 8] {
        let a = unsafe { *a.cast::<[u8; 4]>() };
        for (sum, b) in sum.iter_mut().zip(b) {
            for k in 0..4 {
                *sum += a[k] as i32 * b[k] as i32;
            }
        }
        sum
    }
    #[inline(always)]
    unsafe fn store(c: *mut u32, sum: [i32; 8], accumulate: bool) {
        unsafe {
            let c = c.cast::<[i32; 8]>();
            let old = if accumulate { c.read_unaligned() } else { [0; 8] };
            c.write_unaligned(std::array::from_fn(|i| old[i] + sum[i]));
        }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u32) {}
}

/// One function that takes any number of rows up to the most.
macro_rules! tiles {
    ($name:ident, $(#[$feature:meta])? $product:ty, $($rows:literal)*) => {
        $(#[$feature])?
        unsafe fn $name(
            rows: usize, steps: usize, a: *const u32, a_step: usize, b: *const u32, c: *mut u32, c_step: usize, accumulate: bool,
        ) {
            unsafe {
                match rows {
                    $($rows => tile::<$product, $rows>(steps, a, a_step, b, c, c_step, accumulate),)*
                    _ => unreachable!("tile of {rows} rows"),
                }
            }
        }
    };
}

tiles!(portable_f32, Floats<Portable>, 1 2 3 4);
tiles!(portable_bf16, WidePairs<Portable>, 1 2 3 4);
tiles!(portable_int8, PortableBytes, 1 2 3 4);

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use super::*;
    use crate::simd::avx2::Avx2;
    use crate::simd::avx512::Avx512;
    use std::arch::x86_64::*;

    /// bf16 pairs times bf16 pairs.
    struct Pairs;

    impl Product for Pairs {
        type B = __m512bh;
        type Sum = __m512;
        const LANES: usize = 16;
        const A_WORDS: usize = 1;
        #[inline(always)]
        unsafe fn zero() -> __m512 {
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn load(b: *const u32) -> __m512bh {
            unsafe { std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(b.cast())) }
        }
        #[inline(always)]
        unsafe fn step(sum: __m512, a: *const u32, _: usize, b: __m512bh) -> __m512 {
            unsafe {
                let a = std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(*a as i32));
                _mm512_dpbf16_ps(sum, a, b)
            }
        }
        #[inline(always)]
        unsafe fn store(c: *mut u32, sum: __m512, accumulate: bool) {
            unsafe { Floats::<Avx512<true>>::store(c, sum, accumulate) }
        }
        #[inline(always)]
        unsafe fn prefetch(p: *const u32) {
            unsafe { Avx512::<true>::prefetch(p) }
        }
    }

    /// Unsigned times signed bytes by VNNI.
    struct Bytes512;

    impl Product for Bytes512 {
        type B = __m512i;
        type Sum = __m512i;
        const LANES: usize = 16;
        const A_WORDS: usize = 1;
        #[inline(always)]
        unsafe fn zero() -> __m512i {
            unsafe { _mm512_setzero_si512() }
        }
        #[inline(always)]
        unsafe fn load(b: *const u32) -> __m512i {
            unsafe { _mm512_loadu_si512(b.cast()) }
        }
        #[inline(always)]
        unsafe fn step(sum: __m512i, a: *const u32, _: usize, b: __m512i) -> __m512i {
            unsafe { _mm512_dpbusd_epi32(sum, _mm512_set1_epi32(*a as i32), b) }
        }
        #[inline(always)]
        unsafe fn store(c: *mut u32, sum: __m512i, accumulate: bool) {
            unsafe {
                let old = if accumulate { _mm512_loadu_si512(c.cast()) } else { _mm512_setzero_si512() };
                _mm512_storeu_si512(c.cast(), _mm512_add_epi32(old, sum));
            }
        }
        #[inline(always)]
        unsafe fn prefetch(p: *const u32) {
            unsafe { Avx512::<true>::prefetch(p) }
        }
    }

    /// Unsigned times signed bytes, widened to 16 bits first: `vpmaddubsw` would saturate.
    struct Bytes256;

    impl Product for Bytes256 {
        /// Columns 0-3 and 4-7, four 16-bit numbers each.
        type B = (__m256i, __m256i);
        /// Two partial sums per column.
        type Sum = (__m256i, __m256i);
        const LANES: usize = 8;
        const A_WORDS: usize = 1;
        #[inline(always)]
        unsafe fn zero() -> Self::Sum {
            unsafe { (_mm256_setzero_si256(), _mm256_setzero_si256()) }
        }
        #[inline(always)]
        unsafe fn load(b: *const u32) -> Self::B {
            unsafe {
                let wide = |p: *const u32| _mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast()));
                (wide(b), wide(b.add(4)))
            }
        }
        #[inline(always)]
        unsafe fn step(sum: Self::Sum, a: *const u32, _: usize, b: Self::B) -> Self::Sum {
            unsafe {
                let a = _mm256_cvtepu8_epi16(_mm_set1_epi32(*a as i32));
                let add = |sum, b| _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
                (add(sum.0, b.0), add(sum.1, b.1))
            }
        }
        #[inline(always)]
        unsafe fn store(c: *mut u32, sum: Self::Sum, accumulate: bool) {
            unsafe {
                // hadd leaves columns 0 1 4 5 | 2 3 6 7.
                let mixed = _mm256_hadd_epi32(sum.0, sum.1);
                let sum = _mm256_permute4x64_epi64::<0b11011000>(mixed);
                let old = if accumulate { _mm256_loadu_si256(c.cast()) } else { _mm256_setzero_si256() };
                _mm256_storeu_si256(c.cast(), _mm256_add_epi32(old, sum));
            }
        }
        #[inline(always)]
        unsafe fn prefetch(p: *const u32) {
            unsafe { Avx2::prefetch(p) }
        }
    }

    tiles!(avx2_f32, #[target_feature(enable = "avx2,fma")] Floats<Avx2>, 1 2 3 4 5 6);
    tiles!(avx2_bf16, #[target_feature(enable = "avx2,fma")] WidePairs<Avx2>, 1 2 3 4);
    tiles!(avx2_int8, #[target_feature(enable = "avx2,fma")] Bytes256, 1 2);
    tiles!(avx512_f32, #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")] Floats<Avx512<false>>, 1 2 3 4 5 6 7 8 9 10 11 12 13 14);
    tiles!(avx512_wide, #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")] WidePairs<Avx512<false>>, 1 2 3 4 5 6 7 8 9 10 11 12);
    tiles!(avx512_bf16, #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")] Pairs, 1 2 3 4 5 6 7 8 9 10 11 12 13 14);
    tiles!(avx512_int8, #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")] Bytes512, 1 2 3 4 5 6 7 8 9 10 11 12 13 14);

    pub(super) fn choose(level: Level, format: Format) -> Tile {
        let (run, rows, wide): (TileFn, _, _) = match (level, format) {
            (Level::Avx2, Format::F32) => (avx2_f32, 6, false),
            (Level::Avx2, Format::Bf16) => (avx2_bf16, 4, true),
            (Level::Avx2, Format::Int8) => (avx2_int8, 2, false),
            (_, Format::F32) => (avx512_f32, 14, false),
            (Level::Avx512Bf16, Format::Bf16) => (avx512_bf16, 14, false),
            (_, Format::Bf16) => (avx512_wide, 12, true),
            (_, Format::Int8) => (avx512_int8, 14, false),
        };
        Tile { run, rows, wide }
    }
}

impl Tile {
    /// The tile kernel for this level and format.
    pub(crate) fn of(level: Level, format: Format) -> Tile {
        match level {
            Level::Portable => {
                let (run, wide): (TileFn, _) = match format {
                    Format::F32 => (portable_f32, false),
                    Format::Bf16 => (portable_bf16, true),
                    Format::Int8 => (portable_int8, false),
                };
                Tile { run, rows: 4, wide }
            }
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            _ => x86::choose(level, format),
        }
    }

    /// Rows cut into tiles of nearly equal height: `(first row, rows)` of tile `index`, or `None` past the last.
    pub(crate) fn cut(&self, rows: usize, index: usize) -> Option<(usize, usize)> {
        let count = rows.div_ceil(self.rows);
        if index >= count {
            return None;
        }
        let (base, longer) = (rows / count, rows % count);
        Some((index * base + index.min(longer), base + usize::from(index < longer)))
    }

    /// All tiles of so many rows.
    pub(crate) fn cuts(self, rows: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..).map_while(move |index| self.cut(rows, index))
    }
}
