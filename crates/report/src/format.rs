//! Numbers as people read them. What is no number is a dash; no line ends between a number and its unit.

use crate::{Interval, Metric};

/// Stands where there is no number.
pub(crate) const NONE: &str = "–";

/// Three significant digits, thousands apart: `0.0123`, `1.23`, `12.3`, `1,230,000`. Far from one in powers of ten.
pub(crate) fn significant(number: f64) -> String {
    if !number.is_finite() {
        return NONE.into();
    }
    let size = number.abs();
    if size == 0.0 {
        return "0".into();
    }
    if !(1e-4..1e9).contains(&size) {
        return format!("{number:.2e}");
    }
    // Rounded first, so that 9.996 is 10.0 and not 10.00.
    let rounded: f64 = format!("{size:.2e}").parse().unwrap_or(size);
    let digits = (2 - rounded.log10().floor() as i32).max(0) as usize;
    signed(number, &thousands(&format!("{rounded:.digits$}")))
}

/// A time: `850 µs`, `12.3 ms`, `4.56 s`, `12 min`, `3.4 h`.
pub(crate) fn time(ms: f64) -> String {
    let (number, unit) = match ms.abs() {
        size if !size.is_finite() => return NONE.into(),
        size if size >= 3_600_000.0 => (ms / 3_600_000.0, "h"),
        size if size >= 60_000.0 => (ms / 60_000.0, "min"),
        size if size >= 1000.0 => (ms / 1000.0, "s"),
        size if size >= 1.0 || size == 0.0 => (ms, "ms"),
        _ => (ms * 1000.0, "µs"),
    };
    format!("{}\u{a0}{unit}", significant(number))
}

/// Bytes in powers of a thousand, as the Hub counts: `438 MB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let number = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes}\u{a0}B"),
        1_000..1_000_000 => format!("{}\u{a0}kB", significant(number / 1e3)),
        1_000_000..1_000_000_000 => format!("{}\u{a0}MB", significant(number / 1e6)),
        _ => format!("{}\u{a0}GB", significant(number / 1e9)),
    }
}

/// `1 core`, `8 cores`; nothing where they are not known.
pub(crate) fn cores(cores: usize) -> String {
    match cores {
        0 => String::new(),
        1 => "1 core".to_owned(),
        n => format!("{n} cores"),
    }
}

/// `1.92×`.
pub(crate) fn ratio(ratio: f64) -> String {
    if ratio.is_finite() { format!("{}×", significant(ratio)) } else { NONE.into() }
}

/// Where a speed lies: `1.80 to 2.05`.
pub(crate) fn speeds(interval: &Interval) -> String {
    format!("{} to {}", significant(interval.low), significant(interval.high))
}

/// A share as a percentage with as many decimals: `98.62%`.
pub(crate) fn percent(share: f64, decimals: usize) -> String {
    if !share.is_finite() {
        return NONE.into();
    }
    let number = share * 100.0;
    signed(number, &format!("{}%", fixed(number.abs(), decimals)))
}

/// A share as somebody wrote it: `0.5%`, not `0.50%`.
pub(crate) fn short_percent(share: f64) -> String {
    if !share.is_finite() {
        return NONE.into();
    }
    let text = fixed(share.abs() * 100.0, 3);
    let short = if text.contains('e') { &text } else { text.trim_end_matches('0').trim_end_matches('.') };
    signed(share, &format!("{short}%"))
}

/// So many decimals, as long as that is short.
fn fixed(number: f64, decimals: usize) -> String {
    if number.abs() < 1e9 { thousands(&format!("{number:.decimals$}")) } else { format!("{number:.2e}") }
}

/// A whole number with its thousands apart.
pub(crate) fn count(number: usize) -> String {
    thousands(&number.to_string())
}

/// " with 95% confidence", or nothing where nobody knows.
pub(crate) fn confidently(confidence: Option<f64>) -> String {
    confidence.map_or_else(String::new, |confidence| format!(" with {} confidence", short_percent(confidence)))
}

impl Metric {
    /// A value of the metric: `91.28%`, or `14.83` where it is no share.
    pub(crate) fn show(&self, value: f64) -> String {
        if self.is_share { percent(value, 2) } else { plain(value) }
    }

    /// `(89.4 to 93.1)`.
    pub(crate) fn show_interval(&self, interval: &Interval) -> String {
        let show = |end: f64| if self.is_share { percent(end, 1).replace('%', "") } else { plain(end) };
        format!("{} to {}", show(interval.low), show(interval.high))
    }

    /// A difference with its sign: `−0.23 points`, `+0.12`.
    pub(crate) fn show_change(&self, change: f64) -> String {
        if !change.is_finite() {
            return NONE.into();
        }
        let size = self.size_of(change);
        let sign = if change > 0.0 && !is_zero(&size) { "+" } else { "" };
        format!("{sign}{}{}", signed(change, &size), self.unit())
    }

    /// How large a difference is, without sign or unit.
    pub(crate) fn size_of(&self, change: f64) -> String {
        if self.is_share { fixed(change.abs() * 100.0, 2) } else { significant(change.abs()) }
    }

    /// What differences are counted in.
    pub(crate) fn unit(&self) -> &'static str {
        if self.is_share { " points" } else { "" }
    }
}

/// Four significant digits at least, for metrics that are no shares.
fn plain(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => NONE.into(),
        size if size != 0.0 && !(1e-3..1e9).contains(&size) => format!("{value:.3e}"),
        size if size < 10.0 => signed(value, &format!("{size:.4}")),
        size => signed(value, &thousands(&format!("{size:.2}"))),
    }
}

/// The digits with a true minus sign before them, if they need one.
fn signed(number: f64, digits: &str) -> String {
    if number < 0.0 && !is_zero(digits) { format!("−{digits}") } else { digits.to_owned() }
}

/// Nothing but zeros is left of a number after rounding.
pub(crate) fn is_zero(digits: &str) -> bool {
    !digits.contains(|c: char| ('1'..='9').contains(&c))
}

fn thousands(digits: &str) -> String {
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut text = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiny_and_huge_numbers_stay_short() {
        let numbers =
            [0.0, 9.996, 0.012345, 1.2345, -12.345, 999.6, 1_234_567.0, 3.2e-9, 4.5e12, f64::NAN, f64::INFINITY];
        let shown = ["0", "10.0", "0.0123", "1.23", "−12.3", "1,000", "1,230,000", "3.20e-9", "4.50e12", "–", "–"];
        assert_eq!(numbers.map(significant), shown);
        let times =
            [0.0, 0.85, 12.34, 4_560.0, 720_000.0, 12_240_000.0, f64::NAN].map(|ms| time(ms).replace('\u{a0}', " "));
        assert_eq!(times, ["0 ms", "850 µs", "12.3 ms", "4.56 s", "12.0 min", "3.40 h", "–"]);
        let sizes =
            [0, 999, 1_000, 437_955_512, 1_340_000_000, u64::MAX].map(|size| bytes(size).replace('\u{a0}', " "));
        assert_eq!(sizes, ["0 B", "999 B", "1.00 kB", "438 MB", "1.34 GB", "1.84e10 GB"]);
        assert_eq!([1.917, 0.83, 12.345, f64::INFINITY].map(ratio), ["1.92×", "0.830×", "12.3×", "–"]);
        assert_eq!(
            [0.005, 0.01, 0.0, 0.000123, -1.0, 20.0].map(short_percent),
            ["0.5%", "1%", "0%", "0.012%", "−100%", "2,000%"]
        );
    }

    #[test]
    fn metrics_are_shown_as_what_they_are() {
        let accuracy = Metric { is_share: true, ..Metric::default() };
        assert_eq!(accuracy.show(0.912844), "91.28%");
        assert_eq!(accuracy.show(f64::NAN), "–");
        assert_eq!(
            [-0.00229, 0.00114, -0.000001].map(|c| accuracy.show_change(c)),
            ["−0.23 points", "+0.11 points", "0.00 points"]
        );
        assert_eq!(accuracy.show_interval(&Interval { low: 0.894, high: 0.931 }), "89.4 to 93.1");
        let perplexity = Metric { lower_is_better: true, ..Metric::default() };
        assert_eq!(
            [14.8312, 0.4061, 12_345.6, 2e-7].map(|v| perplexity.show(v)),
            ["14.83", "0.4061", "12,345.60", "2.000e-7"]
        );
        assert_eq!(perplexity.show_change(0.1234), "+0.123");
    }
}
