//! Both executors on the same inputs, before anything is promised.

use super::Decision;
use super::decision::Choice;
use super::inputs::Inputs;
use crate::Dataset;
use crate::batches::{self, Progress};
use crate::encode::Encode;
use crate::evaluate::Options;
use sparing_model::{Architecture, Error, Executor};

/// What a trial of a cheap executor against the exact one found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trial {
    /// Per example how much has to be escalated for the cascade to decide as the exact model does: everything with a
    /// margin up to this. Minus infinity where nothing has to be: the cheap decision is the exact one.
    pub needed: Vec<f64>,
    /// The cheap margin of every example (the smallest of its windows); NaN is always escalated.
    pub margins: Vec<f64>,
    /// Where the inputs came from.
    pub source: String,
    /// Everything was run.
    pub complete: bool,
}

/// Two executors of the same architecture, and what they decide.
#[derive(Clone, Copy)]
pub struct Pair<'a> {
    /// The one whose decisions are in doubt.
    pub cheap: &'a dyn Executor,
    /// The one whose decisions count.
    pub exact: &'a dyn Executor,
    /// What is decided.
    pub decision: Decision,
}

/// Runs both executors over a dataset. Labels are not needed.
pub fn try_out(
    pair: &Pair<'_>,
    encoder: &dyn Encode,
    architecture: &Architecture,
    dataset: &Dataset,
    options: &Options,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Trial, Error> {
    let &Pair { cheap, exact, decision } = pair;
    let inputs = Inputs::new(encoder, architecture, dataset, decision, options)?;
    let mut outputs: Vec<Option<[Vec<f32>; 2]>> = vec![None; inputs.units.len()];
    let mut width = 0;
    let spent = batches::run(&[cheap, exact], &inputs.units, options.tokens_per_batch, progress, |group, both| {
        if both[0].width != both[1].width {
            return Err(Error::new("a cascade's executors must be of one architecture"));
        }
        width = both[0].width;
        for (place, unit) in group.iter().enumerate() {
            outputs[*unit] = Some([both[0].sequences[place].clone(), both[1].sequences[place].clone()]);
        }
        Ok(())
    })?;
    let mut trial = Trial { source: dataset.source.clone(), complete: spent.complete, ..Trial::default() };
    for example in inputs.examples.iter().filter(|units| !units.is_empty()) {
        let done: Option<Vec<&[Vec<f32>; 2]>> = example.iter().map(|unit| outputs[*unit].as_ref()).collect();
        let Some(done) = done else { continue };
        let margins: Vec<f64> = example.iter().zip(&done).map(|(unit, o)| inputs.margin(*unit, &o[0], width)).collect();
        let decide = |cheaply: &dyn Fn(usize) -> bool| {
            let chosen: Vec<&[f32]> = done.iter().enumerate().map(|(i, o)| &o[usize::from(!cheaply(i))][..]).collect();
            inputs.choice(example, &chosen, width)
        };
        trial.needed.push(needed(&margins, &decision, &decide));
        trial.margins.push(margins.iter().copied().fold(f64::INFINITY, |a, b| if a < b { a } else { b }));
    }
    if trial.needed.is_empty() {
        return Err(Error::new("cancelled before the first input was tried out"));
    }
    Ok(trial)
}

/// What an example's units decide together, given which of them keep their cheap output.
type Decide<'a> = &'a dyn Fn(&dyn Fn(usize) -> bool) -> Choice;

/// The smallest threshold from which on an example is decided as the exact model does. As the threshold sinks below the
/// windows' margins, largest first, one more of them keeps its cheap output; the first that changes the decision counts,
/// even if a later one would mend it.
fn needed(margins: &[f64], decision: &Decision, decide: Decide<'_>) -> f64 {
    let exact = decide(&|_| false);
    let mut steps: Vec<f64> = margins.iter().copied().filter(|margin| !margin.is_nan()).collect();
    steps.sort_by(|a, b| b.total_cmp(a));
    steps.dedup();
    let differs = |step: &f64| !decision.same(&decide(&|i| margins[i] >= *step), &exact);
    steps.into_iter().find(differs).unwrap_or(f64::NEG_INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_input_needs_is_its_margin() {
        let flips = |cheaply: &dyn Fn(usize) -> bool| Choice::Label(usize::from(cheaply(0)));
        assert_eq!(needed(&[0.7], &Decision::Label, &flips), 0.7);
        assert_eq!(needed(&[f64::NAN], &Decision::Label, &flips), f64::NEG_INFINITY);
        assert_eq!(needed(&[0.7], &Decision::Label, &|_| Choice::Label(0)), f64::NEG_INFINITY);
    }

    #[test]
    fn windows_are_escalated_by_their_margins() {
        // The second window's cheap output changes the answer, unless the first one's comes with it.
        let margins = [0.2, 0.9, 0.5];
        let decide = |cheaply: &dyn Fn(usize) -> bool| Choice::Label(usize::from(cheaply(1) && !cheaply(0)));
        assert_eq!(needed(&margins, &Decision::Label, &decide), 0.9);
        let third = |cheaply: &dyn Fn(usize) -> bool| Choice::Label(usize::from(cheaply(2)));
        assert_eq!(needed(&margins, &Decision::Label, &third), 0.5);
    }
}
