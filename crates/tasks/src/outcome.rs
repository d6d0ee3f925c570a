//! What came of each example, and what a set of them measures to.

use crate::metrics::*;
use serde::{Deserialize, Serialize};

/// What was right and what was predicted for one example.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// One label.
    Class {
        /// The right label's number.
        gold: usize,
        /// The predicted label's number.
        predicted: usize,
        /// One per label.
        logits: Vec<f32>,
    },
    /// Any number of labels.
    Labels {
        /// Numbers of the right labels, ascending.
        gold: Vec<usize>,
        /// Numbers of the predicted labels, ascending: those with a probability above one half.
        predicted: Vec<usize>,
        /// One per label.
        logits: Vec<f32>,
    },
    /// A number.
    Score {
        /// The right number.
        gold: f64,
        /// The predicted number.
        predicted: f64,
    },
    /// One label per word.
    Tags {
        /// The right labels' numbers.
        gold: Vec<usize>,
        /// The predicted labels' numbers.
        predicted: Vec<usize>,
        /// Entities right in both, predicted, and truly there.
        entities: [usize; 3],
    },
    /// An answer found in a text.
    Answer {
        /// The predicted answer, empty for none.
        predicted: String,
        /// Sum of the start and end logit.
        score: f32,
        /// Exact match, 0 or 1.
        exact: f64,
        /// F1 over words.
        f1: f64,
        /// There is an answer.
        answerable: bool,
    },
    /// Tokens predicted from their context.
    Loss {
        /// Sum of the negative log probabilities.
        nats: f64,
        /// Number of tokens predicted.
        tokens: usize,
        /// How many of them had the highest logit.
        right: usize,
        /// Bytes of text these tokens are.
        bytes: usize,
        /// Words of text that begin in these tokens.
        words: usize,
    },
}

impl Outcome {
    /// Whether the prediction is right, where that is a matter of yes or no.
    pub fn right(&self) -> Option<bool> {
        match self {
            Outcome::Class { gold, predicted, .. } => Some(gold == predicted),
            Outcome::Labels { gold, predicted, .. } => Some(gold == predicted),
            Outcome::Answer { exact, .. } => Some(*exact == 1.0),
            _ => None,
        }
    }
}

/// A way to score predictions. What it means depends on the kind of outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Share that is right: of examples (whole sets of labels), of words, of tokens.
    Accuracy,
    /// F1 of the positive label; of words in answers.
    F1,
    /// Mean of the labels' F1.
    F1Macro,
    /// F1 over all label decisions.
    F1Micro,
    /// Matthews correlation.
    Matthews,
    /// Pearson correlation.
    Pearson,
    /// Spearman correlation.
    Spearman,
    /// Mean squared error.
    MeanSquaredError,
    /// Share of answers that are exactly right.
    ExactMatch,
    /// F1 of the questions that have an answer.
    AnswerableF1,
    /// Share of the questions without an answer that were left unanswered.
    UnanswerableAccuracy,
    /// F1 of entities.
    EntityF1,
    /// `exp` of the mean loss per token.
    Perplexity,
    /// `exp` of the loss per word of the text, whatever the tokens are.
    WordPerplexity,
    /// Loss in bits per byte of the text, whatever the tokens are.
    BitsPerByte,
}

/// What metrics need to know beside the outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Labels {
    /// Number of labels.
    pub count: usize,
    /// The label that [`Metric::F1`] is about.
    pub positive: usize,
}

impl Metric {
    /// Short name for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Accuracy => "accuracy",
            Metric::F1 => "f1",
            Metric::F1Macro => "f1_macro",
            Metric::F1Micro => "f1_micro",
            Metric::Matthews => "matthews",
            Metric::Pearson => "pearson",
            Metric::Spearman => "spearman",
            Metric::MeanSquaredError => "mean_squared_error",
            Metric::ExactMatch => "exact_match",
            Metric::AnswerableF1 => "answerable_f1",
            Metric::UnanswerableAccuracy => "unanswerable_accuracy",
            Metric::EntityF1 => "entity_f1",
            Metric::Perplexity => "perplexity",
            Metric::WordPerplexity => "word_perplexity",
            Metric::BitsPerByte => "bits_per_byte",
        }
    }

    /// Whether more is better.
    pub fn higher_is_better(self) -> bool {
        !matches!(self, Metric::MeanSquaredError | Metric::Perplexity | Metric::WordPerplexity | Metric::BitsPerByte)
    }

    /// Whether the value is a fraction that reads well as per cent.
    pub fn is_share(self) -> bool {
        self.higher_is_better() && !matches!(self, Metric::Matthews | Metric::Pearson | Metric::Spearman)
    }

    /// The value over `picks` (numbers of outcomes, repeats allowed). NaN if the outcomes are of another kind or too few.
    pub fn measure(self, outcomes: &[Outcome], picks: &[usize], labels: Labels) -> f64 {
        let picked = || picks.iter().map(|&i| &outcomes[i]);
        match picked().next() {
            Some(Outcome::Class { .. }) => {
                let (gold, predicted): (Vec<_>, Vec<_>) = picked()
                    .filter_map(|o| match o {
                        Outcome::Class { gold, predicted, .. } => Some((*gold, *predicted)),
                        _ => None,
                    })
                    .unzip();
                match self {
                    Metric::Accuracy => accuracy(&gold, &predicted),
                    Metric::F1 => f1_binary(&gold, &predicted, labels.positive),
                    Metric::F1Macro => f1_macro(&gold, &predicted),
                    Metric::F1Micro => f1_micro(&gold, &predicted),
                    Metric::Matthews => matthews(&gold, &predicted),
                    _ => f64::NAN,
                }
            }
            Some(Outcome::Labels { .. }) => {
                let (gold, predicted): (Vec<_>, Vec<_>) = picked()
                    .filter_map(|o| match o {
                        Outcome::Labels { gold, predicted, .. } => Some((gold.as_slice(), predicted.as_slice())),
                        _ => None,
                    })
                    .unzip();
                match self {
                    Metric::Accuracy => subset_accuracy(&gold, &predicted),
                    Metric::F1Micro => labels_f1_micro(&gold, &predicted),
                    Metric::F1Macro => labels_f1_macro(&gold, &predicted, labels.count),
                    _ => f64::NAN,
                }
            }
            Some(Outcome::Score { .. }) => {
                let (gold, predicted): (Vec<_>, Vec<_>) = picked()
                    .filter_map(|o| match o {
                        Outcome::Score { gold, predicted } => Some((*gold, *predicted)),
                        _ => None,
                    })
                    .unzip();
                match self {
                    Metric::Pearson => pearson(&gold, &predicted),
                    Metric::Spearman => spearman(&gold, &predicted),
                    Metric::MeanSquaredError => mean_squared_error(&gold, &predicted),
                    _ => f64::NAN,
                }
            }
            Some(Outcome::Tags { .. }) => self.of_tags(picked()),
            Some(Outcome::Answer { .. }) => self.of_answers(picked()),
            Some(Outcome::Loss { .. }) => self.of_losses(picked()),
            None => f64::NAN,
        }
    }

    fn of_tags<'a>(self, picked: impl Iterator<Item = &'a Outcome>) -> f64 {
        let (mut right, mut all, mut sums) = (0, 0, [0; 3]);
        for outcome in picked {
            if let Outcome::Tags { gold, predicted, entities } = outcome {
                right += gold.iter().zip(predicted).filter(|(g, p)| g == p).count();
                all += gold.len();
                (0..3).for_each(|i| sums[i] += entities[i]);
            }
        }
        match self {
            Metric::Accuracy => right as f64 / all as f64,
            Metric::EntityF1 => entity_f1(sums[0], sums[1], sums[2]),
            _ => f64::NAN,
        }
    }

    fn of_answers<'a>(self, picked: impl Iterator<Item = &'a Outcome>) -> f64 {
        let (mut sum, mut n) = (0.0, 0);
        for outcome in picked {
            if let Outcome::Answer { exact, f1, answerable, .. } = outcome {
                let value = match self {
                    Metric::F1 => Some(*f1),
                    Metric::ExactMatch => Some(*exact),
                    Metric::AnswerableF1 => answerable.then_some(*f1),
                    Metric::UnanswerableAccuracy => (!answerable).then_some(*exact),
                    _ => None,
                };
                sum += value.unwrap_or(0.0);
                n += usize::from(value.is_some());
            }
        }
        sum / n as f64
    }

    fn of_losses<'a>(self, picked: impl Iterator<Item = &'a Outcome>) -> f64 {
        let (mut loss, mut n, mut hits, mut all_bytes, mut all_words) = (0.0, 0, 0, 0, 0);
        for outcome in picked {
            if let Outcome::Loss { nats, tokens, right, bytes, words } = outcome {
                loss += nats;
                n += tokens;
                hits += right;
                all_bytes += bytes;
                all_words += words;
            }
        }
        match self {
            Metric::Accuracy => hits as f64 / n as f64,
            Metric::Perplexity => (loss / n as f64).exp(),
            Metric::WordPerplexity => (loss / all_words as f64).exp(),
            Metric::BitsPerByte => loss / std::f64::consts::LN_2 / all_bytes as f64,
            _ => f64::NAN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_weigh_tokens_not_windows() {
        let loss = |nats, tokens| Outcome::Loss { nats, tokens, right: 1, bytes: 8, words: 2 };
        let outcomes = [loss(2.0, 1), loss(1.0, 2)];
        let value = |m: Metric| m.measure(&outcomes, &[0, 1], Labels::default());
        assert!((value(Metric::Perplexity) - 1f64.exp()).abs() < 1e-12);
        assert!((value(Metric::WordPerplexity) - 0.75f64.exp()).abs() < 1e-12);
        assert!((value(Metric::BitsPerByte) - 3.0 / 2f64.ln() / 16.0).abs() < 1e-12);
        assert!((value(Metric::Accuracy) - 2.0 / 3.0).abs() < 1e-12);
        assert!(value(Metric::Pearson).is_nan());
    }

    #[test]
    fn answers_with_and_without() {
        let answer =
            |exact, f1, answerable| Outcome::Answer { predicted: String::new(), score: 0.0, exact, f1, answerable };
        let outcomes = [answer(1.0, 1.0, true), answer(0.0, 0.5, true), answer(1.0, 1.0, false)];
        let value = |m: Metric| m.measure(&outcomes, &[0, 1, 2], Labels::default());
        assert!((value(Metric::F1) - 2.5 / 3.0).abs() < 1e-12);
        assert!((value(Metric::ExactMatch) - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(value(Metric::AnswerableF1), 0.75);
        assert_eq!(value(Metric::UnanswerableAccuracy), 1.0);
    }
}
