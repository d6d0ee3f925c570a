//! What happens to every request: an id, the key, a line in the log, a figure.

use crate::error::{Kind, Refusal};
use crate::log;
use crate::state::App;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// Gives a request an id (the client's, if it sent a plain one), logs and counts it.
pub(crate) async fn request(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let sent = request.headers().get("x-request-id").and_then(|id| id.to_str().ok());
    let plain = |id: &&str| !id.is_empty() && id.len() <= 128 && id.bytes().all(|b| b.is_ascii_graphic());
    let id = sent.filter(plain).map_or_else(new_id, str::to_string);
    let method = request.method().clone();
    let path = request.uri().path().to_string();
    let route = request.extensions().get::<MatchedPath>().map_or("other".to_string(), |path| path.as_str().to_string());
    let mut response = next.run(request).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    let status = response.status().as_u16();
    app.metrics.answered(&route, status);
    let refusal = response.extensions().get::<Refusal>();
    if let Some(refusal) = refusal {
        app.metrics.failure(refusal.kind.label());
    }
    let error = refusal.map(|refusal| (refusal.kind.label(), refusal.message.as_str()));
    let took = began.elapsed();
    app.log.request(&log::Request { id: &id, method: method.as_str(), path: &path, status, took, error });
    response
}

/// Refuses requests without the key, if there is one.
pub(crate) async fn key(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Some(key) = &app.settings.api_key else { return next.run(request).await };
    let sent = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let sent = sent.strip_prefix(b"Bearer ").unwrap_or_default();
    if same(sent, key.as_bytes()) {
        return next.run(request).await;
    }
    Refusal::new(Kind::Unauthorized, "send the key as Authorization: Bearer KEY").into_response()
}

/// Whether two keys are the same; takes as long whatever is different. Both are hashed with a secret of this process
/// first, so that not even the length shows.
fn same(a: &[u8], b: &[u8]) -> bool {
    static SECRETS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    let difference = SECRETS.iter().fold(0, |all, secret| all | (secret.hash_one(a) ^ secret.hash_one(b)));
    std::hint::black_box(difference) == 0
}

/// An id that no other request of this server has.
fn new_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static RANDOM: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
    format!("{:016x}-{:x}", *RANDOM, NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_or_not() {
        assert!(same(b"secret", b"secret"));
        for other in [&b"Secret"[..], b"secre", b"secret ", b""] {
            assert!(!same(other, b"secret"));
        }
        assert_ne!(new_id(), new_id());
    }
}
