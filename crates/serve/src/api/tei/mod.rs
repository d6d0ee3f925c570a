//! The routes of Hugging Face text-embeddings-inference, with its JSON.

mod embed;
mod info;
mod input;
mod predict;
mod rerank;
mod similarity;
mod tokens;

pub(super) use embed::shaped;
pub(super) use input::Inputs;
pub(super) use predict::scores;

use crate::error::{Kind, Refusal, json_body};
use crate::json;
use crate::models::Role;
use crate::state::App;
use crate::timing::Timing;
use axum::Router;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use std::sync::Arc;

/// Routes that need the key, if there is one.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/info", get(info::info))
        .route("/embed", post(embed::embed))
        .route("/embed_all", post(embed::embed_all))
        .route("/predict", post(predict::predict))
        .route("/rerank", post(rerank::rerank))
        .route("/similarity", post(similarity::similarity))
        .route("/tokenize", post(tokens::tokenize))
        .route("/decode", post(tokens::decode))
        .route("/", post(hosted))
        .route("/invocations", post(by_role))
}

/// Routes for those who look after the server.
pub(super) fn health_routes() -> Router<Arc<App>> {
    Router::new().route("/health", get(health)).route("/ping", get(health))
}

async fn health(State(app): State<Arc<App>>) -> Result<(), Refusal> {
    app.healthy()
}

/// What the first model is for: the route that hosted endpoints call.
async fn by_role(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refusal> {
    let state = State(app.clone());
    match app.models.get(None)?.role {
        Role::Classifier => predict::predict(state, json::Json::from_request(request, &app).await?).await,
        Role::Reranker => rerank::rerank(state, json::Json::from_request(request, &app).await?).await,
        Role::Embedder => embed::embed(state, json::Json::from_request(request, &app).await?).await,
        Role::Generator | Role::Tokens => {
            Err(Refusal::new(Kind::Backend, "this model has no default route; see /docs for those it has"))
        }
    }
}

/// The same for `huggingface_hub`'s client, which takes labels in a list of lists even for one text.
async fn hosted(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refusal> {
    match app.models.get(None)?.role {
        Role::Classifier => predict::hosted(State(app.clone()), json::Json::from_request(request, &app).await?).await,
        _ => by_role(State(app), request).await,
    }
}

/// An answer with the headers that say what it took.
fn timed(body: &impl Serialize, timing: &Timing) -> Response {
    (timing.headers(), json_body(body)).into_response()
}
