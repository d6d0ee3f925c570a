//! Rows beside other rows: how far they are from each other, and held within what others span.

use super::fused;
use super::operation::{Computed, operation};
use burn::tensor::Tensor;

/// What counts: every row as its token does, or every number of a square as its row's and its column's token do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Rows,
    /// `[batch * heads * length, length]`.
    Pairs {
        heads: usize,
    },
}

/// The mean of squared differences of `[rows, width]` over what counts, `[1, 1]`; `tokens` `[batch, length]` is 1 for those that do and 0
/// for the others.
pub(crate) fn mean_square(a: Tensor<2>, b: Tensor<2>, tokens: Tensor<2>, counted: Counted) -> Tensor<2> {
    operation([a, b], |[a, b]| {
        let shape = a.dims();
        let [mean, count] = match fused::mean_square(&a, &b, &tokens, counted) {
            Some(found) => found,
            None => {
                let weight = weights(&tokens, counted, shape);
                let count = count(&tokens, counted, shape[1]);
                let difference = a.clone() - b.clone();
                let sum = (difference.clone() * difference * weight).sum().reshape([1, 1]);
                [sum / count.clone(), count]
            }
        };
        let back = move |g: Tensor<2>, wanted: [bool; 2]| {
            let found = fused::mean_square_back([&a, &b, &tokens, &count, &g], counted).unwrap_or_else(|| {
                let scale = (g / count).mul_scalar(2.0);
                (a - b) * weights(&tokens, counted, shape) * scale
            });
            [wanted[0].then(|| found.clone()), wanted[1].then(|| found.neg())]
        };
        Computed { values: mean, back }
    })
}

/// How many numbers count, `[1, 1]`: by their rows and columns, since a sum of ones in f32 ends at 2^24.
fn count(tokens: &Tensor<2>, counted: Counted, width: usize) -> Tensor<2> {
    let rows = tokens.clone().sum_dim(1);
    match counted {
        Counted::Rows => rows.sum().mul_scalar(width as f64),
        Counted::Pairs { heads } => rows.clone().mul(rows).sum().mul_scalar(heads as f64),
    }
    .reshape([1, 1])
}

/// What every number counts, `[rows, width]`.
fn weights(tokens: &Tensor<2>, counted: Counted, [rows, width]: [usize; 2]) -> Tensor<2> {
    let [batch, length] = tokens.dims();
    match counted {
        Counted::Rows => tokens.clone().reshape([rows, 1]).expand([rows, width]),
        Counted::Pairs { heads } => {
            let [queries, keys] =
                [[batch, 1, length, 1], [batch, 1, 1, length]].map(|shape| tokens.clone().reshape(shape));
            (queries * keys).expand([batch, heads, length, length]).reshape([rows, width])
        }
    }
}

/// The largest size of every column, `[1, width]`. No gradient passes.
pub(crate) fn column_most(x: Tensor<2>) -> Tensor<2> {
    fused::column_most(&x).unwrap_or_else(|| x.abs().max_dim(0))
}

/// Rows held within `most` `[1, width]` of either sign; beyond there is no slope.
pub(crate) fn within(x: Tensor<2>, most: Tensor<2>) -> Tensor<2> {
    operation([x, most], |[x, most]| {
        let shape = x.shape();
        let values = fused::within(&x, &most).unwrap_or_else(|| {
            let most = most.clone().expand(shape.clone());
            x.clone().min_pair(most.clone()).max_pair(most.neg())
        });
        let back = move |g: Tensor<2>, wanted: [bool; 2]| {
            assert!(!wanted[1], "bounds are constants");
            let found = fused::within_back(&x, &most, &g);
            [Some(found.unwrap_or_else(|| g.mask_fill(x.abs().greater(most.expand(shape)), 0.0))), None]
        };
        Computed { values, back }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn what_counts_is_counted_however_much_it_is() {
        let device = Device::flex();
        let number = |x: Tensor<2>| x.into_data().try_into_vec_as::<f32>().unwrap()[0];
        let tokens = Tensor::<2>::from_floats([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]], &device);
        for (counted, shape) in [(Counted::Rows, [6, 5]), (Counted::Pairs { heads: 2 }, [12, 3])] {
            let all = number(weights(&tokens, counted, shape).sum().reshape([1, 1]));
            assert_eq!(number(count(&tokens, counted, shape[1])), all, "{counted:?}");
        }
        let many = Tensor::<2>::ones([64, 512], &device);
        assert_eq!(number(count(&many, Counted::Rows, 768)), (64 * 512 * 768) as f32);
        assert_eq!(number(count(&many, Counted::Pairs { heads: 12 }, 512)), (12 * 64 * 512 * 512) as f32);
    }
}
