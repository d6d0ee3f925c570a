//! `/openapi.json`, and `/docs` that shows it.

use crate::error::json_body;
use crate::state::App;
use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;
use std::sync::Arc;

/// Written by hand, beside the types that it describes: `tests/schema.rs` holds the server to it.
const OPENAPI: &str = include_str!("openapi.json");

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/openapi.json", get(openapi))
        .route("/api-doc/openapi.json", get(openapi))
        .route("/docs", get(docs))
}

async fn openapi() -> Response {
    let mut document: Value = serde_json::from_str(OPENAPI).unwrap_or_default();
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    json_body(&document)
}

async fn docs() -> impl IntoResponse {
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:";
    (
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, policy)],
        include_str!("docs.html"),
    )
}
