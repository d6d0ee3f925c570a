//! Linear maps `x Wᵀ + b`, alone and in the two groups a Transformer has them in. What they multiply may be rounded to bf16 on
//! the way in, forward and backward; what they add up, return and keep is f32.

use super::host::{Computed, Matrix, operation, workers};
use super::memory::{Kept, take};
use burn::tensor::Tensor;
use sparing_kernels::training::column_sums;
use sparing_kernels::{Activation, After, Format, Rows, RowsMut, Side};

/// `x Wᵀ + b`.
fn forward(format: Format, x: Rows, weight: &Matrix, bias: &Matrix, out: &mut [f32]) {
    let w = workers();
    let after = After { bias: Some(bias.numbers()), ..After::default() };
    let out = RowsMut::f32(out, weight.shape[0]);
    w.products().product(&w.team, format, Side::of(x), Side::turned(weight.rows()), &after, out);
}

/// The gradient of `x`: `g W`, added to what is there if told so.
fn input_gradient(format: Format, gradient: Rows, weight: &Matrix, accumulate: bool, out: &mut [f32]) {
    let w = workers();
    let after = After { accumulate, ..After::default() };
    let out = RowsMut::f32(out, weight.shape[1]);
    w.products().product(&w.team, format, Side::of(gradient), Side::of(weight.rows()), &after, out);
}

/// The gradient of the weight: `gᵀ x`.
fn weight_gradient(format: Format, gradient: Rows, x: Rows) -> Vec<f32> {
    let w = workers();
    let mut out = vec![0.0; gradient.width() * x.width()];
    let to = RowsMut::f32(&mut out, x.width());
    w.products().product(&w.team, format, Side::turned(gradient), Side::of(x), &After::default(), to);
    out
}

/// The gradient of the bias: the sum of all rows.
fn bias_gradient(gradient: &[f32], width: usize) -> Vec<f32> {
    let mut out = vec![0.0; width];
    column_sums(&workers().team, gradient, &mut out);
    out
}

/// A bias of zeros where there is none.
fn bias_or_zeros(bias: Option<Tensor<2>>, weight: &Tensor<2>) -> Tensor<2> {
    bias.unwrap_or_else(|| Tensor::zeros([1, weight.dims()[0]], &weight.device().without_autodiff()))
}

/// `x Wᵀ + b`: `[rows, inputs]` to `[rows, outputs]`; weight `[outputs, inputs]`, bias `[1, outputs]`.
pub(crate) fn linear(format: Format, x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<2>>) -> Tensor<2> {
    let bias = bias_or_zeros(bias, &weight);
    operation([x, weight, bias], |[x, weight, bias]| {
        let shape = [x.shape[0], weight.shape[0]];
        let mut values = take(shape[0] * shape[1]);
        forward(format, x.rows(), weight, bias, &mut values);
        let (x, weight) = (x.clone(), weight.clone());
        let back = move |gradient: &Matrix, wanted: [bool; 3]| {
            let g = gradient.rows();
            let dx = wanted[0].then(|| {
                let mut dx = take(x.numbers().len());
                input_gradient(format, g, &weight, false, &mut dx);
                dx
            });
            let dw = wanted[1].then(|| weight_gradient(format, g, x.rows()));
            [dx, dw, wanted[2].then(|| bias_gradient(gradient.numbers(), weight.shape[0]))]
        };
        Computed { values, shape, back }
    })
}

/// `aᵀ b`: `[n, rows]` and `[n, columns]` to `[rows, columns]`.
pub(crate) fn turned_product(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    operation([a, b], |[a, b]| {
        let values = weight_gradient(Format::F32, a.rows(), b.rows());
        let shape = [a.shape[1], b.shape[1]];
        let (a, b) = (a.clone(), b.clone());
        let back = move |gradient: &Matrix, wanted: [bool; 2]| {
            let w = workers();
            let da = wanted[0].then(|| {
                let mut da = take(a.numbers().len());
                let (left, right) = (Side::of(b.rows()), Side::turned(gradient.rows()));
                w.products().product(
                    &w.team,
                    Format::F32,
                    left,
                    right,
                    &After::default(),
                    RowsMut::f32(&mut da, shape[0]),
                );
                da
            });
            let db = wanted[1].then(|| {
                let mut db = take(b.numbers().len());
                input_gradient(Format::F32, a.rows(), gradient, false, &mut db);
                db
            });
            [da, db]
        };
        Computed { values, shape, back }
    })
}

/// Queries, keys and values one below the other, `[queries + 2 rows, width]`: queries of `queries`, keys and values of `x`.
/// `queries` is `None` where they are of `x` too. Each map has its weight and bias.
pub(crate) fn projections(
    format: Format,
    x: Tensor<2>,
    queries: Option<Tensor<2>>,
    maps: [(Tensor<2>, Option<Tensor<2>>); 3],
) -> Tensor<2> {
    let own = queries.is_some();
    let queries = queries.unwrap_or_else(|| x.clone());
    let [q, k, v] = maps.map(|(weight, bias)| {
        let bias = bias_or_zeros(bias, &weight);
        (weight, bias)
    });
    operation([x, queries, q.0, q.1, k.0, k.1, v.0, v.1], |[x, queries, wq, bq, wk, bk, wv, bv]| {
        let width = wq.shape[0];
        let [first, rows] = [queries.shape[0], x.shape[0]];
        let shape = [first + 2 * rows, width];
        let mut values = take(shape[0] * width);
        let (q, rest) = values.split_at_mut(first * width);
        let (k, v) = rest.split_at_mut(rows * width);
        forward(format, queries.rows(), wq, bq, q);
        forward(format, x.rows(), wk, bk, k);
        forward(format, x.rows(), wv, bv, v);
        let (x, queries, weights) = (x.clone(), queries.clone(), [wq, wk, wv].map(Clone::clone));
        let back = move |gradient: &Matrix, wanted: [bool; 8]| {
            let g = gradient.rows();
            let parts = [g.range(0..first), g.range(first..first + rows), g.range(first + rows..first + 2 * rows)];
            let ends = [0, first, first + rows, first + 2 * rows].map(|row| row * width);
            let mut dx = wanted[0].then(|| take(x.numbers().len()));
            let mut dqueries = None;
            if let Some(dx) = &mut dx {
                input_gradient(format, parts[1], &weights[1], false, dx);
                input_gradient(format, parts[2], &weights[2], true, dx);
                if !own {
                    input_gradient(format, parts[0], &weights[0], true, dx);
                }
            }
            if own && wanted[1] {
                let mut d = take(queries.numbers().len());
                input_gradient(format, parts[0], &weights[0], false, &mut d);
                dqueries = Some(d);
            }
            let dw = |i: usize, x: &Matrix| wanted[2 + 2 * i].then(|| weight_gradient(format, parts[i], x.rows()));
            let db =
                |i: usize| wanted[3 + 2 * i].then(|| bias_gradient(&gradient.numbers()[ends[i]..ends[i + 1]], width));
            [dx, dqueries, dw(0, &queries), db(0), dw(1, &x), db(1), dw(2, &x), db(2)]
        };
        Computed { values, shape, back }
    })
}

/// `activation(x Uᵀ + c) Dᵀ + d`: a feed-forward block, the way back through the activation fused into the product before it.
pub(crate) fn feed_forward(
    format: Format,
    x: Tensor<2>,
    up: (Tensor<2>, Option<Tensor<2>>),
    activation: Activation,
    down: (Tensor<2>, Option<Tensor<2>>),
) -> Tensor<2> {
    let (up_bias, down_bias) = (bias_or_zeros(up.1, &up.0), bias_or_zeros(down.1, &down.0));
    operation([x, up.0, up_bias, down.0, down_bias], |[x, up, up_bias, down, down_bias]| {
        let (rows, wide) = (x.shape[0], up.shape[0]);
        let shape = [rows, down.shape[0]];
        let (mut before, mut inner) = (Kept::new(rows * wide), Kept::new(rows * wide));
        let w = workers();
        {
            let (kept, to) = (RowsMut::f32(&mut before, wide), RowsMut::f32(&mut inner, wide));
            let (a, b) = (Side::of(x.rows()), Side::turned(up.rows()));
            w.products().activated(&w.team, format, a, b, Some(up_bias.numbers()), activation, kept, to);
        }
        let mut values = take(rows * shape[1]);
        forward(format, Rows::f32(&inner, wide), down, down_bias, &mut values);
        let (x, up, down) = (x.clone(), up.clone(), down.clone());
        let back = move |gradient: &Matrix, wanted: [bool; 5]| {
            let g = gradient.rows();
            let dw_down = wanted[3].then(|| weight_gradient(format, g, Rows::f32(&inner, wide)));
            let db_down = wanted[4].then(|| bias_gradient(gradient.numbers(), down.shape[0]));
            // The activations are not needed any more: their place takes their gradient.
            let mut d = inner;
            let w = workers();
            let after = After { slope: Some((activation, Rows::f32(&before, wide))), ..After::default() };
            let to = RowsMut::f32(&mut d, wide);
            w.products().product(&w.team, format, Side::of(g), Side::of(down.rows()), &after, to);
            std::mem::drop(before);
            let dw_up = wanted[1].then(|| weight_gradient(format, Rows::f32(&d, wide), x.rows()));
            let db_up = wanted[2].then(|| bias_gradient(&d, wide));
            let dx = wanted[0].then(|| {
                let mut dx = take(x.numbers().len());
                input_gradient(format, Rows::f32(&d, wide), &up, false, &mut dx);
                dx
            });
            [dx, dw_up, db_up, dw_down, db_down]
        };
        Computed { values, shape, back }
    })
}
