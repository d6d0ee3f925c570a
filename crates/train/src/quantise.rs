//! Quantization-aware training: numbers are rounded on the way forward as the engine will round them, and gradients
//! pass as if they were not (straight-through estimator, Bengio et al. 2013, <https://arxiv.org/abs/1308.3432>).

use crate::LinearHook;
use burn::tensor::{Bool, Tensor};
use serde::{Deserialize, Serialize};
use sparing_model::{Error, Plan, Precision};

/// The smallest step, as the engine has it: a row of zeros must not divide by zero.
const LEAST_STEP: f64 = 1e-30;

/// How weights and activations are rounded: exactly what the engine does at 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FakeQuantization {
    weight_bits: u32,
    activation_bits: u32,
}

impl FakeQuantization {
    /// Weights of this many bits, one step size per output row, symmetric (Q8BERT); activations with one step size per
    /// token, over the token's range.
    pub fn new(weight_bits: u32, activation_bits: u32) -> Result<FakeQuantization, Error> {
        for bits in [weight_bits, activation_bits] {
            if !(2..=8).contains(&bits) {
                return Err(Error::new(format!("{bits} bits cannot be trained for; from 2 to 8 can")));
            }
        }
        Ok(FakeQuantization { weight_bits, activation_bits })
    }

    /// `sparing.json` of what comes out: the engine runs it on integers.
    pub(crate) fn plan(&self) -> String {
        let plan = Plan { precision: Some(Precision::Int8), ..Plan::default() };
        serde_json::to_string_pretty(&plan).unwrap_or_default() + "\n"
    }
}

impl LinearHook for FakeQuantization {
    fn weight(&self, _: &str, weight: Tensor<2>) -> Tensor<2> {
        let most = f64::from((1 << (self.weight_bits - 1)) - 1);
        let exact = weight.clone().inner();
        let step = exact.clone().abs().max_dim(1).div_scalar(most).clamp_min(LEAST_STEP);
        let rounded = (exact.clone() / step.clone()).round().clamp(-most, most) * step;
        // The difference is a constant: the gradient is that of the weight itself.
        weight + (rounded - exact)
    }

    fn input(&self, _: &str, input: Tensor<2>, _: Option<&Tensor<2, Bool>>) -> Tensor<2> {
        let levels = f64::from((1 << self.activation_bits) - 1);
        let exact = input.clone().inner();
        let least = exact.clone().min_dim(1);
        let step = (exact.clone().max_dim(1) - least.clone()).div_scalar(levels).clamp_min(LEAST_STEP);
        let rounded = ((exact.clone() - least.clone()) / step.clone()).round() * step + least;
        input + (rounded - exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn rounds_like_the_engine_and_lets_gradients_through() {
        let device = Device::flex().autodiff();
        let q = FakeQuantization::new(8, 8).unwrap();
        let w = Tensor::<2>::from_floats([[1.27, -0.504, 0.0], [0.0, 0.0, 0.0]], &device).require_grad();
        let rounded = q.weight("w", w.clone());
        let values: Vec<f32> = rounded.clone().inner().into_data().as_slice::<f32>().unwrap().to_vec();
        for (got, want) in values.iter().zip([1.27, -0.50, 0.0, 0.0, 0.0, 0.0]) {
            assert!((got - want).abs() < 1e-6, "{values:?}");
        }
        let gradients = rounded.sum().backward();
        let g = w.grad(&gradients).unwrap().into_data();
        assert_eq!(g.as_slice::<f32>().unwrap(), [1.0; 6]);
        // 0 to 5.1 in 255 steps of 0.02.
        let x = Tensor::<2>::from_floats([[0.0, 5.1, 1.011]], &device);
        let y = q.input("w", x, None).inner().into_data();
        assert!((y.as_slice::<f32>().unwrap()[2] - 1.02).abs() < 1e-5, "{y}");
        assert!(FakeQuantization::new(1, 8).is_err() && FakeQuantization::new(8, 16).is_err());
    }
}
