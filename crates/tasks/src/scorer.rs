//! From an executor's numbers to outcomes, for heads that answer once per text or per word.

use crate::batches::Unit;
use crate::encode::{Encode, encode_all};
use crate::gold::NO_CLASSIFIER;
use crate::metrics::entities;
use crate::outcome::Outcome;
use crate::{Dataset, Gold};
use sparing_model::{Error, HeadKind};

/// Turns outputs into outcomes. The units it is for were made with it.
pub(crate) trait Scorer {
    /// The number of the example whose answer a unit gives; `None` where all there is is a loss, which may be anything.
    fn example(&self, unit: usize) -> Option<usize>;

    /// Takes the output of one unit: rows of `width` numbers.
    fn take(&mut self, unit: usize, output: &[f32], width: usize) -> Result<(), Error>;

    /// The number of the example and the outcome of everything that is whole, ascending.
    fn finish(self: Box<Self>) -> Vec<(usize, Outcome)>;
}

/// What is not a number is no answer, whatever would come of comparing it. `at`: where it was read.
pub(crate) fn check_numbers(output: &[f32], at: &dyn Fn() -> String) -> Result<(), Error> {
    if output.iter().any(|x| x.is_nan()) {
        let why = "its weights are damaged or overflow in this precision";
        return Err(Error::new(format!("{}: the model's output is not a number (NaN): {why}", at())));
    }
    Ok(())
}

/// One unit per text, cut to `limit` tokens.
pub(crate) fn texts(dataset: &Dataset, encoder: &dyn Encode, limit: Option<usize>) -> Result<Vec<Unit>, Error> {
    let texts: Vec<_> = dataset.examples.iter().map(|e| (e.text.as_str(), e.pair.as_deref())).collect();
    let at = |i: usize| dataset.at(&dataset.examples[i]);
    encode_all(&texts, &at, &|text, pair| whole(encoder, text, pair, limit))
}

fn whole(encoder: &dyn Encode, text: &str, pair: Option<&str>, limit: Option<usize>) -> Result<Unit, Error> {
    Ok(Unit { sequence: encoder.encode(text, pair, limit)?.sequence, rows: None })
}

/// Two units per example, one for each text of the pair.
pub(crate) fn separate_texts(
    dataset: &Dataset,
    encoder: &dyn Encode,
    limit: Option<usize>,
) -> Result<Vec<Unit>, Error> {
    let mut texts = Vec::new();
    for example in &dataset.examples {
        let Some(pair) = &example.pair else {
            return Err(Error::new(format!("{}: no second text; {NO_CLASSIFIER}", dataset.at(example))));
        };
        texts.push((example.text.as_str(), None));
        texts.push((pair.as_str(), None));
    }
    let at = |i: usize| dataset.at(&dataset.examples[i / 2]);
    encode_all(&texts, &at, &|text, pair| whole(encoder, text, pair, limit))
}

/// One output row per text: labels or numbers.
pub(crate) struct TextScorer {
    pub gold: Vec<Gold>,
    pub outcomes: Vec<Option<Outcome>>,
    /// Number of labels; 0: whatever comes.
    pub labels: usize,
}

impl Scorer for TextScorer {
    fn example(&self, unit: usize) -> Option<usize> {
        Some(unit)
    }

    fn take(&mut self, unit: usize, output: &[f32], width: usize) -> Result<(), Error> {
        if output.len() != width || (self.labels > 0 && width != self.labels) {
            return Err(Error::new(format!(
                "the model's head has {} outputs in {} rows, but {} labels",
                width,
                output.len() / width,
                self.labels
            )));
        }
        check_numbers(output, &|| format!("example {}", unit + 1))?;
        self.outcomes[unit] = match &self.gold[unit] {
            Gold::Class(gold) => Some(Outcome::Class { gold: *gold, predicted: top(output), logits: output.to_vec() }),
            Gold::Labels(gold) => Some(Outcome::Labels {
                gold: gold.clone(),
                predicted: (0..width).filter(|&i| output[i] > 0.0).collect(),
                logits: output.to_vec(),
            }),
            Gold::Score(gold) => Some(Outcome::Score { gold: *gold, predicted: f64::from(output[0]) }),
            _ => None,
        };
        Ok(())
    }

    fn finish(self: Box<Self>) -> Vec<(usize, Outcome)> {
        numbered(self.outcomes)
    }
}

pub(crate) fn numbered(outcomes: Vec<Option<Outcome>>) -> Vec<(usize, Outcome)> {
    outcomes.into_iter().enumerate().filter_map(|(i, o)| Some((i, o?))).collect()
}

/// The first position of the largest number.
pub(crate) fn top(row: &[f32]) -> usize {
    (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

/// Pairs of embeddings: the score is their cosine.
pub(crate) struct CosineScorer {
    pub gold: Vec<Gold>,
    /// One per unit.
    pub embeddings: Vec<Option<Vec<f32>>>,
}

impl Scorer for CosineScorer {
    fn example(&self, unit: usize) -> Option<usize> {
        Some(unit / 2)
    }

    fn take(&mut self, unit: usize, output: &[f32], _: usize) -> Result<(), Error> {
        self.embeddings[unit] = Some(output.to_vec());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Vec<(usize, Outcome)> {
        let pairs = self.embeddings.chunks_exact(2).zip(&self.gold).enumerate();
        pairs
            .filter_map(|(i, (pair, gold))| match (pair, gold) {
                ([Some(a), Some(b)], Gold::Score(gold)) => {
                    Some((i, Outcome::Score { gold: *gold, predicted: cosine(a, b) }))
                }
                _ => None,
            })
            .collect()
    }
}

pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum() };
    let norms = (dot(a, a) * dot(b, b)).sqrt();
    if norms == 0.0 { 0.0 } else { dot(a, b) / norms }
}

/// One label per word, read at the word's first token; words beyond the limit are left out.
pub(crate) struct WordScorer {
    /// Per unit: the example and the right labels of the words that are read.
    words: Vec<(usize, Vec<usize>)>,
    labels: Vec<String>,
    outcomes: Vec<Option<Outcome>>,
}

impl WordScorer {
    pub(crate) fn prepare(
        dataset: &Dataset,
        encoder: &dyn Encode,
        limit: Option<usize>,
        gold: &[Gold],
        labels: &[String],
    ) -> Result<(Vec<Unit>, Self), Error> {
        let texts: Vec<_> = dataset.examples.iter().map(|e| (e.text.as_str(), None)).collect();
        let at = |i: usize| dataset.at(&dataset.examples[i]);
        let mut units = Vec::new();
        let mut words = Vec::new();
        let all = encode_all(&texts, &at, &|text, pair| encoder.encode(text, pair, limit))?;
        for (i, (encoded, gold)) in all.into_iter().zip(gold).enumerate() {
            let Gold::Tags(tags, ranges) = gold else {
                continue;
            };
            let (mut rows, mut right) = (Vec::new(), Vec::new());
            let mut token = 0;
            for (tag, &(start, end)) in tags.iter().zip(ranges) {
                // Tokens and words both come in order; some tokenizers count the space before a word to it.
                while token < encoded.offsets.len()
                    && !(encoded.texts[token].is_some() && encoded.offsets[token].1 > start)
                {
                    token += 1;
                }
                if encoded.offsets.get(token).is_some_and(|o| o.0 < end) {
                    rows.push(token);
                    right.push(*tag);
                }
            }
            if rows.is_empty() {
                continue;
            }
            units.push(Unit { sequence: encoded.sequence, rows: Some(rows) });
            words.push((i, right));
        }
        let outcomes = vec![None; units.len()];
        let labels = labels.to_vec();
        Ok((units, WordScorer { words, labels, outcomes }))
    }
}

impl Scorer for WordScorer {
    fn example(&self, unit: usize) -> Option<usize> {
        Some(self.words[unit].0)
    }

    fn take(&mut self, unit: usize, output: &[f32], width: usize) -> Result<(), Error> {
        if width != self.labels.len() {
            return Err(Error::new(format!("the model's head has {width} outputs, but {} labels", self.labels.len())));
        }
        let gold = self.words[unit].1.clone();
        let predicted: Vec<usize> = output.chunks_exact(width).map(top).collect();
        let names = |numbers: &[usize]| -> Vec<&str> { numbers.iter().map(|&n| self.labels[n].as_str()).collect() };
        let (gold_names, predicted_names) = (names(&gold), names(&predicted));
        let (truly, found) = (entities(&gold_names), entities(&predicted_names));
        let right = found.iter().filter(|e| truly.contains(e)).count();
        self.outcomes[unit] = Some(Outcome::Tags { entities: [right, found.len(), truly.len()], gold, predicted });
        Ok(())
    }

    fn finish(self: Box<Self>) -> Vec<(usize, Outcome)> {
        let numbers = self.words.into_iter().map(|(example, _)| example);
        numbers.zip(self.outcomes).filter_map(|(i, o)| Some((i, o?))).collect()
    }
}

/// Whether a head gives one row per text.
pub(crate) fn one_row(kind: HeadKind) -> bool {
    matches!(kind, HeadKind::Classify | HeadKind::MultiLabel | HeadKind::Regress)
}
