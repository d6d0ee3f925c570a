//! The picture: parameters once, FLOPs and time for each work.

use super::report::Report;
use crate::failure::Failure;
use crate::files;
use crate::parameters::{Group, Part};
use crate::svg::{Bar, Bars};
use crate::table::{count, seconds};
use std::collections::BTreeMap;
use std::path::Path;

/// Writes the picture to a file.
pub fn write(report: &Report, path: &Path) -> Result<(), Failure> {
    files::write(path, bars(report).svg().as_bytes())
}

fn bars(report: &Report) -> Bars {
    let parameters = report.parameters.iter().map(|(part, n)| (*part, *n as f64)).collect();
    let mut rows =
        vec![("parameters".to_string(), parameters, count(report.parameters.values().sum::<usize>() as f64))];
    for cost in &report.costs {
        let label = |what: &str| {
            if report.costs.len() > 1 { format!("{what}, {}", short(&cost.name)) } else { what.to_string() }
        };
        rows.push((label("FLOPs"), cost.flops.clone(), format!("{} FLOP", count(cost.flops.values().sum()))));
        rows.push((label("time"), cost.seconds.clone(), seconds(cost.seconds.values().sum())));
    }
    let used: Vec<Group> = Group::ALL.into_iter().filter(|g| rows.iter().any(|row| share(&row.1, *g) > 0.0)).collect();
    let bar = |(label, amounts, total): (String, BTreeMap<Part, f64>, String)| Bar {
        label,
        total,
        shares: used.iter().map(|group| share(&amounts, *group)).collect(),
    };
    let works: Vec<&str> = report.costs.iter().map(|c| c.name.as_str()).collect();
    Bars {
        title: format!("Where {} spends", report.model),
        subtitle: format!(
            "{}; {}, {}, {}",
            works.join(" and "),
            report.precision,
            crate::table::threads(report.threads),
            report.isa
        ),
        parts: used.iter().map(|group| group.name().to_string()).collect(),
        bars: rows.into_iter().map(bar).collect(),
    }
}

fn share(amounts: &BTreeMap<Part, f64>, group: Group) -> f64 {
    let total: f64 = amounts.values().sum();
    let own: f64 = amounts.iter().filter(|(part, _)| part.group() == group).map(|(_, n)| n).sum();
    if total > 0.0 { own / total } else { 0.0 }
}

/// `1 x 128 tokens` as it fits beside a bar.
fn short(name: &str) -> String {
    name.strip_suffix(" tokens").unwrap_or(name).to_string()
}
