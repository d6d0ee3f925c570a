//! `/embed` and `/embed_all`.

use super::{Inputs, timed};
use crate::error::Refusal;
use crate::inference::{Ask, Common, run};
use crate::json::Json;
use crate::models::Role;
use crate::queue::Want;
use crate::state::App;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize)]
pub(super) struct Request {
    inputs: Inputs,
    #[serde(flatten)]
    common: Common,
    normalize: Option<bool>,
    dimensions: Option<usize>,
}

#[derive(Deserialize)]
pub(super) struct RequestForAll {
    inputs: Inputs,
    #[serde(flatten)]
    common: Common,
}

pub(super) async fn embed(State(app): State<Arc<App>>, Json(request): Json<Request>) -> Result<Response, Refusal> {
    let served = app.models.get(request.common.model.as_deref())?;
    served.role.require(&[Role::Embedder])?;
    let (method, inputs) = (request.inputs.method(), request.inputs.into_inputs());
    let ask = Ask { served: &served, inputs, common: &request.common, want: Want::Head, method };
    let ran = run(&app, ask).await?;
    let normalize = request.normalize.unwrap_or(true);
    let shape = |values| shaped(values, request.dimensions, normalize);
    let vectors = ran.values.into_iter().map(shape).collect::<Result<Vec<_>, Refusal>>()?;
    Ok(timed(&vectors, &ran.timing))
}

pub(super) async fn embed_all(
    State(app): State<Arc<App>>,
    Json(request): Json<RequestForAll>,
) -> Result<Response, Refusal> {
    let served = app.models.get(request.common.model.as_deref())?;
    served.role.require(&[Role::Embedder])?;
    let (method, inputs) = (request.inputs.method(), request.inputs.into_inputs());
    let ask = Ask { served: &served, inputs, common: &request.common, want: Want::Hidden, method };
    let ran = run(&app, ask).await?;
    let rows: Vec<Vec<&[f32]>> = ran.values.iter().map(|values| values.chunks(ran.width.max(1)).collect()).collect();
    Ok(timed(&rows, &ran.timing))
}

/// A vector's first dimensions, of unit length if wanted.
pub(crate) fn shaped(mut values: Vec<f32>, dimensions: Option<usize>, normalise: bool) -> Result<Vec<f32>, Refusal> {
    match dimensions {
        Some(0) => return Err(Refusal::validation("`dimensions` should be positive")),
        Some(many) if many > values.len() => {
            let message = "`dimensions` should be smaller than the maximum embedding dimension.";
            return Err(Refusal::validation(message));
        }
        Some(few) => values.truncate(few),
        None => {}
    }
    if normalise {
        let length = values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt().max(1e-12) as f32;
        values.iter_mut().for_each(|x| *x /= length);
    }
    Ok(values)
}
