//! Lite Transformer's long-short range attention (Wu et al. 2020, <https://arxiv.org/abs/2004.11886>).

use super::fresh::{Begin, Fresh, Sizes};
use super::full::full;
use super::input::{Input, folded};
use super::work::{each, softmax};
use super::{Attention, knob};
use crate::layers;
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Half of the channels attend to all tokens, the other half are convolved with near ones. Time and memory O(n²) as full
/// attention, of half the width, and O(n · kernel) for the convolution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongShort {
    /// Tokens under the convolution, an odd number.
    pub kernel: usize,
    /// Its weights are made of the token itself (dynamic convolution) rather than learned once (lightweight).
    #[serde(default)]
    pub dynamic: bool,
}

impl Attention for LongShort {
    fn check(&self) -> Result<(), Error> {
        knob("attention", "kernel", self.kernel, 1..=4095)?;
        if self.kernel.is_multiple_of(2) {
            return Err(Error::new(format!("attention: kernel is {}; an odd number is expected", self.kernel)));
        }
        Ok(())
    }

    fn causal(&self) -> bool {
        true
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        let (inputs, width) = (sizes.width / 2, sizes.head_width());
        let long = sizes.heads / 2 * width;
        let short = sizes.attention_width - long;
        let heads = sizes.heads - sizes.heads / 2;
        let rest = sizes.width - inputs;
        let mut all: Vec<Fresh> =
            ["query.weight", "key.weight", "value.weight"].map(|name| Fresh::map(name, long, inputs)).to_vec();
        all.extend([Fresh::map("short.value", short, rest), Fresh::map("short.gate", short, rest)]);
        all.push(match self.dynamic {
            true => Fresh::map("short.kernel", heads * self.kernel, rest),
            false => Fresh::new("short.kernel", &[heads, self.kernel], Begin::Normal(0.1)),
        });
        all
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let [batch, length, width] = input.dims();
        let half = width / 2;
        if input.heads < 2 || half == 0 {
            return Err(Error::new("attention: long-short range attention needs two heads at least"));
        }
        let part = |from: usize, to: usize| input.x.clone().slice_dim(2, from..to).reshape([batch * length, to - from]);
        let (long, short) = (input.heads / 2, input.heads - input.heads / 2);
        let left = part(0, half);
        let mapped =
            |name: &str| Ok::<_, Error>(folded(layers::linear(left.clone(), input.tensor(name)?, None), batch, long));
        let (query, key, value) = (mapped("query.weight")?, mapped("key.weight")?, mapped("value.weight")?);
        let attended = full(&input.some_heads_of(long, query, key, value));
        let convolved = self.convolved(input, part(half, width), short)?;
        let apart = |x: Tensor<3>, heads: usize| {
            let width = x.dims()[2];
            x.reshape([batch, heads, length, width])
        };
        let both = Tensor::cat(vec![apart(attended, long), apart(convolved, short)], 1);
        let width = both.dims()[3];
        Ok(both.reshape([batch * input.heads, length, width]))
    }
}

impl LongShort {
    /// Gated, then a weighted sum of near tokens, the weights of a head adding up to one: `[batch * heads, length, width]`.
    fn convolved(&self, input: &Input<'_>, x: Tensor<2>, heads: usize) -> Result<Tensor<3>, Error> {
        let [batch, length, _] = input.dims();
        let kernel = self.kernel;
        let map = |name: &str| Ok::<_, Error>(layers::linear(x.clone(), input.tensor(name)?, None));
        let value = folded(map("short.value")? * sigmoid(map("short.gate")?), batch, heads);
        let groups = batch * heads;
        let known = input.some_heads_of(heads, value.clone(), value.clone(), value.clone());
        let value = known.without_padding(value);
        let weights = match self.dynamic {
            true => softmax(folded(map("short.kernel")?, batch, heads)),
            false => softmax(known.own(input.tensor("short.kernel")?, 1)),
        };
        let before = if input.causal { kernel - 1 } else { kernel / 2 };
        let width = value.dims()[2];
        let zeros = |count: usize| Tensor::zeros([groups, count, width], &value.device());
        let mut padded = vec![value.clone()];
        if before > 0 {
            padded.insert(0, zeros(before));
        }
        if kernel - 1 - before > 0 {
            padded.push(zeros(kernel - 1 - before));
        }
        let padded = Tensor::cat(padded, 1);
        each([groups, length, width], 2 * kernel);
        let terms = (0..kernel)
            .map(|at| padded.clone().slice_dim(1, at..at + length) * weights.clone().slice_dim(2, at..at + 1));
        terms.reduce(|sum, term| sum + term).ok_or_else(|| Error::new("attention: a kernel of nothing"))
    }
}
