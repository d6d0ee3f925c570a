//! From the last hidden state to the answers.

use super::{Code, Compiler, activation};
use crate::program::{Full, Op, Part, PoolKind, RowSet, Segment, View};
use sparing_kernels::{Element, Format};
use sparing_model::{Error, HeadKind, HeadRows, HeadStage};

impl<'a> Compiler<'a> {
    /// Pools if the head does and runs its stages. Returns whose rows the result holds, where it is, and whether
    /// it is to be scaled to unit length.
    pub(super) fn head(
        &mut self,
        code: &mut Code,
        mut rows: RowSet,
        mut x: View,
    ) -> Result<(RowSet, View, bool), Error> {
        let head = &self.architecture.head;
        let kind = match head.rows {
            HeadRows::Mean => Some(PoolKind::Mean),
            HeadRows::Max => Some(PoolKind::Max),
            HeadRows::First | HeadRows::Last | HeadRows::All => None,
        };
        if let Some(kind) = kind {
            let to = View::full(Full::Pooled, x.width());
            code.segment(Segment::Pool { kind, from: x, to });
            (rows, x) = (RowSet::Sequences, to);
            code.next_rows(rows);
        }
        let language = matches!(head.kind, HeadKind::MaskedLm | HeadKind::CausalLm);
        let useful = |stage: &&HeadStage| {
            stage.linear.is_some() || stage.norm.is_some() || stage.activation != sparing_model::Activation::Identity
        };
        let last = head.stages.iter().filter(useful).count();
        for (number, stage) in head.stages.iter().enumerate() {
            if !useful(&stage) {
                continue;
            }
            let is_last = head.stages[..=number].iter().filter(useful).count() == last;
            let width = stage.linear.as_ref().map_or(x.width(), |linear| linear.outputs);
            let out = if is_last { View::full(Full::Out, width) } else { code.local(width, Element::F32) };
            let mut from = x;
            if let Some(linear) = &stage.linear {
                // Only the decoder has as many outputs as there are words.
                let decoder = language && linear.outputs == self.architecture.embeddings.vocabulary;
                let format = if decoder { self.decoder_format } else { Format::F32 };
                let what = (if decoder { "decoder" } else { "head linear" }, None, Part::Head);
                self.linear(code, what, linear, format, activation(stage.activation), (x, None, out))?;
                from = out;
            } else if stage.activation != sparing_model::Activation::Identity {
                let op = Op::Copy { input: x, activation: activation(stage.activation), out };
                code.step("head activation", None, Part::Head, op);
                from = out;
            }
            if let Some(norm) = &stage.norm {
                self.norm(code, ("head norm", None, Part::Head), norm, from, out)?;
            }
            code.free(x);
            x = out;
        }
        let normalise = matches!(head.kind, HeadKind::Embed { normalise: true });
        Ok((rows, x, normalise))
    }
}
