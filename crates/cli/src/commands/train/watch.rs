//! A progress bar with loss, metric, speed and time left, which also listens to Ctrl-C.

use crate::table::count;
use crate::{interrupt, progress};
use indicatif::ProgressBar;
use sparing_model::Error;
use sparing_tasks::Value;
use sparing_train::{Event, Summary};
use std::io::Write;

/// Told which one of the list is trained and what happens; false asks to stop.
type Tell<'a> = dyn FnMut(usize, &Event) -> bool + 'a;

/// Runs a training with these seeds, showing how it goes.
pub fn watched(seeds: &[u64], job: impl FnOnce(&mut Tell<'_>) -> Result<Summary, Error>) -> Result<Summary, Error> {
    watched_as(seeds.iter().map(|seed| format!("seed {seed}")).collect(), job)
}

/// Runs several trainings of these names, showing how they go.
pub fn watched_as<T>(names: Vec<String>, job: impl FnOnce(&mut Tell<'_>) -> Result<T, Error>) -> Result<T, Error> {
    let mut watcher = Watcher::new(names);
    let summary = job(&mut |number, event| watcher.event(number, event));
    watcher.end();
    summary
}

/// Shows how training goes.
struct Watcher {
    bar: ProgressBar,
    names: Vec<String>,
    current: Option<usize>,
    metric: String,
}

impl Watcher {
    fn new(names: Vec<String>) -> Watcher {
        Watcher { bar: progress::bar(0, "updates"), names, current: None, metric: String::new() }
    }

    /// Takes an event; false after Ctrl-C.
    fn event(&mut self, number: usize, event: &Event) -> bool {
        if self.current != Some(number) {
            self.current = Some(number);
            self.metric.clear();
            self.bar.reset();
        }
        match event {
            Event::Step { step, total, loss, speed } => {
                self.bar.set_length(*total);
                self.bar.set_position(*step);
                let name = if self.names.len() > 1 { format!("{}, ", self.names[number]) } else { String::new() };
                self.bar.set_message(format!("{name}loss {loss:.4}, {}{} tokens/s", self.metric, count(*speed)));
            }
            Event::Evaluated { step, metrics, best } => {
                let mut shown = metrics.iter().map(value).collect::<Vec<_>>().join(", ");
                if metrics.is_empty() {
                    shown = "no score, some answers are not numbers".into();
                }
                self.metric = metrics.first().map(|v| value(v) + ", ").unwrap_or_default();
                let best = if *best { " (best so far)" } else { "" };
                self.say(&format!("{}, update {step}: {shown}{best}", self.names[number]));
            }
            Event::Resumed { step } => {
                self.say(&format!("{}: going on from update {step}", self.names[number]));
            }
            Event::Waiting => {}
        }
        !interrupt::asked()
    }

    fn say(&self, text: &str) {
        // Nobody to tell if standard error is closed.
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{text}");
        });
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// `accuracy 90.02%`.
fn value(value: &Value) -> String {
    Value { interval: None, ..*value }.to_string()
}
