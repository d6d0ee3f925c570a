//! The same update on the CPU in one pass over memory: tensor by tensor, every operation would read and write everything
//! once more, and an optimizer is all reading and writing.

use super::AdamOptions;
use burn::tensor::{Device, Tensor, TensorData};
use rayon::prelude::*;
use sparing_model::Error;

/// Numbers that one thread takes at a time.
const CHUNK: usize = 1 << 15;

/// Factors of one update of one tensor.
pub(super) struct Factors {
    /// Of the gradient, to clip it.
    pub(super) clip: f32,
    /// Of the change: rate and correction of the first moment.
    pub(super) change: f32,
    /// Of the weight: what decay leaves.
    pub(super) keep: f32,
    /// Of the root: correction of the second moment.
    pub(super) root: f32,
}

/// Sum of squares, the same whatever the number of threads.
pub(super) fn square_sum(gradient: &TensorData) -> Result<f64, Error> {
    let sums: Vec<f64> = numbers(gradient)?
        .par_chunks(CHUNK)
        .map(|chunk| chunk.iter().map(|g| f64::from(*g) * f64::from(*g)).sum())
        .collect();
    Ok(sums.iter().sum())
}

/// Updates `value`, `first` and `second` in place.
pub(super) fn update(
    options: &AdamOptions,
    factors: &Factors,
    value: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    let (beta1, beta2, epsilon) = (options.beta1 as f32, options.beta2 as f32, options.epsilon as f32);
    let (rest1, rest2) = ((1.0 - options.beta1) as f32, (1.0 - options.beta2) as f32);
    let Factors { clip, change, keep, root } = *factors;
    value
        .par_chunks_mut(CHUNK)
        .zip(gradient.par_chunks(CHUNK))
        .zip(first.par_chunks_mut(CHUNK))
        .zip(second.par_chunks_mut(CHUNK))
        .for_each(|(((value, gradient), first), second)| {
            for (((w, g), m), v) in value.iter_mut().zip(gradient).zip(first).zip(second) {
                let g = g * clip;
                *m = *m * beta1 + g * rest1;
                *v = *v * beta2 + g * g * rest2;
                *w = *w * keep - *m / (v.sqrt() * root + epsilon) * change;
            }
        });
}

/// The numbers of a tensor.
pub(super) fn numbers(data: &TensorData) -> Result<&[f32], Error> {
    data.as_slice::<f32>().map_err(|e| Error::new(format!("a gradient cannot be read ({e:?})")))
}

/// One number as `[1]`.
pub(super) fn scalar(value: f64, device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(vec![value as f32], [1]), device)
}
