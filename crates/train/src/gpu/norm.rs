//! Norms, and what else adds one row to all rows or scales them.

use super::fused;
use super::operation::{Back, Computed, operation};
use super::sums::column_sums;
use crate::rows::by_rows;
use burn::tensor::Tensor;

type Backward = Box<dyn FnOnce(Tensor<2>, [bool; 3]) -> Back<3> + Send>;

/// Layer norm of rows `[rows, width]`; weight and bias `[1, width]`. All f32.
pub(crate) fn norm(x: Tensor<2>, weight: Tensor<2>, bias: Tensor<2>, eps: f32) -> Tensor<2> {
    operation([x, weight, bias], |[x, weight, bias]| {
        if let Some([values, moments]) = fused::norm(&x, &weight, &bias, eps) {
            let back: Backward = Box::new(move |g, wanted| {
                let sums = (wanted[1] || wanted[2]).then(|| fused::norm_sums(&x, Some(&moments), &g)).flatten();
                let [dw, db] = sums.map_or([None, None], |sums| sums.map(Some));
                [wanted[0].then(|| fused::norm_back(&x, &weight, &moments, &g)).flatten(), dw, db]
            });
            return Computed { values, back };
        }
        let mean = x.clone().mean_dim(1);
        let centred = x - mean;
        let variance = (centred.clone() * centred.clone()).mean_dim(1);
        let inverse = variance.add_scalar(eps).sqrt().recip();
        let normal = centred * inverse.clone();
        let values = normal.clone() * weight.clone() + bias;
        let back: Backward = Box::new(move |g, wanted| {
            let dw = wanted[1].then(|| column_sums(g.clone() * normal.clone()));
            let db = wanted[2].then(|| column_sums(g.clone()));
            let dx = wanted[0].then(|| {
                let g = g * weight;
                let along = (g.clone() * normal.clone()).mean_dim(1);
                let mean = g.clone().mean_dim(1);
                (g - mean - normal * along) * inverse
            });
            [dx, dw, db]
        });
        Computed { values, back }
    })
}

/// `x w + b`, weight and bias `[1, width]`.
pub(crate) fn scale_and_shift(x: Tensor<2>, weight: Tensor<2>, bias: Tensor<2>) -> Tensor<2> {
    operation([x, weight, bias], |[x, weight, bias]| {
        let values = fused::scaled(&x, &weight, Some(&bias)).unwrap_or_else(|| x.clone() * weight.clone() + bias);
        let back = move |g: Tensor<2>, wanted: [bool; 3]| {
            let sums = (wanted[1] || wanted[2]).then(|| {
                let plain = || [column_sums(g.clone() * x.clone()), column_sums(g.clone())];
                fused::norm_sums(&x, None, &g).unwrap_or_else(plain).map(Some)
            });
            let [dw, db] = sums.unwrap_or([None, None]);
            [wanted[0].then(|| fused::scaled(&g, &weight, None).unwrap_or_else(|| g * weight)), dw, db]
        };
        Computed { values, back }
    })
}

/// `x + row` for all rows of `[rows, width]`; row `[1, width]`.
pub(crate) fn add_row(x: Tensor<2>, row: Tensor<2>) -> Tensor<2> {
    operation([x, row], |[x, row]| {
        let back = move |g: Tensor<2>, wanted: [bool; 2]| {
            let row = wanted[1].then(|| column_sums(g.clone()));
            [Some(g), row]
        };
        Computed { values: x + row, back }
    })
}

/// `x s` for one number, `[1, 1]`.
pub(crate) fn scaled<const D: usize>(x: Tensor<D>, scale: Tensor<2>) -> Tensor<D> {
    by_rows(x, |x| {
        operation([x, scale], |[x, scale]| {
            let values = x.clone() * scale.clone();
            let back = move |g: Tensor<2>, wanted: [bool; 2]| {
                let ds = wanted[1].then(|| column_sums(g.clone() * x).sum_dim(1));
                [wanted[0].then(|| g * scale), ds]
            };
            Computed { values, back }
        })
    })
}
