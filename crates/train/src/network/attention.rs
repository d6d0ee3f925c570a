//! Multi-head attention: dense, whatever is masked.

use super::packed::Chosen;
use super::pass::Pass;
use crate::{gpu, ops};
use burn::tensor::{Bool, Tensor, TensorData};
use sparing_kernels::attention::Span;
use sparing_model::{Attention, AttentionPosition, Error, Linear, Window};
use std::sync::Arc;

/// What a layer's projections read, rows of all tokens.
pub(super) struct Sources {
    pub(super) query_key: Tensor<2>,
    pub(super) value: Tensor<2>,
    /// Values read the same as queries and keys.
    pub(super) shared: bool,
    /// What global projections read.
    pub(super) hidden: Tensor<2>,
}

impl Pass<'_> {
    /// `softmax(q kᵀ scale + positions + mask) v` for all tokens: `[batch * length, heads * head_width]`.
    pub(super) fn attention(
        &mut self,
        (layer, attention): (usize, &Attention),
        sources: Sources,
        chosen: Option<&Chosen>,
        captured: &mut Vec<Option<Tensor<4>>>,
    ) -> Result<Tensor<2>, Error> {
        let Sources { query_key, value, shared, hidden } = sources;
        let query_key = self.input(&attention.query, query_key, true);
        let value = if shared { query_key.clone() } else { self.input(&attention.value, value, true) };
        if let Some(packed) = &self.packed {
            let spans = chosen.map_or(&packed.spans, |chosen| &chosen.spans).clone();
            let queries = chosen.map(|chosen| ops::gather(query_key.clone(), chosen.rows.clone()));
            return self.packed_attention(attention, query_key, queries, value, shared, spans);
        }
        let query = self.heads(attention, self.product(&attention.query, query_key.clone())?);
        let key = self.heads(attention, self.product(&attention.key, query_key)?);

        if let Some(network) = &attention.network {
            let value = self.heads(attention, self.product(&attention.value, value)?);
            let context = self.network_attention((attention, network), [query, key, value], captured)?;
            return Ok(self.merged(attention, context));
        }
        let mut bias = self.mask(attention);
        if let Some(unchosen) = self.unchosen((layer, attention), &query, &key)? {
            bias = Some(match bias {
                Some(mask) => unchosen + mask,
                None => unchosen,
            });
        }
        let wanted = self.layer_tokens(layer);
        let keys = (wanted.merge > 0.0).then(|| key.clone());
        let scores = match &attention.position {
            AttentionPosition::None => self.scores(attention, query, key),
            AttentionPosition::Buckets { table, buckets, max_distance, .. } => {
                let buckets = self.buckets(table, attention.numbers(), *buckets, *max_distance)?;
                bias = Some(match bias {
                    Some(mask) => buckets + mask,
                    None => buckets,
                });
                self.scores(attention, query, key)
            }
            position @ AttentionPosition::Relative { .. } => self.relative(attention, position, query, key)?,
        };
        let scores = match bias {
            Some(bias) => scores + bias,
            None => scores,
        };
        let inside = self.inside().map(|hook| (hook, scores.clone()));
        let mut probabilities = self.softmax(scores);
        if let Some((hook, scores)) = inside {
            hook.shares(layer, &scores, &probabilities);
        }
        let value = match self.recipe((layer, attention))? {
            None => self.heads(attention, self.product(&attention.value, value)?),
            Some(recipe) => self.economised_values((layer, attention), &recipe, value, &probabilities)?,
        };
        self.choose(&wanted, &probabilities, &value);
        if let Some(keys) = keys {
            self.pair(&wanted, keys)?;
        }
        let mut context = self.mix(probabilities.clone(), value);
        if let Some(window) = &attention.window {
            let counts = self.globals();
            if counts.iter().any(|count| *count > 0) {
                let (seen, found) = self.global_queries(attention, window, hidden, &counts)?;
                context = self.put_globals(context, found, &counts);
                if self.mode.capture.attention {
                    probabilities = self.put_globals(probabilities, seen, &counts);
                }
            }
        }
        if self.mode.capture.attention {
            captured.push(Some(probabilities));
        }
        Ok(self.merged(attention, context))
    }

    /// `[batch, heads, length, head_width]` to `[batch * length, heads * head_width]`.
    fn merged(&self, attention: &Attention, context: Tensor<4>) -> Tensor<2> {
        let (rows, width) = (self.batch.count() * self.batch.length, attention.heads * attention.head_width);
        self.wide(context.swap_dims(1, 2).reshape([rows, width]))
    }

    /// The same on packed rows; `queries` where they are of fewer rows than keys.
    fn packed_attention(
        &self,
        attention: &Attention,
        query_key: Tensor<2>,
        queries: Option<Tensor<2>>,
        value: Tensor<2>,
        shared: bool,
        spans: Arc<[Span]>,
    ) -> Result<Tensor<2>, Error> {
        let stacked = if shared {
            let [query, key, value] = [&attention.query, &attention.key, &attention.value].map(|map| self.weights(map));
            ops::projections(self.format(), query_key, queries, [query?, key?, value?])
        } else {
            let query = self.product(&attention.query, queries.unwrap_or_else(|| query_key.clone()))?;
            let key = self.product(&attention.key, query_key)?;
            Tensor::cat(vec![query, key, self.product(&attention.value, value)?], 0)
        };
        let Attention { heads, head_width, scale, causal, .. } = *attention;
        let heads = ops::Heads { heads, head_width, scale, causal };
        Ok(ops::attention(stacked, heads, spans, self.next_dropout()))
    }

    /// `[batch * length, heads * head_width]` to `[batch, heads, length, head_width]`.
    fn heads(&self, attention: &Attention, rows: Tensor<2>) -> Tensor<4> {
        let count = self.batch.count();
        let length = rows.dims()[0] / count;
        let Attention { heads, head_width, .. } = *attention;
        let turned = rows.reshape([count, length, heads, head_width]).swap_dims(1, 2);
        // Copied once here rather than by every product that reads them.
        if self.gpu {
            turned.reshape([count * heads * length, head_width]).reshape([count, heads, length, head_width])
        } else {
            turned
        }
    }

    /// Scaled scores `[batch, heads, queries, keys]`, f32.
    pub(super) fn scores(&self, attention: &Attention, query: Tensor<4>, key: Tensor<4>) -> Tensor<4> {
        // Queries are scaled, not scores: there are fewer of them.
        let (query, key) = (query * attention.scale, key.transpose());
        self.wide(self.stacked(query, key))
    }

    /// Values mixed by probabilities `[batch, heads, queries, keys]`.
    pub(super) fn mix(&self, probabilities: Tensor<4>, value: Tensor<4>) -> Tensor<4> {
        self.stacked(self.narrow(self.dropout(probabilities)), value)
    }

    /// Products per sequence and head.
    fn stacked(&self, a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
        if self.gpu { gpu::product(a, b) } else { a.matmul(b) }
    }

    /// Longformer's global tokens, which have projections of their own and see everything: probabilities and contexts
    /// of the first rows of every sequence, as many as the sequence with most global tokens has.
    fn global_queries(
        &mut self,
        attention: &Attention,
        window: &Window,
        hidden: Tensor<2>,
        counts: &[usize],
    ) -> Result<(Tensor<4>, Tensor<4>), Error> {
        let (count, length, width) = (self.batch.count(), self.batch.length, hidden.dims()[1]);
        let most = counts.iter().copied().max().unwrap_or(0);
        let first = hidden.clone().reshape([count, length, width]).slice([0..count, 0..most]);
        let first = first.reshape([count * most, width]);
        let project = |pass: &Self, linear: &Linear, rows: Tensor<2>, all: bool| {
            Ok::<_, Error>(pass.heads(attention, pass.product(linear, pass.input(linear, rows, all))?))
        };
        let query = project(self, &window.global_query, first, false)?;
        let key = project(self, &window.global_key, hidden.clone(), true)?;
        let value = project(self, &window.global_value, hidden, true)?;
        let mut scores = self.scores(attention, query, key);
        if let Some(padding) = self.padding_mask() {
            scores = scores + padding;
        }
        let probabilities = self.softmax(scores);
        let context = self.mix(probabilities.clone(), value);
        Ok((probabilities, context))
    }

    /// Puts the results of global queries in place of the local ones.
    fn put_globals(&self, local: Tensor<4>, global: Tensor<4>, counts: &[usize]) -> Tensor<4> {
        let [count, heads, length, width] = local.dims();
        let most = global.dims()[2];
        let mut first = global;
        if counts.iter().any(|c| *c < most) {
            let is_local: Vec<bool> = counts.iter().flat_map(|c| (0..most).map(move |row| row >= *c)).collect();
            let mask: Tensor<4, Bool> = Tensor::from_data(TensorData::new(is_local, [count, 1, most, 1]), &self.device);
            let mask = mask.expand([count, heads, most, width]);
            first = first.mask_where(mask, local.clone().slice([0..count, 0..heads, 0..most]));
        }
        if most == length {
            return first;
        }
        Tensor::cat(vec![first, local.slice([0..count, 0..heads, most..length])], 2)
    }
}
