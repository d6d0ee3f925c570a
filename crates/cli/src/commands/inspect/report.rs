//! The result of an inspection, as tables and as JSON.

use super::cost::{ByPart, Cost};
use super::economies::Economies;
use super::left::{self, Left};
use crate::console::Out;
use crate::failure::Failure;
use crate::machine;
use crate::parameters::{self, Group, Part};
use crate::table::{Align, Table, bytes, count, percent, seconds};
use serde::Serialize;
use sparing_engine::Engine;
use sparing_model::{Family, Functions, HeadKind, Model};
use std::collections::BTreeMap;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Its name.
    pub model: String,
    family: &'static str,
    layers: usize,
    hidden: usize,
    /// Of the layer with most.
    heads: usize,
    /// Of the widest feed-forward block.
    inner: usize,
    /// What is left of the layers, if some were pruned.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<Vec<Left>>,
    /// What stands in the place of functions, if anything does.
    #[serde(skip_serializing_if = "Option::is_none")]
    functions: Option<Functions>,
    /// Which of these change nothing, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    idle_functions: Vec<&'static str>,
    vocabulary: usize,
    max_tokens: Option<usize>,
    head: HeadKind,
    labels: Vec<String>,
    /// Parameters by part, shared tensors once.
    #[serde(serialize_with = "by_name")]
    pub parameters: BTreeMap<Part, usize>,
    /// Precision of the weights.
    pub precision: &'static str,
    /// Threads used.
    pub threads: usize,
    /// Instruction set used.
    pub isa: &'static str,
    /// Bytes of the weights in the files.
    file_bytes: usize,
    /// Bytes of the weights as the engine keeps them.
    weight_bytes: usize,
    /// Most memory the process has held.
    peak_memory_bytes: u64,
    /// One per work.
    pub costs: Vec<Cost>,
}

fn by_name<S: serde::Serializer>(parts: &BTreeMap<Part, usize>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(parts.iter().map(|(part, n)| (part.name(), n)))
}

impl Report {
    /// Gathers what there is to say.
    pub fn new(name: String, model: &Model, engine: &Engine, costs: Vec<Cost>) -> Result<Report, Failure> {
        let a = &model.architecture;
        Ok(Report {
            model: name,
            family: family_name(a.family),
            layers: a.layers.len(),
            hidden: a.hidden,
            heads: a.layers.iter().map(|layer| layer.attention.heads).max().unwrap_or(0),
            inner: a.layers.iter().flat_map(|layer| &layer.ffns).map(|ffn| ffn.up.outputs).max().unwrap_or(0),
            left: model.plan.elements.is_some().then(|| Left::of(a)),
            functions: model.plan.functions.clone(),
            idle_functions: model.idle_functions()?,
            vocabulary: a.embeddings.vocabulary,
            max_tokens: a.max_tokens,
            head: a.head.kind,
            labels: a.head.labels.clone(),
            parameters: parameters::count(&parameters::references(a)),
            precision: engine.precision().name(),
            threads: engine.threads(),
            isa: sparing_kernels::isa::active().name(),
            file_bytes: model.weights.size_in_bytes(),
            weight_bytes: engine.weight_bytes(),
            peak_memory_bytes: machine::memory().1 * 1024,
            costs,
        })
    }

    /// Prints it for people.
    pub fn print(&self, layers: bool, out: &mut Out) -> Result<(), Failure> {
        self.summary(out)?;
        for cost in &self.costs {
            out.line("")?;
            let place =
                format!("{}, {}, {}, {}", cost.name, self.precision, crate::table::threads(self.threads), self.isa);
            out.line(&out.paint.strong(&place))?;
            out.text(&self.parts(cost).text(out.paint))?;
            if layers {
                out.line("")?;
                out.text(&by_layer(cost).text(out.paint))?;
            }
            out.line("")?;
            print_economies(&cost.economies, out)?;
            if let Some(chosen) = &cost.chosen {
                out.line("")?;
                chosen.print(out)?;
            }
        }
        Ok(())
    }

    fn summary(&self, out: &mut Out) -> Result<(), Failure> {
        let Report { family, layers, hidden, heads, inner, vocabulary, .. } = self;
        let most = if self.left.is_some() { "at most " } else { "" };
        out.line(&out.paint.strong(&self.model))?;
        out.line(&format!(
            "{family}: {layers} layers x {hidden}, {most}{heads} heads, feed-forward {most}{inner}, vocabulary {vocabulary}"
        ))?;
        let longest = self.max_tokens.map_or("texts of any length".to_string(), |n| format!("at most {n} tokens"));
        out.line(&format!("head: {}; {longest}", self.head_words()))?;
        let total: usize = self.parameters.values().sum();
        out.line(&format!(
            "{} parameters; weights {} stored, {} packed as {}; peak memory {}",
            count(total as f64),
            bytes(self.file_bytes as f64),
            bytes(self.weight_bytes as f64),
            self.precision,
            bytes(self.peak_memory_bytes as f64),
        ))?;
        if let Some(functions) = &self.functions {
            out.line(&format!("replaced: {functions}"))?;
        }
        self.idle_functions.iter().try_for_each(|why| out.line(&format!("  {why}")))?;
        let Some(left) = &self.left else { return Ok(()) };
        out.line("")?;
        out.line(&out.paint.strong("pruned; what is left"))?;
        out.text(&left::table(left).text(out.paint))
    }

    fn head_words(&self) -> String {
        let labels = |what: &str| match self.labels.len() {
            0 => what.to_string(),
            n if n <= 6 => format!("{what} ({})", self.labels.join(", ")),
            n => format!("{what} ({}, … {n} labels)", self.labels[..3].join(", ")),
        };
        match self.head {
            HeadKind::Hidden => "none, hidden states".to_string(),
            HeadKind::Classify => labels("one label"),
            HeadKind::MultiLabel => labels("any number of labels"),
            HeadKind::Regress => "a number".to_string(),
            HeadKind::TokenClassify => labels("one label per token"),
            HeadKind::Answer => "answers to questions".to_string(),
            HeadKind::MaskedLm => "masked words".to_string(),
            HeadKind::CausalLm => "the next token".to_string(),
            HeadKind::Embed { normalise } => format!("an embedding{}", if normalise { " of unit length" } else { "" }),
        }
    }

    /// Parameters, FLOPs and time by part.
    fn parts(&self, cost: &Cost) -> Table {
        let right = Align::Right;
        let mut table = Table::new(&[
            ("part", Align::Left),
            ("parameters", right),
            ("", right),
            ("FLOPs", right),
            ("", right),
            ("time", right),
            ("", right),
            ("GFLOP/s", right),
        ]);
        let parameters: ByPart = self.parameters.iter().map(|(part, n)| (*part, *n as f64)).collect();
        let columns = [&parameters, &cost.flops, &cost.seconds];
        let totals = columns.map(|column| column.values().sum::<f64>());
        let cells = |name: &str, [p, f, s]: [f64; 3]| {
            let share = |n: f64, total: f64| if n > 0.0 { percent(n / total) } else { String::new() };
            let amount = |n: f64, text: fn(f64) -> String| if n > 0.0 { text(n) } else { "–".to_string() };
            let speed = if f > 0.0 && s > 0.0 { format!("{:.1}", f / s / 1e9) } else { String::new() };
            [
                name.to_string(),
                amount(p, count),
                share(p, totals[0]),
                amount(f, count),
                share(f, totals[1]),
                amount(s, seconds),
                share(s, totals[2]),
                speed,
            ]
        };
        for part in Part::ALL {
            let amounts = columns.map(|column| column.get(&part).copied().unwrap_or(0.0));
            if amounts.iter().any(|n| *n > 0.0) {
                table.row(cells(part.name(), amounts));
            }
        }
        table.foot();
        table.row(cells("total", totals));
        table
    }
}

/// As its authors spell it.
fn family_name(family: Family) -> &'static str {
    match family {
        Family::Bert => "BERT",
        Family::DistilBert => "DistilBERT",
        Family::Roberta => "RoBERTa",
        Family::Albert => "ALBERT",
        Family::MpNet => "MPNet",
        Family::Electra => "ELECTRA",
        Family::MobileBert => "MobileBERT",
        Family::Longformer => "Longformer",
        Family::XlNet => "XLNet",
        Family::Gpt2 => "GPT-2",
    }
}

/// Time of each layer by group of parts.
fn by_layer(cost: &Cost) -> Table {
    let groups: Vec<Group> = Group::ALL
        .into_iter()
        .filter(|g| cost.layers.iter().any(|l| l.seconds.keys().any(|p| p.group() == *g)))
        .collect();
    let mut columns = vec![("layer", Align::Right), ("FLOPs", Align::Right), ("time", Align::Right)];
    columns.extend(groups.iter().map(|group| (group.name(), Align::Right)));
    let mut table = Table::new(&columns);
    for layer in &cost.layers {
        let of = |group: &Group| layer.seconds.iter().filter(|(p, _)| p.group() == *group).map(|(_, s)| s).sum::<f64>();
        let total = seconds(layer.seconds.values().sum());
        table.row(
            [layer.layer.to_string(), count(layer.flops), total]
                .into_iter()
                .chain(groups.iter().map(|g| seconds(of(g)))),
        );
    }
    table
}

/// One economy after the other, in operations; and what the clock says.
fn print_economies(e: &Economies, out: &mut Out) -> Result<(), Failure> {
    let mut table = Table::new(&[("exact economies", Align::Left), ("FLOPs", Align::Right), ("saved", Align::Right)]);
    let mut before = e.padded_flops;
    table.row(["every row, padded to the longest of the batch".to_string(), count(e.padded_flops)]);
    let steps = [
        ("no padding", e.unpadded_flops),
        ("last layer: only the rows the head reads", e.head_rows_flops),
        ("identical inputs once", e.once_flops),
    ];
    for (name, flops) in steps {
        table.row([name.to_string(), count(flops), percent((before - flops) / before)]);
        before = flops;
    }
    table.foot();
    let all = (e.padded_flops - e.once_flops) / e.padded_flops;
    table.row(["together, the same answers".to_string(), count(e.once_flops), percent(all)]);
    out.text(&table.text(out.paint))?;
    // Where nothing is saved by count, what the clock saves is noise.
    if e.head_rows_flops < e.unpadded_flops && e.seconds < e.all_rows_seconds * 0.995 {
        let saved = percent(1.0 - e.seconds / e.all_rows_seconds);
        let (with, without) = (seconds(e.seconds), seconds(e.all_rows_seconds));
        out.line(&format!("measured: {with} instead of {without} with every row of the last layer, {saved} less"))?;
    }
    Ok(())
}
