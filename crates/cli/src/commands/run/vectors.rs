//! Heads that answer with vectors: one per text, or the hidden states themselves.

use super::Session;
use crate::console::Out;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::table::{Align, Table};
use serde::Serialize;
use sparing_model::HeadKind;

/// Numbers shown of a vector.
const SHOWN: usize = 6;
/// Similarities are shown for up to this many texts.
const COMPARED: usize = 12;

#[derive(Serialize)]
#[serde(untagged)]
enum Answer<'a> {
    One { embedding: &'a [f32] },
    Rows { hidden: Vec<&'a [f32]> },
}

/// Runs the head on all inputs.
pub(super) fn run(session: &Session<'_>, inputs: &mut Inputs, out: &mut Out) -> Result<(), Failure> {
    let hidden = session.model.architecture.head.kind == HeadKind::Hidden;
    let compare = !session.args.json && !hidden && (2..=COMPARED).contains(&session.args.texts.len());
    let mut kept: Vec<Vec<f32>> = Vec::new();
    session.each(inputs, out, None, &mut |item, values, width, out| {
        let rows: Vec<&[f32]> = values.chunks(width.max(1)).collect();
        if session.args.json {
            let answer = if hidden { Answer::Rows { hidden: rows } } else { Answer::One { embedding: values } };
            return out.json(&item.line(answer));
        }
        if compare {
            kept.push(values.to_vec());
        }
        if !session.single {
            out.line(&out.paint.faint(&item.excerpt(0)))?;
        }
        if hidden {
            out.line(&format!("{} tokens x {width} numbers; --json prints them all", rows.len()))?;
            let tokens = item.encoded.tokens.iter().zip(&rows);
            return tokens
                .take(SHOWN)
                .try_for_each(|(token, row)| out.line(&format!("{token:12}  {}", beginning(row))));
        }
        out.line(&format!("{width} numbers, length {:.4}: {}", dot(values, values).sqrt(), beginning(values)))
    })?;
    if compare && kept.len() > 1 {
        out.line("")?;
        out.line(&out.paint.strong("cosine similarity"))?;
        out.text(&similarities(&kept).text(out.paint))?;
    }
    Ok(())
}

fn beginning(values: &[f32]) -> String {
    let shown: Vec<String> = values.iter().take(SHOWN).map(|x| format!("{x:.4}")).collect();
    format!("{}{}", shown.join(" "), if values.len() > SHOWN { " …" } else { "" })
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
}

/// Every text against every other.
fn similarities(vectors: &[Vec<f32>]) -> Table {
    let titles: Vec<String> = (1..=vectors.len()).map(|i| format!("text {i}")).collect();
    let mut columns = vec![("", Align::Left)];
    columns.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    for (a, title) in vectors.iter().zip(&titles) {
        let cosine = |b: &Vec<f32>| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
        let cells = vectors.iter().map(|b| format!("{:.3}", cosine(b)));
        table.row([title.clone()].into_iter().chain(cells));
    }
    table
}
