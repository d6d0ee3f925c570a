//! The final answer, exact and economised.

use crate::commands::run::softmax;
use crate::failure::Failure;
use crate::table::percent;
use serde::Serialize;
use sparing_model::{Encoded, HeadKind, Model, Outputs};

/// What the head says both ways.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    /// Whether both decide alike; `null` where the head decides nothing.
    pub same: Option<bool>,
    /// `||economised - exact|| / ||exact||` of the numbers that leave the network.
    pub relative_change: f64,
    exact: Said,
    economised: Said,
}

/// What a head says.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Said {
    Label { label: String, probability: f32 },
    Labels { labels: Vec<(String, f32)> },
    Numbers { values: Vec<f32> },
    Span { answer: String, first_token: usize, last_token: usize },
    Best { best: Vec<String> },
    Vector {},
}

impl Answer {
    /// Compares the two outputs of one text.
    pub fn new(
        model: &Model,
        encoded: &Encoded,
        texts: [Option<&str>; 2],
        exact: &Outputs,
        economised: &Outputs,
    ) -> Result<Answer, Failure> {
        let said = |outputs: &Outputs| Said::new(model, encoded, texts, &outputs.sequences[0], outputs.width);
        let (a, b) = (said(exact)?, said(economised)?);
        let relative_change = relative_change(&exact.sequences[0], &economised.sequences[0]);
        Ok(Answer { same: a.decides_like(&b), relative_change, exact: a, economised: b })
    }

    /// For people: `POSITIVE 99.8% exact, POSITIVE 99.6% economised`.
    pub fn words(&self) -> String {
        let change = format!("output changed by {}", percent(self.relative_change));
        match (&self.exact, &self.economised) {
            (Said::Vector {}, _) => change,
            (Said::Best { best: a }, Said::Best { best: b }) => {
                let same = a.iter().zip(b).filter(|(a, b)| a == b).count();
                format!("{same} of {} tokens get the same answer; {change}", a.len())
            }
            (a, b) => format!("{} exact, {} economised", a.words(), b.words()),
        }
    }
}

impl Said {
    fn new(
        model: &Model,
        encoded: &Encoded,
        texts: [Option<&str>; 2],
        values: &[f32],
        width: usize,
    ) -> Result<Said, Failure> {
        let head = &model.architecture.head;
        let label = |i: usize| head.labels.get(i).cloned().unwrap_or_else(|| i.to_string());
        let rows = || values.chunks_exact(width.max(1));
        Ok(match head.kind {
            HeadKind::Classify => {
                let p = softmax(values);
                let best = best(&p);
                Said::Label { label: label(best), probability: p.get(best).copied().unwrap_or(f32::NAN) }
            }
            HeadKind::MultiLabel => {
                let p = values.iter().map(|x| 1.0 / (1.0 + (-x).exp()));
                Said::Labels { labels: p.enumerate().map(|(i, p)| (label(i), p)).filter(|(_, p)| *p >= 0.5).collect() }
            }
            HeadKind::Regress => Said::Numbers { values: values.to_vec() },
            HeadKind::TokenClassify => Said::Best { best: rows().map(|row| label(best(row))).collect() },
            HeadKind::MaskedLm | HeadKind::CausalLm => {
                let tokenizer = model.tokenizer()?;
                let word = |row: &[f32]| tokenizer.token(best(row) as u32).unwrap_or_default();
                Said::Best { best: rows().map(word).collect() }
            }
            HeadKind::Answer => span(encoded, texts, values, width),
            HeadKind::Hidden | HeadKind::Embed { .. } => Said::Vector {},
        })
    }

    /// Whether the same is decided, however surely.
    fn decides_like(&self, other: &Said) -> Option<bool> {
        match (self, other) {
            (Said::Label { label: a, .. }, Said::Label { label: b, .. }) => Some(a == b),
            (Said::Labels { labels: a }, Said::Labels { labels: b }) => {
                Some(a.iter().map(|(label, _)| label).eq(b.iter().map(|(label, _)| label)))
            }
            (Said::Numbers { .. } | Said::Vector {}, _) => None,
            (a, b) => Some(a == b),
        }
    }

    fn words(&self) -> String {
        let list = |words: Vec<String>| if words.is_empty() { "–".to_string() } else { words.join(", ") };
        let scored = |label: &str, p: f32| format!("{label} {}", percent(f64::from(p)));
        match self {
            Said::Label { label, probability } => scored(label, *probability),
            Said::Labels { labels } => list(labels.iter().map(|(label, p)| scored(label, *p)).collect()),
            Said::Numbers { values } => list(values.iter().map(|x| format!("{x:.4}")).collect()),
            Said::Span { answer, .. } => format!("\"{answer}\""),
            Said::Best { best } => best.join(" "),
            Said::Vector {} => String::new(),
        }
    }
}

/// The best first token, the best last one from there on, and the text between; rows of `[start, end]` scores.
fn span(encoded: &Encoded, texts: [Option<&str>; 2], values: &[f32], width: usize) -> Said {
    let scores = |column: usize| values.iter().skip(column).step_by(width.max(1)).copied().collect::<Vec<f32>>();
    let first_token = best(&scores(0));
    let last_token = first_token + best(scores(1).get(first_token..).unwrap_or_default());
    let place = |i: usize| Some((encoded.texts.get(i).copied().flatten()?, encoded.offsets[i]));
    let text = || {
        let ((text, (start, _)), (other, (_, end))) = (place(first_token)?, place(last_token)?);
        if text == other { texts[usize::from(text)]?.get(start..end) } else { None }
    };
    Said::Span { answer: text().unwrap_or_default().to_string(), first_token, last_token }
}

/// Number of the largest value, the first of equals.
fn best(values: &[f32]) -> usize {
    let better = |best: usize, i: usize| if values[i] > values[best] { i } else { best };
    (1..values.len()).fold(0, better)
}

fn relative_change(exact: &[f32], economised: &[f32]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let difference = squares(&mut exact.iter().zip(economised).map(|(a, b)| f64::from(a - b)));
    (difference / squares(&mut exact.iter().map(|x| f64::from(*x))).max(1e-300)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_relative_and_the_first_of_equals_wins() {
        assert_eq!(relative_change(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert_eq!(relative_change(&[3.0, 4.0], &[0.0, 8.0]), 1.0);
        assert_eq!(best(&[0.0, 2.0, 2.0, -1.0]), 1);
        assert_eq!(best(&[]), 0);
    }

    #[test]
    fn the_same_decision_may_be_less_sure() {
        let said = |label: &str, probability| Said::Label { label: label.to_string(), probability };
        assert_eq!(said("a", 0.9).decides_like(&said("a", 0.6)), Some(true));
        assert_eq!(said("a", 0.9).decides_like(&said("b", 0.9)), Some(false));
        assert_eq!(Said::Vector {}.decides_like(&Said::Vector {}), None);
    }
}
