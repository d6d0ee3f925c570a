//! Eight lanes of AVX2 with FMA.

use super::Simd;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// A mask with the first `n` of eight lanes set.
#[inline(always)]
unsafe fn first(n: usize) -> __m256i {
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

/// bf16 bits of each lane in the low half of 32-bit lanes, rounded to nearest even (NaN may become infinity's neighbour;
/// activations are finite).
#[inline(always)]
unsafe fn to_bf16(v: __m256) -> __m256i {
    unsafe {
        let bits = _mm256_castps_si256(v);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        _mm256_srli_epi32::<16>(rounded)
    }
}

/// The nearest bytes of four vectors: in every 128 bits four of the first, then four of the second ...
#[inline(always)]
unsafe fn to_bytes<const SIGNED: bool>([a, b, c, d]: [__m256; 4]) -> __m256i {
    unsafe {
        let low = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
        let high = _mm256_packs_epi32(_mm256_cvtps_epi32(c), _mm256_cvtps_epi32(d));
        match SIGNED {
            true => _mm256_packs_epi16(low, high),
            false => _mm256_packus_epi16(low, high),
        }
    }
}

impl Simd for Avx2 {
    type F = __m256;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m256) {
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_n(p: *const f32, n: usize) -> __m256 {
        unsafe { _mm256_maskload_ps(p, first(n)) }
    }
    #[inline(always)]
    unsafe fn store_n(p: *mut f32, v: __m256, n: usize) {
        unsafe { _mm256_maskstore_ps(p, first(n), v) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> __m256 {
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())))) }
    }
    #[inline(always)]
    unsafe fn load_bf16_n(p: *const u16, n: usize) -> __m256 {
        unsafe {
            let mut bits = [0u16; 8];
            std::ptr::copy_nonoverlapping(p, bits.as_mut_ptr(), n);
            Self::load_bf16(bits.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: __m256) {
        unsafe {
            let words = to_bf16(v);
            let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(words, words));
            _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(packed));
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_n(p: *mut u16, v: __m256, n: usize) {
        unsafe {
            let mut bits = [0u16; 8];
            Self::store_bf16(bits.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(bits.as_ptr(), p, n);
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_pairs(p: *mut u32, lo: __m256, hi: __m256) {
        unsafe {
            let pairs = _mm256_or_si256(to_bf16(lo), _mm256_slli_epi32::<16>(to_bf16(hi)));
            _mm256_storeu_si256(p.cast(), pairs);
        }
    }
    #[inline(always)]
    unsafe fn load_i32(p: *const i32) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store_u8(p: *mut u8, v: __m256) {
        unsafe {
            let words = _mm256_cvtps_epi32(v);
            let shorts = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storel_epi64(p.cast(), _mm_packus_epi16(shorts, shorts));
        }
    }
    #[inline(always)]
    unsafe fn store_quads<const SIGNED: bool>(p: *mut u32, four: [__m256; 4]) {
        unsafe {
            let order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            let bytes = _mm256_shuffle_epi8(to_bytes::<SIGNED>(four), _mm256_broadcastsi128_si256(order));
            _mm256_storeu_si256(p.cast(), bytes);
        }
    }
    #[inline(always)]
    unsafe fn store_quads_across<const SIGNED: bool>(p: *mut u32, step: usize, four: [__m256; 4]) {
        unsafe {
            let bytes = to_bytes::<SIGNED>(four);
            _mm_storeu_si128(p.cast(), _mm256_castsi256_si128(bytes));
            _mm_storeu_si128(p.add(step).cast(), _mm256_extracti128_si256::<1>(bytes));
        }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn round(a: __m256) -> __m256 {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    unsafe fn scale2(a: __m256, n: __m256) -> __m256 {
        unsafe {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent)))
        }
    }
    #[inline(always)]
    unsafe fn keep_between(v: __m256, at: __m256, low: __m256, high: __m256) -> __m256 {
        unsafe {
            let kept = _mm256_and_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(at, low), _mm256_cmp_ps::<_CMP_LE_OQ>(at, high));
            _mm256_blendv_ps(_mm256_set1_ps(f32::NEG_INFINITY), v, kept)
        }
    }
    #[inline(always)]
    unsafe fn positives(a: __m256) -> u32 {
        unsafe { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, _mm256_setzero_ps())) as u32 }
    }
    #[inline(always)]
    unsafe fn sum(a: __m256) -> f32 {
        unsafe {
            let half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps::<1>(pair, pair)))
        }
    }
    #[inline(always)]
    unsafe fn largest(a: __m256) -> f32 {
        unsafe {
            let half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps::<1>(pair, pair)))
        }
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(p: *const u32) -> (__m256, __m256) {
        unsafe {
            let words = _mm256_loadu_si256(p.cast());
            let high = _mm256_and_si256(words, _mm256_set1_epi32(0xffff_0000u32 as i32));
            (_mm256_castsi256_ps(_mm256_slli_epi32::<16>(words)), _mm256_castsi256_ps(high))
        }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u32) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn keep_below(v: __m256, at: __m256, limit: __m256) -> __m256 {
        unsafe { _mm256_and_ps(v, _mm256_cmp_ps::<_CMP_LT_OQ>(at, limit)) }
    }
    #[inline(always)]
    unsafe fn transpose_rows(row: impl Fn(usize) -> *const u32, rows: usize, to: *mut u32, step_to: usize) {
        unsafe {
            let mut r = [_mm256_setzero_ps(); 8];
            for (i, r) in r.iter_mut().enumerate() {
                if i < rows {
                    *r = _mm256_loadu_ps(row(i).cast());
                }
            }
            let mut t = [_mm256_setzero_ps(); 8];
            for i in 0..4 {
                t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            let mut u = [_mm256_setzero_ps(); 8];
            for i in 0..2 {
                u[4 * i] = _mm256_shuffle_ps::<0x44>(t[4 * i], t[4 * i + 2]);
                u[4 * i + 1] = _mm256_shuffle_ps::<0xee>(t[4 * i], t[4 * i + 2]);
                u[4 * i + 2] = _mm256_shuffle_ps::<0x44>(t[4 * i + 1], t[4 * i + 3]);
                u[4 * i + 3] = _mm256_shuffle_ps::<0xee>(t[4 * i + 1], t[4 * i + 3]);
            }
            // In ascending order: a caller with a step below eight relies on later columns overwriting the zeros.
            for i in 0..4 {
                _mm256_storeu_ps(to.add(i * step_to).cast(), _mm256_permute2f128_ps::<0x20>(u[i], u[4 + i]));
            }
            for i in 0..4 {
                _mm256_storeu_ps(to.add((4 + i) * step_to).cast(), _mm256_permute2f128_ps::<0x31>(u[i], u[4 + i]));
            }
        }
    }
}
