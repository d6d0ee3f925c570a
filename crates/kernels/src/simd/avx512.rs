//! Sixteen lanes of AVX-512; `BF16` says whether conversions and products may use AVX512-BF16.

use super::Simd;
use std::arch::x86_64::*;

#[derive(Clone, Copy)]
pub(crate) struct Avx512<const BF16: bool>;

#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

/// bf16 bits of each lane, rounded to nearest even.
#[inline(always)]
unsafe fn to_bf16<const BF16: bool>(v: __m512) -> __m256i {
    unsafe {
        if BF16 {
            return std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(v));
        }
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded))
    }
}

/// The nearest bytes of four vectors: in every 128 bits four of the first, then four of the second ...
#[inline(always)]
unsafe fn to_bytes<const SIGNED: bool>([a, b, c, d]: [__m512; 4]) -> __m512i {
    unsafe {
        let low = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
        let high = _mm512_packs_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
        match SIGNED {
            true => _mm512_packs_epi16(low, high),
            false => _mm512_packus_epi16(low, high),
        }
    }
}

impl<const BF16: bool> Simd for Avx512<BF16> {
    type F = __m512;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_n(p: *const f32, n: usize) -> __m512 {
        unsafe { _mm512_maskz_loadu_ps(first(n), p) }
    }
    #[inline(always)]
    unsafe fn store_n(p: *mut f32, v: __m512, n: usize) {
        unsafe { _mm512_mask_storeu_ps(p, first(n), v) }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> __m512 {
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())))) }
    }
    #[inline(always)]
    unsafe fn load_bf16_n(p: *const u16, n: usize) -> __m512 {
        unsafe {
            let bits = _mm256_maskz_loadu_epi16(first(n), p.cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(p: *mut u16, v: __m512) {
        unsafe { _mm256_storeu_si256(p.cast(), to_bf16::<BF16>(v)) }
    }
    #[inline(always)]
    unsafe fn store_bf16_n(p: *mut u16, v: __m512, n: usize) {
        unsafe { _mm256_mask_storeu_epi16(p.cast(), first(n), to_bf16::<BF16>(v)) }
    }
    #[inline(always)]
    unsafe fn store_bf16_pairs(p: *mut u32, lo: __m512, hi: __m512) {
        unsafe {
            let lo = _mm512_cvtepu16_epi32(to_bf16::<BF16>(lo));
            let hi = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(to_bf16::<BF16>(hi)));
            _mm512_storeu_si512(p.cast(), _mm512_or_si512(lo, hi));
        }
    }
    #[inline(always)]
    unsafe fn load_i32(p: *const i32) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_loadu_si512(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store_u8(p: *mut u8, v: __m512) {
        unsafe { _mm_storeu_si128(p.cast(), _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(v))) }
    }
    #[inline(always)]
    unsafe fn store_quads<const SIGNED: bool>(p: *mut u32, four: [__m512; 4]) {
        unsafe {
            let order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            let bytes = _mm512_shuffle_epi8(to_bytes::<SIGNED>(four), _mm512_broadcast_i32x4(order));
            _mm512_storeu_si512(p.cast(), bytes);
        }
    }
    #[inline(always)]
    unsafe fn store_quads_across<const SIGNED: bool>(p: *mut u32, step: usize, four: [__m512; 4]) {
        unsafe {
            let bytes = to_bytes::<SIGNED>(four);
            _mm_storeu_si128(p.cast(), _mm512_castsi512_si128(bytes));
            _mm_storeu_si128(p.add(step).cast(), _mm512_extracti32x4_epi32::<1>(bytes));
            _mm_storeu_si128(p.add(2 * step).cast(), _mm512_extracti32x4_epi32::<2>(bytes));
            _mm_storeu_si128(p.add(3 * step).cast(), _mm512_extracti32x4_epi32::<3>(bytes));
        }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    unsafe fn scale2(a: __m512, n: __m512) -> __m512 {
        unsafe { _mm512_scalef_ps(a, n) }
    }
    #[inline(always)]
    unsafe fn keep_between(v: __m512, at: __m512, low: __m512, high: __m512) -> __m512 {
        unsafe {
            let kept = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(at, low) & _mm512_cmp_ps_mask::<_CMP_LE_OQ>(at, high);
            _mm512_mask_blend_ps(kept, _mm512_set1_ps(f32::NEG_INFINITY), v)
        }
    }
    #[inline(always)]
    unsafe fn positives(a: __m512) -> u32 {
        unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, _mm512_setzero_ps()) as u32 }
    }
    #[inline(always)]
    unsafe fn sum(a: __m512) -> f32 {
        unsafe { _mm512_reduce_add_ps(a) }
    }
    #[inline(always)]
    unsafe fn largest(a: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(a) }
    }
    #[inline(always)]
    unsafe fn load_bf16_pairs(p: *const u32) -> (__m512, __m512) {
        unsafe {
            let words = _mm512_loadu_si512(p.cast());
            let high = _mm512_and_si512(words, _mm512_set1_epi32(0xffff_0000u32 as i32));
            (_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)), _mm512_castsi512_ps(high))
        }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u32) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    unsafe fn pairs(lo: __m512, hi: __m512) -> __m512 {
        unsafe {
            let lo = _mm512_cvtepu16_epi32(to_bf16::<BF16>(lo));
            let hi = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(to_bf16::<BF16>(hi)));
            _mm512_castsi512_ps(_mm512_or_si512(lo, hi))
        }
    }
    #[inline(always)]
    unsafe fn dot_pairs(a: u32, b: __m512, sum: __m512) -> __m512 {
        unsafe {
            let (a, b) = (_mm512_set1_epi32(a as i32), _mm512_castps_si512(b));
            if BF16 {
                let (a, b) = (std::mem::transmute::<__m512i, __m512bh>(a), std::mem::transmute::<__m512i, __m512bh>(b));
                return _mm512_dpbf16_ps(sum, a, b);
            }
            let high = _mm512_set1_epi32(0xffff_0000u32 as i32);
            let low = |v| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(v));
            let sum = _mm512_fmadd_ps(low(a), low(b), sum);
            let high = |v| _mm512_castsi512_ps(_mm512_and_si512(v, high));
            _mm512_fmadd_ps(high(a), high(b), sum)
        }
    }
    #[inline(always)]
    unsafe fn keep_below(v: __m512, at: __m512, limit: __m512) -> __m512 {
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(at, limit), v) }
    }
    #[inline(always)]
    unsafe fn transpose_rows(row: impl Fn(usize) -> *const u32, rows: usize, to: *mut u32, step_to: usize) {
        unsafe {
            let mut r = [_mm512_setzero_si512(); 16];
            for (i, r) in r.iter_mut().enumerate() {
                if i < rows {
                    *r = _mm512_loadu_si512(row(i).cast());
                }
            }
            let mut t = [_mm512_setzero_si512(); 16];
            for i in 0..8 {
                t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
            }
            for i in 0..4 {
                r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
                r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
                r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
                r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
            }
            for i in 0..4 {
                t[i] = _mm512_shuffle_i32x4::<0x88>(r[i], r[4 + i]);
                t[4 + i] = _mm512_shuffle_i32x4::<0xdd>(r[i], r[4 + i]);
                t[8 + i] = _mm512_shuffle_i32x4::<0x88>(r[8 + i], r[12 + i]);
                t[12 + i] = _mm512_shuffle_i32x4::<0xdd>(r[8 + i], r[12 + i]);
            }
            // In ascending order: a caller with a step below sixteen relies on later columns overwriting the zeros.
            for (block, shuffled) in [(0, 0), (4, 4)] {
                for i in 0..4 {
                    let v = _mm512_shuffle_i32x4::<0x88>(t[shuffled + i], t[8 + shuffled + i]);
                    _mm512_storeu_si512(to.add((block + i) * step_to).cast(), v);
                }
            }
            for (block, shuffled) in [(8, 0), (12, 4)] {
                for i in 0..4 {
                    let v = _mm512_shuffle_i32x4::<0xdd>(t[shuffled + i], t[8 + shuffled + i]);
                    _mm512_storeu_si512(to.add((block + i) * step_to).cast(), v);
                }
            }
        }
    }
}
