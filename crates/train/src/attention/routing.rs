//! Routing Transformer (Roy et al. 2020, <https://arxiv.org/abs/2003.05997>).

use super::choose::{largest, picked};
use super::input::{HIDDEN, Heads, Input, constant, like, places, plain};
use super::reformer::unit;
use super::work::{product, softmax};
use super::{Attention, knob, rounds};
use crate::random::Random;
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Tokens are clustered by k-means on the sphere; every cluster takes the `n / clusters` queries and keys nearest to its
/// centre, n the longest sequence's tokens, which attend to each other. A token in several clusters gets their mean, one in none gets nothing. Centres are found
/// anew for every sequence by a few rounds from a drawn start; the paper keeps a moving average of them over the training. In
/// the causal form no token reads a later one; which tokens are in a cluster depends on all, as in the paper. Time
/// O(n · clusters + n² / clusters), which is O(n √n) for √n clusters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    /// Clusters.
    pub clusters: usize,
    /// Rounds of k-means.
    pub rounds: usize,
    /// Draws the first centres.
    #[serde(default)]
    pub seed: u64,
}

impl Attention for Routing {
    fn check(&self) -> Result<(), Error> {
        rounds("rounds", self.rounds)?;
        knob("attention", "clusters", self.clusters, 1..=1 << 12)
    }

    fn causal(&self) -> bool {
        true
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let each = input.layout.longest.div_ceil(self.clusters);
        input.by_head(|heads| self.mix(heads, each))
    }
}

impl Routing {
    /// Centres `[groups, clusters, width]` of keys and queries together.
    fn centres(&self, heads: &Heads, tokens: &Tensor<3>, present: Option<&Tensor<3>>) -> Tensor<3> {
        let [groups, _, width] = heads.dims();
        let mut random = Random::at(self.seed, &[1]);
        let start: Vec<f32> = (0..self.clusters * width).map(|_| random.normal() as f32).collect();
        let start = constant(start, [1, self.clusters, width], &tokens.device());
        let mut centres = unit(start.expand([groups, self.clusters, width]));
        for _ in 0..self.rounds {
            // Each token counts for the cluster it is nearest to.
            let near = product(tokens.clone(), centres.clone().transpose());
            let own = near.clone().equal(near.clone().max_dim(2).expand(near.shape())).float();
            let own = match present {
                Some(present) => own * present.clone(),
                None => own,
            };
            // A cluster without tokens stays where it is.
            centres = unit(product(own.transpose(), tokens.clone()) + centres.mul_scalar(1e-3));
        }
        centres
    }

    /// With clusters of `each` tokens.
    fn mix(&self, heads: &Heads, each: usize) -> Result<Tensor<3>, Error> {
        let [groups, length, width] = heads.dims();
        let each = each.clamp(1, length);
        let (query, key) = (unit(heads.query.clone()), unit(heads.key.clone()));
        let (q, k) = (plain(query.clone()), plain(key.clone()));
        let present = heads.present(length).map(plain);
        let both = present.clone().map(|present| Tensor::cat(vec![present.clone(), present], 1));
        let centres = self.centres(heads, &Tensor::cat(vec![q.clone(), k.clone()], 1), both.as_ref());
        let clusters = self.clusters;
        // Which tokens a cluster takes: `[groups, clusters * each]`. Padding comes last.
        let taken = |x: Tensor<3>| {
            let mut near = product(centres.clone(), x.transpose());
            if let Some(padding) = heads.padding(length) {
                near = near + plain(padding);
            }
            Ok::<_, Error>(largest(near, each)?.reshape([groups, clusters * each]))
        };
        let (queries, keys) = (taken(q)?, taken(k)?);
        let pick = |x: Tensor<3>, which: &Tensor<2, Int>| {
            let columns = x.dims()[2];
            picked(x, which).reshape([groups, clusters, each, columns])
        };
        let scale = (width as f64).sqrt();
        let mut scores = product(pick(query, &queries), pick(key, &keys).transpose()).mul_scalar(scale);
        if let Some(padding) = heads.padding(length) {
            scores = scores + pick(padding.swap_dims(1, 2), &keys).swap_dims(2, 3);
        }
        // 1 where there is something to see.
        let mut seen = Tensor::ones([groups, clusters, each, 1], &scores.device());
        if heads.causal {
            let shape = scores.dims();
            let of = |which| pick(places(length, &heads.device()).expand([groups, length, 1]), which);
            let later = of(&keys).swap_dims(2, 3).expand(shape).greater(of(&queries).expand(shape)).float();
            seen = like(later.clone().min_dim(3).neg().add_scalar(1.0), &scores);
            scores = scores.clone() + like(later.mul_scalar(HIDDEN), &scores);
        }
        let mixed = product(softmax(scores), pick(heads.value.clone(), &keys)) * seen.clone();
        // Back to where the queries stand: the mean of what each has got.
        let mixed = Tensor::cat(vec![mixed, seen], 3).reshape([groups, clusters * each, width + 1]);
        let places = queries.reshape([groups, clusters * each, 1]).expand([groups, clusters * each, width + 1]);
        let sums = Tensor::zeros([groups, length, width + 1], &mixed.device());
        let sums = sums.scatter(1, places, mixed, burn::tensor::IndexingUpdateOp::Add);
        Ok(sums.clone().slice_dim(2, 0..width) / sums.slice_dim(2, width..width + 1).clamp_min(1.0))
    }
}
