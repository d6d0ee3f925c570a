//! What became of every part of the network: a row per layer, a square per head and weight group.

use super::table::{Cell, Table};
use super::{columns, details, figure, titled};
use crate::format::{NONE, count};
use crate::{ElementMap, LayerMap, Numbers, Report, State};
use sparing_markup::{Element, drawing, label, line, rect};

const WIDTH: f64 = 460.0;
const TOP: f64 = 22.0;
const ROW: f64 = 18.0;
const CELL: f64 = 14.0;
/// Left and right edge of the attention blocks, then of the feed-forward blocks.
const ATTENTION: (f64, f64) = (52.0, 196.0);
const FFN: (f64, f64) = (208.0, 352.0);
/// Right edges of what a layer runs in, and of its bits.
const RUNS: f64 = 421.0;
const BITS: f64 = WIDTH;

/// The picture, a summary and the same as a table.
pub(super) fn section(report: &Report) -> Option<Element> {
    let map = &report.elements;
    if map.layers.is_empty() {
        return None;
    }
    let squares = if has_bars(&map.layers) { "a head" } else { "a head or a group of feed-forward weights" };
    let lead = format!(
        "A row per layer, from the input at the top, counted from 0 as in sparing.json. A small square is {squares}; reduced is \
         what has lost a part of itself or chooses what to compute. At the right stands what a layer is multiplied in, and the \
         bits that its weights are stored in where they are integers: attention/feed-forward, where the two differ.",
    );
    let side = Element::new("div")
        .with(legend(&map.layers))
        .with(summary(&map.layers))
        .with(details("The same as a table", table(map)));
    Some(titled("What became of the network", &lead).with(columns([figure("Elements by layer", picture(map)), side])))
}

fn picture(map: &ElementMap) -> Element {
    let rows = map.layers.len() + usize::from(map.embeddings.is_some()) + usize::from(map.head.is_some());
    let end = |x: f64, y: f64, text: &str| label(x, y, text).set("text-anchor", "end");
    let height = TOP + rows as f64 * ROW + 4.0;
    let mut svg = drawing(WIDTH, height, "Elements by layer", "Kept, reduced and removed; the table has the numbers.")
        .set("class", "map")
        .with(hatch())
        .with(label(ATTENTION.0, 12.0, "attention").set("class", "unit"))
        .with(label(FFN.0, 12.0, "feed-forward").set("class", "unit"))
        .with(end(RUNS, 12.0, "runs in").set("class", "unit"))
        .with(end(BITS, 12.0, "bits").set("class", "unit"));
    let mut y = TOP;
    if let Some(numbers) = &map.embeddings {
        svg = whole(svg, y, ("words", "embeddings"), numbers);
        y += ROW;
    }
    for (i, layer) in map.layers.iter().enumerate() {
        let number = i.to_string();
        svg = svg.with(end(ATTENTION.0 - 8.0, y + 11.5, &number));
        if let Some(tokens) = &layer.tokens {
            let tip = format!("layer {number}, tokens: {tokens}");
            svg = svg.with(label(2.0, y + 11.5, "▼").set("class", "tokens").tip(&tip));
        }
        if let Some(precision) = &layer.precision {
            svg = svg.with(end(RUNS, y + 11.5, precision).tip(&format!("layer {number} runs in {precision}")));
        }
        if let Some((short, long)) = bits(layer) {
            svg = svg.with(end(BITS, y + 11.5, &short).tip(&format!("layer {number}, bits: {long}")));
        }
        let heads =
            layer.heads.iter().enumerate().map(|(head, state)| (format!("layer {number}, head {head}"), *state));
        let name = format!("layer {number}, attention");
        svg = block(svg, ATTENTION, y, &name, (layer.attention, &attention(layer)), heads.collect());
        let groups = layer.groups.iter().enumerate();
        let groups = groups.map(|(group, state)| (format!("layer {number}, group {group}"), *state));
        let name = format!("layer {number}, feed-forward");
        svg = match layer.width {
            Some(width) if is_bar(layer) => {
                let middle = FFN.0 + (FFN.1 - FFN.0) * width.left as f64 / width.of as f64;
                let tip = format!("{name}: {} of {} wide", count(width.left), count(width.of));
                let gone = (width.left < width.of).then(|| cell((middle + 2.0, FFN.1), y, State::Removed, &tip));
                svg.extend(mark(FFN.0, y, layer.ffn, &tip))
                    .with(cell((FFN.0, middle), y, State::Kept, &tip))
                    .extend(gone)
            }
            _ => block(svg, FFN, y, &name, (layer.ffn, word(layer.ffn)), groups.collect()),
        };
        y += ROW;
    }
    match &map.head {
        Some(numbers) => whole(svg, y, ("head", "head"), numbers),
        None => svg,
    }
}

/// What stands before or behind the layers, by a short and a whole name: nothing of it is ever removed.
fn whole(svg: Element, y: f64, (short, name): (&str, &str), numbers: &Numbers) -> Element {
    let told = |at: f64, text: String| label(at, y + 11.5, &text).set("text-anchor", "end");
    svg.with(told(ATTENTION.0 - 8.0, short.into()))
        .with(cell((ATTENTION.0, FFN.1), y, State::Kept, &format!("{name}: kept")))
        .extend(numbers.precision.as_ref().map(|precision| told(RUNS, precision.clone())))
        .extend(numbers.bits.map(|bits| told(BITS, bits.to_string())))
}

/// Whether a feed-forward block is a bar of what is left of it: its neurons went one by one.
fn is_bar(layer: &LayerMap) -> bool {
    let real = layer.width.is_some_and(|width| width.of > 0 && width.left <= width.of);
    layer.groups.is_empty() && layer.ffn != State::Removed && real
}

fn has_bars(layers: &[LayerMap]) -> bool {
    layers.iter().any(|layer| is_bar(layer) && layer.ffn == State::Approximated)
}

/// A reduced block shows as a line before its parts.
fn mark(from: f64, y: f64, state: State, tip: &str) -> Option<Element> {
    let edge = || line((from - 3.0, y), (from - 3.0, y + CELL)).set("class", "edge").tip(tip);
    (state == State::Approximated).then(edge)
}

/// A block: its parts if it has any left, else one bar.
fn block(
    svg: Element,
    (from, to): (f64, f64),
    y: f64,
    name: &str,
    (state, said): (State, &str),
    parts: Vec<(String, State)>,
) -> Element {
    if state == State::Removed || parts.is_empty() {
        return svg.with(cell((from, to), y, state, &format!("{name}: {said}")));
    }
    let mark = mark(from, y, state, &format!("{name}: {said}"));
    let step = (to - from) / parts.len() as f64;
    svg.extend(mark).extend(parts.into_iter().enumerate().map(|(i, (name, part))| {
        let x = from + i as f64 * step;
        let gap = (step * 0.15).min(2.0);
        cell((x, x + step - gap), y, part, &format!("{name}: {}", word(part)))
    }))
}

fn cell((from, to): (f64, f64), y: f64, state: State, tip: &str) -> Element {
    rect(from, y, to - from, CELL).set("rx", 1.5).set("class", class(state)).tip(tip)
}

/// Stripes, so that reduced parts differ from kept ones without colour too.
fn hatch() -> Element {
    let stripe = line((0.0, 0.0), (0.0, 5.0)).set("class", "stripe");
    let pattern = Element::new("pattern")
        .set("id", "hatch")
        .set("width", "5")
        .set("height", "5")
        .set("patternUnits", "userSpaceOnUse")
        .set("patternTransform", "rotate(45)")
        .with(rect(0.0, 0.0, 5.0, 5.0).set("class", "ground"))
        .with(stripe);
    Element::new("defs").with(pattern)
}

fn legend(layers: &[LayerMap]) -> Element {
    let key = |state: State| {
        let square = rect(2.0, 2.0, CELL, CELL).set("rx", 1.5).set("class", class(state));
        let svg = Element::new("svg").set("viewBox", "0 0 18 18").set("aria-hidden", "true").with(square);
        Element::new("li").with(svg).text(word(state))
    };
    let tokens =
        Element::new("li").with(Element::new("span").set("class", "tokens").text("▼")).text("fewer tokens from here");
    let states = [State::Kept, State::Approximated, State::Removed].map(key);
    let bars = "a feed-forward bar says how many neurons are left, not which: they were chosen one by one";
    Element::new("ul")
        .set("class", "legend")
        .extend(states)
        .extend(layers.iter().any(|layer| layer.tokens.is_some()).then_some(tokens))
        .extend(has_bars(layers).then(|| Element::new("li").text(bars)))
}

/// How many of each kind are left.
fn summary(layers: &[LayerMap]) -> Element {
    let attention: Vec<State> = layers.iter().map(|layer| layer.attention).collect();
    let ffn: Vec<State> = layers.iter().map(|layer| layer.ffn).collect();
    let heads: Vec<State> = layers.iter().flat_map(|layer| within(layer.attention, &layer.heads)).collect();
    let groups: Vec<State> = layers.iter().flat_map(|layer| within(layer.ffn, &layer.groups)).collect();
    let kinds =
        [("attention blocks", attention), ("heads", heads), ("feed-forward blocks", ffn), ("weight groups", groups)];
    let table = Table::new("Elements by kind", &["", "kept", "reduced", "removed"]);
    let table = kinds.into_iter().filter(|(_, states)| !states.is_empty()).fold(table, |table, (name, states)| {
        let number = |state: State| count(states.iter().filter(|s| **s == state).count()).into();
        table.row("", [name.into(), number(State::Kept), number(State::Approximated), number(State::Removed)])
    });
    if !has_bars(layers) {
        return table.element();
    }
    let widths = || layers.iter().filter_map(|layer| layer.width);
    let left: usize = widths().map(|width| width.left).sum();
    let all: usize = widths().map(|width| width.of).sum();
    let cells: [Cell; 4] = ["neurons".into(), count(left).into(), NONE.into(), count(all.saturating_sub(left)).into()];
    table.row("", cells).element()
}

/// Parts of a removed block are removed.
fn within(block: State, parts: &[State]) -> impl Iterator<Item = State> {
    parts.iter().map(move |part| if block == State::Removed { State::Removed } else { *part })
}

fn table(map: &ElementMap) -> Element {
    let table = Table::new(
        "Elements by layer",
        &["layer", "attention", "heads left", "feed-forward", "width", "tokens", "runs in", "bits"],
    )
    .wide();
    let or_none = |text: Option<&str>| text.unwrap_or(NONE).to_string();
    let whole = |table: Table, name: &str, numbers: &Option<Numbers>| match numbers {
        Some(Numbers { bits, precision }) => {
            let bits = bits.map(|bits| bits.to_string());
            let none = || NONE.into();
            let (runs, bits) = (or_none(precision.as_deref()).into(), or_none(bits.as_deref()).into());
            table.row("", [name.into(), none(), none(), none(), none(), none(), runs, bits])
        }
        None => table,
    };
    let table = map.layers.iter().enumerate().fold(whole(table, "embeddings", &map.embeddings), |table, (i, layer)| {
        let left = within(layer.attention, &layer.heads).filter(|head| *head != State::Removed).count();
        let heads = if layer.heads.is_empty() { NONE.into() } else { format!("{left} of {}", layer.heads.len()) };
        let width =
            layer.width.map_or_else(|| NONE.into(), |width| format!("{} of {}", count(width.left), count(width.of)));
        let cells: [Cell; 8] = [
            i.to_string().into(),
            attention(layer).into(),
            heads.into(),
            word(layer.ffn).into(),
            width.into(),
            or_none(layer.tokens.as_deref()).into(),
            or_none(layer.precision.as_deref()).into(),
            bits(layer).map_or_else(|| NONE.into(), |(_, long)| long).into(),
        ];
        table.row("", cells)
    });
    whole(table, "head", &map.head).element()
}

/// What became of a layer's attention.
fn attention(layer: &LayerMap) -> String {
    let computed = layer.computed.as_ref().filter(|_| layer.attention != State::Removed);
    computed.map_or_else(|| word(layer.attention).into(), |how| format!("{}: {how}", word(layer.attention)))
}

/// A layer's bits, shortly and at length; attention's and the feed-forward block's where they differ.
fn bits(layer: &LayerMap) -> Option<(String, String)> {
    let Some(attention) = layer.attention_bits else {
        return layer.bits.map(|bits| (bits.to_string(), bits.to_string()));
    };
    let told = |bits: Option<u32>| bits.map_or_else(|| NONE.to_string(), |bits| bits.to_string());
    let (attention, ffn) = (told(Some(attention).filter(|bits| *bits > 0)), told(layer.bits));
    Some((format!("{attention}/{ffn}"), format!("attention {attention}, feed-forward {ffn}")))
}

fn word(state: State) -> &'static str {
    match state {
        State::Kept => "kept",
        State::Approximated => "reduced",
        State::Removed => "removed",
    }
}

fn class(state: State) -> &'static str {
    match state {
        State::Kept => "cell kept",
        State::Approximated => "cell approximated",
        State::Removed => "cell removed",
    }
}
