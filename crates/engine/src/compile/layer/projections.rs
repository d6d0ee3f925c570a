//! From the residual stream to queries, keys and values.

use super::super::{Code, Compiler};
use super::Buffers;
use crate::program::{Full, Op, Part, RowSet, View};
use sparing_kernels::{Activation, Element};
use sparing_model::{Error, Layer, Linear, NormedLinear, Source};

/// A projection to be made: its source, the map, a tensor to add to its bias, and where the result goes.
pub(super) struct Projection<'a> {
    pub(super) source: Source,
    pub(super) linear: &'a Linear,
    pub(super) plus: Option<&'a str>,
    pub(super) out: View,
}

impl<'a> Compiler<'a> {
    /// From the residual stream to projections. `keep`: the narrow stream must outlive attention. `normed`: where the
    /// normed stream goes if it must.
    pub(super) fn before(
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
            let matrix = self.collector.matrix(&parts, self.precisions.attention(index));
            let name = match (parts.len(), std::ptr::eq(first.linear, &layer.attention.query)) {
                (3, _) => "qkv",
                (2, true) => "query and key",
                (2, false) => "key and value",
                (_, true) => "query",
                _ if std::ptr::eq(first.linear, &layer.attention.key) => "key",
                _ => "value",
            };
            let op = Op::Linear { input, matrix, activation: Activation::Identity, residual: None, scale: None, out };
            code.step(name, layer_number, Part::Qkv, op);
        }
        if let Some(window) = window {
            let parts = [(&window.global_key, None), (&window.global_value, None)];
            let out = View::full(Full::GlobalKv, window.global_key.outputs + window.global_value.outputs);
            let matrix = self.collector.matrix(&parts, self.precisions.attention(index));
            let op = Op::Linear {
                input: hidden,
                matrix,
                activation: Activation::Identity,
                residual: None,
                scale: None,
                out,
            };
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
    /// where the last attention may want them for fewer rows, in every layer that shares that layer's weights; values stay
    /// apart where they may be economised.
    fn groups(&self, index: usize, layer: &Layer, projections: Vec<Projection<'a>>) -> Vec<Vec<Projection<'a>>> {
        let query = &layer.attention.query;
        let last = self.architecture.last_attention().map(|last| &self.architecture.layers[last].attention);
        let apart = self.may_select && last.is_some_and(|last| last.query.weight == query.weight);
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
        let format = self.precisions.ffn(index);
        if self.folds(&map.norm) {
            return self.folded(code, what, (&map.linear, &map.norm), format, (input, residual, out));
        }
        self.linear(code, what, &map.linear, format, Activation::Identity, (input, residual, out))?;
        self.norm(code, ("bottleneck norm", Some(index), Part::Norms), &map.norm, out, out)
    }
}
