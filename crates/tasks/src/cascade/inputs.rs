//! A dataset's inputs, and which of them decide one example together: the windows of a question do.

use super::decision::{Choice, Decision, span};
use crate::Dataset;
use crate::answer::{AnswerOptions, AnswerScorer};
use crate::batches::Unit;
use crate::encode::Encode;
use crate::evaluate::{Options, answer_options, units};
use sparing_model::{Architecture, Encoded, Error};

/// The inputs of a dataset.
pub(super) struct Inputs {
    pub units: Vec<Unit>,
    /// Per example its units.
    pub examples: Vec<Vec<usize>>,
    decision: Decision,
    /// Of a question answering head, per unit.
    windows: Vec<Encoded>,
    answer: AnswerOptions,
}

impl Inputs {
    pub(super) fn new(
        encoder: &dyn Encode,
        architecture: &Architecture,
        dataset: &Dataset,
        decision: Decision,
        options: &Options,
    ) -> Result<Inputs, Error> {
        let mut answer = answer_options(architecture, dataset, options);
        let Decision::Answer { may_be_unanswerable } = decision else {
            let units = units(encoder, architecture, dataset, options)?;
            let examples = (0..units.len()).map(|i| vec![i]).collect();
            return Ok(Inputs { units, examples, decision, windows: Vec::new(), answer });
        };
        answer.may_be_unanswerable = may_be_unanswerable;
        let (units, scorer) = AnswerScorer::prepare(dataset, encoder, None, &answer)?;
        let mut examples = vec![Vec::new(); dataset.examples.len()];
        let mut windows = Vec::new();
        for (unit, (question, window)) in scorer.into_windows().enumerate() {
            examples[question].push(unit);
            windows.push(window);
        }
        Ok(Inputs { units, examples, decision, windows, answer })
    }

    /// What the outputs of an example's units decide.
    pub(super) fn choice(&self, example: &[usize], outputs: &[&[f32]], width: usize) -> Choice {
        match self.decision {
            Decision::Answer { .. } => {
                let windows: Vec<&Encoded> = example.iter().map(|unit| &self.windows[*unit]).collect();
                span(&windows, outputs, &self.answer)
            }
            _ => self.decision.choice(outputs.first().copied().unwrap_or_default(), width),
        }
    }

    /// The margin of a unit's output.
    pub(super) fn margin(&self, unit: usize, output: &[f32], width: usize) -> f64 {
        self.decision.margin(&self.units[unit].sequence, output, width)
    }
}
