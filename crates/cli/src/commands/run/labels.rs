//! Heads that answer once per text: one label, several labels, numbers.

use super::{Item, Session, largest, softmax};
use crate::console::Out;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::table::percent;
use serde::Serialize;
use sparing_model::HeadKind;

#[derive(Serialize)]
struct Scored<'a> {
    label: &'a str,
    score: f32,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer<'a> {
    One { label: &'a str, score: f32, scores: Vec<Scored<'a>> },
    Several { labels: Vec<&'a str>, scores: Vec<Scored<'a>> },
    Number { value: f32 },
    Numbers { values: Vec<Scored<'a>> },
}

/// Runs the head on all inputs.
pub(super) fn run(session: &Session<'_>, inputs: &mut Inputs, out: &mut Out) -> Result<(), Failure> {
    let head = &session.model.architecture.head;
    session.each(inputs, out, None, &mut |item, logits, _, out| {
        let answer = answer(session, &head.labels, head.kind, logits);
        if session.args.json { out.json(&item.line(answer)) } else { show(session, item, &answer, out) }
    })
}

fn answer<'a>(session: &Session<'_>, labels: &'a [String], kind: HeadKind, logits: &[f32]) -> Answer<'a> {
    let name = |i: usize| labels.get(i).map_or("", String::as_str);
    let scored = |values: &[f32], k: usize| -> Vec<Scored<'a>> {
        largest(values, k).into_iter().map(|i| Scored { label: name(i), score: values[i] }).collect()
    };
    let top = session.args.top;
    match (kind, logits) {
        (HeadKind::MultiLabel, _) => {
            let p: Vec<f32> = logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
            let chosen = largest(&p, p.len()).into_iter().filter(|i| p[*i] >= session.args.threshold);
            Answer::Several { labels: chosen.map(name).collect(), scores: scored(&p, top) }
        }
        (HeadKind::Regress, [value]) => Answer::Number { value: *value },
        (HeadKind::Regress, _) => {
            let values = logits.iter().enumerate().map(|(i, x)| Scored { label: name(i), score: *x });
            Answer::Numbers { values: values.collect() }
        }
        _ => {
            let p = softmax(logits);
            let best = largest(&p, 1).first().copied().unwrap_or(0);
            Answer::One { label: name(best), score: p.get(best).copied().unwrap_or(f32::NAN), scores: scored(&p, top) }
        }
    }
}

/// A table for a single text, one line per text for several.
fn show(session: &Session<'_>, item: &Item, answer: &Answer<'_>, out: &mut Out) -> Result<(), Failure> {
    let widest = session.model.architecture.head.labels.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    let paint = out.paint;
    let share = |score: f32| format!("{:>6}", percent(f64::from(score)));
    match answer {
        Answer::One { scores, .. } if session.single => {
            for (i, Scored { label, score }) in scores.iter().enumerate() {
                let label = format!("{label:widest$}");
                out.line(&format!("{}  {}", if i == 0 { paint.good(&label) } else { label }, share(*score)))?;
            }
            Ok(())
        }
        Answer::One { label, score, .. } => {
            let label = format!("{label:widest$}");
            out.line(&format!("{}  {}  {}", paint.good(&label), share(*score), item.excerpt(widest + 10)))
        }
        Answer::Several { scores, .. } if session.single => {
            for Scored { label, score } in scores {
                let chosen = *score >= session.args.threshold;
                let mark = if chosen { "✓" } else { " " };
                let label = format!("{label:widest$}");
                out.line(&format!("{mark} {}  {}", if chosen { paint.good(&label) } else { label }, share(*score)))?;
            }
            Ok(())
        }
        Answer::Several { labels, .. } => {
            let list = if labels.is_empty() { "–".to_string() } else { labels.join(", ") };
            let used = list.chars().count() + 2;
            out.line(&format!("{}  {}", paint.good(&list), item.excerpt(used)))
        }
        Answer::Number { value } if session.single => out.line(&format!("{value:.4}")),
        Answer::Number { value } => out.line(&format!("{value:>9.4}  {}", item.excerpt(11))),
        Answer::Numbers { values } => {
            if !session.single {
                out.line(&paint.faint(&item.excerpt(0)))?;
            }
            values.iter().try_for_each(|v| out.line(&format!("{:widest$}  {:.4}", v.label, v.score)))
        }
    }
}
