//! One line per request on standard error.

use crate::settings::LogStyle;
use serde_json::{Map, Value};
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Writes lines.
pub(crate) struct Log(LogStyle);

/// What a request came to.
pub(crate) struct Request<'a> {
    pub(crate) id: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) status: u16,
    pub(crate) took: Duration,
    /// Kind and message of a refusal.
    pub(crate) error: Option<(&'a str, &'a str)>,
}

impl Log {
    pub(crate) fn new(style: LogStyle) -> Log {
        Log(style)
    }

    /// A request that was answered.
    pub(crate) fn request(&self, request: &Request<'_>) {
        let milliseconds = (request.took.as_secs_f64() * 1e6).round() / 1e3;
        let mut fields = vec![
            ("request_id", Value::from(request.id)),
            ("method", request.method.into()),
            ("path", request.path.into()),
            ("status", request.status.into()),
            ("ms", milliseconds.into()),
        ];
        if let Some((kind, message)) = request.error {
            fields.extend([("kind", kind.into()), ("error", message.into())]);
        }
        self.write(if request.status >= 500 { "error" } else { "info" }, "request", fields);
    }

    /// Something that happened to the server.
    pub(crate) fn event(&self, event: &str, fields: &[(&str, &str)]) {
        self.write("info", event, fields.iter().map(|(name, value)| (*name, Value::from(*value))));
    }

    fn write<'a>(&self, level: &str, event: &str, fields: impl IntoIterator<Item = (&'a str, Value)>) {
        let time = stamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let line = match self.0 {
            LogStyle::Off => return,
            LogStyle::Json => {
                let head = [("time", Value::from(time)), ("level", level.into()), ("event", event.into())];
                let all: Map<String, Value> =
                    head.into_iter().chain(fields).map(|(name, value)| (name.to_string(), value)).collect();
                Value::Object(all).to_string()
            }
            LogStyle::Text => {
                let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("{time} {level} {event} {}", fields.join(" "))
            }
        };
        // Nobody to tell if standard error is closed.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}

/// `2024-02-29T23:59:59.123Z`.
fn stamp(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, second) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Days to a date of the Gregorian calendar, in eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second, milli) = (second / 3600, second / 60 % 60, second % 60, since_1970.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(stamp(Duration::from_secs(seconds)), text);
        }
    }
}
