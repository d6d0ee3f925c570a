//! One line per request on standard error.

use crate::settings::LogStyle;
use serde_json::{Map, Value};
use std::io::Write;
use std::time::Duration;

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
        let time = sparing_report::time::now();
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
