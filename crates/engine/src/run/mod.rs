//! Running a program on a laid-out batch.

mod attend;
mod examine;
mod follow;
mod local;
mod rearrange;
mod tokens;
mod values;

use crate::arena::Arena;
use crate::compile::{Constants, Packed};
use crate::embed::Tables;
use crate::generate::Cache;
use crate::profile::Clock;
use crate::program::{Part, Place, Program, Segment, View};
pub(crate) use attend::Wave;
pub use follow::FollowedLayer;
use sparing_kernels::{Buffer, Rows, Team};
pub(crate) use tokens::Choice;
pub use tokens::like_tokens;

/// What every run of an engine shares.
pub(crate) struct Machine {
    pub(crate) team: Team,
    pub(crate) constants: Constants,
    pub(crate) tables: Tables,
}

/// Gets every matrix with the rows that are about to be multiplied with it.
pub(crate) type Observer<'a> = dyn FnMut(&Packed, Rows<'_>) + 'a;

impl Machine {
    /// Runs a program on the batch that `arena.layout` describes; the result is where the program says.
    pub(crate) fn run(&self, program: &Program, arena: &mut Arena, cache: Option<&mut Cache>, clock: &mut Clock) {
        self.run_observed(program, arena, cache, clock, None);
    }

    /// The same with someone who looks at what linear maps read.
    pub(crate) fn run_observed(
        &self,
        program: &Program,
        arena: &mut Arena,
        mut cache: Option<&mut Cache>,
        clock: &mut Clock,
        mut observer: Option<&mut Observer<'_>>,
    ) {
        for segment in &program.segments {
            self.segment(program, segment, arena, cache.as_deref_mut(), clock, observer.as_deref_mut());
        }
    }

    /// Runs one segment of a program.
    fn segment(
        &self,
        program: &Program,
        segment: &Segment,
        arena: &mut Arena,
        cache: Option<&mut Cache>,
        clock: &mut Clock,
        observer: Option<&mut Observer<'_>>,
    ) {
        let began = clock.now();
        if program.selects {
            arena.values.done += self.flops_on(segment, &arena.layout);
        }
        match segment {
            Segment::RowLocal(local) => {
                self.row_local(local, arena, clock.is_on(), observer);
                clock.add_steps(local, &arena.locals, self.team.threads(), began);
            }
            Segment::Values(values) => self.values(values, arena, clock),
            Segment::Attend(attend) => {
                self.attend(attend, arena, cache);
                clock.add(Some(attend.layer), Part::Scores, began);
            }
            Segment::Select(select) => {
                self.select(select, arena);
                clock.add(Some(select.attend.layer), Part::Importance, began);
            }
            Segment::Drop(buffers) => {
                rearrange::drop_rows(arena, buffers);
                clock.add(None, Part::Importance, began);
            }
            other => {
                self.move_rows(other, arena);
                clock.add(None, Part::Head, began);
            }
        }
    }

    /// Runs a segment that moves or pools rows.
    fn move_rows(&self, segment: &Segment, arena: &mut Arena) {
        match segment {
            Segment::Gather { rows, from, to } => rearrange::gather(arena, *rows, *from, *to),
            Segment::Scatter { rows, from, to } => rearrange::scatter(arena, *rows, *from, *to),
            Segment::Pool { kind, from, to } => rearrange::pool(&self.team, arena, *kind, *from, *to),
            Segment::RowLocal(_) | Segment::Values(_) | Segment::Attend(_) => unreachable!("these compute"),
            Segment::Select(_) | Segment::Drop(_) => unreachable!("these change the layout"),
        }
    }
}

/// The number of a view's full buffer in the arena.
pub(crate) fn number(view: View) -> usize {
    match view.place {
        Place::Full(full) => full as usize,
        Place::Local(_) => unreachable!("only row-local steps use local buffers"),
    }
}

/// The first `count` rows of a full view.
pub(crate) fn rows(full: &[Buffer], view: View, count: usize) -> Rows<'_> {
    full[number(view)].rows(count, view.stride).columns(view.start..view.end)
}
