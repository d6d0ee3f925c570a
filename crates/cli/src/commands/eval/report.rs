//! The result of an evaluation, as a table and as JSON.

use super::against::Against;
use super::certified::Certified;
use crate::attention::describe;
use crate::console::Out;
use crate::failure::Failure;
use crate::table::{self, Align, Table, count, seconds};
use serde::Serialize;
use sparing_engine::Engine;
use sparing_tasks::{Dataset, Interval, Report, Task, Value};

/// Everything but the single examples.
#[derive(Debug, Serialize)]
pub struct Summary {
    model: String,
    task: &'static str,
    data: String,
    examples: usize,
    /// Of how many the dataset holds.
    of: usize,
    complete: bool,
    metrics: Vec<Score>,
    confidence: f64,
    seed: u64,
    seconds: f64,
    encoding_seconds: f64,
    sentences_per_second: f64,
    tokens: usize,
    tokens_per_second: f64,
    precision: &'static str,
    threads: usize,
    isa: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    attention: Option<Attention>,
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<Against>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certified: Option<Certified>,
}

/// What economised values cost.
#[derive(Debug, Serialize)]
struct Attention {
    plan: String,
    seed: u64,
    /// Times fewer operations: of the value encoding on real tokens, of A·X·W, of the model, as the authors count.
    values_ratio: f64,
    attention_ratio: f64,
    model_ratio: f64,
    authors_ratio: f64,
    #[serde(skip)]
    line: String,
}

impl Attention {
    fn new(engine: &Engine) -> Option<Attention> {
        let (plan, spent) = (engine.attention(), engine.spending());
        (!plan.is_exact()).then(|| Attention {
            plan: plan.to_string(),
            seed: plan.mca.as_ref().map_or(0, |mca| mca.seed),
            values_ratio: spent.values_ratio(),
            attention_ratio: spent.attention_ratio(),
            model_ratio: spent.model_ratio(),
            authors_ratio: spent.authors_ratio(),
            line: match &plan.mca {
                Some(mca) => format!("{}; draws of seed {}", describe(plan, &spent), mca.seed),
                None => describe(plan, &spent),
            },
        })
    }
}

#[derive(Debug, Serialize)]
struct Score {
    metric: &'static str,
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
    #[serde(skip)]
    shown: [String; 2],
}

impl Summary {
    /// Sums up.
    pub fn new(model: String, dataset: &Dataset, engine: &Engine, report: Report, against: Option<Against>) -> Summary {
        // Windows of one text are one example.
        let mut examples = report.examples.clone();
        examples.dedup();
        Summary {
            model,
            task: report.task.name(),
            data: report.source,
            examples: examples.len(),
            of: dataset.examples.len(),
            complete: report.complete,
            metrics: report.values.iter().map(score).collect(),
            confidence: report.bootstrap.confidence,
            seed: report.bootstrap.seed,
            seconds: report.seconds,
            encoding_seconds: report.encoding_seconds,
            sentences_per_second: examples.len() as f64 / report.seconds,
            tokens: report.tokens,
            tokens_per_second: report.tokens as f64 / report.seconds,
            precision: engine.precision().name(),
            threads: engine.threads(),
            isa: sparing_kernels::isa::active().name(),
            attention: Attention::new(engine),
            against,
            certified: None,
        }
    }

    /// Adds what is certified.
    pub fn with(self, certified: Certified) -> Summary {
        Summary { certified: Some(certified), ..self }
    }

    /// Prints it for people.
    pub fn print(&self, out: &mut Out) -> Result<(), Failure> {
        let Summary { model, task, data, examples, of, precision, threads, isa, .. } = self;
        let task = if *task == Task::Own.name() { "your own table" } else { task };
        out.line(&out.paint.strong(&format!("{model} on {task}")))?;
        let partial = if self.complete { String::new() } else { format!(" of {of} (PARTIAL: interrupted)") };
        out.line(&format!("{data}: {examples} examples{partial}"))?;
        let interval = format!("{:.0}% interval", self.confidence * 100.0);
        let mut table = Table::new(&[("metric", Align::Left), ("score", Align::Right), (&interval, Align::Right)]);
        for score in &self.metrics {
            table.row([score.metric.to_string()].into_iter().chain(score.shown.clone()));
        }
        out.line("")?;
        out.text(&table.text(out.paint))?;
        out.line("")?;
        out.line(&format!(
            "{} in the model, {} in the tokenizer; {:.0} sentences/s, {} tokens, {} tokens/s",
            seconds(self.seconds),
            seconds(self.encoding_seconds),
            self.sentences_per_second,
            self.tokens,
            count(self.tokens_per_second),
        ))?;
        out.line(&format!("{precision}, {}, {isa}; seed {}", table::threads(*threads), self.seed))?;
        if let Some(attention) = &self.attention {
            out.line(&attention.line)?;
        }
        if let Some(against) = &self.against {
            against.print(precision, out)?;
        }
        match &self.certified {
            Some(certified) => certified.print(out),
            None => Ok(()),
        }
    }
}

fn score(value: &Value) -> Score {
    let share = value.metric.is_share();
    let number = |x: f64| if share { format!("{:.2}%", x * 100.0) } else { format!("{x:.4}") };
    let range = |Interval { low, high }: Interval| match share {
        true => format!("{:.2} to {:.2}", low * 100.0, high * 100.0),
        false => format!("{low:.4} to {high:.4}"),
    };
    Score {
        metric: value.metric.name(),
        value: value.value,
        low: value.interval.map(|i| i.low),
        high: value.interval.map(|i| i.high),
        shown: [number(value.value), value.interval.map(range).unwrap_or_default()],
    }
}
