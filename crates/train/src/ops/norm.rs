//! Layer norm, with what stands before it in a Transformer.

use super::host::{Computed, Matrix, operation, workers};
use super::memory::{Kept, take};
use burn::tensor::Tensor;
use sparing_kernels::training::{self, Dropout, NormGradient, Normed};

/// `layer_norm(dropout(x) + stream)` of rows; weight and bias `[1, width]`.
pub(crate) fn norm(
    x: Tensor<2>,
    dropout: Option<Dropout>,
    stream: Option<Tensor<2>>,
    weight: Tensor<2>,
    bias: Tensor<2>,
    eps: f32,
) -> Tensor<2> {
    let streamed = stream.is_some();
    let stream = stream.unwrap_or_else(|| x.clone());
    operation([x, stream, weight, bias], |[x, stream, weight, bias]| {
        let shape = x.shape;
        let len = shape[0] * shape[1];
        let (mut normal, mut inverse, mut values) = (Kept::new(len), vec![0.0; shape[0]], take(len));
        let stream = streamed.then(|| stream.numbers());
        let (x, bias) = (x.numbers(), bias.numbers());
        let job = Normed { x, dropout, stream, weight: weight.numbers(), bias, eps };
        training::norm(&workers().team, &job, &mut normal, &mut inverse, &mut values);
        let weight = weight.clone();
        let back = move |gradient: &Matrix, wanted: [bool; 4]| {
            let mut sum = take(len);
            let mut dropped = dropout.map(|_| take(len));
            let (mut dw, mut db) = (vec![0.0; shape[1]], vec![0.0; shape[1]]);
            let (gradient, weight) = (gradient.numbers(), weight.numbers());
            let job = NormGradient { gradient, normal: &normal, inverse: &inverse, weight, dropout };
            let x = dropped.as_deref_mut();
            training::norm_gradient(&workers().team, &job, &mut sum, x, &mut dw, &mut db);
            let (dx, dstream) = match (dropped, streamed) {
                (Some(dx), true) => (dx, Some(sum)),
                (Some(dx), false) => (dx, None),
                (None, true) => (sum.clone(), Some(sum)),
                (None, false) => (sum, None),
            };
            let dstream = dstream.filter(|_| wanted[1]);
            [wanted[0].then_some(dx), dstream, wanted[2].then_some(dw), wanted[3].then_some(db)]
        };
        Computed { values, shape, back }
    })
}
