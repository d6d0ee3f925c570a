//! What quantization did, as a table and as JSON.

use super::{ActivationsArg, QuantizeArgs, RoundingArg, ScalesArg};
use crate::console::Out;
use crate::failure::Failure;
use crate::table::{Align, Table, count};
use serde::Serialize;
use sparing_model::Model;
use sparing_quantize::{Part, bits_of};
use sparing_tasks::{Agreement, Interval, Report};
use std::collections::BTreeMap;

/// Everything that is told.
#[derive(Debug, Serialize)]
pub struct Summary {
    model: String,
    out: String,
    scales: &'static str,
    rounding: &'static str,
    activations: &'static str,
    parts: Vec<PartRow>,
    /// Weight files, headers included.
    bytes_before: usize,
    bytes_after: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scored: Option<Scored>,
    seed: u64,
}

#[derive(Debug, Serialize)]
struct PartRow {
    part: &'static str,
    bits: u32,
    weights: usize,
    /// Scales included.
    bytes: usize,
    /// Sum of squared errors over the sum of squared weights.
    squared_error: f64,
}

/// What it was calibrated with.
#[derive(Debug, Serialize)]
pub struct Calibration {
    data: String,
    examples: usize,
}

impl From<(String, usize)> for Calibration {
    fn from((data, examples): (String, usize)) -> Self {
        Calibration { data, examples }
    }
}

/// The saved model beside the exact one.
#[derive(Debug, Serialize)]
pub struct Scored {
    data: String,
    examples: usize,
    metrics: Vec<Score>,
    agreement: Agreement,
}

#[derive(Debug, Serialize)]
struct Score {
    metric: &'static str,
    exact: f64,
    exact_interval: Option<(f64, f64)>,
    quantized: f64,
    quantized_interval: Option<(f64, f64)>,
    /// Quantised minus exact, example by example.
    difference: Option<f64>,
    difference_interval: Option<(f64, f64)>,
    #[serde(skip)]
    share: bool,
}

/// `43.3 MiB`.
fn bytes(n: usize) -> String {
    crate::table::bytes(n as f64)
}

fn ends(interval: Option<Interval>) -> Option<(f64, f64)> {
    interval.map(|i| (i.low, i.high))
}

impl Scored {
    pub fn new(exact: &Report, quantized: &Report, agreement: Agreement) -> Result<Scored, Failure> {
        let mut metrics = Vec::new();
        for (first, second) in exact.values.iter().zip(&quantized.values) {
            let compared = exact.compare(quantized, first.metric, &exact.bootstrap).ok();
            metrics.push(Score {
                metric: first.metric.name(),
                exact: first.value,
                exact_interval: ends(first.interval),
                quantized: second.value,
                quantized_interval: ends(second.interval),
                difference: compared.as_ref().map(|c| c.difference),
                difference_interval: compared.and_then(|c| ends(c.interval)),
                share: first.metric.is_share(),
            });
        }
        Ok(Scored { data: exact.source.clone(), examples: exact.n, metrics, agreement })
    }
}

impl Summary {
    pub fn new(
        model: String,
        args: &QuantizeArgs,
        saved: &Model,
        parts: &BTreeMap<Part, (usize, usize, f64)>,
        bytes_before: usize,
    ) -> Summary {
        let row = |(part, (weights, bytes, squared_error)): (&Part, &(usize, usize, f64))| PartRow {
            part: part.name(),
            bits: bits_of(&args.bits, *part).unwrap_or_default(),
            weights: *weights,
            bytes: *bytes,
            squared_error: *squared_error,
        };
        Summary {
            model,
            out: args.out.display().to_string(),
            scales: match args.scales {
                ScalesArg::Search => "search",
                ScalesArg::Largest => "largest",
            },
            rounding: match args.rounding {
                RoundingArg::Nearest => "nearest",
                RoundingArg::Compensated => "compensated",
            },
            activations: match args.activations {
                ActivationsArg::Token => "token",
                ActivationsArg::Static => "static",
            },
            parts: parts.iter().map(row).collect(),
            bytes_before,
            bytes_after: saved.weights.file_bytes(),
            calibration: None,
            scored: None,
            seed: args.data.seed,
        }
    }

    /// Prints it for people.
    pub fn print(&self, out: &mut Out) -> Result<(), Failure> {
        let Summary { model, out: target, bytes_before, bytes_after, .. } = self;
        out.line(&out.paint.strong(&format!("{model} quantised to {target}")))?;
        let times = *bytes_before as f64 / *bytes_after as f64;
        out.line(&format!(
            "weights {} instead of {}: {times:.2} times smaller",
            bytes(*bytes_after),
            bytes(*bytes_before)
        ))?;
        match &self.calibration {
            Some(Calibration { data, examples }) => {
                out.line(&format!("calibrated with {examples} examples of {data}, seed {}", self.seed))?;
            }
            None => out.line("without calibration data")?,
        }
        let columns =
            [("part", Align::Left), ("bits", Align::Right), ("weights", Align::Right), ("bytes", Align::Right)];
        let mut table = Table::new(&[&columns[..], &[("squared error", Align::Right)]].concat());
        for p in &self.parts {
            let error = format!("{:.4}%", p.squared_error * 100.0);
            table.row([p.part.to_string(), p.bits.to_string(), count(p.weights as f64), bytes(p.bytes), error]);
        }
        out.line("")?;
        out.text(&table.text(out.paint))?;
        match &self.scored {
            Some(scored) => scored.print(out),
            None => Ok(()),
        }
    }
}

impl Scored {
    fn print(&self, out: &mut Out) -> Result<(), Failure> {
        out.line("")?;
        out.line(&format!(
            "{}: {} examples, the saved directory in int8 beside the exact model",
            self.data, self.examples
        ))?;
        let columns = ["exact", "95% interval", "quantised", "95% interval", "difference", "95% interval"];
        let mut titles = vec![("metric", Align::Left)];
        titles.extend(columns.map(|c| (c, Align::Right)));
        let mut table = Table::new(&titles);
        for s in &self.metrics {
            let shown = |x: f64| if s.share { format!("{:.2}", x * 100.0) } else { format!("{x:.4}") };
            let range =
                |r: Option<(f64, f64)>| r.map(|(a, b)| format!("{} to {}", shown(a), shown(b))).unwrap_or_default();
            table.row([
                s.metric.to_string(),
                shown(s.exact),
                range(s.exact_interval),
                shown(s.quantized),
                range(s.quantized_interval),
                s.difference.map(shown).unwrap_or_default(),
                range(s.difference_interval),
            ]);
        }
        out.text(&table.text(out.paint))?;
        let a = &self.agreement;
        let same = a.same_top.map(|s| format!("{:.2}% same top answer, ", s * 100.0)).unwrap_or_default();
        let kl = a.mean_kl.map(|k| format!("mean KL divergence {k:.2e} nats, ")).unwrap_or_default();
        let cosine = a.mean_cosine.map(|c| format!("mean cosine {c:.6}, ")).unwrap_or_default();
        out.line(&format!(
            "agreement of {} answers: {same}{kl}{cosine}mean difference {:.4}",
            a.n, a.mean_abs_difference
        ))
    }
}
