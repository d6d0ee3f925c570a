//! The certified cascade: a cheap executor for most inputs, the exact one where the cheap one's decision is too close to
//! call. How close is too close is measured on inputs without labels ([`try_out`]), and a [`Certificate`] says how often
//! the cascade decides as the exact model does, and with what confidence. Derived in `docs/methods/certify.md`.

mod certificate;
mod check;
mod decision;
mod fingerprint;
mod inputs;
#[cfg(test)]
mod tests;
mod trial;

pub use certificate::{Certificate, Escalate, Target};
pub use check::{Check, check};
pub use decision::Decision;
pub use fingerprint::Fingerprint;
pub use trial::{Pair, Trial, try_out};

use sparing_model::{Batch, Error, Executor, Outputs, Wanted};
use std::sync::Mutex;

/// Two executors of the same architecture as one: the cheap one decides, the exact one where it must.
pub struct Cascade<'a> {
    cheap: &'a dyn Executor,
    exact: &'a dyn Executor,
    decision: Decision,
    escalate: Escalate,
    tally: Mutex<Tally>,
}

/// What a cascade has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Tally {
    /// Inputs run (texts, windows of texts).
    pub inputs: usize,
    /// Those that the exact executor ran.
    pub escalated: usize,
}

impl<'a> Cascade<'a> {
    /// A cascade of the two that escalates as a certificate says.
    pub fn new(pair: Pair<'a>, escalate: Escalate) -> Self {
        let Pair { cheap, exact, decision } = pair;
        Cascade { cheap, exact, decision, escalate, tally: Mutex::default() }
    }

    /// What was done since the cascade was made.
    pub fn tally(&self) -> Tally {
        *self.tally.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Runs the batch; also says of every input whether the exact executor ran it.
    pub fn run_marked(&self, batch: &Batch) -> Result<(Outputs, Vec<bool>), Error> {
        let inputs = batch.sequences.len();
        // Hidden states are no decision, and where everything is escalated the cheap run would be wasted.
        let all = batch.wanted == Wanted::Hidden || self.escalate == Escalate::Everything;
        let (outputs, marks) = if all {
            (self.exact.run(batch)?, vec![true; inputs])
        } else {
            let (mut outputs, margins) = self.cheaply(batch)?;
            let marks: Vec<bool> = margins.iter().map(|margin| self.escalate.wants(*margin)).collect();
            self.replace(batch, &marks, &mut outputs)?;
            (outputs, marks)
        };
        let mut tally = self.tally.lock().unwrap_or_else(|e| e.into_inner());
        tally.inputs += inputs;
        tally.escalated += marks.iter().filter(|mark| **mark).count();
        Ok((outputs, marks))
    }

    /// The cheap outputs and their margins.
    fn cheaply(&self, batch: &Batch) -> Result<(Outputs, Vec<f64>), Error> {
        let margins = |outputs: &Outputs| -> Vec<f64> {
            let pairs = batch.sequences.iter().zip(&outputs.sequences);
            pairs.map(|(sequence, output)| self.decision.margin(sequence, output, outputs.width)).collect()
        };
        let Wanted::Rows(rows) = &batch.wanted else {
            let outputs = self.cheap.run(batch)?;
            let margins = margins(&outputs);
            return Ok((outputs, margins));
        };
        // A margin is that of the whole text, whichever rows the caller is interested in: as it was tried out.
        let whole = Batch { sequences: batch.sequences.clone(), wanted: Wanted::Head };
        let mut outputs = self.cheap.run(&whole)?;
        let margins = margins(&outputs);
        let width = outputs.width;
        for (output, rows) in outputs.sequences.iter_mut().zip(rows) {
            let picked = rows.iter().filter_map(|row| output.get(row * width..(row + 1) * width));
            *output = picked.flatten().copied().collect();
        }
        Ok((outputs, margins))
    }

    /// Runs the marked inputs exactly and puts their outputs in place.
    fn replace(&self, batch: &Batch, marks: &[bool], outputs: &mut Outputs) -> Result<(), Error> {
        let marked: Vec<usize> = (0..marks.len()).filter(|i| marks[*i]).collect();
        if marked.is_empty() {
            return Ok(());
        }
        let sequences = marked.iter().map(|i| batch.sequences[*i].clone()).collect();
        let wanted = match &batch.wanted {
            Wanted::Rows(rows) => Wanted::Rows(marked.iter().filter_map(|i| rows.get(*i).cloned()).collect()),
            other => other.clone(),
        };
        let exact = self.exact.run(&Batch { sequences, wanted })?;
        if exact.width != outputs.width || outputs.sequences.len() != marks.len() {
            let (a, b) = (outputs.width, exact.width);
            return Err(Error::new(format!(
                "a cascade's executors must be of one architecture; rows of {a} and of {b}"
            )));
        }
        for (place, output) in marked.into_iter().zip(exact.sequences) {
            outputs.sequences[place] = output;
        }
        Ok(())
    }
}

impl Executor for Cascade<'_> {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        Ok(self.run_marked(batch)?.0)
    }
}
