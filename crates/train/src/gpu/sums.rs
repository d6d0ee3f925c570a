//! Sums over rows, in parts: a GPU wants thousands of short sums rather than a few long ones.

use super::fused;
use super::product::times;
use burn::tensor::{DType, Tensor};

/// Inner lengths of a product from which on parts pay.
const LONG: usize = 2048;
/// The shortest part.
const PART: usize = 1024;
/// Tiles of 128 x 128 that keep a large GPU busy.
const TILES: usize = 256;

/// The sum of all rows in f32: `[rows, width]` to `[1, width]`.
pub(crate) fn column_sums(x: Tensor<2>) -> Tensor<2> {
    if let Some(sums) = fused::column_sums(&x) {
        return sums;
    }
    let [rows, width] = x.dims();
    let group = (1..=rows.isqrt()).rev().find(|group| rows.is_multiple_of(*group)).unwrap_or(1);
    let parts = match group {
        1 => x,
        _ => x.reshape([rows / group, group, width]).sum_dim(1).reshape([rows / group, width]),
    };
    wide(parts).sum_dim(0)
}

/// `aᵀ b` in f32: `[rows, m]` and `[rows, n]` to `[m, n]`.
pub(crate) fn transposed_product(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    let ([rows, m], [_, n]) = (a.dims(), b.dims());
    let parts = parts(rows, m, n);
    if parts == 1 {
        return times(a.transpose(), b, DType::F32);
    }
    let a = a.reshape([parts, rows / parts, m]).swap_dims(1, 2);
    let b = b.reshape([parts, rows / parts, n]);
    times(a, b, DType::F32).sum_dim(0).reshape([m, n])
}

/// Into how many parts the rows go: a power of two.
fn parts(rows: usize, m: usize, n: usize) -> usize {
    let tiles = m.div_ceil(128) * n.div_ceil(128);
    let mut parts = 1;
    while rows >= LONG && tiles * parts < TILES && rows / (2 * parts) >= PART && rows.is_multiple_of(2 * parts) {
        parts *= 2;
    }
    parts
}

pub(super) fn wide<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if x.dtype() == DType::F32 { x } else { x.cast(DType::F32) }
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn long_products_with_few_tiles_go_in_parts() {
        assert_eq!(parts(8192, 768, 768), 8);
        assert_eq!(parts(8192, 3072, 768), 2);
        assert_eq!(parts(8192, 30522, 768), 1);
        assert_eq!(parts(1024, 384, 384), 1);
        assert_eq!(parts(4097, 384, 384), 1);
    }
}
