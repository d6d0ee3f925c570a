//! The page at `/`: type a sentence, turn the dial, see where the arithmetic goes. Everything it needs is in the program.

use crate::error::{Kind, Refusal};
use crate::state::App;
use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;

/// Nothing from anywhere else.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                      frame-src 'self'; base-uri 'none'; form-action 'none'";
/// The optimiser's report brings its own styles.
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

pub(in crate::api) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(async || file("text/html; charset=utf-8", include_str!("index.html"))))
        .route("/page.css", get(async || file("text/css; charset=utf-8", include_str!("page.css"))))
        .route("/page.js", get(async || file("text/javascript; charset=utf-8", include_str!("page.js"))))
        .route("/report", get(report))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, POLICY)], text).into_response()
}

/// The optimiser's report of the first model, if its directory has one.
async fn report(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    if app.settings.api_key.is_some() {
        return Err(Refusal::new(Kind::Unauthorized, "a server with a key shows no report"));
    }
    let served = app.models.get(None)?;
    let none =
        || Refusal::new(Kind::NotFound, "the model's directory has no report.html; `sparing optimize` writes one");
    let path = served.report().ok_or_else(none)?;
    let text = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await.ok().and_then(Result::ok);
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, REPORT_POLICY)];
    Ok((headers, text.ok_or_else(none)?).into_response())
}
