//! The options of `sparing serve`.

use crate::args::{MachineArgs, PrecisionArg, positive};
use crate::attention;
use crate::failure::Failure;
use crate::load;
use clap::{Args, ValueEnum};
use sparing_model::{AttentionPlan, Error, HeadRows};
use sparing_serve::{Limits, LogStyle, Settings, Source};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Serves models over HTTP: the routes of text-embeddings-inference and OpenAI, and a page to try it
///
/// Inputs of all requests run together without padding, as many tokens at a time as --max-batch-tokens says; nothing waits
/// for company. Requests may choose a cheaper plan: "sparing": {"precision": "int8"}, or "deadline_ms": 20.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing serve                                        the built-in model on http://127.0.0.1:3000
  sparing serve MODEL --precision int8 --port 8080
  sparing serve --model reviews=DIR --model vectors=org/name

  curl 127.0.0.1:3000/predict -H 'content-type: application/json' -d '{\"inputs\": \"a joyful film\"}'

Environment:
  SPARING_API_KEY    the same as --api-key, without showing it in the list of processes")]
pub struct ServeArgs {
    /// Directory in Hugging Face layout, or a Hub id: org/name or org/name@revision [default: builtin, MiniLM-L6 that
    /// tells whether a review is positive]
    #[arg(value_name = "MODEL")]
    model: Option<String>,

    /// Another model by its name in requests; may be given several times
    #[arg(long = "model", value_name = "NAME=MODEL")]
    models: Vec<String>,

    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,

    /// Where to listen; 0 means any port that is free
    #[arg(long, value_name = "PORT", default_value_t = 3000)]
    port: u16,

    /// How attention is computed, as for `sparing run` [default: what the model's plan says, else exact]
    #[arg(long, value_name = "HOW", value_parser = attention::plan)]
    attention: Option<AttentionPlan>,

    /// How a bare encoder's hidden states become one vector [default: what the model says, else cls]
    #[arg(long, value_enum, value_name = "HOW")]
    pooling: Option<Pooling>,

    /// Refuse texts that are too long where a request does not say, instead of cutting them
    #[arg(long)]
    no_auto_truncate: bool,

    /// The key that clients must send as Authorization: Bearer KEY
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,

    /// One line per request on standard error
    #[arg(long, value_enum, value_name = "STYLE", default_value = "json")]
    log: LogArg,

    #[command(flatten)]
    limits: LimitArgs,

    #[command(flatten)]
    machine: MachineArgs,
}

/// How many of what.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// Tokens that are computed together
    #[arg(long, value_name = "N", default_value_t = Limits::default().batch_tokens, value_parser = positive)]
    max_batch_tokens: usize,

    /// Inputs of all requests that are at work or wait; more are answered 429 at once
    #[arg(long, value_name = "N", default_value_t = Limits::default().concurrent, value_parser = positive)]
    max_concurrent_requests: usize,

    /// Tokens that wait; more are answered 429 at once
    #[arg(long, value_name = "N", default_value_t = Limits::default().queue_tokens, value_parser = positive)]
    max_queue_tokens: usize,

    /// Milliseconds that a request may have to wait for the engine; those that would wait longer are answered 429 at once
    /// [default: half of what long requests take alone, at least 10]
    #[arg(long, value_name = "MS", value_parser = positive)]
    max_wait: Option<usize>,

    /// Inputs of one request
    #[arg(long, value_name = "N", default_value_t = Limits::default().client_batch, value_parser = positive)]
    max_client_batch_size: usize,

    /// Bytes of one request
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().payload, value_parser = positive)]
    payload_limit: usize,

    /// Seconds that a request may take
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = positive)]
    timeout: usize,

    /// Open connections; more wait at the door
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections, value_parser = positive)]
    max_connections: usize,

    /// Plans per model kept ready for requests that choose theirs
    #[arg(long, value_name = "N", default_value_t = Limits::default().plans, value_parser = positive)]
    max_plans: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Pooling {
    Cls,
    Mean,
    Max,
    LastToken,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogArg {
    Json,
    Text,
    Off,
}

impl ServeArgs {
    /// For the server.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let mut models = Vec::new();
        if self.model.is_some() || self.models.is_empty() {
            let name = self.model.as_deref().unwrap_or(load::BUILTIN);
            let called = if name == load::BUILTIN { name.to_string() } else { load::short_name(name) };
            models.push(self.source(&called, name));
        }
        for named in &self.models {
            let (called, name) = named
                .split_once('=')
                .filter(|(called, name)| !called.is_empty() && !name.is_empty())
                .ok_or_else(|| {
                    Failure::Usage(format!("--model {named}: NAME=MODEL is expected, such as reviews=path/to/model"))
                })?;
            models.push(self.source(called, name));
        }
        let limits = &self.limits;
        let api_key = self.api_key.clone().or_else(|| std::env::var("SPARING_API_KEY").ok());
        Ok(Settings {
            address: SocketAddr::new(self.host, self.port),
            models,
            threads: self.machine.threads,
            limits: Limits {
                batch_tokens: limits.max_batch_tokens,
                concurrent: limits.max_concurrent_requests,
                queue_tokens: limits.max_queue_tokens,
                wait: limits.max_wait.map(|ms| Duration::from_millis(ms as u64)),
                client_batch: limits.max_client_batch_size,
                payload: limits.payload_limit,
                timeout: Duration::from_secs(limits.timeout as u64),
                connections: limits.max_connections,
                plans: limits.max_plans,
                ..Limits::default()
            },
            auto_truncate: !self.no_auto_truncate,
            api_key,
            log: match self.log {
                LogArg::Json => LogStyle::Json,
                LogArg::Text => LogStyle::Text,
                LogArg::Off => LogStyle::Off,
            },
        })
    }

    fn source(&self, called: &str, name: &str) -> Source {
        let origin = name.to_string();
        let open = {
            let name = origin.clone();
            move || load::open(&name, None).map_err(|e| Error::new(e.message().unwrap_or_default()))
        };
        Source {
            name: called.to_string(),
            directory: Path::new(name).is_dir().then(|| Path::new(name).to_path_buf()),
            origin,
            open: Arc::new(open),
            precision: self.machine.precision.map(PrecisionArg::resolve),
            attention: self.attention.clone(),
            pooling: self.pooling.map(|pooling| match pooling {
                Pooling::Cls => HeadRows::First,
                Pooling::Mean => HeadRows::Mean,
                Pooling::Max => HeadRows::Max,
                Pooling::LastToken => HeadRows::Last,
            }),
        }
    }
}
