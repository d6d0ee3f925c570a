//! `/predict`: labels with scores.

use super::input::PredictInputs;
use super::timed;
use crate::error::Refusal;
use crate::inference::{Ask, Common, run};
use crate::json::Json;
use crate::models::{Role, Served};
use crate::queue::Want;
use crate::state::App;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use sparing_model::HeadKind;
use std::sync::Arc;

#[derive(Deserialize)]
pub(super) struct Request {
    inputs: PredictInputs,
    #[serde(flatten)]
    common: Common,
    #[serde(default)]
    raw_scores: bool,
}

#[derive(Serialize)]
struct Prediction<'a> {
    score: f32,
    label: &'a str,
}

pub(super) async fn predict(State(app): State<Arc<App>>, Json(request): Json<Request>) -> Result<Response, Refusal> {
    answer(&app, request, false).await
}

/// The same, where one text's labels are a list in a list, too.
pub(super) async fn hosted(State(app): State<Arc<App>>, Json(request): Json<Request>) -> Result<Response, Refusal> {
    answer(&app, request, true).await
}

async fn answer(app: &Arc<App>, request: Request, always_list: bool) -> Result<Response, Refusal> {
    let served = app.models.get(request.common.model.as_deref())?;
    served.role.require(&[Role::Classifier, Role::Reranker])?;
    let shape = "`inputs` is a text, a pair [text, text], or a batch of lists of one or two texts";
    let (inputs, batch) = request.inputs.into_inputs().ok_or_else(|| Refusal::validation(shape))?;
    let method = if batch { "batch" } else { "single" };
    let ask = Ask { served: &served, inputs, common: &request.common, want: Want::Head, method };
    let ran = run(app, ask).await?;
    let predictions = ran.values.iter().map(|logits| predictions(&served, logits, request.raw_scores));
    let mut predictions = predictions.collect::<Result<Vec<_>, Refusal>>()?;
    Ok(match predictions.pop() {
        Some(one) if !batch && !always_list => timed(&one, &ran.timing),
        last => {
            predictions.extend(last);
            timed(&predictions, &ran.timing)
        }
    })
}

/// Labels, the likeliest first.
fn predictions<'a>(served: &'a Served, logits: &[f32], raw: bool) -> Result<Vec<Prediction<'a>>, Refusal> {
    let labels = &served.model.architecture.head.labels;
    let scores = if raw { logits.to_vec() } else { scores(served.model.architecture.head.kind, logits) };
    if scores.iter().any(|score| score.is_nan()) {
        return Err(Refusal::backend("score is NaN"));
    }
    let label = |i: usize| labels.get(i).map_or("", String::as_str);
    let mut all: Vec<_> =
        scores.into_iter().enumerate().map(|(i, score)| Prediction { score, label: label(i) }).collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ok(all)
}

/// Probabilities from logits: a softmax over several labels, a sigmoid where labels do not exclude each other.
pub(crate) fn scores(kind: HeadKind, logits: &[f32]) -> Vec<f32> {
    if kind == HeadKind::MultiLabel || logits.len() == 1 {
        return logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
    }
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = logits.iter().map(|x| (x - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|p| p / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_label_gets_a_sigmoid_and_several_share_one() {
        assert_eq!(scores(HeadKind::Classify, &[0.0]), [0.5]);
        assert_eq!(scores(HeadKind::MultiLabel, &[0.0, 0.0]), [0.5, 0.5]);
        let shared = scores(HeadKind::Classify, &[1000.0, 1001.0]);
        assert!((shared[1] - 0.731_058_6).abs() < 1e-6 && (shared[0] + shared[1] - 1.0).abs() < 1e-6);
    }
}
