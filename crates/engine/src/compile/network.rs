//! A network in softmax's place, as the kernel wants it: projections of keys and values are fused with its two maps.

use crate::finite;
use sparing_kernels::attention::{Heads, ShareNetwork as Kernel};
use sparing_model::{Error, Linear, ShareNetwork, Weights};

/// `relu(W1 E (scale · s) + b1)ᵀ W2ᵀ F + b2ᵀ F` for a row s of scores; without projections E and F are not there.
pub(crate) fn share_network(
    weights: &Weights,
    network: &ShareNetwork,
    scale: f32,
    heads: Heads,
) -> Result<Kernel, Error> {
    let matrix = |linear: &Linear| -> Result<Vec<f64>, Error> {
        let numbers = weights.matrix(linear)?;
        finite::check(&linear.weight.name(), &numbers)?;
        Ok(numbers.into_iter().map(f64::from).collect())
    };
    let bias = |linear: &Linear| match linear.stored_bias() {
        Some(bias) => finite::bias(weights, bias, linear.outputs),
        None => Ok(vec![0.0; linear.outputs]),
    };
    let (slots, width) = (network.hidden.outputs, network.hidden.inputs);
    let (hidden, output) = (matrix(&network.hidden)?, turned(&matrix(&network.output)?, slots));
    let rest: Vec<f64> = bias(&network.output)?.into_iter().map(f64::from).collect();
    let (keys, values, rest) = match &network.projections {
        None => (hidden, output, rest),
        Some(p) => {
            let (keys, values) = (matrix(&p.keys)?, matrix(&p.values)?);
            (product(&hidden, &keys, width), product(&output, &values, width), product(&rest, &values, width))
        }
    };
    let narrow = |numbers: Vec<f64>, by: f64| -> Vec<f32> { numbers.into_iter().map(|x| (x * by) as f32).collect() };
    let (keys, values) = (narrow(keys, f64::from(scale)), narrow(values, 1.0));
    Ok(Kernel::new(&keys, &bias(&network.hidden)?, &values, &narrow(rest, 1.0), heads))
}

/// `[rows, columns]` to `[columns, rows]`.
fn turned(matrix: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|column| matrix.iter().skip(column).step_by(columns).copied()).collect()
}

/// `a b`, where a has `inner` columns.
fn product(a: &[f64], b: &[f64], inner: usize) -> Vec<f64> {
    let columns = b.len() / inner;
    let mut out = vec![0.0; a.len() / inner * columns];
    for (row, out) in a.chunks_exact(inner).zip(out.chunks_exact_mut(columns)) {
        for (x, b) in row.iter().zip(b.chunks_exact(columns)) {
            out.iter_mut().zip(b).for_each(|(out, b)| *out += x * b);
        }
    }
    out
}
