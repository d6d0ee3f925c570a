//! The result of a sweep, for people and for programs.

use super::measure::Row;
use super::{BenchArgs, Format};
use crate::console::{Out, note};
use crate::failure::Failure;
use crate::machine;
use crate::table::{Align, Table, csv_line, percent};
use serde::Serialize;

/// Everything needed to repeat and to read the measurement.
#[derive(Debug, Serialize)]
pub struct Report {
    model: String,
    output: &'static str,
    isa: &'static str,
    cores: usize,
    seed: u64,
    version: &'static str,
    rows: Vec<Row>,
}

impl Report {
    /// What was measured, with where and how.
    pub fn new(args: &BenchArgs, rows: Vec<Row>) -> Report {
        Report {
            model: args.model.name(),
            output: args.output.name(),
            isa: sparing_kernels::isa::active().name(),
            cores: machine::cores(),
            seed: args.seed,
            version: env!("CARGO_PKG_VERSION"),
            rows,
        }
    }

    /// Prints it.
    pub fn print(&self, format: Format) -> Result<(), Failure> {
        let mut out = Out::new();
        match format {
            Format::Table => {
                out.line(&out.paint.strong(&self.heading()))?;
                out.text(&self.table().text(out.paint))?;
            }
            Format::Md => {
                out.line(&format!("{}\n", self.heading()))?;
                out.text(&self.table().markdown())?;
            }
            Format::Csv => self.csv(&mut out)?,
            Format::Json => out.pretty(self)?,
        }
        out.flush()?;
        if self.rows.is_empty() {
            note("interrupted before anything was timed");
        }
        Ok(())
    }

    fn heading(&self) -> String {
        let Report { model, output, isa, cores, .. } = self;
        format!("{model}: {output} output, {isa}, {cores} cores")
    }

    fn table(&self) -> Table {
        let mut columns = vec![("precision", Align::Left)];
        // Where all is exact, nobody needs to be told in every line.
        let approximate = self.rows.iter().any(|row| row.attention != "exact");
        if approximate {
            columns.push(("attention", Align::Left));
        }
        let numbers =
            ["threads", "batch", "length", "median ms", "p10", "p90", "CPU ms", "sequences/s", "tokens/s", "GFLOP/s"];
        columns.extend(numbers.map(|title| (title, Align::Right)));
        columns.push(("of peak", Align::Right));
        let mut table = Table::new(&columns);
        for row in &self.rows {
            let mut cells = vec![row.precision.to_string()];
            if approximate {
                cells.push(row.attention.clone());
            }
            cells.extend([
                row.threads.to_string(),
                row.batch.to_string(),
                row.length.to_string(),
                format!("{:.2}", row.median_ms),
                format!("{:.2}", row.p10_ms),
                format!("{:.2}", row.p90_ms),
                format!("{:.2}", row.cpu_ms),
                format!("{:.1}", row.sequences_per_second),
                format!("{:.0}", row.tokens_per_second),
                format!("{:.1}", row.gflops),
                percent(row.peak_share),
            ]);
            table.row(cells);
        }
        table
    }

    /// Every field of every row, named as in JSON.
    fn csv(&self, out: &mut Out) -> Result<(), Failure> {
        let fixed = ["model".to_string(), "output".to_string()];
        out.line(&csv_line(fixed.into_iter().chain(FIELDS.map(String::from))))?;
        for row in &self.rows {
            let row = serde_json::to_value(row)?;
            let value = |field: &str| match &row[field] {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let fixed = [self.model.clone(), self.output.to_string()];
            out.line(&csv_line(fixed.into_iter().chain(FIELDS.map(value))))?;
        }
        Ok(())
    }
}

/// The fields of a [`Row`], in their order.
const FIELDS: [&str; 14] = [
    "precision",
    "attention",
    "threads",
    "batch",
    "length",
    "runs",
    "median_ms",
    "p10_ms",
    "p90_ms",
    "cpu_ms",
    "sequences_per_second",
    "tokens_per_second",
    "gflops",
    "peak_share",
];
