//! Measured speeds as tables.

use crate::failure::Failure;
use crate::table::{Align, Table, bytes, count};
use sparing_train::lra::MeasuredSpeed;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where they are, within the directory of the runs.
pub const FOLDER: &str = "speed";

/// All speeds in a directory of runs, of one configuration.
pub fn read(runs: &Path, configuration: &str) -> Result<Vec<MeasuredSpeed>, Failure> {
    let Ok(entries) = std::fs::read_dir(runs.join(FOLDER)) else { return Ok(vec![]) };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json"))
    {
        found.extend(MeasuredSpeed::read(&path)?.filter(|speed| speed.configuration == configuration));
    }
    found.sort_by(|a, b| (&a.attention, a.length).cmp(&(&b.attention, b.length)));
    Ok(found)
}

/// Those that can be compared: of one device and one batch.
pub fn groups(speeds: &[MeasuredSpeed]) -> Vec<Vec<&MeasuredSpeed>> {
    let mut groups: BTreeMap<(&str, usize), Vec<&MeasuredSpeed>> = BTreeMap::new();
    for speed in speeds {
        groups.entry((&speed.device, speed.batch)).or_default().push(speed);
    }
    groups.into_values().collect()
}

/// A row per mechanism: updates per second at every length, beside full attention's, then memory at every length, then what was
/// measured: its parameters at the longest and its knobs.
pub fn table(group: &[&MeasuredSpeed]) -> Table {
    let lengths: BTreeSet<usize> = group.iter().map(|speed| speed.length).collect();
    let names: BTreeSet<&str> = group.iter().map(|speed| speed.attention.as_str()).collect();
    let speed = |name: &str, length: usize| {
        group.iter().find(|speed| speed.attention == name && speed.length == length && speed.failure.is_none())
    };
    let rate = |name: &str, length: usize| speed(name, length)?.updates_per_second;
    let headings: Vec<String> = ["updates/s at ", "memory at "]
        .iter()
        .flat_map(|what| lengths.iter().map(move |length| format!("{what}{length}")))
        .collect();
    let parameters = format!("parameters at {}", lengths.last().copied().unwrap_or_default());
    let mut columns = vec![("attention", Align::Left)];
    columns.extend(headings.iter().map(|heading| (heading.as_str(), Align::Right)));
    columns.extend([(parameters.as_str(), Align::Right), ("knobs", Align::Left)]);
    let mut table = Table::new(&columns);
    for name in names {
        let rates = lengths.iter().map(|length| match (rate(name, *length), rate("full", *length)) {
            (None, _) => "–".to_string(),
            (Some(own), None) => format!("{own:.2}"),
            (Some(own), Some(full)) => format!("{own:.2} ({:.1}x)", own / full.max(1e-9)),
        });
        let memory = lengths.iter().map(|length| match speed(name, *length).map_or(0, |speed| speed.peak_bytes) {
            0 => "–".to_string(),
            peak => bytes(peak as f64),
        });
        let longest = lengths.last().and_then(|length| speed(name, *length));
        let parameters = longest.map_or("–".to_string(), |speed| count(speed.parameters as f64));
        let knobs = group.iter().find(|speed| speed.attention == name).map(|speed| super::knobs(&speed.kind));
        let last = [parameters, knobs.unwrap_or_default()];
        table.row([name.to_string()].into_iter().chain(rates).chain(memory).chain(last));
    }
    table
}

/// Why figures are missing, one line for every reason.
pub fn failures(group: &[&MeasuredSpeed]) -> Vec<String> {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for speed in group {
        if let Some(failure) = &speed.failure {
            reasons.entry(reason(failure)).or_default().push(format!("{} at {}", speed.attention, speed.length));
        }
    }
    reasons.into_iter().map(|(reason, who)| format!("{reason}: {}", who.join(", "))).collect()
}

/// The first line, not too much of it; lack of memory has as many names as there are drivers.
fn reason(failure: &str) -> String {
    const MOST: usize = 120;
    let lower = failure.to_lowercase().replace(['_', ' '], "");
    if ["outofmemory", "cannotallocate", "buffertoobig", "allocationfail"].iter().any(|sign| lower.contains(sign)) {
        return "out of memory".to_string();
    }
    failure.lines().next().unwrap_or_default().chars().take(MOST).collect()
}

const HOW: &str = "Forward, backward and Adam's step on random texts without padding; in brackets, times as fast as full attention. \
     Memory is the process's peak on the CPU; on a GPU what was reserved there, which is more than was in use.";

/// The section of a document: a table for every group.
pub fn markdown(speeds: &[MeasuredSpeed]) -> String {
    let section = |group: Vec<&MeasuredSpeed>| {
        let Some(first) = group.first() else { return String::new() };
        let title = format!("### Updates per second and memory, batch {}, {}", first.batch, first.device);
        let missing: String = failures(&group).iter().map(|line| format!("- {line}\n")).collect();
        let missing = if missing.is_empty() { missing } else { format!("\nNo figure:\n\n{missing}") };
        let encoders = group.iter().filter_map(|speed| Some(&speed.training.as_ref()?.encoder));
        let mixed = encoders.clone().zip(encoders.skip(1)).any(|(one, next)| one != next);
        let mixed = if mixed { " Not all are of one encoder: run `sparing lra speed` anew for all." } else { "" };
        format!("{title}\n\n{HOW}{mixed}\n\n{}{missing}\n", table(&group).markdown())
    };
    groups(speeds).into_iter().map(section).collect()
}

/// Speed and memory by mechanism at a length: of the group that has most of them.
pub fn at(speeds: &[MeasuredSpeed], length: usize) -> BTreeMap<&str, (f64, u64)> {
    let found = |group: &Vec<&MeasuredSpeed>| {
        group.iter().filter(|speed| speed.length == length && speed.updates_per_second.is_some()).count()
    };
    let best = groups(speeds).into_iter().max_by_key(found).unwrap_or_default();
    let best = best.into_iter().filter(|speed| speed.length == length);
    best.filter_map(|speed| Some((speed.attention.as_str(), (speed.updates_per_second?, speed.peak_bytes)))).collect()
}
