//! `README.md`: the model card, with the front matter that the Hub reads.

mod base;

pub use base::BaseCard;

use crate::format::{NONE, bytes, confidently, cores, count, percent, ratio, speeds, time};
use crate::{Candidate, Interval, Metric, Report};
use std::fmt::Write;

impl Report {
    /// The text of `README.md`. What the base model's card says about its licence and language is kept.
    pub fn card(&self, base: &BaseCard) -> String {
        let mut card = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_front_matter(&mut card, base);
        let _ = self.write_card(&mut card);
        card
    }

    fn write_front_matter(&self, out: &mut String, base: &BaseCard) -> std::fmt::Result {
        let hub = self.model.hub.as_deref().filter(|hub| !hub.is_empty());
        writeln!(out, "---")?;
        for (key, value) in
            [("license", &base.license), ("license_name", &base.license_name), ("license_link", &base.license_link)]
        {
            if let Some(value) = value {
                writeln!(out, "{key}: {}", quoted(value))?;
            }
        }
        write_list(out, "language", &base.language)?;
        write_list(out, "datasets", &base.datasets)?;
        // A model that is nowhere to be found by a name of its own was made from one that is.
        if let Some(name) = hub.or(base.base_model.as_deref()) {
            writeln!(out, "base_model: {}", quoted(name))?;
        }
        if let Some(tag) = &base.pipeline_tag {
            writeln!(out, "pipeline_tag: {}", quoted(tag))?;
        }
        let own = ["sparing", "optimized"].map(str::to_owned);
        let tags: Vec<String> = own.iter().chain(base.tags.iter().filter(|tag| !own.contains(tag))).cloned().collect();
        write_list(out, "tags", &tags)?;
        if !self.task.metric.name.is_empty() {
            write_list(out, "metrics", &[self.task.metric.name.to_lowercase()])?;
        }
        if let Some(score) = self.final_model().score.filter(|score| score.is_finite()) {
            let task = quoted(&self.task.name);
            let kind = quoted(base.pipeline_tag.as_deref().unwrap_or("other"));
            writeln!(out, "model-index:\n- name: {}\n  results:", quoted(&self.model.name))?;
            writeln!(out, "  - task:\n      type: {kind}\n    dataset:\n      name: {task}\n      type: {task}")?;
            writeln!(
                out,
                "    metrics:\n    - type: {}\n      value: {}",
                quoted(&self.task.metric.name.to_lowercase()),
                serde_json::Value::from(score)
            )?;
        }
        writeln!(out, "---\n")
    }

    fn write_card(&self, out: &mut String) -> std::fmt::Result {
        let name = if self.model.name.is_empty() { "this model" } else { &self.model.name };
        let headline = self.headline();
        writeln!(out, "# {}, made cheaper with Sparing\n", plain(name))?;
        writeln!(out, "**{}**", plain(&headline.sentence))?;
        if let Some(doubt) = &headline.doubt {
            writeln!(out, "{}", plain(doubt))?;
        }
        writeln!(out, "\n## What was done\n")?;
        match self.chosen() {
            Some(chosen) if !chosen.what.is_empty() => writeln!(out, "{}: {}.\n", plain(name), plain(&chosen.what))?,
            Some(_) => {}
            None => writeln!(out, "Nothing: the model is as it came.\n")?,
        }
        let kind = self.focus.name();
        let tried = count(self.candidates.len());
        let rows = count(self.task.search_rows);
        writeln!(out, "Searched for {kind} among {tried} candidates on {rows} rows of {}.", plain(&self.task.name))?;
        self.write_scores(out)?;
        writeln!(out, "\n## Run it\n")?;
        writeln!(out, "```sh\nsparing run . \"your text\"\n```\n")?;
        writeln!(
            out,
            "The files are the usual ones (`config.json`, `model.safetensors`, the tokenizer) plus `sparing.json`, which says what is economised where. {}",
            self.readers()
        )?;
        self.write_limits(out)?;
        self.write_setting(out)
    }

    /// Who can read the weights.
    fn readers(&self) -> &'static str {
        match self.chosen() {
            Some(_) => {
                "Only Sparing reads it as it is meant: heads, neurons and blocks that were removed are gone from the weights, and weights \
                 may be stored as 8-bit integers or fewer with scales, so other programs fail to load them, or load them wrongly."
            }
            None => "The weights are as they came: other programs read them as before.",
        }
    }

    fn write_scores(&self, out: &mut String) -> std::fmt::Result {
        let (before, task) = (&self.baseline, &self.task);
        let after = self.chosen();
        writeln!(out, "\n## Scores and costs\n\n| | before | after |\n|---|---:|---:|")?;
        let mut row = |name: String, value: &dyn Fn(&Candidate) -> String| {
            let after = after.map_or_else(|| NONE.to_owned(), value);
            writeln!(out, "| {} | {} | {after} |", plain(&name), value(before))
        };
        let metric = &task.metric;
        row(format!("{}, {} unseen rows", metric.name, count(task.report_rows)), &|c| {
            scored(metric, c.score, c.interval)
        })?;
        row(format!("{}, {} searched rows", metric.name, count(task.search_rows)), &|c| {
            scored(metric, Some(c.search_score), c.search_interval)
        })?;
        row("time".into(), &|c| time(c.time_ms))?;
        row("speed".into(), &|c| match &c.time_interval {
            Some(interval) => format!("{} ({})", ratio(c.time_ratio), speeds(interval)),
            None => ratio(c.time_ratio),
        })?;
        row("size of the weights".into(), &|c| bytes(c.bytes))?;
        row("weights in memory, packed".into(), &|c| c.memory_bytes.map_or_else(|| NONE.into(), bytes))?;
        row("same answers as before".into(), &|c| c.agreement.map_or_else(|| NONE.into(), |share| percent(share, 1)))?;
        writeln!(
            out,
            "\nIn brackets: where the true value lies{}; of searched rows, beside the score before.",
            confidently(self.confidence)
        )?;
        if !self.timing.is_empty() {
            writeln!(out, "Timed: {}.", plain(&self.timing))?;
        }
        if let Some(found) = &self.verification {
            writeln!(
                out,
                "A fresh process measured {} {}, {} the speed and {} from the saved directory.",
                plain(&metric.name),
                metric.show(found.score),
                ratio(found.time_ratio),
                bytes(found.bytes)
            )?;
        }
        Ok(())
    }

    fn write_limits(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n## Limits\n")?;
        writeln!(
            out,
            "- The loss was measured on {} only. On other data it may be larger: measure it with `sparing eval`.\n\
             - The speed is that of one machine. On another one it will differ: measure it with `sparing bench`.\n\
             - Whatever the base model gets wrong or is biased in, this one is too.",
            plain(&self.task.name)
        )?;
        self.notes.iter().try_for_each(|note| writeln!(out, "- {}", plain(note)))
    }

    fn write_setting(&self, out: &mut String) -> std::fmt::Result {
        let machine = &self.machine;
        let mut here = vec![plain(&machine.cpu), cores(machine.cores), plain(&machine.isa), plain(&machine.os)];
        here.retain(|known| !known.is_empty());
        writeln!(out, "\n## Made by\n")?;
        // Indented rather than fenced: no text can end it.
        for line in self.command.lines() {
            writeln!(out, "    {}", line.replace(|c: char| c.is_control(), " "))?;
        }
        writeln!(
            out,
            "\nSparing {}, seed {}, {}; {}. Everything that was tried: `report.html`, `report.json`.",
            plain(&self.versions.sparing),
            self.seed,
            here.join(", "),
            plain(&self.created)
        )
    }

    /// What the card is about: the chosen candidate, or the model as it came.
    fn final_model(&self) -> &Candidate {
        self.chosen().unwrap_or(&self.baseline)
    }
}

fn scored(metric: &Metric, score: Option<f64>, interval: Option<Interval>) -> String {
    match (score, interval) {
        (None, _) => NONE.into(),
        (Some(score), None) => metric.show(score),
        (Some(score), Some(interval)) => format!("{} ({})", metric.show(score), metric.show_interval(&interval)),
    }
}

fn write_list(out: &mut String, key: &str, items: &[String]) -> std::fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(out, "{key}:")?;
    items.iter().try_for_each(|item| writeln!(out, "- {}", quoted(item)))
}

/// A string of YAML: bare where nothing in it means anything, else as JSON has it, which YAML reads too.
fn quoted(text: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.');
    // "no", "1.5" and the like are not strings to YAML.
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(bare);
    let reserved =
        ["true", "false", "yes", "no", "on", "off", "null", "y", "n"].contains(&text.to_lowercase().as_str());
    if word && !reserved { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// Text that Markdown and the HTML in it leave as it is, on one line.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '&' => plain.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' => plain.extend(['\\', c]),
            c if c.is_control() => plain.push(' '),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_strings_stay_strings() {
        let texts = ["apache-2.0", "no", "1.5", "a: b", "x\ny", "", "owner/name", "\u{e9}"];
        let shown = ["apache-2.0", "\"no\"", "\"1.5\"", "\"a: b\"", "\"x\\ny\"", "\"\"", "owner/name", "\"\u{e9}\""];
        assert_eq!(texts.map(quoted), shown);
    }

    #[test]
    fn markdown_is_left_as_it_is() {
        assert_eq!(plain("<script> [x](y) | a_b\n# c"), "&lt;script&gt; \\[x\\](y) \\| a\\_b \\# c");
    }
}
