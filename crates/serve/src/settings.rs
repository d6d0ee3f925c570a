//! What an operator chooses.

use sparing_model::{AttentionPlan, Error, HeadRows, Model, Precision};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Everything an operator chooses.
#[derive(Clone)]
pub struct Settings {
    /// Where to listen.
    pub address: SocketAddr,
    /// The models, the first of them is served where a request names none.
    pub models: Vec<Source>,
    /// Threads to compute with; 0 means all cores.
    pub threads: usize,
    /// How many of what.
    pub limits: Limits,
    /// Texts that are too long are cut where a request does not say (as text-embeddings-inference does).
    pub auto_truncate: bool,
    /// The key that clients must send as `Authorization: Bearer KEY`.
    pub api_key: Option<String>,
    /// What is written to standard error.
    pub log: LogStyle,
}

/// How requests are logged on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStyle {
    /// One JSON object per line.
    Json,
    /// One line for people.
    Text,
    /// Nothing.
    Off,
}

/// How many of what.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Tokens that the engine computes together.
    pub batch_tokens: usize,
    /// Inputs that are at work or wait, over all requests.
    pub concurrent: usize,
    /// Tokens that wait for the engine.
    pub queue_tokens: usize,
    /// The longest that a request may have to wait for the engine; `None`: half of what long requests take alone, so that
    /// accepted requests stay quick however many come.
    pub wait: Option<Duration>,
    /// Inputs of one request.
    pub client_batch: usize,
    /// Bytes of a request's body.
    pub payload: usize,
    /// From the first byte of a request to its answer.
    pub timeout: Duration,
    /// For a body to arrive.
    pub patience: Duration,
    /// For headers to arrive on an open connection, since it was opened or last used.
    pub idle: Duration,
    /// For a client to take some more of its answer, while more waits than the kernel holds: a third of what it holds, so
    /// some 150 to 350 kB.
    pub stall: Duration,
    /// Open connections.
    pub connections: usize,
    /// Plans per model that are kept ready for requests with a dial of their own.
    pub plans: usize,
    /// What is left to finish once the server is asked to stop.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            batch_tokens: 2048,
            concurrent: 512,
            queue_tokens: 32_768,
            wait: None,
            client_batch: 32,
            payload: 2_000_000,
            timeout: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            stall: Duration::from_secs(30),
            connections: 4096,
            plans: 8,
            farewell: Duration::from_secs(30),
        }
    }
}

/// Reads a model.
pub type Open = Arc<dyn Fn() -> Result<Model, Error> + Send + Sync>;

/// A model to serve: its name, how to read it (again, for a reload), and its plan.
#[derive(Clone)]
pub struct Source {
    /// What requests call it.
    pub name: String,
    /// Where it comes from, as the operator said it.
    pub origin: String,
    /// Its directory, if it has one: for `report.html` and `report.json`.
    pub directory: Option<PathBuf>,
    /// Reads it.
    pub open: Open,
    /// `None`: as the model's plan says, else f32.
    pub precision: Option<Precision>,
    /// `None`: as the model's plan says, else exact.
    pub attention: Option<AttentionPlan>,
    /// How a bare encoder's hidden states become one vector; `None`: the first token's, as text-embeddings-inference has it.
    pub pooling: Option<HeadRows>,
}

impl Settings {
    /// Refuses what could not work, in one line.
    pub fn check(&self) -> Result<(), Error> {
        let limits = &self.limits;
        if self.models.is_empty() {
            return Err(Error::new("there is no model to serve"));
        }
        for (number, source) in self.models.iter().enumerate() {
            if self.models[..number].iter().any(|other| other.name == source.name) {
                return Err(Error::new(format!(
                    "--model {}: two models have this name; choose another for one",
                    source.name
                )));
            }
        }
        if limits.client_batch > limits.concurrent {
            let (batch, concurrent) = (limits.client_batch, limits.concurrent);
            return Err(Error::new(format!(
                "--max-client-batch-size is {batch} and --max-concurrent-requests {concurrent}: full requests would always be refused; raise the second"
            )));
        }
        if self.api_key.as_ref().is_some_and(|key| key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(Error::new("--api-key: visible ASCII characters without spaces are expected"));
        }
        Ok(())
    }
}
