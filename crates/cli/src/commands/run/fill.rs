//! Masked language models: words for the gaps of a text.

use super::{Item, Session, largest, softmax};
use crate::console::Out;
use crate::failure::Failure;
use crate::inputs::{Input, Inputs};
use crate::table::{Align, Table, percent};
use serde::Serialize;

/// What people write for a gap, whatever the model calls it.
const GAPS: [&str; 2] = ["[MASK]", "<mask>"];

#[derive(Serialize)]
struct Candidate {
    token: String,
    score: f32,
    /// The text with this word in the gap (and the best words in the other gaps).
    filled: String,
}

#[derive(Serialize)]
struct Answer {
    masks: Vec<Vec<Candidate>>,
}

/// Runs the head on all inputs.
pub(super) fn run(session: &Session<'_>, inputs: &mut Inputs, out: &mut Out) -> Result<(), Failure> {
    let Some((mask, id)) = session.tokenizer.mask() else {
        return Err(Failure::new("the tokenizer has no mask token, so there is nothing to fill in"));
    };
    let rows = |item: &Item| {
        let found: Vec<usize> =
            (0..item.encoded.sequence.ids.len()).filter(|i| item.encoded.sequence.ids[*i] == id).collect();
        match found.is_empty() {
            false => Ok(found),
            true if item.encoded.truncated => Err(Failure::new(format!(
                "{}: no {mask} in the part of the text that fits the model",
                item.input.place
            ))),
            true => Err(Failure::new(format!(
                "{}: nothing to fill in; write {mask} where a word is missing",
                item.input.place
            ))),
        }
    };
    session.each(inputs, out, Some(&rows), &mut |item, logits, width, out| {
        let answer = Answer { masks: candidates(session, item, logits, width, id)? };
        if session.args.json { out.json(&item.line(answer)) } else { show(session, &answer, out) }
    })
}

/// The text with every gap written as the model's own mask token.
pub(super) fn with_mask(session: &Session<'_>, input: Input) -> Input {
    let Some((mask, _)) = session.tokenizer.mask() else { return input };
    let write =
        |text: String, gap: &str| if gap != mask && text.contains(gap) { text.replace(gap, mask) } else { text };
    Input { text: GAPS.into_iter().fold(input.text, write), ..input }
}

fn candidates(
    session: &Session<'_>,
    item: &Item,
    logits: &[f32],
    width: usize,
    mask: u32,
) -> Result<Vec<Vec<Candidate>>, Failure> {
    let probabilities: Vec<Vec<f32>> = logits.chunks(width.max(1)).map(softmax).collect();
    let best: Vec<Vec<usize>> = probabilities.iter().map(|p| largest(p, session.args.top)).collect();
    let ids = &item.encoded.sequence.ids;
    let gaps: Vec<usize> = (0..ids.len()).filter(|i| ids[*i] == mask).collect();
    let mut filled = ids.clone();
    gaps.iter().zip(&best).for_each(|(gap, best)| filled[*gap] = best.first().map_or(mask, |i| *i as u32));
    let mut masks = Vec::new();
    for ((gap, best), p) in gaps.iter().zip(&best).zip(&probabilities) {
        let mut list = Vec::new();
        for &i in best {
            let kept = std::mem::replace(&mut filled[*gap], i as u32);
            let token = session.tokenizer.decode(&[i as u32], false)?.trim().to_string();
            list.push(Candidate { token, score: p[i], filled: session.tokenizer.decode(&filled, true)? });
            filled[*gap] = kept;
        }
        masks.push(list);
    }
    Ok(masks)
}

fn show(session: &Session<'_>, answer: &Answer, out: &mut Out) -> Result<(), Failure> {
    if !session.single {
        let best = answer.masks.first().and_then(|mask| mask.first());
        let line = best.map_or(String::new(), |c| c.filled.clone());
        return out.line(&line);
    }
    for (i, candidates) in answer.masks.iter().enumerate() {
        if answer.masks.len() > 1 {
            out.line(&out.paint.strong(&format!("gap {}", i + 1)))?;
        }
        let mut table = Table::new(&[("word", Align::Left), ("score", Align::Right), ("text", Align::Left)]);
        for c in candidates {
            table.row([c.token.clone(), percent(f64::from(c.score)), crate::console::shorten(&c.filled, 80)]);
        }
        out.text(&table.text(out.paint))?;
    }
    Ok(())
}
