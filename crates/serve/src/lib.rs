//! The HTTP server of Sparing: the routes of text-embeddings-inference and OpenAI, so that existing clients need no change;
//! batches by tokens without padding; and an accuracy dial that every request may turn.
//!
//! A request passes through four places: its route (`api`) reads it, `inference` turns texts into tokens and puts
//! them into the one queue, the dispatcher's thread (`queue`) takes as much as fits the moment the engine is free, and the
//! route says what came of it.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod api;
mod error;
mod inference;
mod json;
mod log;
mod metrics;
mod models;
mod queue;
mod server;
mod settings;
mod stall;
mod state;
mod timing;
mod watch;

pub use server::{Server, serve};
pub use settings::{Limits, LogStyle, Open, Settings, Source};
