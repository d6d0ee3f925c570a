//! Batches without padding, for the CPU: the rows of all sequences stand end to end.
//!
//! Used where every layer's attention is plain and nobody asks for its shares. Unless hidden states are asked for, the last layer
//! computes only the rows the head reads, as the engine does.

use super::Forward;
use super::pass::Pass;
use crate::ops;
use burn::tensor::Tensor;
use sparing_kernels::attention::Span;
use sparing_model::{Architecture, AttentionPosition, Error, HeadRows};
use std::sync::Arc;

/// Where the rows of a batch are.
pub(super) struct Packed {
    /// Each sequence's rows.
    pub(super) spans: Arc<[Span]>,
    ids: Arc<[usize]>,
    types: Arc<[usize]>,
    /// Place of each row in its sequence.
    positions: Arc<[usize]>,
    /// Place of each row among padded ones.
    places: Arc<[usize]>,
}

impl Packed {
    /// Whether this network can be computed on packed rows.
    pub(super) fn fits(architecture: &Architecture) -> bool {
        let plain = |layer: &sparing_model::Layer| {
            let a = &layer.attention;
            matches!(a.position, AttentionPosition::None) && a.window.is_none() && a.network.is_none()
        };
        !architecture.embeddings.trigram && architecture.layers.iter().all(plain)
    }

    pub(super) fn new(batch: &crate::PaddedBatch) -> Packed {
        let mut spans = Vec::with_capacity(batch.count());
        let (mut positions, mut places) = (Vec::new(), Vec::new());
        for (number, &length) in batch.lengths.iter().enumerate() {
            let rows = positions.len()..positions.len() + length;
            spans.push(Span { queries: rows.clone(), keys: rows, ..Span::default() });
            positions.extend(0..length);
            places.extend((0..length).map(|row| batch.row(number, row)));
        }
        Packed {
            spans: spans.into(),
            ids: batch.host.ids.iter().flatten().map(|id| *id as usize).collect(),
            types: batch.host.types.iter().flatten().map(|kind| *kind as usize).collect(),
            positions: positions.into(),
            places: places.into(),
        }
    }

    /// The row of each sequence that the head reads, where it reads one.
    fn head_rows(&self, rows: HeadRows) -> Option<Arc<[usize]>> {
        match rows {
            HeadRows::First => Some(self.spans.iter().map(|s| s.keys.start).collect()),
            HeadRows::Last => Some(self.spans.iter().map(|s| s.keys.end - 1).collect()),
            HeadRows::All | HeadRows::Mean | HeadRows::Max => None,
        }
    }
}

/// Rows of the last layer that are asked for: their places among all rows, and spans in which each is a query.
#[derive(Clone)]
pub(super) struct Chosen {
    pub(super) rows: Arc<[usize]>,
    pub(super) spans: Arc<[Span]>,
}

impl Pass<'_> {
    /// What a table's rows add up to: `[rows, width]`.
    pub(super) fn packed_embeddings(&self, packed: &Packed) -> Result<Tensor<2>, Error> {
        let e = &self.architecture.embeddings;
        let words = self.looked_up(&e.word, ops::gather(self.get(&e.word)?, packed.ids.clone()));
        self.embedded(
            words,
            &|types, x| {
                let table = self.looked_up(&types.name, self.get(&types.name)?);
                Ok(x + ops::gather(table, packed.types.clone()))
            },
            &|positions, x| {
                let at = packed.positions.iter().map(|position| positions.offset + position).collect();
                let rows = ops::gather(self.get(&positions.name)?, at);
                Ok(x + self.looked_up(&positions.name, rows))
            },
        )
    }

    /// Token ids to the last hidden state; `economise`: only the rows the head reads, where it reads one per sequence. What is captured
    /// goes to `hidden`, padded.
    pub(super) fn encode_packed(
        &mut self,
        packed: &Packed,
        economise: bool,
        hidden: &mut Vec<Tensor<3>>,
    ) -> Result<Tensor<2>, Error> {
        let captures = self.mode.capture.hidden;
        let chosen = packed.head_rows(self.architecture.head.rows).filter(|_| economise).map(|rows| {
            let spans = packed.spans.iter().enumerate();
            // The only query of a causal sequence is its last one, which is where a query alone is taken to stand.
            let spans = spans.map(|(i, s)| Span { queries: i..i + 1, keys: s.keys.clone(), ..Span::default() });
            Chosen { rows, spans: spans.collect() }
        });
        let mut x = self.packed_embeddings(packed)?;
        let architecture = self.architecture;
        // What comes after the last attention needs no other rows.
        let last = architecture.last_attention().unwrap_or(0);
        for (number, layer) in architecture.layers.iter().enumerate() {
            hidden.extend(captures.then(|| self.padded(packed, x.clone())));
            let chosen = chosen.as_ref().filter(|_| number == last);
            x = self.layer((number, layer), x, chosen, &mut Vec::new())?;
        }
        hidden.extend(captures.then(|| self.padded(packed, x.clone())));
        if let (Some(chosen), true) = (chosen, architecture.layers.is_empty()) {
            x = ops::gather(x, chosen.rows);
        }
        match &architecture.final_norm {
            Some(norm) => self.norm(norm, x),
            None => Ok(x),
        }
    }

    /// Packed rows with padding between them: `[batch, length, width]`, zeros where padded.
    pub(super) fn padded(&self, packed: &Packed, rows: Tensor<2>) -> Tensor<3> {
        let (count, length, width) = (self.batch.count(), self.batch.length, rows.dims()[1]);
        ops::spread(rows, packed.places.clone(), count * length).reshape([count, length, width])
    }

    /// Token ids to the head's result, `[batch, 1 or length, outputs]`.
    pub(super) fn forward_packed(&mut self, packed: &Packed) -> Result<Forward, Error> {
        let mut hidden = Vec::new();
        // Of what is captured, every row is asked for.
        let economise = !self.mode.capture.hidden;
        let mut rows = self.encode_packed(packed, economise, &mut hidden)?;
        let one = packed.head_rows(self.architecture.head.rows);
        if let (Some(one), false) = (&one, economise) {
            rows = ops::gather(rows, one.clone());
        }
        let output = match self.architecture.head.rows {
            HeadRows::First | HeadRows::Last => {
                let out = self.stages(rows, false)?;
                let [count, outputs] = out.dims();
                out.reshape([count, 1, outputs])
            }
            HeadRows::All => {
                let out = self.stages(rows, true)?;
                self.padded(packed, out)
            }
            HeadRows::Mean | HeadRows::Max => self.head(self.padded(packed, rows))?,
        };
        let present = vec![self.presence.present.clone(); hidden.len()];
        Ok(Forward { output, hidden, attention: vec![], present })
    }
}
