//! One layer: attention, feed-forward blocks, residuals and norms, inside a bottleneck where there is one.

use super::attention::Sources;
use super::pass::{Pass, activate};
use burn::tensor::Tensor;
use sparing_model::{Error, Ffn, Layer, NormedLinear, Source};

impl Pass<'_> {
    /// `[batch * length, hidden]` to the same. Attention probabilities are kept if they are captured.
    pub(super) fn layer(
        &mut self,
        layer: &Layer,
        x: Tensor<2>,
        captured: &mut Vec<Tensor<4>>,
    ) -> Result<Tensor<2>, Error> {
        let hidden = if layer.norm_first { self.norm(&layer.attention_norm, x.clone())? } else { x.clone() };
        // The residual stream inside the layer, and what the projections read.
        let (stream, sources) = match &layer.bottleneck {
            None => (x.clone(), Sources { query_key: hidden.clone(), value: hidden.clone(), shared: true, hidden }),
            Some(b) => {
                let narrow = self.normed(&b.input, hidden.clone())?;
                let shared = b.shared.as_ref().map(|map| self.normed(map, hidden.clone())).transpose()?;
                let pick = |source| match source {
                    Source::Hidden => hidden.clone(),
                    Source::Narrow => narrow.clone(),
                    Source::Shared => shared.clone().unwrap_or_else(|| hidden.clone()),
                };
                let (query_key, value) = (pick(b.query_key_from), pick(b.value_from));
                let shared = b.query_key_from == b.value_from;
                (narrow.clone(), Sources { query_key, value, shared, hidden: hidden.clone() })
            }
        };
        let context = self.attention(&layer.attention, sources, captured)?;
        let mut at = self.residual(&layer.attention.output, context, stream)?;
        if !layer.norm_first {
            at = self.norm(&layer.attention_norm, at)?;
        }
        for ffn in &layer.ffns {
            at = self.ffn(ffn, layer.norm_first, at)?;
        }
        if let Some(b) = &layer.bottleneck {
            let sum = self.residual(&b.output.linear, at, x)?;
            at = self.norm(&b.output.norm, sum)?;
        }
        Ok(at)
    }

    fn ffn(&self, ffn: &Ffn, norm_first: bool, x: Tensor<2>) -> Result<Tensor<2>, Error> {
        let input = if norm_first { self.norm(&ffn.norm, x.clone())? } else { x.clone() };
        let inner = activate(ffn.activation, self.linear(&ffn.up, input)?);
        let sum = self.residual(&ffn.down, inner, x)?;
        if norm_first { Ok(sum) } else { self.norm(&ffn.norm, sum) }
    }

    /// `dropout(linear(rows)) + stream`.
    fn residual(&self, linear: &sparing_model::Linear, rows: Tensor<2>, stream: Tensor<2>) -> Result<Tensor<2>, Error> {
        Ok(self.dropout(self.linear(linear, rows)?) + stream)
    }

    fn normed(&self, map: &NormedLinear, rows: Tensor<2>) -> Result<Tensor<2>, Error> {
        self.norm(&map.norm, self.linear(&map.linear, rows)?)
    }
}
