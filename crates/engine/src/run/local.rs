//! Row-local segments: chunk by chunk, all steps of a chunk while it is in the core's own cache.

use super::{Machine, Observer};
use crate::arena::{Arena, Locals};
use crate::compile::Packed;
use crate::layout::Layout;
use crate::program::{Full, Op, Place, RowLocal, View};
use sparing_kernels::{Activation, Buffer, Chunks, Element, Epilogue, Rows, RowsMut};
use sparing_kernels::{activate, gemm, gemm_columns, norm};
use sparing_model::NormKind;
use std::ops::Range;
use std::time::Instant;

/// Rows of a chunk to aim for: enough that the weights' trip through the cache is well used, few enough that a
/// chunk's inner feed-forward rows stay in the second-level cache.
const CHUNK: usize = 70;
/// With fewer rows than this per thread, threads share the outputs of each step instead of the rows.
const FEW: usize = 8;

/// Rows per chunk: balanced chunks of about [`CHUNK`] rows, as many as let all threads finish together.
pub(crate) fn chunk_rows(rows: usize, threads: usize) -> usize {
    let chunks = ((rows + CHUNK / 2) / CHUNK).max(1).next_multiple_of(threads);
    rows.div_ceil(chunks.min(Chunks::MOST)).max(1)
}

/// How a segment reaches a full buffer.
enum Access<'a> {
    Absent,
    Read(Rows<'a>),
    Write(Chunks<'a>),
}

/// How a chunk holds its rows of a full buffer.
enum Held<'a> {
    Absent,
    Read(Rows<'a>),
    Write(RowsMut<'a>),
    /// Being written by the step at hand.
    Taken,
}

/// A step's output while it is written.
enum Taken<'a> {
    Local(Buffer),
    Full(RowsMut<'a>),
}

/// What the steps of one chunk see.
struct Frame<'a, 'b> {
    /// Row numbers in the segment's row set.
    rows: Range<usize>,
    full: [Held<'a>; Full::COUNT],
    locals: &'b mut Locals,
}

impl<'a> Frame<'a, '_> {
    fn input(&self, view: View) -> Rows<'_> {
        let rows = match view.place {
            Place::Local(number) => self.locals.buffers[number].rows(self.rows.len(), view.stride),
            Place::Full(full) => match &self.full[full as usize] {
                Held::Read(rows) => *rows,
                Held::Write(rows) => rows.as_rows(),
                Held::Absent | Held::Taken => unreachable!("a step reads {full:?}, which the segment does not hold"),
            },
        };
        rows.columns(view.start..view.end)
    }

    fn take(&mut self, view: View) -> Taken<'a> {
        match view.place {
            // An empty buffer stands in meanwhile; making one allocates nothing.
            Place::Local(number) => {
                Taken::Local(std::mem::replace(&mut self.locals.buffers[number], Buffer::new(Element::F32)))
            }
            Place::Full(full) => match std::mem::replace(&mut self.full[full as usize], Held::Taken) {
                Held::Write(rows) => Taken::Full(rows),
                _ => unreachable!("a step writes {full:?}, which the segment does not hold to write"),
            },
        }
    }

    fn put(&mut self, view: View, taken: Taken<'a>) {
        match (view.place, taken) {
            (Place::Local(number), Taken::Local(buffer)) => self.locals.buffers[number] = buffer,
            (Place::Full(full), Taken::Full(rows)) => self.full[full as usize] = Held::Write(rows),
            _ => unreachable!("an output goes back where it came from"),
        }
    }
}

impl Taken<'_> {
    fn rows(&mut self, view: View, count: usize) -> RowsMut<'_> {
        let rows = match self {
            Taken::Local(buffer) => buffer.rows_mut(count, view.stride),
            Taken::Full(rows) => rows.borrow(),
        };
        rows.columns(view.start..view.end)
    }
}

impl Machine {
    /// Runs a row-local segment on all its rows. `timed`: leaves each worker's seconds per step in its locals.
    /// `observer`: sees what every linear map reads, rows in order.
    pub(super) fn row_local(
        &self,
        segment: &RowLocal,
        arena: &mut Arena,
        timed: bool,
        observer: Option<&mut Observer<'_>>,
    ) {
        let Arena { full, locals, scratch, layout, .. } = arena;
        let (layout, locals, scratch) = (&*layout, &*locals, &*scratch);
        let threads = self.team.threads();
        if timed {
            for worker in 0..threads {
                let mut locals = locals.get(worker);
                locals.seconds.clear();
                locals.seconds.resize(segment.steps.len(), 0.0);
            }
        }
        let count = layout.count(segment.rows);
        if count == 0 {
            return;
        }
        let few = count < FEW * threads;
        let chunk = if few { count } else { chunk_rows(count, threads) };
        let mut access = [const { Access::Absent }; Full::COUNT];
        for (number, buffer) in full.iter_mut().enumerate() {
            if let Some(used) = segment.uses.iter().find(|u| u.full as usize == number) {
                access[number] = match used.write {
                    true => Access::Write(Chunks::new(buffer.rows_mut(count, used.stride), chunk)),
                    false => Access::Read(buffer.rows(count, used.stride)),
                };
            }
        }
        let hold = |index: usize, rows: &Range<usize>| {
            std::array::from_fn(|number| match &access[number] {
                Access::Absent => Held::Absent,
                Access::Read(all) => Held::Read(all.range(rows.clone())),
                Access::Write(chunks) => Held::Write(chunks.take(index)),
            })
        };
        if let Some(observer) = observer {
            for index in 0..count.div_ceil(chunk) {
                let rows = index * chunk..count.min((index + 1) * chunk);
                let (mut locals, mut scratch) = (locals.get(0), scratch.get(0));
                let mut frame = Frame { full: hold(index, &rows), rows, locals: &mut locals };
                self.steps(segment, layout, &mut frame, timed, &mut |a, packed, epilogue, out| {
                    observer(packed, a);
                    gemm(a, &packed.matrix, epilogue, out, &mut scratch);
                });
            }
            return;
        }
        if few {
            let mut locals = locals.get(0);
            let mut frame = Frame { rows: 0..count, full: hold(0, &(0..count)), locals: &mut locals };
            self.steps(segment, layout, &mut frame, timed, &mut |a, packed, epilogue, out| {
                gemm_columns(&self.team, a, &packed.matrix, epilogue, out, scratch);
            });
            return;
        }
        self.team.run(count.div_ceil(chunk), &|index, worker| {
            let rows = index * chunk..count.min((index + 1) * chunk);
            let (mut locals, mut scratch) = (locals.get(worker), scratch.get(worker));
            let mut frame = Frame { full: hold(index, &rows), rows, locals: &mut locals };
            self.steps(segment, layout, &mut frame, timed, &mut |a, packed, epilogue, out| {
                gemm(a, &packed.matrix, epilogue, out, &mut scratch);
            });
        });
    }

    fn steps(
        &self,
        segment: &RowLocal,
        layout: &Layout,
        frame: &mut Frame,
        timed: bool,
        multiply: &mut dyn FnMut(Rows, &Packed, &Epilogue, RowsMut),
    ) {
        for (number, step) in segment.steps.iter().enumerate() {
            if step.only_if.is_some_and(|rows| layout.count(rows) == 0) {
                continue;
            }
            let began = timed.then(Instant::now);
            self.step(&step.op, layout, frame, multiply);
            if let Some(began) = began {
                frame.locals.seconds[number] += began.elapsed().as_secs_f64();
            }
        }
    }

    fn step(
        &self,
        op: &Op,
        layout: &Layout,
        frame: &mut Frame,
        multiply: &mut dyn FnMut(Rows, &Packed, &Epilogue, RowsMut),
    ) {
        let view = op.output();
        let rows = frame.rows.clone();
        let mut taken = frame.take(view);
        let mut out = taken.rows(view, rows.len());
        match op {
            Op::Words { .. } => self.tables.words(layout, rows, out),
            Op::AddPlaces { .. } => self.tables.add_places(layout, rows, out, &mut frame.locals.row),
            Op::Linear { input, matrix, activation, residual, scale, .. } => {
                let packed = &self.constants.matrices[*matrix];
                let epilogue = Epilogue {
                    bias: packed.bias.as_deref(),
                    activation: *activation,
                    residual: residual.map(|view| frame.input(view)),
                    residual_scale: scale.map(|scale| self.constants.scales[scale].as_slice()),
                };
                multiply(frame.input(*input), packed, &epilogue, out);
            }
            Op::Norm { input, norm: number, .. } => {
                let n = &self.constants.norms[*number];
                let in_place = *input == view;
                match n.kind {
                    NormKind::Layer if in_place => norm::layer_norm_in_place(out, &n.weight, &n.bias, n.eps),
                    NormKind::Layer => norm::layer_norm(frame.input(*input), &n.weight, &n.bias, n.eps, out),
                    NormKind::Affine | NormKind::Power => {
                        if !in_place {
                            copy(frame.input(*input), out.borrow());
                        }
                        norm::affine_in_place(out, &n.weight, &n.bias);
                    }
                }
            }
            Op::Shift { input, constant, .. } => {
                copy(frame.input(*input), out.borrow());
                for row in 0..rows.len() {
                    let shift = &self.constants.shifts[*constant];
                    out.row_f32(row).iter_mut().zip(shift).for_each(|(x, shift)| *x += shift);
                }
            }
            Op::Copy { input, activation, .. } => {
                copy(frame.input(*input), out.borrow());
                for row in (0..rows.len()).filter(|_| *activation != Activation::Identity) {
                    activate(*activation, out.row_f32(row));
                }
            }
        }
        frame.put(view, taken);
    }
}

/// Copies f32 rows.
fn copy(from: Rows, mut to: RowsMut) {
    for row in 0..from.count() {
        match to.element() {
            Element::F32 => from.read_row(row, to.row_f32(row)),
            Element::Bf16 => to.write_row(row, from.row_f32(row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_balanced_and_as_many_as_threads_like() {
        for (rows, threads, want) in [(128, 2, 64), (512, 2, 64), (1024, 2, 64), (100, 2, 50), (70, 1, 70), (3, 4, 1)] {
            assert_eq!(chunk_rows(rows, threads), want, "{rows} rows, {threads} threads");
        }
        assert!(10_000_000usize.div_ceil(chunk_rows(10_000_000, 2)) <= Chunks::MOST);
    }
}
