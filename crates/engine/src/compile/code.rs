//! Writing down the steps of row-local segments: local buffers are handed out and taken back here.

use crate::program::{Op, Part, Place, RowLocal, RowSet, Segment, Step, View};
use sparing_kernels::Element;

/// The segments written so far, and the row-local one being written.
pub(crate) struct Code {
    pub(crate) segments: Vec<Segment>,
    pub(crate) locals: Vec<Element>,
    rows: RowSet,
    steps: Vec<Step>,
    free: Vec<bool>,
}

impl Code {
    /// No segments yet; `locals` are the element types of local buffers that other programs use already.
    pub(crate) fn new(locals: Vec<Element>) -> Self {
        let free = vec![true; locals.len()];
        Code { segments: Vec::new(), locals, rows: RowSet::All, steps: Vec::new(), free }
    }

    /// A local buffer until it is freed, or the segment ends.
    pub(crate) fn local(&mut self, width: usize, element: Element) -> View {
        let found = (0..self.locals.len()).find(|i| self.free[*i] && self.locals[*i] == element);
        let number = found.unwrap_or_else(|| {
            self.locals.push(element);
            self.free.push(true);
            self.locals.len() - 1
        });
        self.free[number] = false;
        View { place: Place::Local(number), stride: width, start: 0, end: width }
    }

    /// Takes a local buffer back; full ones stay.
    pub(crate) fn free(&mut self, view: View) {
        if let Place::Local(number) = view.place {
            self.free[number] = true;
        }
    }

    /// Adds a step.
    pub(crate) fn step(&mut self, name: &'static str, layer: Option<usize>, part: Part, op: Op) {
        debug_assert!(
            matches!(op, Op::Norm { .. } | Op::AddPlaces { .. })
                || op.inputs().all(|input| input.place != op.output().place)
        );
        self.steps.push(Step { op, name, layer, part, only_if: None });
    }

    /// Makes the last step depend on a row set having rows.
    pub(crate) fn last_only_if(&mut self, rows: RowSet) {
        if let Some(step) = self.steps.last_mut() {
            step.only_if = Some(rows);
        }
    }

    /// Ends the row-local segment; the next works on `rows`.
    pub(crate) fn next_rows(&mut self, rows: RowSet) {
        if !self.steps.is_empty() {
            let steps = std::mem::take(&mut self.steps);
            self.segments.push(Segment::RowLocal(RowLocal::new(self.rows, steps)));
        }
        self.rows = rows;
        self.free.fill(true);
    }

    /// Ends the row-local segment and adds another kind; the same rows go on after it.
    pub(crate) fn segment(&mut self, segment: Segment) {
        self.next_rows(self.rows);
        self.segments.push(segment);
    }
}
