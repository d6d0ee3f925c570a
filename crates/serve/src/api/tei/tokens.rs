//! `/tokenize` and `/decode`.

use crate::error::{Kind, Refusal, json_body};
use crate::inference::check_count;
use crate::json::Json;
use crate::models::Served;
use crate::state::App;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Deserialize)]
pub(super) struct TokenizeRequest {
    inputs: Texts,
    add_special_tokens: Option<bool>,
    model: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Many(Vec<String>),
}

#[derive(Serialize)]
struct Token {
    id: u32,
    text: String,
    special: bool,
    /// In characters; `null` for special tokens.
    start: Option<usize>,
    stop: Option<usize>,
}

pub(super) async fn tokenize(
    State(app): State<Arc<App>>,
    Json(request): Json<TokenizeRequest>,
) -> Result<Response, Refusal> {
    let served = app.models.get(request.model.as_deref())?;
    let texts = match request.inputs {
        Texts::One(text) => vec![text],
        Texts::Many(texts) => texts,
    };
    check_count(&app, texts.len())?;
    let special = request.add_special_tokens.unwrap_or(true);
    let work = move || texts.iter().map(|text| tokens(&served, text, special)).collect::<Result<Vec<_>, Refusal>>();
    Ok(json_body(&elsewhere(work).await?))
}

/// A text's tokens, cut where the model cuts it.
fn tokens(served: &Served, text: &str, special: bool) -> Result<Vec<Token>, Refusal> {
    if text.is_empty() {
        return Err(Refusal::new(Kind::Empty, "`inputs` cannot be empty"));
    }
    let encoded =
        served.tokenizer.encode(text, None, None).map_err(|e| Refusal::new(Kind::Tokenizer, e.to_string()))?;
    let mut found = Vec::with_capacity(encoded.tokens.len());
    let (mut byte, mut character) = (0, 0);
    for (i, id) in encoded.sequence.ids.iter().enumerate() {
        let (start, stop) = encoded.offsets[i];
        match encoded.texts[i].and(text.get(start..stop)) {
            Some(piece) => {
                // Tokens come in the order of the text; some tokenizers give two of them the same place.
                if start >= byte {
                    character += text[byte..start].chars().count();
                    byte = start;
                }
                let first = character - text[start..byte.max(start)].chars().count();
                let stop = first + piece.chars().count();
                found.push(Token {
                    id: *id,
                    text: piece.to_string(),
                    special: false,
                    start: Some(first),
                    stop: Some(stop),
                });
            }
            None if special => {
                found.push(Token { id: *id, text: encoded.tokens[i].clone(), special: true, start: None, stop: None });
            }
            None => {}
        }
    }
    Ok(found)
}

#[derive(Deserialize)]
pub(super) struct DecodeRequest {
    ids: Ids,
    skip_special_tokens: Option<bool>,
    model: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(Vec<u32>),
    Many(Vec<Vec<u32>>),
}

pub(super) async fn decode(
    State(app): State<Arc<App>>,
    Json(request): Json<DecodeRequest>,
) -> Result<Response, Refusal> {
    let served = app.models.get(request.model.as_deref())?;
    let all = match request.ids {
        Ids::One(ids) if ids.is_empty() => vec![],
        Ids::One(ids) => vec![ids],
        Ids::Many(all) => all,
    };
    if all.is_empty() {
        return Err(Refusal::new(Kind::Empty, "`ids` cannot be empty"));
    }
    check_count(&app, all.len())?;
    let skip = request.skip_special_tokens.unwrap_or(true);
    let decode = move |ids: &Vec<u32>| {
        served.tokenizer.decode(ids, skip).map_err(|e| Refusal::new(Kind::Tokenizer, e.to_string()))
    };
    Ok(json_body(&elsewhere(move || all.iter().map(decode).collect::<Result<Vec<_>, Refusal>>()).await?))
}

/// Runs work on other threads than those that read requests.
async fn elsewhere<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, Refusal> + Send + 'static,
) -> Result<R, Refusal> {
    let failed = |_| Err(Refusal::new(Kind::Tokenizer, "the text cannot be tokenised"));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(failed)
}
