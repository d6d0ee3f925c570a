//! What becomes of every token of a sequence, layer by layer, where the plan drops tokens or lets them skip.

use super::Machine;
use crate::Engine;
use crate::arena::Arena;
use crate::layout::Layout;
use crate::profile::Clock;
use crate::program::{Program, Segment};
use sparing_model::{Batch, Error, Sequence, Wanted};

/// What became of a sequence's tokens in one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedLayer {
    /// The layer.
    pub layer: usize,
    /// Per token: it came into the layer.
    pub came: Vec<bool>,
    /// Per token: it went on behind the layer's attention.
    pub stayed: Vec<bool>,
    /// Per token: the layer's feed-forward blocks were computed for it.
    pub busy: Vec<bool>,
}

impl Machine {
    /// Runs a program and shows the layout after every choice of tokens, with the layer it was made in.
    fn run_followed(&self, program: &Program, arena: &mut Arena, see: &mut dyn FnMut(usize, &Layout)) {
        for segment in &program.segments {
            self.segment(program, segment, arena, None, &mut Clock::stopped(), None);
            if let Segment::Select(select) = segment {
                see(select.attend.layer, &arena.layout);
            }
        }
    }
}

impl Engine {
    /// Runs one sequence for what the head reads, and says what became of its tokens in every layer that chooses among them;
    /// and the operations of the whole model that were done. Nothing for plans that choose no tokens. For looking, not for speed.
    pub fn follow(&self, sequence: &Sequence) -> Result<Option<(Vec<FollowedLayer>, u64)>, Error> {
        let batch = Batch { sequences: vec![sequence.clone()], wanted: Wanted::Head };
        batch.check(&self.architecture)?;
        let Some(program) = self.planned(&batch.wanted).filter(|program| program.selects) else { return Ok(None) };
        let tokens = sequence.ids.len();
        let mut layers = Vec::new();
        // Which token of the text a row is.
        let mut alive: Vec<usize> = (0..tokens).collect();
        let done = self.arenas.with(|arena| {
            (arena.values.kept_for, arena.values.done) = (None, 0);
            arena.layout.fill(std::iter::once((sequence, self.select(&batch.wanted, 0))), self.global_tokens(), 0);
            self.machine.run_followed(program, arena, &mut |layer, layout| {
                let marked = |rows: &mut dyn Iterator<Item = usize>| {
                    let mut marks = vec![false; tokens];
                    rows.for_each(|token| marks[token] = true);
                    marks
                };
                let came = marked(&mut alive.iter().copied());
                let busy = marked(&mut layout.busy.iter().map(|place| alive[layout.staying[*place]]));
                alive = layout.staying.iter().map(|row| alive[*row]).collect();
                layers.push(FollowedLayer { layer, came, stayed: marked(&mut alive.iter().copied()), busy });
            });
            arena.values.done
        });
        Ok(Some((layers, done)))
    }
}
