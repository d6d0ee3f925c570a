//! One layer: attention, feed-forward blocks, residuals and norms, inside a bottleneck where there is one.

use super::attention::Sources;
use super::packed::Chosen;
use super::pass::{Pass, kernel};
use crate::ops;
use burn::tensor::Tensor;
use sparing_model::{Error, Ffn, Layer, Linear, Norm, NormKind, NormedLinear, Source};

impl Pass<'_> {
    /// `[batch * length, hidden]` to the same. Attention probabilities are kept if they are captured. On packed rows only
    /// some of them may be asked for.
    pub(super) fn layer(
        &mut self,
        (number, layer): (usize, &Layer),
        x: Tensor<2>,
        chosen: Option<&Chosen>,
        captured: &mut Vec<Option<Tensor<4>>>,
    ) -> Result<Tensor<2>, Error> {
        // From attention's result on only the rows that are asked for.
        let pick = |rows: Tensor<2>| match chosen {
            Some(chosen) => ops::gather(rows, chosen.rows.clone()),
            None => rows,
        };
        let norm = (!layer.norm_first).then_some(&layer.attention_norm);
        let output = &layer.attention.output;
        let (x, mut at) = if output.is_empty() {
            let x = pick(x);
            let stream = match &layer.bottleneck {
                None => x.clone(),
                Some(b) => self.normed(&b.input, x.clone())?,
            };
            captured.extend(self.mode.capture.attention.then_some(None));
            (x, self.constant(output, stream, norm)?)
        } else {
            let (stream, sources) = self.sources(layer, &x)?;
            let context = self.attention((number, &layer.attention), sources, chosen, captured)?;
            let stream = self.merge(pick(stream));
            let context = self.merge(context);
            self.presence.merger = None;
            (pick(x), self.residual(output, context, stream, norm)?)
        };
        let before = self.presence.anybody_idle().then(|| at.clone());
        for ffn in &layer.ffns {
            at = self.ffn(ffn, layer.norm_first, at)?;
        }
        if let Some(before) = before {
            at = self.pass_by(layer, before, at)?;
        }
        if let Some(b) = &layer.bottleneck {
            at = self.residual(&b.output.linear, at, x, Some(&b.output.norm))?;
        }
        Ok(at)
    }

    /// The residual stream inside a layer, and what the projections read.
    fn sources(&self, layer: &Layer, x: &Tensor<2>) -> Result<(Tensor<2>, Sources), Error> {
        let hidden = if layer.norm_first { self.norm(&layer.attention_norm, x.clone())? } else { x.clone() };
        Ok(match &layer.bottleneck {
            None => (x.clone(), Sources { query_key: hidden.clone(), value: hidden.clone(), shared: true, hidden }),
            Some(b) => {
                let narrow = self.normed(&b.input, hidden.clone())?;
                let shared = b.shared.as_ref().map(|map| self.normed(map, hidden.clone())).transpose()?;
                let of = |source| match source {
                    Source::Hidden => hidden.clone(),
                    Source::Narrow => narrow.clone(),
                    Source::Shared => shared.clone().unwrap_or_else(|| hidden.clone()),
                };
                let (query_key, value) = (of(b.query_key_from), of(b.value_from));
                let shared = b.query_key_from == b.value_from;
                (narrow.clone(), Sources { query_key, value, shared, hidden: hidden.clone() })
            }
        })
    }

    fn ffn(&self, ffn: &Ffn, norm_first: bool, x: Tensor<2>) -> Result<Tensor<2>, Error> {
        let norm = (!norm_first).then_some(&ffn.norm);
        if ffn.down.is_empty() {
            return self.constant(&ffn.down, x, norm);
        }
        let input = if norm_first { self.norm(&ffn.norm, x.clone())? } else { x.clone() };
        // A hook wants to see what goes into the second map.
        if self.host && !self.hooked() {
            let (up, down) = (self.parameters.linear(&ffn.up)?, self.parameters.linear(&ffn.down)?);
            let rows = ops::feed_forward(self.format(), input, up, kernel(ffn.activation), down);
            return self.add(rows, x, norm);
        }
        // What only the second map reads stays as narrow as it reads it.
        let inner = match self.gpu && !self.hooked() {
            true => self.product(&ffn.up, self.input(&ffn.up, input, true))?,
            false => self.linear(&ffn.up, input)?,
        };
        let inner = self.activate(ffn.activation, inner);
        self.residual(&ffn.down, inner, x, norm)
    }

    /// What is left of a removed block: `norm(bias + stream)`.
    fn constant(&self, map: &Linear, stream: Tensor<2>, norm: Option<&Norm>) -> Result<Tensor<2>, Error> {
        let sum = match self.parameters.bias(map)? {
            Some(bias) => self.add_row(stream, bias),
            None => stream,
        };
        match norm {
            Some(norm) => self.norm(norm, sum),
            None => Ok(sum),
        }
    }

    /// `norm(dropout(linear(rows)) + stream)`.
    fn residual(
        &self,
        linear: &Linear,
        rows: Tensor<2>,
        stream: Tensor<2>,
        norm: Option<&Norm>,
    ) -> Result<Tensor<2>, Error> {
        self.add(self.linear(linear, rows)?, stream, norm)
    }

    /// `norm(dropout(rows) + stream)`.
    fn add(&self, rows: Tensor<2>, stream: Tensor<2>, norm: Option<&Norm>) -> Result<Tensor<2>, Error> {
        match norm {
            Some(norm) if self.host && norm.kind == NormKind::Layer && self.inside().is_none() => {
                let (weight, bias) = (self.get(&norm.weight)?, self.get(&norm.bias)?);
                Ok(ops::norm(rows, self.next_dropout(), Some(stream), weight, bias, norm.eps))
            }
            Some(norm) => self.norm(norm, self.dropout(rows) + stream),
            None => Ok(self.dropout(rows) + stream),
        }
    }

    fn normed(&self, map: &NormedLinear, rows: Tensor<2>) -> Result<Tensor<2>, Error> {
        self.norm(&map.norm, self.linear(&map.linear, rows)?)
    }
}
