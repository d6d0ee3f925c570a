//! One layer: projections, attention, output projection, feed-forward blocks.

use super::{Code, Compiler, activation};
use crate::program::{Attend, Full, Op, Part, Positions, RowSet, Segment, Select, Values, View};
use crate::relative::{Buckets, Relative};
use sparing_kernels::{Activation, Element};
use sparing_model::{Attention, AttentionPosition, Error, GlobalTokens, Layer, Linear, Norm, NormedLinear, Source};

/// The full buffers of a layer that runs on a row set.
struct Buffers {
    x: View,
    narrow: Option<View>,
    context: View,
}

/// A projection to be made: its source, the map, a tensor to add to its bias, and where the result goes.
struct Projection<'a> {
    source: Source,
    linear: &'a Linear,
    plus: Option<&'a str>,
    out: View,
}

impl<'a> Compiler<'a> {
    /// Adds a layer. `early`: queries, and everything after them, only for the selected rows.
    pub(super) fn layer(&mut self, code: &mut Code, index: usize, layer: &'a Layer, early: bool) -> Result<(), Error> {
        if layer.bottleneck.is_some() && (layer.norm_first || layer.attention.window.is_some()) {
            return Err(Error::new(format!("layer {index}: a bottleneck with norms first or a window is unknown")));
        }
        let attention = &layer.attention;
        let width = attention.heads * attention.head_width;
        let qkv = View::full(Full::Qkv, 3 * width);
        let (mut q, k, v) = (qkv.columns(0, width), qkv.columns(width, 2 * width), qkv.columns(2 * width, 3 * width));
        let (rows, globals) =
            if early { (RowSet::Selected, RowSet::SelectedGlobals) } else { (RowSet::All, RowSet::Globals) };
        let all = self.buffers(layer, RowSet::All);
        let buffers = self.buffers(layer, rows);
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
            self.before(code, index, layer, &buffers, true, vec![query], globals, None)?;
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
        };
        if economised {
            let matrix = self.collector.matrix(&[(&attention.value, None)], self.format);
            let economy = self.collector.economy(index, matrix);
            let input = kept.unwrap_or(all.x);
            code.segment(Segment::Values(Values { attend: attend.clone(), input, economy }));
        }
        let (drop, skip) = self.cuts(index);
        if drop > 0.0 || skip > 0.0 {
            code.segment(Segment::Select(Select { attend: attend.clone(), drop, skip }));
        }
        code.segment(Segment::Attend(attend.clone()));
        if drop > 0.0 {
            code.segment(Segment::Drop([buffers.x, buffers.context]));
        }
        if self.has_globals(layer) {
            self.global_queries(code, index, layer, &all, globals, attend)?;
        }
        code.next_rows(rows);
        self.after(code, index, layer, &buffers, skip > 0.0)
    }

    /// Below which measures of attention tokens leave, or skip the feed-forward blocks. Never in the last layer: what it
    /// computes is wanted, and what is not wanted it does not compute anyway.
    fn cuts(&self, layer: usize) -> (f32, f32) {
        let last = layer + 1 == self.architecture.layers.len();
        let tokens = self.tokens.filter(|_| self.economise && !last);
        tokens.map_or((0.0, 0.0), |tokens| tokens.cuts(layer))
    }

    /// Whether a layer's values are economised when the caller does not want the exact model.
    fn economised(&self, layer: usize) -> bool {
        self.mca.is_some_and(|mca| mca.alpha_of(layer).is_some())
    }

    fn has_globals(&self, layer: &Layer) -> bool {
        layer.attention.window.is_some() && self.architecture.head.global_tokens != GlobalTokens::None
    }

    fn buffers(&self, layer: &Layer, rows: RowSet) -> Buffers {
        let (x, narrow, context) = match rows {
            RowSet::Selected => (Full::XSelected, Full::NarrowSelected, Full::ContextSelected),
            _ => (Full::X, Full::Narrow, Full::Context),
        };
        Buffers {
            x: View::full(x, self.architecture.hidden),
            narrow: layer.bottleneck.as_ref().map(|b| View::full(narrow, b.input.linear.outputs)),
            context: View::full(context, layer.attention.heads * layer.attention.head_width),
        }
    }

    /// What attention adds to the scores.
    fn positions(&mut self, attention: &'a Attention) -> Result<Positions, Error> {
        let weights = self.collector.weights;
        let hidden = self.architecture.hidden;
        Ok(match &attention.position {
            AttentionPosition::None => Positions::None,
            AttentionPosition::Buckets { table, buckets, max_distance } => {
                let make = || Buckets::new(weights, table, attention.heads, *buckets, *max_distance);
                Positions::Buckets(self.collector.buckets(table, make)?)
            }
            position @ AttentionPosition::Relative { .. } => {
                let make = || Relative::new(weights, position, attention, hidden);
                Positions::Relative(self.collector.relative(&format!("{position:?}"), make)?)
            }
        })
    }

    /// From the residual stream to projections. `keep`: the narrow stream must outlive attention. `normed`: where the
    /// normed stream goes if it must.
    fn before(
        &mut self,
        code: &mut Code,
        index: usize,
        layer: &'a Layer,
        buffers: &Buffers,
        keep: bool,
        projections: Vec<Projection<'a>>,
        globals: RowSet,
        normed: Option<View>,
    ) -> Result<(), Error> {
        let layer_number = Some(index);
        let mut hidden = buffers.x;
        if layer.norm_first {
            hidden = normed.unwrap_or_else(|| code.local(self.architecture.hidden, self.element));
            self.norm(code, ("attention norm", layer_number, Part::Norms), &layer.attention_norm, buffers.x, hidden)?;
        }
        let needs = |source: Source| projections.iter().any(|p| p.source == source);
        let (mut narrow, mut shared) = (hidden, hidden);
        if let Some(bottleneck) = &layer.bottleneck {
            if keep || needs(Source::Narrow) {
                let local = |code: &mut Code| code.local(bottleneck.input.linear.outputs, Element::F32);
                narrow = buffers.narrow.filter(|_| keep).unwrap_or_else(|| local(code));
                self.normed(code, ("bottleneck input", index), &bottleneck.input, hidden, None, narrow)?;
            }
            if let Some(map) = bottleneck.shared.as_ref().filter(|_| needs(Source::Shared)) {
                shared = code.local(map.linear.outputs, Element::F32);
                self.normed(code, ("bottleneck shared", index), map, hidden, None, shared)?;
            }
        }
        let source = |source: Source| match source {
            Source::Hidden => hidden,
            Source::Narrow => narrow,
            Source::Shared => shared,
        };
        // Keys and values are all the globals' share of this: queries come later, for the global rows alone.
        let keys = projections.iter().any(|p| std::ptr::eq(p.linear, &layer.attention.key));
        let window = layer.attention.window.as_ref().filter(|_| self.has_globals(layer) && keys);
        for group in self.groups(index, layer, projections) {
            let (first, last) = (&group[0], &group[group.len() - 1]);
            let input = source(first.source);
            let out = View { end: last.out.end, ..first.out };
            let parts: Vec<_> = group.iter().map(|p| (p.linear, p.plus)).collect();
            if let Some(p) =
                group.iter().find(|p| p.linear.inputs != input.width() || p.linear.outputs != p.out.width())
            {
                return Err(Error::new(format!(
                    "layer {index}: a projection of {} x {} weights cannot map rows of {} to rows of {}",
                    p.linear.outputs,
                    p.linear.inputs,
                    input.width(),
                    p.out.width()
                )));
            }
            let matrix = self.collector.matrix(&parts, self.format);
            let name = match (parts.len(), std::ptr::eq(first.linear, &layer.attention.query)) {
                (3, _) => "qkv",
                (2, true) => "query and key",
                (2, false) => "key and value",
                (_, true) => "query",
                _ if std::ptr::eq(first.linear, &layer.attention.key) => "key",
                _ => "value",
            };
            let op = Op::Linear { input, matrix, activation: Activation::Identity, residual: None, out };
            code.step(name, layer_number, Part::Qkv, op);
        }
        if let Some(window) = window {
            let parts = [(&window.global_key, None), (&window.global_value, None)];
            let out = View::full(Full::GlobalKv, window.global_key.outputs + window.global_value.outputs);
            let matrix = self.collector.matrix(&parts, self.format);
            let op = Op::Linear { input: hidden, matrix, activation: Activation::Identity, residual: None, out };
            code.step("global key and value", layer_number, Part::Qkv, op);
            code.last_only_if(globals);
        }
        if layer.norm_first {
            code.free(hidden);
        }
        if !keep && layer.bottleneck.is_some() {
            code.free(narrow);
        }
        code.free(shared);
        Ok(())
    }

    /// Projections of the same source whose results stand side by side become one matrix. Queries stay apart
    /// where the last layer may want them for fewer rows, in every layer that shares that layer's weights; values stay
    /// apart where they may be economised.
    fn groups(&self, index: usize, layer: &Layer, projections: Vec<Projection<'a>>) -> Vec<Vec<Projection<'a>>> {
        let query = &layer.attention.query;
        let last = self.architecture.layers.last();
        let apart = self.may_select && last.is_some_and(|last| last.attention.query.weight == query.weight);
        let values_apart = self.economised(index);
        let mut groups: Vec<Vec<Projection>> = Vec::new();
        for projection in projections {
            let joins = groups.last().and_then(|group| group.last()).is_some_and(|before| {
                let same = before.source == projection.source && before.linear.inputs == projection.linear.inputs;
                same && before.out.place == projection.out.place
                    && before.out.end == projection.out.start
                    && !(apart && std::ptr::eq(before.linear, query))
                    && !(values_apart && std::ptr::eq(projection.linear, &layer.attention.value))
            });
            match groups.last_mut() {
                Some(group) if joins => group.push(projection),
                _ => groups.push(vec![projection]),
            }
        }
        groups
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
        let what = ("global query", Some(index), Part::Qkv);
        self.linear(code, what, &window.global_query, self.format, Activation::Identity, (input, None, q))?;
        let (k, v) = (kv.columns(0, width), kv.columns(width, 2 * width));
        let attend = Attend { window: None, queries: rows, q, k, v, out: context, ..local };
        code.segment(Segment::Attend(attend));
        code.segment(Segment::Scatter { rows, from: context, to: local.out });
        Ok(())
    }

    /// From attention's result to the layer's: output projection, residuals, norms, feed-forward blocks. `skip`: the
    /// blocks are for the busy rows only.
    fn after(
        &mut self,
        code: &mut Code,
        index: usize,
        layer: &'a Layer,
        buffers: &Buffers,
        skip: bool,
    ) -> Result<(), Error> {
        let number = Some(index);
        let residual = buffers.narrow.unwrap_or(buffers.x);
        let mut at = code.local(residual.width(), Element::F32);
        let what = ("attention output", number, Part::AttentionOutput);
        let views = (buffers.context, Some(residual), at);
        self.linear(code, what, &layer.attention.output, self.format, Activation::Identity, views)?;
        if !layer.norm_first {
            let out = code.local(residual.width(), Element::F32);
            self.norm(code, ("attention norm", number, Part::Norms), &layer.attention_norm, at, out)?;
            code.free(at);
            at = out;
        }
        let mut stream = buffers.x;
        if let Some(ffn) = layer.ffns.last().filter(|_| skip) {
            at = self.part_ways(code, index, (at, buffers.x), (!layer.norm_first).then_some(&ffn.norm))?;
            stream = at;
        }
        for (block, ffn) in layer.ffns.iter().enumerate() {
            let last = block + 1 == layer.ffns.len() && layer.bottleneck.is_none();
            let width = at.width();
            let mut input = at;
            if layer.norm_first {
                input = code.local(width, self.element);
                self.norm(code, ("ffn norm", number, Part::Norms), &ffn.norm, at, input)?;
            }
            let inner = code.local(ffn.up.outputs, self.element);
            let what = ("ffn up", number, Part::FfnUp);
            self.linear(code, what, &ffn.up, self.format, activation(ffn.activation), (input, None, inner))?;
            if layer.norm_first {
                code.free(input);
            }
            let to_stream = last && layer.norm_first;
            let sum = if to_stream && !skip { stream } else { code.local(width, Element::F32) };
            let what = ("ffn down", number, Part::FfnDown);
            self.linear(code, what, &ffn.down, self.format, Activation::Identity, (inner, Some(at), sum))?;
            code.free(inner);
            code.free(at);
            at = sum;
            if !layer.norm_first {
                let out = if last { stream } else { code.local(width, Element::F32) };
                self.norm(code, ("ffn norm", number, Part::Norms), &ffn.norm, sum, out)?;
                code.free(sum);
                at = out;
            }
        }
        if stream != buffers.x {
            if at != stream {
                let op = Op::Copy { input: at, activation: Activation::Identity, out: stream };
                code.step("busy rows", number, Part::Norms, op);
            }
            code.segment(Segment::Scatter { rows: RowSet::Busy, from: stream, to: buffers.x });
            code.next_rows(RowSet::All);
            return Ok(());
        }
        if let Some(bottleneck) = &layer.bottleneck {
            let sum = code.local(self.architecture.hidden, Element::F32);
            let what = ("bottleneck output", number, Part::Bottleneck);
            let views = (at, Some(buffers.x), sum);
            self.linear(code, what, &bottleneck.output.linear, self.format, Activation::Identity, views)?;
            code.free(at);
            self.norm(code, ("bottleneck norm", number, Part::Norms), &bottleneck.output.norm, sum, buffers.x)?;
            code.free(sum);
        } else if layer.ffns.is_empty() {
            code.step(
                "layer result",
                number,
                Part::Norms,
                Op::Copy { input: at, activation: Activation::Identity, out: buffers.x },
            );
            code.free(at);
        }
        Ok(())
    }

    /// Busy rows go on by themselves; to the others a norm is all that happens. Returns where the busy ones are.
    fn part_ways(
        &mut self,
        code: &mut Code,
        index: usize,
        (at, x): (View, View),
        norm: Option<&Norm>,
    ) -> Result<View, Error> {
        let op = Op::Copy { input: at, activation: Activation::Identity, out: x };
        code.step("attention result", Some(index), Part::Norms, op);
        let busy = View::full(Full::XBusy, x.width());
        code.segment(Segment::Gather { rows: RowSet::Busy, from: x, to: busy });
        if let Some(norm) = norm {
            self.norm(code, ("ffn norm", Some(index), Part::Norms), norm, x, x)?;
        }
        code.next_rows(RowSet::Busy);
        Ok(busy)
    }

    /// A linear map and its norm, in place on the result.
    fn normed(
        &mut self,
        code: &mut Code,
        (name, index): (&'static str, usize),
        map: &'a NormedLinear,
        input: View,
        residual: Option<View>,
        out: View,
    ) -> Result<(), Error> {
        let what = (name, Some(index), Part::Bottleneck);
        self.linear(code, what, &map.linear, self.format, Activation::Identity, (input, residual, out))?;
        self.norm(code, ("bottleneck norm", Some(index), Part::Norms), &map.norm, out, out)
    }

    /// A norm step.
    pub(super) fn norm(
        &mut self,
        code: &mut Code,
        (name, layer, part): (&'static str, Option<usize>, Part),
        norm: &Norm,
        input: View,
        out: View,
    ) -> Result<(), Error> {
        if input.width() != norm.width || out.width() != norm.width {
            let (found, width) = (input.width(), norm.width);
            return Err(Error::new(format!("{name}: a norm of width {width} cannot work on rows of {found}")));
        }
        let norm = self.collector.norm(norm)?;
        code.step(name, layer, part, Op::Norm { input, norm, out });
        Ok(())
    }
}
