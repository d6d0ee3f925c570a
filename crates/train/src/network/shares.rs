//! Attention with a network in softmax's place.

use super::pass::Pass;
use burn::tensor::{Tensor, activation};
use sparing_model::{Attention, Error, Linear, ShareNetwork};

impl Pass<'_> {
    /// `network(q kᵀ scale · mask) v`, `[batch, heads, length, head_width]` each. Only what there are tokens for is read of
    /// the network's matrices: scores of tokens that are not there are zeros, and so are their values.
    pub(super) fn network_attention(
        &mut self,
        (attention, network): (&Attention, &ShareNetwork),
        [query, key, value]: [Tensor<4>; 3],
        captured: &mut Vec<Option<Tensor<4>>>,
    ) -> Result<Tensor<4>, Error> {
        let (count, length) = (self.batch.count(), self.batch.length);
        let present = self.presence.present.clone().float();
        let (shares, value) = match &network.projections {
            None => {
                let mask = present.reshape([count, 1, 1, length]);
                let scores = self.scores(attention, query, key) * mask.clone();
                (self.shares(network, scores)? * mask, value)
            }
            Some(projections) => {
                let mask = self.narrow(present.reshape([count, 1, length, 1]));
                let key = self.projected(&projections.keys, key * mask.clone())?;
                let value = self.projected(&projections.values, value * mask)?;
                (self.shares(network, self.scores(attention, query, key))?, value)
            }
        };
        if self.mode.capture.attention {
            // Shares of projected keys are nobody else's.
            captured.push(network.projections.is_none().then(|| shares.clone()));
        }
        Ok(self.mix(shares, value))
    }

    /// The network on every row of scores, f32.
    fn shares(&self, network: &ShareNetwork, scores: Tensor<4>) -> Result<Tensor<4>, Error> {
        let shape = scores.dims();
        let [count, heads, queries, keys] = shape;
        let rows = self.narrow(scores.reshape([count * heads * queries, keys]));
        let (weight, bias) = self.weights(&network.hidden)?;
        let inner = network.hidden.outputs;
        let hidden = activation::relu(self.multiply(rows, weight.slice([0..inner, 0..keys]), bias));
        let (weight, bias) = self.weights(&network.output)?;
        let bias = bias.map(|bias| bias.slice([0..1, 0..keys]));
        Ok(self.wide(self.multiply(hidden, weight.slice([0..keys, 0..inner]), bias)).reshape(shape))
    }

    /// Rows mixed along the tokens: `[batch, heads, length, width]` to `[batch, heads, outputs, width]`.
    fn projected(&self, map: &Linear, rows: Tensor<4>) -> Result<Tensor<4>, Error> {
        let [count, heads, length, width] = rows.dims();
        let (weight, _) = self.weights(map)?;
        let columns = rows.swap_dims(2, 3).reshape([count * heads * width, length]);
        let mixed = self.multiply(columns, weight.slice([0..map.outputs, 0..length]), None);
        Ok(mixed.reshape([count, heads, width, map.outputs]).swap_dims(2, 3))
    }
}
