//! What a request took, and the headers that say so.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use std::time::{Duration, Instant};

/// What a request took.
#[derive(Debug, Clone)]
pub(crate) struct Timing {
    /// When it began.
    pub(crate) began: Instant,
    /// Characters of its inputs.
    pub(crate) characters: usize,
    /// Tokens of its inputs.
    pub(crate) tokens: usize,
    /// Per input: turning text into tokens.
    pub(crate) tokenization: Duration,
    /// Per input: waiting for the engine.
    pub(crate) queue: Duration,
    /// Per input: the batch it was computed in.
    pub(crate) inference: Duration,
}

impl Timing {
    /// The headers of text-embeddings-inference; times in whole milliseconds.
    pub(crate) fn headers(&self) -> HeaderMap {
        let total = self.began.elapsed().as_millis() as u64;
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(HeaderName::from_static("x-compute-type"), HeaderValue::from_static("cpu+optimized"));
        for (name, value) in [
            ("x-compute-time", total),
            ("x-compute-characters", self.characters as u64),
            ("x-compute-tokens", self.tokens as u64),
            ("x-total-time", total),
            ("x-tokenization-time", self.tokenization.as_millis() as u64),
            ("x-queue-time", self.queue.as_millis() as u64),
            ("x-inference-time", self.inference.as_millis() as u64),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
        }
        headers
    }
}
