//! Normalisation of rows.

use crate::{Rows, RowsMut, reference};

/// `out = (x - mean) / sqrt(var + eps) * weight + bias`, row by row. `x` and `out` may have different element types.
pub fn layer_norm(x: Rows, weight: &[f32], bias: &[f32], eps: f32, out: RowsMut) {
    reference::layer_norm(x, weight, bias, eps, out);
}

/// [`layer_norm`] in place.
pub fn layer_norm_in_place(mut x: RowsMut, weight: &[f32], bias: &[f32], eps: f32) {
    let copy: Vec<f32> =
        (0..x.count()).flat_map(|r| (0..x.width()).map(|c| x.as_rows().get(r, c)).collect::<Vec<_>>()).collect();
    let width = x.width();
    reference::layer_norm(Rows::f32(&copy, width), weight, bias, eps, x.borrow());
}

/// `x = x * weight + bias` in place, row by row (MobileBERT's NoNorm).
pub fn affine_in_place(mut x: RowsMut, weight: &[f32], bias: &[f32]) {
    for r in 0..x.count() {
        for c in 0..x.width() {
            let v = x.as_rows().get(r, c) * weight[c] + bias[c];
            x.set(r, c, v);
        }
    }
}

/// Softmax of each row in place.
pub fn softmax_in_place(mut x: RowsMut) {
    for r in 0..x.count() {
        let mut row = vec![0.0; x.width()];
        x.as_rows().read_row(r, &mut row);
        reference::softmax(&mut row);
        x.write_row(r, &row);
    }
}
