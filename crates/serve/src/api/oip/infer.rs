//! `/v2/models/{model}/infer`: texts or token ids in, raw outputs of the head out.

use super::{OUTPUT, rows_per_token};
use crate::error::{Kind, Refusal, json_body};
use crate::inference::{Ask, Common, Input, run};
use crate::json::{Json, Object};
use crate::queue::Want;
use crate::state::App;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
pub(super) struct Request {
    id: Option<String>,
    inputs: Vec<Object<Tensor>>,
    #[serde(default)]
    parameters: Option<Object<Common>>,
}

#[derive(Deserialize)]
struct Tensor {
    name: String,
    shape: Vec<usize>,
    datatype: String,
    data: Value,
}

/// Numbers of an answer: as text each takes some twenty bytes, and while it is written some hundred. One text of 512 tokens to a model that
/// fills masks, with 30,522 words for each, has as many.
const MOST: usize = 16 << 20;

pub(super) async fn infer(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    Json(request): Json<Request>,
) -> Result<Response, Refusal> {
    let served = app.models.get(Some(&name))?;
    let inputs = inputs(&request.inputs)?;
    let common = request.parameters.unwrap_or_default();
    let ask = Ask { served: &served, inputs, common: &common, want: Want::Head, method: "batch" };
    let ran = run(&app, ask).await?;
    let count = ran.values.len();
    let tokens = ran.values.iter().map(|values| values.len() / ran.width.max(1)).max().unwrap_or(0);
    let shape = if rows_per_token(&served) { vec![count, tokens, ran.width] } else { vec![count, ran.width] };
    if count * tokens * ran.width > MOST {
        let why = format!(
            "the answer would be {count} x {tokens} x {} numbers, {MOST} is the limit; send fewer or shorter inputs",
            ran.width
        );
        return Err(Refusal::new(Kind::TooLarge, why));
    }
    // Rows of shorter texts are filled up: a tensor has one shape, whatever the engine did not compute.
    let mut data = Vec::with_capacity(count * tokens * ran.width);
    for mut values in ran.values {
        values.resize(tokens * ran.width, 0.0);
        data.append(&mut values);
    }
    let output = json!({"name": OUTPUT, "datatype": "FP32", "shape": shape, "data": data});
    let mut body = Map::from_iter([("model_name".to_string(), json!(name)), ("outputs".to_string(), json!([output]))]);
    body.extend(request.id.map(|id| ("id".to_string(), json!(id))));
    Ok((ran.timing.headers(), json_body(&body)).into_response())
}

/// The texts or ids of a request.
fn inputs(tensors: &[Object<Tensor>]) -> Result<Vec<Input>, Refusal> {
    let find = |wanted: &str| tensors.iter().find(|tensor| tensor.name == wanted);
    let unknown = tensors
        .iter()
        .find(|tensor| !["text", "text_pair", "input_ids", "attention_mask"].contains(&tensor.name.as_str()));
    if let Some(tensor) = unknown {
        let name = crate::models::shown(&tensor.name);
        return Err(Refusal::validation(format!("no input is called \"{name}\"; use text, text_pair or input_ids")));
    }
    match (find("text"), find("input_ids")) {
        (Some(text), None) => {
            let firsts = texts(text)?;
            let Some(pair) = find("text_pair") else { return Ok(firsts.into_iter().map(Input::Text).collect()) };
            let seconds = texts(pair)?;
            if firsts.len() != seconds.len() {
                return Err(Refusal::validation("text and text_pair have different shapes"));
            }
            Ok(firsts.into_iter().zip(seconds).map(|(first, second)| Input::Pair(first, second)).collect())
        }
        (None, Some(ids)) => rows(ids, find("attention_mask").map(|mask| &**mask)),
        _ => Err(Refusal::validation("give either an input called text or one called input_ids")),
    }
}

fn texts(tensor: &Tensor) -> Result<Vec<String>, Refusal> {
    let wrong = || Refusal::validation(format!("{}: BYTES of one axis, a list of strings, are expected", tensor.name));
    let items = flat(&tensor.data).ok_or_else(wrong)?;
    let texts: Option<Vec<String>> = items.into_iter().map(|item| item.as_str().map(str::to_string)).collect();
    let texts = texts.filter(|_| tensor.datatype == "BYTES").ok_or_else(wrong)?;
    check_shape(tensor, texts.len())?;
    Ok(texts)
}

/// Token ids, row by row, without what the mask says is padding.
fn rows(ids: &Tensor, mask: Option<&Tensor>) -> Result<Vec<Input>, Refusal> {
    let [count, length] = ids.shape[..] else {
        return Err(Refusal::validation("input_ids: a shape of two axes, [texts, tokens], is expected"));
    };
    let numbers = integers(ids)?;
    let mask = mask.map(integers).transpose()?;
    if mask.as_ref().is_some_and(|mask| mask.len() != numbers.len()) {
        return Err(Refusal::validation("attention_mask and input_ids have different shapes"));
    }
    if count > 0 && length == 0 {
        return Err(Refusal::validation("input_ids: there are no tokens"));
    }
    let kept = |i: usize| mask.as_ref().is_none_or(|mask| mask[i] != 0);
    let row = |row: usize| {
        let places = row * length..(row + 1) * length;
        Input::Ids(places.filter(|i| kept(*i)).map(|i| numbers[i]).collect())
    };
    Ok((0..count).map(row).collect())
}

fn integers(tensor: &Tensor) -> Result<Vec<u32>, Refusal> {
    let wrong = || Refusal::validation(format!("{}: INT64 or INT32 from 0 on are expected", tensor.name));
    let items = flat(&tensor.data).ok_or_else(wrong)?;
    let number = |item: &Value| item.as_u64().and_then(|n| u32::try_from(n).ok());
    let numbers: Option<Vec<u32>> = items.into_iter().map(number).collect();
    let known = ["INT64", "INT32", "UINT64", "UINT32"].contains(&tensor.datatype.as_str());
    let numbers = numbers.filter(|_| known).ok_or_else(wrong)?;
    check_shape(tensor, numbers.len())?;
    Ok(numbers)
}

fn check_shape(tensor: &Tensor, count: usize) -> Result<(), Refusal> {
    let product = tensor.shape.iter().try_fold(1usize, |all, axis| all.checked_mul(*axis));
    if product == Some(count) {
        return Ok(());
    }
    Err(Refusal::validation(format!("{}: data has {count} elements, its shape says otherwise", tensor.name)))
}

/// The elements of a list, or of a list of lists.
fn flat(data: &Value) -> Option<Vec<&Value>> {
    let outer = data.as_array()?;
    if !outer.iter().any(Value::is_array) {
        return Some(outer.iter().collect());
    }
    let inner: Option<Vec<&Vec<Value>>> = outer.iter().map(Value::as_array).collect();
    Some(inner?.into_iter().flatten().collect())
}
