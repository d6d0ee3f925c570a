//! `/similarity`: cosines of a sentence with others.

use super::timed;
use crate::error::{Kind, Refusal};
use crate::inference::{Ask, Common, Input, run};
use crate::json::{Json, Object};
use crate::models::Role;
use crate::queue::Want;
use crate::state::App;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize)]
pub(super) struct Request {
    inputs: Object<Sentences>,
    #[serde(default)]
    parameters: Option<Object<Common>>,
}

#[derive(Deserialize)]
struct Sentences {
    source_sentence: String,
    sentences: Vec<String>,
}

pub(super) async fn similarity(State(app): State<Arc<App>>, Json(request): Json<Request>) -> Result<Response, Refusal> {
    let Object(Sentences { source_sentence, sentences }) = request.inputs;
    if sentences.is_empty() {
        return Err(Refusal::new(Kind::Empty, "`inputs.sentences` cannot be empty"));
    }
    let common = request.parameters.unwrap_or_default();
    let served = app.models.get(common.model.as_deref())?;
    served.role.require(&[Role::Embedder])?;
    let texts = std::iter::once(source_sentence).chain(sentences);
    let inputs = texts.map(Input::Text).collect();
    let ask = Ask { served: &served, inputs, common: &common, want: Want::Head, method: "batch" };
    let ran = run(&app, ask).await?;
    let Some((source, others)) = ran.values.split_first() else { return Err(Refusal::backend("nothing came out")) };
    let cosines: Vec<f32> = others.iter().map(|other| cosine(source, other)).collect();
    Ok(timed(&cosines, &ran.timing))
}

/// `a·b / (||a|| ||b||)`.
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    (dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(1e-24)) as f32
}
