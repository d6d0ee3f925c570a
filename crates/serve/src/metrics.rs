//! Figures for Prometheus, named as text-embeddings-inference names them; what only we have begins with `sparing_`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper ends of the buckets for seconds.
const SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 5.0, 10.0];
/// Upper ends of the buckets for how many.
const COUNTS: [f64; 14] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 16384.0];

/// All figures.
#[derive(Default)]
pub(crate) struct Metrics(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// By name with labels.
    counters: BTreeMap<String, u64>,
    histograms: BTreeMap<&'static str, Histogram>,
}

struct Histogram {
    ends: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn add(&mut self, value: f64) {
        let bucket = self.ends.iter().position(|end| value <= *end).unwrap_or(self.ends.len());
        self.counts[bucket] += 1;
        self.sum += value;
    }
}

/// A figure that is read off when somebody asks.
pub(crate) struct Reading {
    pub(crate) name: &'static str,
    /// `counter` or `gauge`.
    pub(crate) kind: &'static str,
    pub(crate) help: &'static str,
    /// With labels, such as `{model="a"}`, or nothing.
    pub(crate) values: Vec<(String, f64)>,
}

impl Metrics {
    fn with<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a request by how it came.
    pub(crate) fn request(&self, method: &str) {
        self.count(format!("te_request_count{{method=\"{method}\"}}"));
    }

    /// Counts an answer and what it took.
    pub(crate) fn success(&self, method: &str, stages: [(&'static str, Duration); 4]) {
        self.count(format!("te_request_success{{method=\"{method}\"}}"));
        self.with(|inner| stages.iter().for_each(|(name, took)| inner.add(name, &SECONDS, took.as_secs_f64())));
    }

    /// Counts a request that was refused.
    pub(crate) fn failure(&self, kind: &str) {
        self.count(format!("te_request_failure{{err=\"{kind}\"}}"));
    }

    /// Counts an HTTP answer. `route` is one of ours, never a client's word.
    pub(crate) fn answered(&self, route: &str, status: u16) {
        self.count(format!("sparing_http_requests_total{{route=\"{route}\",status=\"{status}\"}}"));
    }

    /// Notes a batch.
    pub(crate) fn batch(&self, sequences: usize, tokens: usize) {
        self.with(|inner| {
            inner.add("te_batch_next_size", &COUNTS, sequences as f64);
            inner.add("te_batch_next_tokens", &COUNTS, tokens as f64);
        });
    }

    /// Notes the length of an input.
    pub(crate) fn input(&self, tokens: usize) {
        self.with(|inner| inner.add("te_request_input_length", &COUNTS, tokens as f64));
    }

    fn count(&self, series: String) {
        self.with(|inner| *inner.counters.entry(series).or_default() += 1);
    }

    /// Everything, as Prometheus reads it.
    pub(crate) fn text(&self, readings: &[Reading]) -> String {
        let mut out = String::new();
        self.with(|inner| {
            let mut last = "";
            for (series, value) in &inner.counters {
                let name = series.split('{').next().unwrap_or_default();
                if name != last {
                    let _ = writeln!(out, "# TYPE {name} counter");
                    last = name;
                }
                let _ = writeln!(out, "{series} {value}");
            }
            for (name, histogram) in &inner.histograms {
                histogram.write(name, &mut out);
            }
        });
        for Reading { name, kind, help, values } in readings {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(out, "{name}{labels} {value}");
            }
        }
        out
    }
}

impl Inner {
    fn add(&mut self, name: &'static str, ends: &'static [f64], value: f64) {
        let new = || Histogram { ends, counts: vec![0; ends.len() + 1], sum: 0.0 };
        self.histograms.entry(name).or_insert_with(new).add(value);
    }
}

impl Histogram {
    fn write(&self, name: &str, out: &mut String) {
        let _ = writeln!(out, "# TYPE {name} histogram");
        let mut all = 0;
        for (number, count) in self.counts.iter().enumerate() {
            all += count;
            let end = self.ends.get(number).map_or("+Inf".to_string(), f64::to_string);
            let _ = writeln!(out, "{name}_bucket{{le=\"{end}\"}} {all}");
        }
        let _ = writeln!(out, "{name}_sum {}\n{name}_count {all}", self.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up_and_every_series_has_its_type_once() {
        let metrics = Metrics::default();
        metrics.batch(3, 100_000);
        metrics.batch(1, 16);
        metrics.request("single");
        metrics.request("batch");
        metrics.request("batch");
        let reading = Reading { name: "te_queue_size", kind: "gauge", help: "h", values: vec![(String::new(), 2.0)] };
        let text = metrics.text(&[reading]);
        for line in [
            "te_request_count{method=\"batch\"} 2",
            "te_batch_next_size_bucket{le=\"1\"} 1",
            "te_batch_next_size_bucket{le=\"4\"} 2",
            "te_batch_next_tokens_bucket{le=\"16384\"} 1",
            "te_batch_next_tokens_bucket{le=\"+Inf\"} 2",
            "te_batch_next_tokens_sum 100016",
            "te_queue_size 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("# TYPE te_request_count counter").count(), 1);
    }
}
