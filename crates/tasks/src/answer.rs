//! Extractive question answering: windows over long texts and the best span, as the reference's
//! `postprocess_qa_predictions` finds it.

use crate::batches::Unit;
use crate::encode::{Encode, encode_all};
use crate::metrics::{answer_exact, answer_f1};
use crate::outcome::Outcome;
use crate::scorer::Scorer;
use crate::{Dataset, Gold};
use serde::{Deserialize, Serialize};
use sparing_model::{Encoded, Error};

/// How answers are searched for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AnswerOptions {
    /// Tokens of a window, question and special tokens included.
    pub window: usize,
    /// Tokens that neighbouring windows share, less than half of the window.
    pub stride: usize,
    /// How many of the best starts and ends are combined.
    pub n_best: usize,
    /// The longest answer in tokens.
    pub longest: usize,
    /// A question may have no answer (SQuAD v2).
    pub may_be_unanswerable: bool,
    /// No answer is given if its score beats the best answer's by more than this.
    pub null_threshold: f32,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        AnswerOptions {
            window: 384,
            stride: 128,
            n_best: 20,
            longest: 30,
            may_be_unanswerable: false,
            null_threshold: 0.0,
        }
    }
}

/// A found answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// First byte in the text.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
    /// Sum of the start and end logit.
    pub score: f32,
}

/// The best answer of one window and the score of giving none. `logits` are start and end of each token, `[tokens, 2]`.
pub fn best_span(window: &Encoded, logits: &[f32], options: &AnswerOptions) -> (Option<Found>, f32) {
    let tokens = window.offsets.len().min(logits.len() / 2);
    if tokens == 0 {
        return (None, 0.0);
    }
    let none = logits[0] + logits[1];
    let best_of = |column: usize| -> Vec<usize> {
        let mut order: Vec<usize> = (0..tokens).collect();
        let value = |i: usize| logits[2 * i + column];
        order.sort_by(|&a, &b| value(b).total_cmp(&value(a)));
        order.truncate(options.n_best);
        order
    };
    let in_text = |i: usize| window.texts[i] == Some(1);
    let (starts, ends) = (best_of(0), best_of(1));
    let mut best: Option<Found> = None;
    for &start in starts.iter().filter(|i| in_text(**i)) {
        for &end in ends.iter().filter(|i| in_text(**i)) {
            if end < start || end - start + 1 > options.longest {
                continue;
            }
            let score = logits[2 * start] + logits[2 * end + 1];
            if best.is_none_or(|b| score > b.score) {
                best = Some(Found { start: window.offsets[start].0, end: window.offsets[end].1, score });
            }
        }
    }
    (best, none)
}

/// The answer over all windows of a question: `None` where there is none, or none that beats silence.
pub fn choose(windows: &[(Option<Found>, f32)], options: &AnswerOptions) -> Option<Found> {
    let found = windows.iter().filter_map(|w| w.0).reduce(|a, b| if b.score > a.score { b } else { a })?;
    let none = windows.iter().map(|w| w.1).fold(f32::INFINITY, f32::min);
    if options.may_be_unanswerable && none - found.score > options.null_threshold {
        return None;
    }
    Some(found)
}

/// Finds answers in windows.
pub(crate) struct AnswerScorer {
    questions: Vec<Question>,
    /// Per unit: the question and which of its windows.
    windows: Vec<(usize, usize, Encoded)>,
    options: AnswerOptions,
}

struct Question {
    context: String,
    accepted: Vec<String>,
    found: Vec<Option<(Option<Found>, f32)>>,
}

impl AnswerScorer {
    pub(crate) fn prepare(
        dataset: &Dataset,
        encoder: &dyn Encode,
        gold: Option<&[Gold]>,
        options: &AnswerOptions,
    ) -> Result<(Vec<Unit>, Self), Error> {
        let mut texts = Vec::new();
        for example in &dataset.examples {
            let Some(context) = &example.pair else {
                return Err(Error::new(format!(
                    "{}: a question needs a text to find the answer in",
                    dataset.at(example)
                )));
            };
            texts.push((example.text.trim_start(), Some(context.as_str())));
        }
        let at = |i: usize| dataset.at(&dataset.examples[i]);
        let (mut units, mut all, mut questions) = (Vec::new(), Vec::new(), Vec::new());
        // A question takes at most half of the room beside the special tokens (four at most), so windows move on.
        let overlap = options.stride.min((options.window / 2).saturating_sub(4));
        let encode = |question, context: Option<&str>| {
            encoder.encode_windows(question, context.unwrap_or_default(), Some(options.window), overlap)
        };
        for (i, parts) in encode_all(&texts, &at, &encode)?.into_iter().enumerate() {
            questions.push(Question {
                context: texts[i].1.unwrap_or_default().to_string(),
                accepted: match gold.map(|g| &g[i]) {
                    Some(Gold::Answers(answers)) => answers.clone(),
                    _ => Vec::new(),
                },
                found: vec![None; parts.len()],
            });
            for (w, part) in parts.into_iter().enumerate() {
                units.push(Unit { sequence: part.sequence.clone(), rows: None });
                all.push((i, w, part));
            }
        }
        let scorer = AnswerScorer { questions, windows: all, options: *options };
        Ok((units, scorer))
    }

    /// Per unit the number of its question, and its tokens.
    pub(crate) fn into_windows(self) -> impl Iterator<Item = (usize, Encoded)> {
        self.windows.into_iter().map(|(question, _, encoded)| (question, encoded))
    }
}

impl Scorer for AnswerScorer {
    fn example(&self, unit: usize) -> Option<usize> {
        Some(self.windows[unit].0)
    }

    fn take(&mut self, unit: usize, output: &[f32], width: usize) -> Result<(), Error> {
        let (question, window, encoded) = &self.windows[unit];
        if width != 2 || output.len() != 2 * encoded.sequence.ids.len() {
            return Err(Error::new(format!(
                "a question answering head gives 2 numbers per token, not {width} in {} rows for {} tokens",
                output.len() / width,
                encoded.sequence.ids.len()
            )));
        }
        let found = best_span(encoded, output, &self.options);
        self.questions[*question].found[*window] = Some(found);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Vec<(usize, Outcome)> {
        let options = self.options;
        let outcome = |question: Question| -> Option<Outcome> {
            let found: Vec<_> = question.found.into_iter().collect::<Option<_>>()?;
            let chosen = choose(&found, &options);
            let predicted = chosen.and_then(|f| question.context.get(f.start..f.end)).unwrap_or_default();
            let accepted: Vec<&str> = question.accepted.iter().map(String::as_str).collect();
            Some(Outcome::Answer {
                predicted: predicted.to_string(),
                score: chosen.map_or(0.0, |f| f.score),
                exact: answer_exact(&accepted, predicted),
                f1: answer_f1(&accepted, predicted),
                answerable: !accepted.is_empty(),
            })
        };
        crate::scorer::numbered(self.questions.into_iter().map(outcome).collect())
    }
}
