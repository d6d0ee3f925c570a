//! The Open Inference Protocol, version 2 (KServe): models by name, tensors in and out.
//! <https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md>

mod infer;

use crate::error::{Refusal, json_body, restate};
use crate::models::Served;
use crate::state::App;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Router, middleware};
use serde_json::{Value, json};
use sparing_model::HeadRows;
use std::sync::Arc;

/// The name of what comes out.
const OUTPUT: &str = "output";

/// Routes that need the key, if there is one.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/models/{model}", get(model))
        .route("/v2/models/{model}/infer", post(infer::infer))
        .layer(middleware::map_response(async |response: Response| restate(response, words)))
}

/// Routes for those who look after the server.
pub(super) fn health_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v2/health/live", get(async || json_body(&json!({"live": true}))))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/{model}/ready", get(model_ready))
        .layer(middleware::map_response(async |response: Response| restate(response, words)))
}

/// The protocol's error object.
fn words(refusal: &Refusal) -> Value {
    json!({"error": refusal.message})
}

async fn server() -> Response {
    json_body(&json!({"name": "sparing", "version": env!("CARGO_PKG_VERSION"), "extensions": []}))
}

async fn ready(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    app.healthy()?;
    Ok(json_body(&json!({"ready": true})))
}

async fn model_ready(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    app.models.get(Some(&name))?;
    Ok(json_body(&json!({"name": name, "ready": true})))
}

async fn model(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    let served = app.models.get(Some(&name))?;
    let tensor =
        |name: &str, datatype: &str, shape: &[i64]| json!({"name": name, "datatype": datatype, "shape": shape});
    let shape: &[i64] = if rows_per_token(&served) { &[-1, -1, -1] } else { &[-1, -1] };
    Ok(json_body(&json!({
        "name": name,
        "versions": [],
        "platform": "sparing",
        "inputs": [tensor("text", "BYTES", &[-1]), tensor("input_ids", "INT64", &[-1, -1])],
        "outputs": [tensor(OUTPUT, "FP32", shape)],
    })))
}

/// Whether the head answers per token.
fn rows_per_token(served: &Served) -> bool {
    served.model.architecture.head.rows == HeadRows::All
}
