//! From the file's element types to f32.

use safetensors::Dtype;

/// Bytes of one element, for the types that can be converted; `None` for the exotic ones.
pub(crate) fn width(dtype: Dtype) -> Option<usize> {
    Some(match dtype {
        Dtype::F32 | Dtype::I32 | Dtype::U32 => 4,
        Dtype::F16 | Dtype::BF16 | Dtype::I16 | Dtype::U16 => 2,
        Dtype::F64 | Dtype::I64 | Dtype::U64 => 8,
        Dtype::I8 | Dtype::U8 | Dtype::BOOL => 1,
        _ => return None,
    })
}

/// Whether weights may have this type.
pub(crate) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

/// IEEE half to single. Without branches, so that the loop over it becomes vector code: the exponent
/// is re-based by one multiplication (which also normalises subnormals), infinities and NaNs by a mask.
#[inline]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let bits = u32::from(bits);
    let magnitude = (bits & 0x7fff) << 13;
    // 2^112 moves the exponent from half's bias (15) to single's (127).
    let value = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(value | special | ((bits & 0x8000) << 16))
}

/// Single to IEEE half, rounded to nearest even; beyond the range it is infinite.
pub(crate) fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let (sign, magnitude) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
    match magnitude {
        0x7f80_0001.. => sign | 0x7e00,
        // From 65520 on the nearest would be 65536.
        0x477f_f000.. => sign | 0x7c00,
        // Below 2^-14 halves are multiples of 2^-24, which is the last bit of numbers from 0.5 on: adding rounds.
        ..0x3880_0000 => sign | ((f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()) as u16,
        _ => sign | ((magnitude + 0xfff + (magnitude >> 13 & 1) - (112 << 23)) >> 13) as u16,
    }
}

/// bfloat16 to single.
#[inline]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Converts `out.len()` elements from the beginning of `bytes` (little-endian, any alignment).
/// Types without a [`width`] leave zeros: [`crate::Weights::tensor`] never hands those out.
pub(crate) fn to_f32(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    fn each<const N: usize>(bytes: &[u8], out: &mut [f32], convert: impl Fn([u8; N]) -> f32) {
        for (out, element) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
            *out = convert(*element);
        }
    }
    match dtype {
        Dtype::F32 => each(bytes, out, f32::from_le_bytes),
        Dtype::F16 => each(bytes, out, |b| f16_to_f32(u16::from_le_bytes(b))),
        Dtype::BF16 => each(bytes, out, |b| bf16_to_f32(u16::from_le_bytes(b))),
        Dtype::F64 => each(bytes, out, |b| f64::from_le_bytes(b) as f32),
        Dtype::I64 => each(bytes, out, |b| i64::from_le_bytes(b) as f32),
        Dtype::U64 => each(bytes, out, |b| u64::from_le_bytes(b) as f32),
        Dtype::I32 => each(bytes, out, |b| i32::from_le_bytes(b) as f32),
        Dtype::U32 => each(bytes, out, |b| u32::from_le_bytes(b) as f32),
        Dtype::I16 => each(bytes, out, |b| f32::from(i16::from_le_bytes(b))),
        Dtype::U16 => each(bytes, out, |b| f32::from(u16::from_le_bytes(b))),
        Dtype::I8 => each(bytes, out, |b| f32::from(i8::from_le_bytes(b))),
        Dtype::U8 | Dtype::BOOL => each(bytes, out, |b| f32::from(u8::from_le_bytes(b))),
        _ => out.fill(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow, obvious conversion.
    fn half(bits: u16) -> f32 {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let exponent = i32::from((bits >> 10) & 31);
        let fraction = f32::from(bits & 1023);
        match exponent {
            31 if fraction == 0.0 => sign * f32::INFINITY,
            31 => f32::NAN,
            0 => sign * fraction * 2f32.powi(-24),
            _ => sign * (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
        }
    }

    #[test]
    fn every_half_converts() {
        for bits in 0..=u16::MAX {
            let (got, want) = (f16_to_f32(bits), half(bits));
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{bits:#06x}: {got} != {want}");
        }
    }

    #[test]
    fn halves_are_rounded_to_nearest_even() {
        for bits in 0..=u16::MAX {
            let x = half(bits);
            if !x.is_nan() {
                assert_eq!(f32_to_f16(x), bits, "{x}");
                // Half-way to the next one in magnitude: to the even one; a little more: up.
                let next = half(bits.wrapping_add(1));
                if next.is_finite() && bits & 0x7fff < 0x7bff {
                    let middle = x / 2.0 + next / 2.0;
                    let even = if bits & 1 == 0 { bits } else { bits + 1 };
                    assert_eq!(f32_to_f16(middle), even, "{middle}");
                    assert_eq!(f32_to_f16(f32::from_bits(middle.to_bits() + 1)), bits + 1, "{middle}");
                }
            }
        }
        assert_eq!([65519.0, 65520.0, -1e9].map(f32_to_f16), [0x7bff, 0x7c00, 0xfc00]);
        assert!(f16_to_f32(f32_to_f16(f32::NAN)).is_nan());
    }

    #[test]
    fn integers_and_doubles_convert() {
        let mut out = [0.0; 2];
        to_f32(Dtype::I64, &[3i64.to_le_bytes(), (-4i64).to_le_bytes()].concat(), &mut out);
        assert_eq!(out, [3.0, -4.0]);
        to_f32(Dtype::F64, &[0.5f64.to_le_bytes(), (-2f64).to_le_bytes()].concat(), &mut out);
        assert_eq!(out, [0.5, -2.0]);
        to_f32(Dtype::I8, &[255, 7], &mut out);
        assert_eq!(out, [-1.0, 7.0]);
    }
}
