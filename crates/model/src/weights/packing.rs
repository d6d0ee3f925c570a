//! Signed integers of 2 to 8 bits, packed without gaps: element `i` of a row takes the bits `i * bits ..` of the row's
//! bytes, lowest bits first, in two's complement. Rows start at a byte boundary.

/// Bytes that a row of `columns` integers takes.
pub(crate) fn row_bytes(columns: usize, bits: u32) -> Option<usize> {
    Some(columns.checked_mul(bits as usize)?.div_ceil(8))
}

/// The largest magnitude that is written: the ranges are symmetric, so the lowest code is not used.
pub(crate) fn largest(bits: u32) -> i8 {
    ((1i16 << (bits - 1)) - 1) as i8
}

/// Appends one row. Codes must fit the bits; whatever does not is cut off.
pub(crate) fn pack(values: &[i8], bits: u32, out: &mut Vec<u8>) {
    if bits == 8 {
        out.extend(values.iter().map(|v| *v as u8));
        return;
    }
    let mask = (1u64 << bits) - 1;
    // Eight integers are a whole number of bytes.
    for group in values.chunks(8) {
        let word = group.iter().enumerate().fold(0, |word, (i, v)| word | (*v as u64 & mask) << (i as u32 * bits));
        let bytes = (group.len() * bits as usize).div_ceil(8);
        out.extend_from_slice(&word.to_le_bytes()[..bytes]);
    }
}

/// Reads the integers `first .. first + out.len()` of a row.
pub(crate) fn unpack(row: &[u8], bits: u32, first: usize, out: &mut [i8]) {
    match bits {
        2 => unpack_as::<2>(row, first, out),
        3 => unpack_as::<3>(row, first, out),
        4 => unpack_as::<4>(row, first, out),
        5 => unpack_as::<5>(row, first, out),
        6 => unpack_as::<6>(row, first, out),
        7 => unpack_as::<7>(row, first, out),
        _ => {
            for (out, byte) in out.iter_mut().zip(&row[first..]) {
                *out = *byte as i8;
            }
        }
    }
}

fn unpack_as<const BITS: usize>(row: &[u8], first: usize, out: &mut [i8]) {
    // Up to the next group of eight, one by one.
    let head = (first.next_multiple_of(8) - first).min(out.len());
    let (before, groups) = out.split_at_mut(head);
    for (i, out) in before.iter_mut().enumerate() {
        *out = single::<BITS>(row, first + i);
    }
    let from = (first + head) / 8 * BITS;
    let whole = groups.len() / 8;
    let bytes = row.get(from..from + whole * BITS).unwrap_or_default();
    for (out, bytes) in groups.as_chunks_mut::<8>().0.iter_mut().zip(bytes.as_chunks::<BITS>().0) {
        let mut word = [0; 8];
        word[..BITS].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        for (i, out) in out.iter_mut().enumerate() {
            *out = signed::<BITS>((word >> (i * BITS)) as u8);
        }
    }
    for (i, out) in groups.iter_mut().enumerate().skip(8 * whole) {
        *out = single::<BITS>(row, first + head + i);
    }
}

/// The low `BITS` bits as a number with sign.
fn signed<const BITS: usize>(low: u8) -> i8 {
    ((low << (8 - BITS)) as i8) >> (8 - BITS)
}

fn single<const BITS: usize>(row: &[u8], index: usize) -> i8 {
    let (byte, shift) = (index * BITS / 8, index * BITS % 8);
    let next = row.get(byte + 1).copied().unwrap_or(0);
    signed::<BITS>((u16::from_le_bytes([row[byte], next]) >> shift) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The slow, obvious way: a string of bits.
    fn slow(values: &[i8], bits: u32) -> Vec<u8> {
        let mut all: Vec<bool> = values.iter().flat_map(|v| (0..bits).map(move |b| v >> b & 1 == 1)).collect();
        all.resize(all.len().next_multiple_of(8), false);
        all.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, bit| sum << 1 | u8::from(*bit))).collect()
    }

    proptest! {
        #[test]
        fn packing_is_the_slow_one_and_comes_back(
            bits in 2u32..=8,
            values in prop::collection::vec(any::<i8>(), 1..100),
            from in 0usize..100,
            to in 0usize..=100,
        ) {
            let codes = i16::from(largest(bits)) + 1;
            let values: Vec<i8> = values.iter().map(|v| (i16::from(*v) % codes) as i8).collect();
            let mut packed = Vec::new();
            pack(&values, bits, &mut packed);
            prop_assert_eq!(&packed, &slow(&values, bits));
            prop_assert_eq!(row_bytes(values.len(), bits), Some(packed.len()));
            let from = from.min(values.len());
            let to = to.clamp(from, values.len());
            let mut out = vec![0; to - from];
            unpack(&packed, bits, from, &mut out);
            prop_assert_eq!(&out, &values[from..to]);
        }
    }

    #[test]
    fn every_code_of_every_width() {
        for bits in 2..=8u32 {
            let low = -(1i16 << (bits - 1));
            let codes: Vec<i8> = (low..-low).map(|v| v as i8).collect();
            let mut packed = Vec::new();
            pack(&codes, bits, &mut packed);
            let mut out = vec![0; codes.len()];
            unpack(&packed, bits, 0, &mut out);
            assert_eq!(out, codes, "{bits} bits");
            assert_eq!(i16::from(largest(bits)), -low - 1);
        }
        assert_eq!(row_bytes(usize::MAX, 3), None);
    }
}
