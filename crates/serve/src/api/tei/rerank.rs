//! `/rerank`: texts by how well they go with a query.

use super::predict::scores;
use super::timed;
use crate::error::{Kind, Refusal};
use crate::inference::{Ask, Common, Input, run};
use crate::json::Json;
use crate::models::Role;
use crate::queue::Want;
use crate::state::App;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Deserialize)]
pub(super) struct Request {
    query: String,
    texts: Vec<String>,
    #[serde(flatten)]
    common: Common,
    #[serde(default)]
    raw_scores: bool,
    #[serde(default)]
    return_text: bool,
}

#[derive(Serialize)]
struct Rank {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    score: f32,
}

pub(super) async fn rerank(State(app): State<Arc<App>>, Json(request): Json<Request>) -> Result<Response, Refusal> {
    if request.texts.is_empty() {
        return Err(Refusal::new(Kind::Empty, "`texts` cannot be empty"));
    }
    let served = app.models.get(request.common.model.as_deref())?;
    served.role.require(&[Role::Reranker])?;
    let pair = |text: &String| Input::Pair(request.query.clone(), text.clone());
    let inputs = request.texts.iter().map(pair).collect();
    let ask = Ask { served: &served, inputs, common: &request.common, want: Want::Head, method: "batch" };
    let ran = run(&app, ask).await?;
    let kind = served.model.architecture.head.kind;
    let mut ranks = Vec::with_capacity(request.texts.len());
    for (index, (logits, text)) in ran.values.iter().zip(request.texts).enumerate() {
        let score = if request.raw_scores { logits.first().copied() } else { scores(kind, logits).first().copied() };
        let score = score.filter(|score| !score.is_nan()).ok_or_else(|| Refusal::backend("score is NaN"))?;
        ranks.push(Rank { index, text: request.return_text.then_some(text), score });
    }
    ranks.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ok(timed(&ranks, &ran.timing))
}
