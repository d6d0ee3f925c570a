//! Extractive question answering: the passage of a text that answers a question.

use super::Session;
use super::tags::Characters;
use crate::console::{Out, shorten};
use crate::failure::Failure;
use crate::inputs::{Input, Inputs};
use crate::interrupt;
use serde::Serialize;
use sparing_model::{Batch, Encoded, Wanted};
use sparing_tasks::{AnswerOptions, Found, best_span, choose};

#[derive(Serialize)]
struct Answer<'a> {
    question: &'a str,
    /// The passage; none where the model finds none.
    answer: Option<&'a str>,
    /// Sum of the start and end logit.
    score: Option<f32>,
    start: Option<usize>,
    end: Option<usize>,
    /// Parts the text was read in.
    windows: usize,
}

/// Answers all questions.
pub(super) fn run(session: &Session<'_>, inputs: &mut Inputs, out: &mut Out) -> Result<(), Failure> {
    let options = AnswerOptions { may_be_unanswerable: session.args.unanswerable, ..AnswerOptions::default() };
    loop {
        let prepare = |input: Input| {
            let windows = windows(session, &input, &options)?;
            let tokens = windows.iter().map(|w| w.sequence.ids.len()).sum();
            Ok(((input, windows), tokens))
        };
        let batch = inputs.batch(session.args.batch_tokens, prepare)?;
        if batch.is_empty() {
            return Ok(());
        }
        for (input, windows) in &batch {
            let found = find(session, input, windows, &options)?;
            show(session, input, windows.len(), found, out)?;
        }
        out.flush()?;
    }
}

/// The question with every part of the text, as evaluation reads it.
fn windows(session: &Session<'_>, input: &Input, options: &AnswerOptions) -> Result<Vec<Encoded>, Failure> {
    let Some(context) = &input.pair else {
        return Err(Failure::new(format!("{}: no text to answer from; name its column with --context", input.place)));
    };
    let longest = session.tokenizer.max_tokens().unwrap_or(usize::MAX);
    let window = session.args.max_tokens.unwrap_or(options.window).min(longest);
    let overlap = options.stride.min(window / 4);
    let windows = session.tokenizer.encode_windows(&input.text, context, Some(window), overlap);
    windows.map_err(|e| Failure::from(e).at(&input.place))
}

/// The best passage over all windows, run in batches of the budget.
fn find(
    session: &Session<'_>,
    input: &Input,
    windows: &[Encoded],
    options: &AnswerOptions,
) -> Result<Option<Found>, Failure> {
    let longest = windows.iter().map(|w| w.sequence.ids.len()).max().unwrap_or(1).max(1);
    let together = (session.args.batch_tokens / longest).max(1);
    let mut found = Vec::with_capacity(windows.len());
    for part in windows.chunks(together) {
        interrupt::check()?;
        let sequences = part.iter().map(|w| w.sequence.clone()).collect();
        let outputs = session.executor.run(&Batch { sequences, wanted: Wanted::Head })?;
        outputs.sequences.iter().try_for_each(|logits| session.check_numbers(input, logits))?;
        found.extend(part.iter().zip(&outputs.sequences).map(|(window, logits)| best_span(window, logits, options)));
    }
    Ok(choose(&found, options))
}

fn show(
    session: &Session<'_>,
    input: &Input,
    windows: usize,
    found: Option<Found>,
    out: &mut Out,
) -> Result<(), Failure> {
    let context = input.pair.as_deref().unwrap_or_default();
    let answer = found.and_then(|f| context.get(f.start..f.end));
    if session.args.json {
        let mut characters = Characters::new(context);
        let start = found.map(|f| characters.at(f.start));
        let end = found.map(|f| characters.at(f.end));
        return out.json(&Answer { question: &input.text, answer, score: found.map(|f| f.score), start, end, windows });
    }
    let answer = answer.map(|a| a.split_whitespace().collect::<Vec<_>>().join(" "));
    let shown = match (answer, found) {
        (Some(answer), Some(found)) => {
            format!("{}  {}", out.paint.good(&answer), out.paint.faint(&format!("score {:.2}", found.score)))
        }
        _ => "(no answer in the text)".to_string(),
    };
    if session.single {
        out.line(&shown)
    } else {
        out.line(&format!("{shown}  {}", out.paint.faint(&shorten(&input.text, 60))))
    }
}
