//! Every operation, forward and backward, against what Burn derives; whole networks are compared in [`crate::ops::tests`].

use super::*;
use crate::ops::tests::{compare, leaf, map, numbers, values};
use burn::tensor::module::{embedding, layer_norm};
use burn::tensor::{DType, Device, Int, Tensor, TensorData, activation};

#[test]
fn linear_maps() {
    // The last ones are long enough for gradients in parts.
    for [rows, inputs, outputs] in [[1, 1, 1], [37, 19, 70], [150, 64, 33], [4096, 5, 3], [4098, 4, 7]] {
        let shapes = [[rows, inputs], [outputs, inputs], [1, outputs]];
        compare("linear", shapes, &|[x, w, b]| linear(x, w, Some(b)), &|[x, w, b]| map(x, w, b));
        let shapes = [[rows, inputs], [inputs, outputs]];
        compare("turned", shapes, &|[x, w]| linear(x, w.transpose(), None), &|[x, w]| x.matmul(w));
    }
}

/// In bf16 the result and the gradient of the rows are bf16, the parameters' gradients f32, and all near those of f32.
#[test]
fn linear_maps_in_bf16() {
    let shapes = [[64, 32], [48, 32], [1, 48]];
    let run = |narrow: bool| {
        let [x, w, b] = std::array::from_fn(|i| leaf(i as u64 + 1, shapes[i]));
        let rows = if narrow { x.clone().cast(DType::BF16) } else { x.clone() };
        let out = linear(rows, w.clone(), Some(b.clone()));
        assert_eq!(out.dtype(), if narrow { DType::BF16 } else { DType::F32 });
        let out = out.cast(DType::F32);
        let pull = Tensor::<2>::from_data(TensorData::new(numbers(9, 64 * 48), [64, 48]), &Device::flex());
        let mut gradients = (out.clone() * pull).sum().backward();
        let found = [x, w, b].map(|input| {
            let gradient = input.grad_remove(&mut gradients).unwrap();
            assert_eq!(gradient.dtype(), DType::F32);
            values(gradient)
        });
        [vec![values(out)], found.to_vec()].concat()
    };
    for (near, exact) in run(true).iter().zip(run(false)) {
        let size = exact.iter().fold(0f32, |most, x| most.max(x.abs()));
        let far = near.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far > 0.0 && far < 0.02 * size, "{far} of {size}");
    }
}

#[test]
fn norms() {
    let width = 23;
    for rows in [1, 45, 64] {
        let shapes = [[rows, width], [1, width], [1, width]];
        compare("norm", shapes, &|[x, w, b]| norm(x, w, b, 1e-5), &|[x, w, b]| {
            layer_norm(x, w.reshape([width]), Some(b.reshape([width])), 1e-5)
        });
        compare("affine", shapes, &|[x, w, b]| scale_and_shift(x, w, b), &|[x, w, b]| x * w + b);
        compare("number", [shapes[0], [1, 1]], &|[x, s]| scaled(x, s), &|[x, s]| x * s);
        compare("row", [shapes[0], shapes[1]], &|[x, row]| add_row(x, row), &|[x, row]| x + row);
    }
}

#[test]
fn elements() {
    compare("gelu", [[33, 70]], &|[x]| gelu(x.mul_scalar(4.0)), &|[x]| activation::gelu(x.mul_scalar(4.0)));
    let scores = |x: Tensor<2>| x.mul_scalar(5.0).reshape([3, 2, 11, 7]);
    compare("softmax", [[66, 7]], &|[x]| softmax(scores(x)).reshape([66, 7]), &|[x]| {
        activation::softmax(scores(x), 3).reshape([66, 7])
    });
}

#[test]
fn rows_of_a_table() {
    let cases: [(usize, Vec<i32>); 5] = [
        (3, vec![1]),
        // One id throughout: every block's sum is the rest of the one before.
        (2, vec![1; 700]),
        (50, (0..127).map(|i| i * 7 % 50).collect()),
        (300, (0..128).rev().collect()),
        (40, (0..1000).map(|i| i * i % 31).collect()),
    ];
    for (rows, ids) in cases {
        let count = ids.len();
        let slow = |table: Tensor<2>| {
            let ids = Tensor::<2, Int>::from_data(TensorData::new(ids.clone(), [1, count]), &Device::flex());
            embedding(table, ids).reshape([count, 5])
        };
        compare(
            "lookup",
            [[rows, 5]],
            &|[table]| {
                let looked = Looked::new(&table, ids.clone());
                lookup(table, &looked)
            },
            &|[table]| slow(table),
        );
    }
}

/// Squared differences over what counts: rows of real tokens, pairs of them.
#[test]
fn differences() {
    let tokens = Tensor::<2>::from_data([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], &Device::flex());
    let by_hand = |[a, b]: [Tensor<2>; 2], counts: &[usize]| {
        let [rows, width] = a.dims();
        let weight: Vec<f32> = (0..rows * width).map(|i| if counts.contains(&i) { 1.0 } else { 0.0 }).collect();
        let weight = Tensor::<2>::from_data(TensorData::new(weight, [rows, width]), &Device::flex());
        ((a - b).powi_scalar(2) * weight.autodiff()).sum().div_scalar(counts.len() as f32).reshape([1, 1])
    };
    let rows = [0, 1, 2, 3, 6, 7];
    compare("rows", [[6, 2]; 2], &|[a, b]| mean_square(a, b, tokens.clone(), Counted::Rows), &|x| by_hand(x, &rows));
    // Two heads: of the first text two by two, of the second one.
    let pairs = [0, 1, 3, 4, 9, 10, 12, 13, 18, 27];
    let counted = Counted::Pairs { heads: 2 };
    compare("pairs", [[12, 3]; 2], &|[a, b]| mean_square(a, b, tokens.clone(), counted), &|x| by_hand(x, &pairs));
}

#[test]
fn bounds() {
    let most = Tensor::<2>::from_data([[0.5, 0.1, 2.0]], &Device::flex());
    let slow = |x: Tensor<2>| {
        let most = most.clone().autodiff().expand([40, 3]);
        x.min_pair(most.clone()).max_pair(most.neg())
    };
    compare("bounds", [[40, 3]], &|[x]| within(x, most.clone()), &|[x]| slow(x));
    let x = Tensor::<2>::from_data([[1.0, -3.0], [-2.0, 2.5]], &Device::flex());
    assert_eq!(values(column_most(x)), [2.0, 3.0]);
}

#[test]
fn sums_in_parts() {
    for rows in [1, 2, 7, 64, 360, 1021] {
        compare("sums", [[rows, 6]], &|[x]| column_sums(x), &|[x]| x.sum_dim(0));
    }
}
