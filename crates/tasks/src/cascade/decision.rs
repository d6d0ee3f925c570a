//! What a model decides, and by how much: the margin of a cheap answer, larger for safer ones.

use crate::Dataset;
use crate::answer::{AnswerOptions, best_span, choose};
use crate::evaluate::may_be_unanswerable;
use crate::gold::what_it_does;
use crate::scorer::top;
use serde::{Deserialize, Serialize};
use sparing_model::{Encoded, Error, HeadKind, Sequence};

/// What a head decides about an input.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Decision {
    /// One label. Margin: the best logit minus the second best.
    Label,
    /// Any number of labels. Margin: how near, in logits, the nearest label is to the probability from which it counts.
    Labels {
        /// The probability from which a label counts.
        threshold: f32,
    },
    /// Numbers, the same if they differ by no more than a tolerance. The margin is the tolerance, for every input.
    Number {
        /// The largest difference that does not matter.
        tolerance: f64,
    },
    /// A label per token. Margin: the smallest of the text.
    Tags,
    /// A passage. Margin of a window: the score of its best span minus the second best's, or silence's if that is nearer.
    Answer {
        /// Whether there may be none.
        may_be_unanswerable: bool,
    },
}

/// A decision made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choice {
    Label(usize),
    Labels(Vec<bool>),
    Numbers(Vec<f32>),
    Tags(Vec<usize>),
    Span(Option<(usize, usize)>),
}

impl Decision {
    /// What a head decides; an error for those that make no decision. `tolerance` is for numbers alone.
    pub fn of(kind: HeadKind, tolerance: Option<f64>) -> Result<Decision, Error> {
        if let Some(given) = tolerance.filter(|_| kind != HeadKind::Regress) {
            let does = what_it_does(kind);
            return Err(Error::new(format!("--tolerance {given} is for models that predict numbers; this one {does}")));
        }
        match (kind, tolerance) {
            (HeadKind::Classify, _) => Ok(Decision::Label),
            (HeadKind::MultiLabel, _) => Ok(Decision::Labels { threshold: 0.5 }),
            (HeadKind::TokenClassify, _) => Ok(Decision::Tags),
            (HeadKind::Answer, _) => Ok(Decision::Answer { may_be_unanswerable: false }),
            (HeadKind::Regress, Some(tolerance)) if tolerance > 0.0 && tolerance.is_finite() => {
                Ok(Decision::Number { tolerance })
            }
            (HeadKind::Regress, Some(_)) => Err(Error::new("--tolerance must be a number above 0")),
            (HeadKind::Regress, None) => {
                Err(Error::new("--certify: the model predicts a number; say with --tolerance which difference matters"))
            }
            _ => Err(Error::new(format!(
                "--certify is about decisions, and a model that {} makes none that could be compared",
                what_it_does(kind)
            ))),
        }
    }

    /// The same about a dataset: whether questions may have no answer is said by the data.
    pub fn about(self, dataset: &Dataset) -> Decision {
        match self {
            Decision::Answer { may_be_unanswerable: known } => {
                Decision::Answer { may_be_unanswerable: known || may_be_unanswerable(dataset) }
            }
            other => other,
        }
    }

    /// By how much an output decides. NaN if it is not a number; infinite where there is no choice.
    pub(crate) fn margin(&self, sequence: &Sequence, output: &[f32], width: usize) -> f64 {
        if output.iter().any(|x| x.is_nan()) {
            return f64::NAN;
        }
        let least = |margins: &mut dyn Iterator<Item = f64>| margins.fold(f64::INFINITY, f64::min);
        match *self {
            Decision::Label | Decision::Tags => least(&mut output.chunks_exact(width.max(1)).map(gap)),
            Decision::Labels { threshold } => {
                let cut = logit(threshold);
                least(&mut output.iter().map(|x| (f64::from(*x) - cut).abs()))
            }
            Decision::Number { tolerance } => tolerance,
            Decision::Answer { may_be_unanswerable } => span_gap(sequence, output, may_be_unanswerable),
        }
    }

    /// What an output of one row per text (or token) decides.
    pub(crate) fn choice(&self, output: &[f32], width: usize) -> Choice {
        match *self {
            Decision::Label => Choice::Label(top(output)),
            Decision::Labels { threshold } => {
                let cut = logit(threshold);
                Choice::Labels(output.iter().map(|x| f64::from(*x) > cut).collect())
            }
            Decision::Number { .. } => Choice::Numbers(output.to_vec()),
            Decision::Tags | Decision::Answer { .. } => {
                Choice::Tags(output.chunks_exact(width.max(1)).map(top).collect())
            }
        }
    }

    /// Whether a choice is the exact model's.
    pub(crate) fn same(&self, choice: &Choice, exact: &Choice) -> bool {
        match (self, choice, exact) {
            (Decision::Number { tolerance }, Choice::Numbers(a), Choice::Numbers(b)) => {
                // False for NaN.
                let near = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs() <= *tolerance;
                a.len() == b.len() && a.iter().zip(b).all(near)
            }
            _ => choice == exact,
        }
    }
}

/// The passage that all windows of a question decide for.
pub(crate) fn span(windows: &[&Encoded], outputs: &[&[f32]], options: &AnswerOptions) -> Choice {
    let found: Vec<_> =
        windows.iter().zip(outputs).map(|(window, logits)| best_span(window, logits, options)).collect();
    Choice::Span(choose(&found, options).map(|found| (found.start, found.end)))
}

fn logit(p: f32) -> f64 {
    let p = f64::from(p);
    p.ln() - (-p).ln_1p()
}

/// The largest minus the second largest.
fn gap(row: &[f32]) -> f64 {
    let best = top(row);
    let second = row.iter().enumerate().filter(|(i, _)| *i != best).map(|(_, x)| *x).fold(f32::NEG_INFINITY, f32::max);
    match row.get(best) {
        Some(first) => f64::from(*first) - f64::from(second),
        None => f64::INFINITY,
    }
}

/// The score of the best span minus that of the second best, among the likeliest starts and ends of the text. An executor
/// does not know where the text begins: token types say so where the model has them, else all but the first token count.
fn span_gap(sequence: &Sequence, logits: &[f32], may_be_unanswerable: bool) -> f64 {
    let options = AnswerOptions::default();
    let tokens = logits.len() / 2;
    let second_text = sequence.types.contains(&1);
    let in_text = |i: usize| if second_text { sequence.types.get(i) == Some(&1) } else { i > 0 };
    let likeliest = |column: usize| -> Vec<usize> {
        let mut order: Vec<usize> = (0..tokens).filter(|i| in_text(*i)).collect();
        order.sort_by(|a, b| logits[2 * b + column].total_cmp(&logits[2 * a + column]));
        order.truncate(options.n_best);
        order
    };
    let (mut first, mut second) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    let ends = likeliest(1);
    for start in likeliest(0) {
        for &end in ends.iter().filter(|end| **end >= start && **end - start < options.longest) {
            let score = f64::from(logits[2 * start]) + f64::from(logits[2 * end + 1]);
            (first, second) = if score > first { (score, first) } else { (first, second.max(score)) };
        }
    }
    let silence = match logits {
        [start, end, ..] if may_be_unanswerable => f64::from(*start) + f64::from(*end),
        _ => f64::NEG_INFINITY,
    };
    match first - second {
        // No span at all: nothing to be safe about.
        gap if gap.is_nan() => 0.0,
        gap => gap.min((first - silence).abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn margin(decision: Decision, output: &[f32], width: usize) -> f64 {
        decision.margin(&Sequence::default(), output, width)
    }

    #[test]
    fn margins_by_hand() {
        assert_eq!(margin(Decision::Label, &[1.0, 4.0, 2.5], 3), 1.5);
        assert_eq!(margin(Decision::Label, &[2.0, 2.0], 2), 0.0);
        assert_eq!(margin(Decision::Label, &[2.0], 1), f64::INFINITY);
        assert_eq!(margin(Decision::Tags, &[1.0, 4.0, 2.0, 1.5], 2), 0.5);
        assert_eq!(margin(Decision::Labels { threshold: 0.5 }, &[-2.0, 0.25, 3.0], 3), 0.25);
        let cut = margin(Decision::Labels { threshold: 0.9 }, &[0.0], 1);
        assert!((cut - 9f64.ln()).abs() < 1e-6, "{cut}");
        assert_eq!(margin(Decision::Number { tolerance: 0.1 }, &[7.0], 1), 0.1);
        assert!(margin(Decision::Label, &[f32::NAN, 1.0], 2).is_nan());
    }

    #[test]
    fn spans_by_hand() {
        let sequence = Sequence { ids: vec![1; 4], types: vec![0, 0, 1, 1] };
        // Starts 9 9 2 1, ends 9 9 0 3: in the text (2,3) scores 5, (3,3) 4, (2,2) 2; silence 18.
        let logits = [9.0, 9.0, 9.0, 9.0, 2.0, 0.0, 1.0, 3.0];
        let of = |may_be_unanswerable| Decision::Answer { may_be_unanswerable }.margin(&sequence, &logits, 2);
        assert_eq!((of(false), of(true)), (1.0, 1.0));
        let near = [2.0, 2.5, 9.0, 9.0, 2.0, 0.0, 1.0, 3.0];
        assert_eq!(Decision::Answer { may_be_unanswerable: true }.margin(&sequence, &near, 2), 0.5);
        // Without types all but the first token count: (1,1) scores 18, (1,3) 12.
        assert_eq!(margin(Decision::Answer { may_be_unanswerable: false }, &logits, 2), 6.0);
    }

    #[test]
    fn heads_without_decisions_are_refused() {
        for kind in [HeadKind::Hidden, HeadKind::Embed { normalise: true }, HeadKind::CausalLm, HeadKind::MaskedLm] {
            assert!(Decision::of(kind, None).unwrap_err().to_string().contains("about decisions"));
        }
        assert!(Decision::of(HeadKind::Regress, None).unwrap_err().to_string().contains("--tolerance"));
        assert!(Decision::of(HeadKind::Regress, Some(f64::NAN)).is_err());
        assert!(Decision::of(HeadKind::Classify, Some(0.1)).unwrap_err().to_string().contains("predict numbers"));
        assert_eq!(Decision::of(HeadKind::Regress, Some(0.1)).unwrap(), Decision::Number { tolerance: 0.1 });
    }

    #[test]
    fn numbers_agree_within_the_tolerance() {
        let decision = Decision::Number { tolerance: 0.5 };
        let number = |x: f32| Choice::Numbers(vec![x]);
        assert!(decision.same(&number(1.0), &number(1.5)));
        assert!(!decision.same(&number(1.0), &number(1.75)));
        assert!(!decision.same(&number(f32::NAN), &number(1.0)));
    }
}
