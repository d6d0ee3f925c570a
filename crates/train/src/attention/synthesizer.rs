//! Synthesizer (Tay et al. 2020, <https://arxiv.org/abs/2005.00743>): shares that are not products of queries and keys.

use super::fresh::{Begin, Fresh, Sizes};
use super::full::later;
use super::input::{Heads, Input};
use super::work::{product, softmax};
use super::{Attention, projections, rounds, some_tokens};
use crate::gpu::scaled;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// A sum of score matrices, each made in one way. Time and memory O(n²): what is saved are the products with keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Synthesizer {
    /// Which matrices are summed, each with a learned weight if there are several.
    pub parts: Vec<Scores>,
    /// Rank of factorised random scores.
    #[serde(default = "rank")]
    pub rank: usize,
}

fn rank() -> usize {
    32
}

/// How a matrix of scores is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scores {
    /// Two layers map each token to a score for every place.
    Dense,
    /// A learned matrix, the same for all inputs.
    Random,
    /// A drawn matrix that stays as it is.
    FixedRandom,
    /// Two shorter maps whose outer product is the scores of a token.
    FactorisedDense,
    /// A learned matrix of low rank.
    FactorisedRandom,
    /// Queries and keys after all: for mixtures.
    DotProduct,
}

impl Scores {
    fn name(self) -> &'static str {
        match self {
            Scores::Dense => "dense",
            Scores::Random | Scores::FixedRandom => "random",
            Scores::FactorisedDense => "factorised",
            Scores::FactorisedRandom => "factors",
            Scores::DotProduct => "dot",
        }
    }
}

/// Two numbers near the root whose product is `length` or a little more.
fn factors(length: usize) -> [usize; 2] {
    let first = ((length as f64).sqrt().floor() as usize).max(1);
    [first, length.div_ceil(first)]
}

impl Attention for Synthesizer {
    fn check(&self) -> Result<(), Error> {
        some_tokens("rank", self.rank)?;
        rounds("the number of parts", self.parts.len())?;
        let mut names: Vec<_> = self.parts.iter().map(|part| part.name()).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() < self.parts.len() {
            return Err(Error::new("attention: a mixture has two parts of one kind"));
        }
        Ok(())
    }

    fn causal(&self) -> bool {
        true
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        let (length, width, heads) = (sizes.length, sizes.head_width(), sizes.heads);
        let reads = |part: &Scores| matches!(part, Scores::Dense | Scores::FactorisedDense | Scores::DotProduct);
        let wanted = |name: &str| match name {
            "query.weight" => self.parts.iter().any(reads),
            "key.weight" => self.parts.contains(&Scores::DotProduct),
            _ => true,
        };
        let mut all: Vec<Fresh> = projections(sizes).into_iter().filter(|fresh| wanted(&fresh.name)).collect();
        if self.parts.len() > 1 {
            all.push(Fresh::new("mixture", &[self.parts.len()], Begin::Zero));
        }
        for part in &self.parts {
            let square = Fresh::new("random", &[heads, length * length], Begin::Normal(1.0));
            match part {
                Scores::Dense => {
                    all.extend([Fresh::map("dense.first", width, width), Fresh::map("dense.second", length, width)]);
                }
                Scores::Random => all.push(square),
                Scores::FixedRandom => all.push(square.fixed()),
                Scores::FactorisedDense => {
                    let [a, b] = factors(length);
                    all.push(Fresh::map("factorised.first", width, width));
                    all.extend([Fresh::map("factorised.a", a, width), Fresh::map("factorised.b", b, width)]);
                }
                Scores::FactorisedRandom => {
                    let begin = Begin::Normal(1.0 / (self.rank as f64).powf(0.25));
                    let of = |name| Fresh::new(name, &[heads, length * self.rank], begin);
                    all.extend([of("factors.query"), of("factors.key")]);
                }
                Scores::DotProduct => {}
            }
        }
        all
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let value = input.mapped("value.weight")?;
        let named = |name: &str| match input.parameters.contains(&format!("{}.{name}", input.prefix)) {
            true => input.mapped(name),
            false => Ok(value.clone()),
        };
        let heads = input.heads_of(named("query.weight")?, named("key.weight")?, value.clone());
        let [groups, length, _] = heads.dims();
        let mut sum: Option<Tensor<3>> = None;
        for (number, part) in self.parts.iter().enumerate() {
            let mut scores = self.scores(*part, input, &heads)?;
            if self.parts.len() > 1 {
                let shares = softmax(input.tensor("mixture")?);
                scores = scaled(scores, shares.slice_dim(1, number..number + 1));
            }
            sum = Some(match sum {
                Some(sum) => sum + scores,
                None => scores,
            });
        }
        let Some(mut scores) = sum else { return Err(Error::new("attention: a mixture of nothing")) };
        if let Some(padding) = heads.padding(length) {
            scores = scores + padding;
        }
        if heads.causal {
            scores = scores + later(length, length, &heads.device());
        }
        let mixed = product(softmax(scores), value);
        debug_assert_eq!(mixed.dims()[0], groups);
        Ok(mixed)
    }
}

impl Synthesizer {
    /// `[groups, length, length]`.
    fn scores(&self, part: Scores, input: &Input<'_>, heads: &Heads) -> Result<Tensor<3>, Error> {
        let [groups, length, width] = heads.dims();
        let rows = |x: &Tensor<3>| x.clone().reshape([groups * length, width]);
        let map = |x: Tensor<2>, name: &str, most: usize| -> Result<Tensor<2>, Error> {
            let weight = input.tensor(name)?;
            let outputs = weight.dims()[0].min(most);
            Ok(product(x, weight.slice_dim(0, 0..outputs).transpose()))
        };
        let fits = |most: usize| match length <= most {
            true => Ok(()),
            false => Err(Error::new(format!("attention: a sequence of {length} tokens; it was made for {most}"))),
        };
        Ok(match part {
            Scores::DotProduct => product(heads.scaled_query(), heads.key.clone().transpose()),
            Scores::Dense => {
                fits(input.tensor("dense.second")?.dims()[0])?;
                let inner = relu(map(rows(&heads.query), "dense.first", width)?);
                map(inner, "dense.second", length)?.reshape([groups, length, length])
            }
            Scores::FactorisedDense => {
                let (a, b) = (input.tensor("factorised.a")?.dims()[0], input.tensor("factorised.b")?.dims()[0]);
                fits(a * b)?;
                let inner = relu(map(rows(&heads.query), "factorised.first", width)?);
                let first = map(inner.clone(), "factorised.a", a)?.reshape([groups * length, a, 1]);
                let second = map(inner, "factorised.b", b)?.reshape([groups * length, 1, b]);
                let outer = product(first, second).reshape([groups, length, a * b]);
                outer.slice_dim(2, 0..length)
            }
            Scores::Random | Scores::FixedRandom => {
                let all = input.tensor("random")?;
                let most = (all.dims()[1] as f64).sqrt().round() as usize;
                fits(most)?;
                let shown = all.reshape([heads.heads, most, most]).slice_dim(1, 0..length).slice_dim(2, 0..length);
                heads.own(shown.reshape([heads.heads, length * length]), length)
            }
            Scores::FactorisedRandom => {
                let all = input.tensor("factors.query")?;
                let most = all.dims()[1] / self.rank;
                fits(most)?;
                let of = |x: Tensor<2>| heads.own(x, most).slice_dim(1, 0..length);
                product(of(all), of(input.tensor("factors.key")?).transpose())
            }
        })
    }
}
