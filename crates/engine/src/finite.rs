//! Weights that are numbers. Attention takes the largest of its scores, and ReLU the larger of a number and zero: what is no number
//! would not come out as one, and the answer would look as if nothing were wrong.
//!
//! The table of words is not read whole, and not checked here: a row of it is added, and the answer is no number then.

use sparing_model::{Bias, Error, Weights, not_finite};

/// Refuses what is no number, by its tensor's name.
pub(crate) fn check(name: &str, numbers: &[f32]) -> Result<(), Error> {
    match numbers.iter().all(|number| number.is_finite()) {
        true => Ok(()),
        false => Err(not_finite(name)),
    }
}

/// A vector of this length, all numbers.
pub(crate) fn vector(weights: &Weights, name: &str, length: usize) -> Result<Vec<f32>, Error> {
    let numbers = weights.vector(name, length)?;
    check(name, &numbers).map(|()| numbers)
}

/// The bias of a linear map, all numbers.
pub(crate) fn bias(weights: &Weights, bias: &Bias, length: usize) -> Result<Vec<f32>, Error> {
    let numbers = weights.bias(bias, length)?;
    check(&bias.name, &numbers).map(|()| numbers)
}
