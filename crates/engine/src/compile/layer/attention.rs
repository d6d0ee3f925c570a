//! Attention: its projections, the segments that mix rows, and what the plan economises in them.

use super::super::{Code, Compiler};
use super::projections::Projection;
use super::{Buffers, Reach};
use crate::compile::network::share_network;
use crate::keys::keys_by;
use crate::program::{Attend, ChosenKeys, Full, Part, Positions, RowSet, Segment, Select, Values, View};
use crate::relative::{Buckets, Relative};
use sparing_kernels::attention::Heads;
use sparing_kernels::{Activation, Format};
use sparing_model::{Attention, AttentionPosition, Error, GlobalTokens, Layer, LayerTokens, Source};

impl<'a> Compiler<'a> {
    /// From the residual stream to what attention returns, in `buffers`. Returns whether tokens may skip the feed-forward
    /// blocks.
    pub(super) fn attention(
        &mut self,
        code: &mut Code,
        index: usize,
        layer: &'a Layer,
        reach: Reach,
        buffers: &Buffers,
    ) -> Result<bool, Error> {
        let attention = &layer.attention;
        let width = attention.heads * attention.head_width;
        let qkv = View::full(Full::Qkv, 3 * width);
        let (mut q, k, v) = (qkv.columns(0, width), qkv.columns(width, 2 * width), qkv.columns(2 * width, 3 * width));
        let early = reach == Reach::Early;
        let rows = reach.rows();
        let globals = if early { RowSet::SelectedGlobals } else { RowSet::Globals };
        let all = self.buffers(layer, RowSet::All);
        if early {
            q = View::full(Full::QSelected, width);
        }
        let (query_key, value) = match &layer.bottleneck {
            Some(bottleneck) => (bottleneck.query_key_from, bottleneck.value_from),
            None => (Source::Hidden, Source::Hidden),
        };
        let plus = match &attention.position {
            AttentionPosition::Relative { content_bias, .. } => Some(content_bias.as_str()),
            _ => None,
        };
        let query = Projection { source: query_key, linear: &attention.query, plus, out: q };
        let key = Projection { source: query_key, linear: &attention.key, plus: None, out: k };
        let value = Projection { source: value, linear: &attention.value, plus: None, out: v };
        // Economised values come after the scores, from rows that must then still be there.
        let economised = self.economise && self.economised(index);
        let value = (!economised).then_some(value);
        let kept = (economised && layer.norm_first).then(|| View::full(Full::Normed, self.architecture.hidden));

        if early {
            let projections = [Some(key), value].into_iter().flatten().collect();
            self.before(code, index, layer, &all, false, projections, globals, kept)?;
            code.segment(Segment::Gather { rows, from: all.x, to: buffers.x });
            code.next_rows(rows);
            self.before(code, index, layer, buffers, true, vec![query], globals, None)?;
        } else {
            let projections = [Some(query), Some(key), value].into_iter().flatten().collect();
            self.before(code, index, layer, &all, true, projections, globals, kept)?;
        }
        let attend = Attend {
            layer: index,
            heads: attention.heads,
            head_width: attention.head_width,
            scale: attention.scale,
            causal: attention.causal,
            window: attention.window.as_ref().map(|window| window.one_sided),
            positions: self.positions(attention)?,
            queries: rows,
            q,
            k,
            v,
            out: buffers.context,
            keys: self.chosen_keys(index).filter(|_| rows == RowSet::All),
            network: self.network(index, attention)?,
        };
        if economised {
            let matrix = self.collector.matrix(&[(&attention.value, None)], self.precisions.attention(index));
            let economy = self.collector.economy(index, matrix);
            let input = kept.unwrap_or(all.x);
            code.segment(Segment::Values(Values { attend: attend.clone(), input, economy }));
        }
        let tokens = self.layer_tokens(index, layer);
        if tokens != LayerTokens::default() {
            code.segment(Segment::Select(Select { attend: attend.clone(), tokens }));
        }
        code.segment(Segment::Attend(attend.clone()));
        if tokens.leaves_fewer() {
            code.segment(Segment::Drop([buffers.x, buffers.context]));
        }
        if self.has_globals(layer) {
            self.global_queries(code, index, layer, &all, globals, attend)?;
        }
        code.next_rows(rows);
        Ok(tokens.skip > 0.0)
    }

    /// Which tokens leave, or skip the feed-forward blocks. None where attention is the last: what comes after it is
    /// wanted, and what is not wanted is not computed anyway.
    fn layer_tokens(&self, index: usize, layer: &Layer) -> LayerTokens {
        let last = self.architecture.last_attention() == Some(index);
        let tokens = self.tokens.filter(|_| self.economise && !last);
        let tokens = tokens.map_or(LayerTokens::default(), |tokens| tokens.of(index));
        let blocks = layer.ffns.iter().any(|ffn| !ffn.up.is_empty());
        LayerTokens { skip: if blocks { tokens.skip } else { 0.0 }, ..tokens }
    }

    /// The keys that a layer's attention looks at, if not all. Where only some queries are wanted, they see all: they cost
    /// less than choosing keys would.
    fn chosen_keys(&self, layer: usize) -> Option<ChosenKeys> {
        let keys = self.keys.filter(|_| self.economise)?;
        let keep = keys.of(layer, self.architecture)?;
        Some(ChosenKeys { by: keys_by(keys), keep, ends: keys.ends })
    }

    /// Whether a layer's values are economised when the caller does not want the exact model.
    pub(super) fn economised(&self, layer: usize) -> bool {
        self.mca.is_some_and(|mca| mca.alpha_of(layer).is_some())
    }

    pub(super) fn has_globals(&self, layer: &Layer) -> bool {
        layer.attention.window.is_some() && self.architecture.head.global_tokens != GlobalTokens::None
    }

    /// What attention adds to the scores.
    fn positions(&mut self, attention: &'a Attention) -> Result<Positions, Error> {
        let weights = self.collector.weights;
        let hidden = self.architecture.hidden;
        Ok(match &attention.position {
            AttentionPosition::None => Positions::None,
            AttentionPosition::Buckets { table, columns, buckets, max_distance } => {
                let heads = attention.numbers();
                let make = || Buckets::new(weights, table, (*columns, &heads), *buckets, *max_distance);
                Positions::Buckets(self.collector.buckets(&format!("{table} {heads:?}"), make)?)
            }
            position @ AttentionPosition::Relative { .. } => {
                let make = || Relative::new(weights, position, attention, hidden);
                Positions::Relative(self.collector.relative(&format!("{position:?}"), make)?)
            }
        })
    }

    /// What stands in softmax's place.
    fn network(&mut self, index: usize, attention: &'a Attention) -> Result<Option<usize>, Error> {
        let Some(network) = &attention.network else { return Ok(None) };
        let (weights, scale) = (self.collector.weights, attention.scale);
        let (width, bytes) = (attention.head_width, self.precisions.attention(index) == Format::Int8);
        let heads = Heads { width, element: self.element, bytes };
        let make = || share_network(weights, network, scale, heads);
        self.collector.network(&format!("{network:?} {scale} {heads:?}"), make).map(Some)
    }

    /// Longformer: tokens that attend globally have projections of their own and see everything.
    fn global_queries(
        &mut self,
        code: &mut Code,
        index: usize,
        layer: &'a Layer,
        all: &Buffers,
        rows: RowSet,
        local: Attend,
    ) -> Result<(), Error> {
        let Some(window) = &layer.attention.window else { return Ok(()) };
        let width = layer.attention.heads * layer.attention.head_width;
        let x = View::full(Full::XGlobal, self.architecture.hidden);
        let q = View::full(Full::QGlobal, width);
        let context = View::full(Full::ContextGlobal, width);
        let kv = View::full(Full::GlobalKv, 2 * width);
        code.segment(Segment::Gather { rows, from: all.x, to: x });
        code.next_rows(rows);
        let mut input = x;
        if layer.norm_first {
            input = code.local(self.architecture.hidden, self.element);
            self.norm(code, ("attention norm", Some(index), Part::Norms), &layer.attention_norm, x, input)?;
        }
        let (what, format) = (("global query", Some(index), Part::Qkv), self.precisions.attention(index));
        self.linear(code, what, &window.global_query, format, Activation::Identity, (input, None, q))?;
        let (k, v) = (kv.columns(0, width), kv.columns(width, 2 * width));
        let attend = Attend { window: None, queries: rows, q, k, v, out: context, ..local };
        code.segment(Segment::Attend(attend));
        code.segment(Segment::Scatter { rows, from: context, to: local.out });
        Ok(())
    }
}
