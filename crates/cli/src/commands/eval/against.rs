//! What came of `sparing eval --against`: as text and as JSON.

use crate::console::Out;
use crate::failure::Failure;
use crate::table::{Align, Table};
use serde::Serialize;
use sparing_tasks::{Agreement, Comparison, Interval};

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Against {
    /// The other model; the same one in another precision if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    precision: &'static str,
    #[serde(flatten)]
    found: Found,
}

/// Answers beside answers, or scores beside scores.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Found {
    Agreement(Agreement),
    Scores {
        /// The other one's score first; one comparison per metric.
        comparisons: Vec<Comparison>,
        /// What the other one has answered.
        n: usize,
        complete: bool,
        /// Of the intervals.
        confidence: f64,
    },
}

impl Against {
    /// `model`: another one's name.
    pub fn new(model: Option<String>, precision: &'static str, found: Found) -> Against {
        Against { model, precision, found }
    }

    /// Whether everything was run.
    pub fn is_complete(&self) -> bool {
        match &self.found {
            Found::Agreement(agreement) => agreement.complete,
            Found::Scores { complete, .. } => *complete,
        }
    }

    /// Prints it for people; `precision`: of the answers that are compared.
    pub fn print(&self, precision: &str, out: &mut Out) -> Result<(), Failure> {
        let partial = if self.is_complete() { "" } else { " (PARTIAL: interrupted)" };
        out.line("")?;
        match &self.found {
            Found::Agreement(agreement) => {
                let title = format!("{precision} against {}, {} answers{partial}", self.precision, agreement.n);
                out.line(&out.paint.strong(&title))?;
                print_agreement(agreement, out)
            }
            Found::Scores { comparisons, n, confidence, .. } => {
                let name = self.model.as_deref().unwrap_or_default();
                let title = format!("against {name} ({}), {n} examples{partial}", self.precision);
                out.line(&out.paint.strong(&title))?;
                print_scores(comparisons, *confidence, out)
            }
        }
    }
}

fn print_agreement(a: &Agreement, out: &mut Out) -> Result<(), Failure> {
    let mut table = Table::new(&[("agreement", Align::Left), ("", Align::Right)]);
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            table.row([name.to_string(), value]);
        }
    };
    row("same top answer", a.same_top.map(|s| format!("{:.2}%", s * 100.0)));
    row("mean KL divergence (nats)", a.mean_kl.map(small));
    row("99% of KL divergences below", a.kl_99.map(small));
    row("mean cosine", a.mean_cosine.map(|c| format!("{c:.6}")));
    row("largest difference of an output", Some(small(a.max_abs_difference)));
    row("mean difference of an output", Some(small(a.mean_abs_difference)));
    out.text(&table.text(out.paint))
}

fn print_scores(comparisons: &[Comparison], confidence: f64, out: &mut Out) -> Result<(), Failure> {
    let interval = format!("{:.0}% interval", 100.0 * confidence);
    let columns = ["metric", "the other", "here", "change", &interval];
    let aligned = [Align::Left, Align::Right, Align::Right, Align::Right, Align::Right];
    let mut table = Table::new(&std::array::from_fn::<_, 5, _>(|i| (columns[i], aligned[i])));
    for one in comparisons {
        let (factor, digits, unit) = if one.metric.is_share() { (100.0, 2, "%") } else { (1.0, 4, "") };
        let known = |x: f64, shown: String| if x.is_finite() { shown } else { "-".to_string() };
        let score = |x: f64| known(x, format!("{:.digits$}{unit}", factor * x));
        let change = |x: f64| known(x, format!("{:+.digits$}", factor * x));
        let range = |i: Interval| format!("{} to {}", change(i.low), change(i.high));
        table.row([
            one.metric.name().to_string(),
            score(one.first),
            score(one.second),
            change(one.difference),
            one.interval.map(range).unwrap_or_default(),
        ]);
    }
    out.text(&table.text(out.paint))?;
    let Some(m) = comparisons.iter().find_map(|one| one.mcnemar) else { return Ok(()) };
    out.line(&format!(
        "right here alone: {}, there alone: {}; a difference like that or larger comes by luck with {} (McNemar)",
        m.only_second,
        m.only_first,
        probability(m.p)
    ))
}

/// `p = 0.012`; nothing is impossible.
fn probability(p: f64) -> String {
    if p < 0.001 { "p < 0.001".into() } else { format!("p = {p:.3}") }
}

/// Three significant digits, however small.
fn small(x: f64) -> String {
    if x == 0.0 || (0.001..1e6).contains(&x.abs()) { format!("{x:.4}") } else { format!("{x:.2e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_keep_their_digits() {
        assert_eq!(small(0.000_012_3), "1.23e-5");
        assert_eq!(small(0.25), "0.2500");
        assert_eq!(small(0.0), "0.0000");
    }

    #[test]
    fn luck_is_never_impossible() {
        assert_eq!([0.0, 0.0009, 0.0041, 1.0].map(probability), ["p < 0.001", "p < 0.001", "p = 0.004", "p = 1.000"]);
    }
}
