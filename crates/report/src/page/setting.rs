//! How to do it again: the command, the request, the machine and the plan.

use super::{details, titled};
use crate::format::{cores, count, short_percent, time};
use crate::{Report, Versions};
use sparing_markup::Element;

/// The command and everything that its outcome depends on.
pub(super) fn section(report: &Report) -> Element {
    let (task, machine) = (&report.task, &report.machine);
    let metric = if task.metric.name.is_empty() { String::new() } else { format!(", scored by {}", task.metric.name) };
    let facts = [
        ("model", [report.model.name.as_str(), report.model.family.as_str()].join_some(", ")),
        ("task", format!("{}{metric}", task.name)),
        ("rows", format!("{} searched, {} unseen", count(task.search_rows), count(task.report_rows))),
        ("focus", report.focus.name().to_owned()),
        ("budget", format!("{} of the score", short_percent(report.budget))),
        ("economies", report.economies.join(", ")),
        ("strategy", [report.strategy.as_str(), &report.order].join_some(", ")),
        ("analysis", report.analysis.clone()),
        ("timed", report.timing.clone()),
        ("seed", report.seed.to_string()),
        ("took", report.seconds.map_or_else(String::new, |seconds| time(seconds * 1000.0))),
        ("processor", [machine.cpu.as_str(), &cores(machine.cores), &machine.isa].join_some(", ")),
        ("system", machine.os.clone()),
        ("sparing", [report.versions.sparing.as_str(), &built(&report.versions)].join_some(", ")),
        ("created", report.created.clone()),
    ];
    let facts = facts.into_iter().filter(|(_, value)| !value.is_empty());
    let list = Element::new("dl")
        .extend(facts.flat_map(|(name, value)| [Element::new("dt").text(name), Element::new("dd").text(&value)]));
    let mut section = titled("How to do it again", "");
    if !report.command.is_empty() {
        section =
            section.with(Element::new("pre").set("tabindex", "0").with(Element::new("code").text(&report.command)));
    }
    section = section.with(list);
    match report.chosen().map(|chosen| &chosen.plan) {
        None | Some(serde_json::Value::Null) => section,
        Some(plan) => {
            let text = format!("{plan:#}");
            let code = Element::new("pre").set("tabindex", "0").with(Element::new("code").text(&text));
            section.with(details("The recipe: what is left of every part, and how it runs", code))
        }
    }
}

/// Where the page came from.
pub(super) fn footer(report: &Report) -> Element {
    let version = [" ", &report.versions.sparing].concat();
    let text = format!("Written by sparing{}. The same as data: report.json, beside this file.", version.trim_end());
    Element::new("footer").with(Element::new("p").text(&text))
}

/// How the program was built, and from what.
fn built(versions: &Versions) -> String {
    let commit = versions.commit.as_ref().map(|commit| format!("commit {commit}")).unwrap_or_default();
    [commit.as_str(), versions.build.as_deref().unwrap_or_default()].join_some(", ")
}

/// Joins what is not empty.
trait JoinSome {
    fn join_some(&self, between: &str) -> String;
}

impl<const N: usize> JoinSome for [&str; N] {
    fn join_some(&self, between: &str) -> String {
        self.iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>().join(between)
    }
}
