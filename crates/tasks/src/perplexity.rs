//! Language modelling: how well a text's tokens are predicted.
//!
//! A causal model reads windows of `context` tokens that move on by `stride`; each token is scored once,
//! with at least `context - stride` tokens before it (but in the first window), as the reference's guide to
//! perplexity does. A masked model reads windows side by side with some tokens masked.

use crate::Dataset;
use crate::batches::Unit;
use crate::encode::{Encode, encode_all};
use crate::outcome::Outcome;
use crate::random::Random;
use crate::scorer::{Scorer, numbered, top};
use sparing_model::{Error, Sequence};

/// Scores windows of a text.
pub(crate) struct LossScorer {
    windows: Vec<Window>,
    outcomes: Vec<Option<Outcome>>,
}

struct Window {
    /// The right token of every row.
    targets: Vec<u32>,
    bytes: usize,
    words: usize,
}

impl LossScorer {
    fn new(windows: Vec<Window>) -> Self {
        let outcomes = vec![None; windows.len()];
        LossScorer { windows, outcomes }
    }

    /// Windows for a model that predicts the next token.
    pub(crate) fn causal(
        dataset: &Dataset,
        encoder: &dyn Encode,
        context: usize,
        stride: usize,
    ) -> Result<(Vec<Unit>, Self), Error> {
        if context < 2 || stride == 0 || stride > context {
            return Err(Error::new(format!(
                "a context of {context} tokens cannot move on by {stride}: the stride is from 1 to the context, the context at least 2"
            )));
        }
        let (mut units, mut windows) = (Vec::new(), Vec::new());
        for (text, content) in contents(dataset, encoder)? {
            let n = content.ids.len();
            let (mut from, mut scored) = (0, 0);
            while scored < n && n > 1 {
                let to = (from + context).min(n);
                // The first token of a window has nothing before it to be predicted from.
                let first = scored.max(from + 1);
                if first >= to {
                    break;
                }
                let range = (content.ends[first - 1], content.ends[to - 1]);
                units.push(Unit {
                    sequence: Sequence { ids: content.ids[from..to].to_vec(), types: Vec::new() },
                    rows: Some((first - 1 - from..to - 1 - from).collect()),
                });
                windows.push(Window {
                    targets: content.ids[first..to].to_vec(),
                    bytes: range.1.saturating_sub(range.0),
                    words: words(text, range.0, range.1),
                });
                scored = to;
                from += stride;
            }
        }
        Ok((units, LossScorer::new(windows)))
    }

    /// Windows for a model that fills masks: 15% of the tokens of each are masked, drawn with `seed`.
    pub(crate) fn masked(
        dataset: &Dataset,
        encoder: &dyn Encode,
        context: usize,
        seed: u64,
    ) -> Result<(Vec<Unit>, Self), Error> {
        let mask = encoder.mask_id().ok_or_else(|| Error::new("the tokenizer has no mask token"))?;
        let edges = encoder.encode("", None, None)?.sequence.ids;
        let split = usize::from(edges.len() > 1);
        let room = context.saturating_sub(edges.len());
        if room == 0 {
            return Err(Error::new(format!("a context of {context} tokens leaves no room for text")));
        }
        let (mut units, mut windows) = (Vec::new(), Vec::new());
        let mut random = Random::new(seed);
        for (_, content) in contents(dataset, encoder)? {
            for chunk in content.ids.chunks(room) {
                let masked = random.choose(chunk.len(), (chunk.len() * 3 / 20).max(1));
                let mut ids = edges[..split].to_vec();
                ids.extend(chunk);
                ids.extend(&edges[split..]);
                let rows: Vec<usize> = masked.iter().map(|i| i + split).collect();
                rows.iter().for_each(|&i| ids[i] = mask);
                let types = Vec::new();
                units.push(Unit { sequence: Sequence { ids, types }, rows: Some(rows) });
                windows.push(Window { targets: masked.iter().map(|&i| chunk[i]).collect(), bytes: 0, words: 0 });
            }
        }
        Ok((units, LossScorer::new(windows)))
    }
}

/// A text's tokens without special ones, and where each ends.
struct Content {
    ids: Vec<u32>,
    ends: Vec<usize>,
}

/// Every text with all of its tokens: windows that share nothing, put together again.
fn contents<'a>(dataset: &'a Dataset, encoder: &dyn Encode) -> Result<Vec<(&'a str, Content)>, Error> {
    let texts: Vec<_> = dataset.examples.iter().map(|e| (e.text.as_str(), None)).collect();
    let at = |i: usize| dataset.at(&dataset.examples[i]);
    encode_all(&texts, &at, &|text, _| {
        let mut content = Content { ids: Vec::new(), ends: Vec::new() };
        for window in encoder.encode_windows("", text, None, 0)? {
            for i in (0..window.texts.len()).filter(|&i| window.texts[i] == Some(1)) {
                content.ids.push(window.sequence.ids[i]);
                content.ends.push(window.offsets[i].1);
            }
        }
        Ok((text, content))
    })
}

/// Words of the text that begin in a range of bytes.
fn words(text: &str, from: usize, to: usize) -> usize {
    let bytes = text.as_bytes();
    let space = |i: usize| bytes[i].is_ascii_whitespace();
    (from..to.min(bytes.len())).filter(|&i| !space(i) && (i == 0 || space(i - 1))).count()
}

impl Scorer for LossScorer {
    fn example(&self, _: usize) -> Option<usize> {
        None
    }

    fn take(&mut self, unit: usize, output: &[f32], width: usize) -> Result<(), Error> {
        let window = &self.windows[unit];
        let (mut nats, mut right) = (0.0, 0);
        for (row, &target) in output.chunks_exact(width).zip(&window.targets) {
            let target = target as usize;
            if target >= width {
                return Err(Error::new(format!(
                    "token {target} is beyond the model's vocabulary of {width}: the tokenizer does not belong to the model"
                )));
            }
            nats -= log_probability(row, target);
            right += usize::from(top(row) == target);
        }
        self.outcomes[unit] =
            Some(Outcome::Loss { nats, tokens: window.targets.len(), right, bytes: window.bytes, words: window.words });
        Ok(())
    }

    fn finish(self: Box<Self>) -> Vec<(usize, Outcome)> {
        numbered(self.outcomes)
    }
}

/// Natural logarithm of the softmax of `row` at `i`.
pub(crate) fn log_probability(row: &[f32], i: usize) -> f64 {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| f64::from((x - largest).exp())).sum();
    f64::from(row[i] - largest) - sum.ln()
}
