//! `/admin/reload`: models are read again, and replaced when they are ready; no request is dropped.

use crate::error::{Kind, Refusal, json_body};
use crate::state::App;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use serde_json::json;
use std::sync::Arc;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/admin/reload", post(reload))
}

async fn reload(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    if app.settings.api_key.is_none() {
        return Err(Refusal::new(
            Kind::Forbidden,
            "only a server with --api-key can be told to reload; send it SIGHUP",
        ));
    }
    app.reload().await.map_err(|e| Refusal::backend(format!("{e}; the model that was there stays")))?;
    let names: Vec<String> = app.models.all().iter().map(|served| served.name.clone()).collect();
    Ok(json_body(&json!({"reloaded": names})))
}
