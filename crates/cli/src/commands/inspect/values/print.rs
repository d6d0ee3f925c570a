//! In the terminal: with colour the text itself, shaded, once per layer; without, a table of shares.

use super::{Examined, Layer, small};
use crate::console::{self, Out, Paint};
use crate::failure::Failure;
use crate::table::{Align, Table, percent};
use sparing_model::Sampler;
use unicode_width::UnicodeWidthStr;

/// Columns a token may take.
const LONGEST_TOKEN: usize = 24;

/// Prints everything.
pub(super) fn print(examined: &Examined, out: &mut Out) -> Result<(), Failure> {
    let paint = out.paint;
    let Examined { model, attention, seed, precision, tokens, .. } = examined;
    let tokens = tokens.len();
    out.line(&paint.strong(&format!("{model}, attention {attention}, seed {seed}, {precision}: {tokens} tokens")))?;
    if paint.is_on() {
        let step = |step: u8| paint.shade(f32::from(step) / 5.0, &format!(" {}% ", step * 20));
        let legend: String = (0..=5).map(step).collect();
        out.line(&format!("spent on a token's values, of the exact cost: {legend}"))?;
        for layer in &examined.layers {
            out.line("")?;
            out.line(&heading(layer, paint))?;
            shaded(examined, layer, paint, console::columns()).iter().try_for_each(|line| out.line(line))?;
        }
    } else {
        out.line("spent on every token's values by layer, in percent of the exact cost (mean over heads)")?;
        out.text(&shares(examined).text(paint))?;
    }
    out.line("")?;
    out.text(&errors(examined).text(paint))?;
    out.line("")?;
    out.line(&paint.faint("Every layer above starts from what the exact model gives it; in a run, errors go on:"))?;
    out.line(&examined.described)?;
    if examined.sampler == Sampler::Int8 {
        out.line("int8 saves time and no operations: a token in int8 is counted as a whole one")?;
    }
    let words = examined.answer.words();
    match examined.answer.same {
        Some(true) => out.line(&format!("answer: {words}; {}", paint.good("the same"))),
        Some(false) => out.line(&format!("answer: {words}; {}", paint.bad("another one"))),
        None => out.line(&format!("answer: {words}")),
    }
}

fn heading(layer: &Layer, paint: Paint) -> String {
    let error = match layer.alpha {
        Some(_) => format!("relative error {}", percent(layer.relative_error)),
        None => "exact".to_string(),
    };
    let name = paint.strong(&format!("layer {}", layer.layer));
    format!("{name}  {}", paint.faint(&format!("{} spent, {error}", percent(layer.share))))
}

/// The text with every token on its shade, as many lines as it takes.
fn shaded(examined: &Examined, layer: &Layer, paint: Paint, columns: usize) -> Vec<String> {
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for (token, share) in examined.tokens.iter().zip(&layer.spent) {
        let text = console::shorten(&token.text, LONGEST_TOKEN);
        let space = usize::from(!token.joined && used > 0);
        if used > 0 && used + space + text.width() > columns {
            lines.push(std::mem::take(&mut line));
            used = 0;
        } else if space > 0 {
            line.push(' ');
            used += 1;
        }
        used += text.width();
        line += &paint.shade(*share, &text);
    }
    lines.push(line);
    lines
}

/// A row per token, a column per layer.
fn shares(examined: &Examined) -> Table {
    let names: Vec<String> = examined.layers.iter().map(|layer| layer.layer.to_string()).collect();
    let mut columns = vec![("token", Align::Left)];
    columns.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    columns.push(("all", Align::Right));
    let mut table = Table::new(&columns);
    let whole = |share: f64| format!("{:.0}", 100.0 * share);
    for (i, token) in examined.tokens.iter().enumerate() {
        let mark = if token.joined { "+" } else { "" };
        let mut row = vec![console::shorten(&format!("{mark}{}", token.text), LONGEST_TOKEN)];
        row.extend(examined.layers.iter().map(|layer| whole(f64::from(layer.spent[i]))));
        row.push(whole(examined.share_of(i)));
        table.row(row);
    }
    table.foot();
    let mut row = vec!["all".to_string()];
    row.extend(examined.layers.iter().map(|layer| whole(layer.share)));
    row.push(whole(examined.share));
    table.row(row);
    table
}

/// A row per layer: what was spent, the error made and the bound.
fn errors(examined: &Examined) -> Table {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("layer", right),
        ("alpha", right),
        ("spent", right),
        ("relative error", right),
        ("mean error", right),
        (examined.bound_words(), right),
    ]);
    for layer in &examined.layers {
        let alpha = layer.alpha.map_or("exact".to_string(), |alpha| alpha.to_string());
        let bound = layer.bound.map_or("–".to_string(), small);
        let (relative, error) = (percent(layer.relative_error), small(layer.error));
        table.row([layer.layer.to_string(), alpha, percent(layer.share), relative, error, bound]);
    }
    table.foot();
    table.row(["all".to_string(), String::new(), percent(examined.share)]);
    table
}
