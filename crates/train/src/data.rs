//! From a dataset to sequences with what is right for them, as numbers.

use crate::random::Random;
use sparing_model::{Architecture, Encoded, Error, HeadKind, Sequence};
use sparing_tasks::{Dataset, Encode, Gold, Label};

/// One training example.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    /// What goes in.
    pub sequence: Sequence,
    /// What should come out.
    pub target: Target,
}

/// What should come out.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// This label.
    Class(usize),
    /// These labels and no others.
    Labels(Vec<usize>),
    /// This number.
    Score(f32),
    /// At these token rows these classes (labels of words, words of a vocabulary); other rows do not count.
    Rows(Vec<(usize, u32)>),
    /// An answer from this token row to that one; both 0 where there is none in this window.
    Span(usize, usize),
}

/// Windows of a text that answers are looked for in, as the reference cuts them for training.
const WINDOW: usize = 384;
const OVERLAP: usize = 128;

/// Refuses a head that learns nothing from labels. Whoever works for long before training asks first.
pub fn check_head(kind: HeadKind) -> Result<(), Error> {
    match kind {
        HeadKind::Hidden | HeadKind::Embed { .. } | HeadKind::MaskedLm | HeadKind::CausalLm => {
            Err(Error::new("this head cannot be fine-tuned on labels; use `sparing train pretrain` for texts"))
        }
        _ => Ok(()),
    }
}

/// Tokenises a dataset and finds what is right for each example in the order of the architecture's labels.
pub fn examples(
    dataset: &Dataset,
    encoder: &dyn Encode,
    architecture: &Architecture,
    max_tokens: Option<usize>,
    notes: &mut Vec<String>,
) -> Result<Vec<Example>, Error> {
    let head = &architecture.head;
    let limit = match (max_tokens, architecture.max_tokens) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    check_head(head.kind)?;
    let gold = dataset.gold(head.kind, &head.labels, notes)?;
    let work: Vec<usize> = (0..dataset.examples.len()).collect();
    let one = |i: usize| -> Result<Vec<Example>, Error> {
        let example = &dataset.examples[i];
        let encode = || encoder.encode(&example.text, example.pair.as_deref(), limit);
        let found = match &gold[i] {
            Gold::Class(class) => encode().map(|e| vec![whole(e, Target::Class(*class))]),
            Gold::Labels(labels) => encode().map(|e| vec![whole(e, Target::Labels(labels.clone()))]),
            Gold::Score(score) => encode().map(|e| vec![whole(e, Target::Score(*score as f32))]),
            Gold::Tags(tags, words) => encoder.encode(&example.text, None, limit).map(|e| vec![tagged(e, tags, words)]),
            Gold::Answers(_) => answers(dataset, i, encoder, limit),
            Gold::Text => Ok(Vec::new()),
        };
        found.map_err(|e| Error::new(format!("{}: {e}", dataset.at(example))))
    };
    let lists = parallel(&work, &one)?;
    let mut all: Vec<Example> = lists.into_iter().flatten().collect();
    let before = all.len();
    all.retain(|e| !matches!(&e.target, Target::Rows(rows) if rows.is_empty()));
    if all.len() < before {
        notes.push(format!("{} examples have nothing to learn from and are left out", before - all.len()));
    }
    if all.is_empty() {
        return Err(Error::new(format!("{}: nothing in it to learn from", dataset.source)));
    }
    Ok(all)
}

/// Sets a share of the examples aside to judge by, drawn with the seed; both parts keep the file's order.
pub fn holdout(mut dataset: Dataset, share: f64, seed: u64) -> Result<(Dataset, Dataset), Error> {
    let count = dataset.examples.len();
    let aside = ((count as f64 * share).round() as usize).max(1);
    if aside >= count {
        return Err(Error::new(format!("{}: too few examples to set some aside", dataset.source)));
    }
    let mut order: Vec<usize> = (0..count).collect();
    Random::at(seed, &[3]).shuffle(&mut order);
    let mut chosen = vec![false; count];
    order[..aside].iter().for_each(|&i| chosen[i] = true);
    let mut dev = dataset.clone();
    dev.notes.clear();
    let keep = |list: &mut Vec<sparing_tasks::Example>, wanted: bool| {
        let mut flags = chosen.iter();
        list.retain(|_| flags.next() == Some(&wanted));
    };
    keep(&mut dev.examples, true);
    keep(&mut dataset.examples, false);
    dataset.notes.push(format!("{aside} of {count} examples are held out to judge by"));
    Ok((dataset, dev))
}

fn whole(encoded: Encoded, target: Target) -> Example {
    Example { sequence: encoded.sequence, target }
}

/// A label at the first token of every word, as evaluation reads them.
fn tagged(encoded: Encoded, tags: &[usize], words: &[(usize, usize)]) -> Example {
    let mut rows = Vec::new();
    let mut token = 0;
    for (tag, &(start, end)) in tags.iter().zip(words) {
        while token < encoded.offsets.len() && !(encoded.texts[token].is_some() && encoded.offsets[token].1 > start) {
            token += 1;
        }
        if encoded.offsets.get(token).is_some_and(|o| o.0 < end) {
            rows.push((token, *tag as u32));
        }
    }
    Example { sequence: encoded.sequence, target: Target::Rows(rows) }
}

/// The windows of a question's text; the first accepted answer is the one to learn.
fn answers(dataset: &Dataset, i: usize, encoder: &dyn Encode, limit: Option<usize>) -> Result<Vec<Example>, Error> {
    let example = &dataset.examples[i];
    let Label::Answers(accepted) = &example.label else { return Ok(Vec::new()) };
    let span = accepted.iter().find_map(|a| a.start.map(|start| (start, start + a.text.len())));
    let window = limit.unwrap_or(WINDOW).min(WINDOW);
    let context = example.pair.as_deref().unwrap_or_default();
    let windows = encoder.encode_windows(&example.text, context, Some(window), OVERLAP.min(window / 4))?;
    Ok(windows.into_iter().map(|e| spanned(e, span)).collect())
}

fn spanned(encoded: Encoded, span: Option<(usize, usize)>) -> Example {
    let context = |&t: &usize| encoded.texts[t] == Some(1);
    let tokens = 0..encoded.offsets.len();
    let rows = span.and_then(|(start, end)| {
        let first = tokens.clone().filter(context).find(|&t| {
            let o = encoded.offsets[t];
            o.0 <= start && start < o.1
        })?;
        let last = tokens.clone().filter(context).find(|&t| {
            let o = encoded.offsets[t];
            o.0 < end && end <= o.1
        })?;
        (first <= last).then_some((first, last))
    });
    let (first, last) = rows.unwrap_or((0, 0));
    Example { sequence: encoded.sequence, target: Target::Span(first, last) }
}

/// Does the work on all cores, in order.
pub(crate) fn parallel<I: Sync + Copy, T: Send>(
    items: &[I],
    work: &(dyn Fn(I) -> Result<T, Error> + Sync),
) -> Result<Vec<T>, Error> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let chunk = items.len().div_ceil(threads).max(64);
    std::thread::scope(|scope| {
        let jobs: Vec<_> = items
            .chunks(chunk)
            .map(|part| scope.spawn(move || part.iter().map(|i| work(*i)).collect::<Result<Vec<T>, Error>>()))
            .collect();
        let mut all = Vec::with_capacity(items.len());
        for job in jobs {
            all.extend(job.join().map_err(|_| Error::new("the tokenizer panicked"))??);
        }
        Ok(all)
    })
}
