//! OpenAI's `/v1/embeddings` and `/v1/models`.

use super::tei::{Inputs, shaped};
use crate::error::{Kind, Refusal, json_body, openai, restate};
use crate::inference::{Ask, Common, run};
use crate::json::{Json, Object};
use crate::models::{Dial, Role};
use crate::queue::Want;
use crate::state::App;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Router, middleware};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/embeddings", post(embeddings))
        .route("/embeddings", post(embeddings))
        .route("/v1/models", get(models))
        .layer(middleware::map_response(async |response: Response| restate(response, openai)))
}

#[derive(Deserialize)]
struct Request {
    input: Inputs,
    model: Option<String>,
    #[serde(default)]
    encoding_format: Format,
    dimensions: Option<usize>,
    sparing: Option<Object<Dial>>,
    deadline_ms: Option<u64>,
}

#[derive(Deserialize, Default, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Float,
    Base64,
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Numbers,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Numbers {
    Float(Vec<f32>),
    Base64(String),
}

async fn embeddings(State(app): State<Arc<App>>, Json(request): Json<Request>) -> Result<Response, Refusal> {
    let served = app.models.get_or_first(request.model.as_deref())?;
    served.role.require(&[Role::Embedder])?;
    let method = request.input.method();
    let common = Common { sparing: request.sparing, deadline_ms: request.deadline_ms, ..Common::default() };
    let inputs = request.input.into_inputs();
    let ran = run(&app, Ask { served: &served, inputs, common: &common, want: Want::Head, method }).await?;
    let mut data = Vec::with_capacity(ran.values.len());
    for (index, values) in ran.values.into_iter().enumerate() {
        let values = shaped(values, request.dimensions, true)?;
        let embedding = match request.encoding_format {
            Format::Float => Numbers::Float(values),
            Format::Base64 => Numbers::Base64(base64(&values)),
        };
        data.push(Embedding { object: "embedding", index, embedding });
    }
    let tokens = ran.timing.tokens;
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let body = json!({"object": "list", "data": data, "model": served.name, "usage": usage});
    let mut response = json_body(&body);
    response.headers_mut().extend(ran.timing.headers());
    Ok(response)
}

async fn models(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let all = app.models.all();
    if all.is_empty() {
        return Err(Refusal::new(Kind::Unhealthy, "the model is being loaded"));
    }
    let data: Vec<_> = all
        .iter()
        .map(|served| json!({"id": served.name, "object": "model", "owned_by": "sparing", "created": 0}))
        .collect();
    Ok(json_body(&json!({"object": "list", "data": data})))
}

/// RFC 4648 of the numbers as little-endian f32.
fn base64(values: &[f32]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let known = digit <= group.len();
            text.push(if known { DIGITS[(bits >> (18 - 6 * digit)) as usize & 63] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_the_standards() {
        // python: base64.b64encode(struct.pack("<2f", 1.0, -2.5)), and of one and three numbers
        assert_eq!(super::base64(&[1.0, -2.5]), "AACAPwAAIMA=");
        assert_eq!(super::base64(&[1.0]), "AACAPw==");
        assert_eq!(super::base64(&[1.0, -2.5, 3.25]), "AACAPwAAIMAAAFBA");
        assert_eq!(super::base64(&[]), "");
    }
}
