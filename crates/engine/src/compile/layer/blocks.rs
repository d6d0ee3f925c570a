//! What follows attention: its output projection, residuals, norms, feed-forward blocks, and what is left of removed ones.

use super::super::{Code, Compiler, activation};
use super::Buffers;
use crate::program::{Full, Op, Part, RowSet, Segment, View};
use sparing_kernels::{Activation, Element};
use sparing_model::{Error, Ffn, Layer, Linear, Norm};

impl<'a> Compiler<'a> {
    /// From attention's result to the layer's. `skip`: the feed-forward blocks are for the busy rows only.
    pub(super) fn after(
        &mut self,
        code: &mut Code,
        index: usize,
        layer: &'a Layer,
        buffers: &Buffers,
        skip: bool,
    ) -> Result<(), Error> {
        let number = Some(index);
        let mut at = self.attention_result(code, index, layer, buffers)?;
        let mut stream = buffers.x;
        if let Some(ffn) = layer.ffns.last().filter(|_| skip) {
            at = self.part_ways(code, index, (at, buffers.x), (!layer.norm_first).then_some(&ffn.norm))?;
            stream = at;
        }
        for (block, ffn) in layer.ffns.iter().enumerate() {
            let last = block + 1 == layer.ffns.len() && layer.bottleneck.is_none();
            let folds = !layer.norm_first && !ffn.down.is_empty() && self.folds(&ffn.norm) && !skip;
            let to_stream = last && (folds || layer.norm_first && !skip);
            let sum = self.ffn_sum(code, index, layer, ffn, at, to_stream.then_some(stream), folds)?;
            if sum != at {
                code.free(at);
            }
            at = sum;
            if !layer.norm_first && !folds {
                let out = if last { stream } else { code.local(sum.width(), Element::F32) };
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
            self.linear(
                code,
                what,
                &bottleneck.output.linear,
                self.precisions.ffn(index),
                Activation::Identity,
                views,
            )?;
            code.free(at);
            self.norm(code, ("bottleneck norm", number, Part::Norms), &bottleneck.output.norm, sum, buffers.x)?;
            code.free(sum);
        } else if layer.ffns.is_empty() {
            let op = Op::Copy { input: at, activation: Activation::Identity, out: buffers.x };
            code.step("layer result", number, Part::Norms, op);
            code.free(at);
        }
        Ok(())
    }

    /// The attention block's result, in a local buffer.
    fn attention_result(
        &mut self,
        code: &mut Code,
        index: usize,
        layer: &'a Layer,
        buffers: &Buffers,
    ) -> Result<View, Error> {
        let residual = buffers.narrow.unwrap_or(buffers.x);
        let what = ("attention output", Some(index), Part::AttentionOutput);
        let output = &layer.attention.output;
        let format = self.precisions.attention(index);
        let at = if output.is_empty() {
            let to = layer.norm_first.then(|| code.local(residual.width(), Element::F32));
            self.constant(code, what, output, residual, to)?
        } else {
            let at = code.local(residual.width(), Element::F32);
            let views = (buffers.context, Some(residual), at);
            if !layer.norm_first && self.folds(&layer.attention_norm) {
                self.folded(code, what, (output, &layer.attention_norm), format, views)?;
                return Ok(at);
            }
            self.linear(code, what, output, format, Activation::Identity, views)?;
            at
        };
        if layer.norm_first {
            return Ok(at);
        }
        let out = code.local(residual.width(), Element::F32);
        self.norm(code, ("attention norm", Some(index), Part::Norms), &layer.attention_norm, at, out)?;
        code.free(at);
        Ok(out)
    }

    /// A feed-forward block's result plus its residual `at`, in `to` or a local buffer, or still in `at` if it adds nothing.
    /// `folds`: with its norm.
    fn ffn_sum(
        &mut self,
        code: &mut Code,
        index: usize,
        layer: &'a Layer,
        ffn: &'a Ffn,
        at: View,
        to: Option<View>,
        folds: bool,
    ) -> Result<View, Error> {
        let number = Some(index);
        let down = ("ffn down", number, Part::FfnDown);
        let format = self.precisions.ffn(index);
        if ffn.down.is_empty() {
            return self.constant(code, down, &ffn.down, at, to);
        }
        let mut input = at;
        if layer.norm_first {
            input = code.local(at.width(), self.element);
            self.norm(code, ("ffn norm", number, Part::Norms), &ffn.norm, at, input)?;
        }
        let inner = code.local(ffn.up.outputs, self.element);
        let up = ("ffn up", number, Part::FfnUp);
        self.linear(code, up, &ffn.up, format, activation(ffn.activation), (input, None, inner))?;
        if layer.norm_first {
            code.free(input);
        }
        let sum = to.unwrap_or_else(|| code.local(at.width(), Element::F32));
        let views = (inner, Some(at), sum);
        match folds {
            true => self.folded(code, down, (&ffn.down, &ffn.norm), format, views)?,
            false => self.linear(code, down, &ffn.down, format, Activation::Identity, views)?,
        }
        code.free(inner);
        Ok(sum)
    }

    /// What is left of a removed block: the bias of its last map, added to the residual. Returns where the sum is: in `to`,
    /// in a local buffer, or still in `residual` where there is no bias.
    fn constant(
        &mut self,
        code: &mut Code,
        (name, layer, part): (&'static str, Option<usize>, Part),
        map: &Linear,
        residual: View,
        to: Option<View>,
    ) -> Result<View, Error> {
        let Some(bias) = map.stored_bias() else {
            if let Some(out) = to {
                code.step(name, layer, part, Op::Copy { input: residual, activation: Activation::Identity, out });
            }
            return Ok(to.unwrap_or(residual));
        };
        let out = to.unwrap_or_else(|| code.local(residual.width(), Element::F32));
        let constant = self.collector.constant(bias, map.outputs)?;
        code.step(name, layer, part, Op::Shift { input: residual, constant, out });
        Ok(out)
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
}
