//! `/explain`: one text computed as a plan says and exactly, and what was spent on every token of it.

use super::tei::scores;
use crate::error::{Kind, Refusal, json_body};
use crate::json::{Json, Object};
use crate::models::{Choice, Dial, Served, Variant};
use crate::state::App;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use serde::{Deserialize, Serialize};
use sparing_engine::RunOptions;
use sparing_model::{Batch, Encoded, Error, HeadKind, Layer, Linear, Precision, Wanted};
use std::sync::Arc;
use std::time::Instant;

/// Runs of either plan, one after the other in turn; the median is told. The page says how many.
const RUNS: usize = 7;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/explain", post(explain))
}

#[derive(Deserialize)]
struct Request {
    text: String,
    pair: Option<String>,
    model: Option<String>,
    #[serde(default)]
    sparing: Object<Dial>,
}

#[derive(Serialize)]
struct Explained {
    precision: &'static str,
    attention: String,
    tokens: Vec<Token>,
    /// Per layer and token: the share of the exact model's linear maps that was computed.
    layers: Vec<Vec<f32>>,
    /// The same of the value encoding alone, where values have budgets.
    values: Option<Vec<Vec<f32>>>,
    answer: Vec<Scored>,
    exact: Vec<Scored>,
    /// Whether both decide alike; nothing where the head decides nothing.
    same: Option<bool>,
    /// `||answer - exact|| / ||exact||` of the numbers that leave the network.
    change: f64,
    flops: u64,
    flops_exact: u64,
    milliseconds: f64,
    milliseconds_exact: f64,
}

#[derive(Serialize)]
struct Token {
    text: String,
    special: bool,
    /// It goes on with the word before.
    joined: bool,
}

#[derive(Serialize)]
struct Scored {
    label: String,
    score: f32,
}

async fn explain(State(app): State<Arc<App>>, Json(request): Json<Request>) -> Result<Response, Refusal> {
    let served = app.models.get(request.model.as_deref())?;
    if request.text.is_empty() {
        return Err(Refusal::new(Kind::Empty, "`text` cannot be empty"));
    }
    let _room = app.admit(1)?;
    let choice = request.sparing.choice(&served.base.choice)?;
    let variant = served.compiled(choice).await?;
    let exact = served.compiled(Choice { precision: Precision::F32, attention: Default::default() }).await?;
    // Whoever left while waiting for the turn is not waited for; what has begun runs to its end.
    let turn = tokio::time::timeout(app.settings.limits.timeout, app.explaining.clone().acquire_owned()).await;
    let turn = turn
        .ok()
        .and_then(Result::ok)
        .ok_or_else(|| Refusal::new(Kind::Overloaded, "others are being explained; try again"))?;
    let work = move || {
        let _turn = turn;
        let encoded = served.tokenizer.encode(&request.text, request.pair.as_deref(), None);
        let encoded = encoded.map_err(|e| Refusal::new(Kind::Tokenizer, e.to_string()))?;
        let texts = [request.text.as_str(), request.pair.as_deref().unwrap_or_default()];
        compare(&served, &variant, &exact, &encoded, texts).map_err(|e| Refusal::backend(e.to_string()))
    };
    let explained = tokio::task::spawn_blocking(work).await;
    Ok(json_body(&explained.unwrap_or_else(|_| Err(Refusal::backend("the engine failed; see the server's log")))?))
}

/// Computes both ways.
fn compare(
    served: &Served,
    variant: &Variant,
    exact: &Variant,
    encoded: &Encoded,
    texts: [&str; 2],
) -> Result<Explained, Error> {
    let batch = Batch { sequences: vec![encoded.sequence.clone()], wanted: Wanted::Head };
    let [(answer, milliseconds), (reference, milliseconds_exact)] = timed([variant, exact], &batch)?;
    let tokens = encoded.sequence.ids.len();
    let flops_exact = exact.engine.ledger(&[tokens], &Wanted::Head).flops();
    let Spent { layers, values, flops } = spent(served, variant, &batch, flops_exact)?;
    let (answer_scores, exact_scores) = (scored(served, &answer), scored(served, &reference));
    let first = |scores: &[Scored]| scores.first().map(|best| best.label.clone());
    let decides = !matches!(served.model.architecture.head.kind, HeadKind::Regress) && !exact_scores.is_empty();
    Ok(Explained {
        precision: variant.choice.precision.name(),
        attention: variant.choice.attention.to_string(),
        tokens: (0..tokens).map(|i| token(encoded, texts, i)).collect(),
        layers,
        values,
        same: decides.then(|| first(&answer_scores) == first(&exact_scores)),
        answer: answer_scores,
        exact: exact_scores,
        change: change(&reference, &answer),
        flops,
        flops_exact,
        milliseconds,
        milliseconds_exact,
    })
}

/// The head's numbers both ways, and the median of a few runs in milliseconds.
fn timed(variants: [&Variant; 2], batch: &Batch) -> Result<[(Vec<f32>, f64); 2], Error> {
    let mut found = [(Vec::new(), [0.0; RUNS]), (Vec::new(), [0.0; RUNS])];
    for run in 0..RUNS {
        for (variant, (values, times)) in variants.iter().zip(&mut found) {
            let began = Instant::now();
            *values = variant.run(batch)?.sequences.swap_remove(0);
            times[run] = began.elapsed().as_secs_f64() * 1e3;
        }
    }
    Ok(found.map(|(values, mut times)| {
        times.sort_by(f64::total_cmp);
        (values, times[RUNS / 2])
    }))
}

struct Spent {
    layers: Vec<Vec<f32>>,
    values: Option<Vec<Vec<f32>>>,
    flops: u64,
}

/// What was spent on every token.
fn spent(served: &Served, variant: &Variant, batch: &Batch, exact: u64) -> Result<Spent, Error> {
    let network = &served.model.architecture.layers;
    let sequence = &batch.sequences[0];
    let tokens = sequence.ids.len();
    let attention = &variant.choice.attention;
    let mut layers = vec![vec![1f32; tokens]; network.len()];
    if attention.tokens.is_some() {
        let Some((followed, flops)) = variant.engine.follow(sequence)? else {
            return Ok(Spent { layers, values: None, flops: exact });
        };
        let mut gone = vec![false; tokens];
        let mut followed = followed.iter().peekable();
        for (number, (layer, shares)) in network.iter().zip(&mut layers).enumerate() {
            let (projections, attention) = parts(layer);
            let here = followed.next_if(|followed| followed.layer == number);
            for (token, share) in shares.iter_mut().enumerate() {
                *share = match here {
                    _ if gone[token] => 0.0,
                    Some(here) if !here.stayed[token] => projections,
                    Some(here) if !here.busy[token] => attention,
                    _ => 1.0,
                };
            }
            if let Some(here) = here {
                gone = here.stayed.iter().map(|stayed| !stayed).collect();
            }
        }
        return Ok(Spent { layers, values: None, flops });
    }
    if attention.mca.is_some() && attention.keys.is_none() {
        let (_, examined) = variant.engine.examine(batch, &RunOptions::default())?;
        let mut values = vec![vec![1f32; tokens]; network.len()];
        let mut saved = 0f64;
        for layer in examined {
            let (inputs, outputs) =
                (network[layer.layer].attention.value.inputs, network[layer.layer].attention.value.outputs);
            values[layer.layer] = layer.spent.into_iter().next().unwrap_or_default();
            let value = (inputs * outputs) as f32 / products(&network[layer.layer]).max(1.0);
            for (share, spent) in layers[layer.layer].iter_mut().zip(&values[layer.layer]) {
                saved += f64::from(1.0 - spent) * 2.0 * (inputs * outputs) as f64;
                *share = 1.0 - value * (1.0 - spent);
            }
        }
        return Ok(Spent { layers, values: Some(values), flops: exact.saturating_sub(saved as u64) });
    }
    Ok(Spent { layers, values: None, flops: variant.engine.ledger(&[tokens], &Wanted::Head).flops() })
}

/// Which share of a layer's linear maps are queries, keys and values; and these with attention's output.
fn parts(layer: &Layer) -> (f32, f32) {
    let product = |linear: &Linear| (linear.inputs * linear.outputs) as f32;
    let attention = &layer.attention;
    let projections = product(&attention.query) + product(&attention.key) + product(&attention.value);
    let all = products(layer).max(1.0);
    (projections / all, (projections + product(&attention.output)) / all)
}

/// Multiplications of a layer's linear maps per token.
fn products(layer: &Layer) -> f32 {
    let attention = &layer.attention;
    let maps = [&attention.query, &attention.key, &attention.value, &attention.output];
    let all = maps.into_iter().chain(layer.ffns.iter().flat_map(|ffn| [&ffn.up, &ffn.down]));
    all.map(|linear| (linear.inputs * linear.outputs) as f32).sum()
}

/// Labels with their scores, best first; nothing for heads without labels.
fn scored(served: &Served, values: &[f32]) -> Vec<Scored> {
    let head = &served.model.architecture.head;
    let scores = match head.kind {
        HeadKind::Classify | HeadKind::MultiLabel => scores(head.kind, values),
        HeadKind::Regress => values.to_vec(),
        _ => return Vec::new(),
    };
    let label = |i: usize| head.labels.get(i).cloned().unwrap_or_else(|| i.to_string());
    let mut all: Vec<Scored> =
        scores.into_iter().enumerate().map(|(i, score)| Scored { label: label(i), score }).collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    all
}

/// A token as it stands in the text.
fn token(encoded: &Encoded, texts: [&str; 2], number: usize) -> Token {
    let (start, stop) = encoded.offsets[number];
    let of = |i: usize| encoded.texts.get(i).copied().flatten();
    let piece = of(number).and_then(|text| texts.get(usize::from(text))?.get(start..stop));
    let before = number.checked_sub(1).map(|i| (of(i), encoded.offsets[i].1));
    Token {
        special: piece.is_none(),
        joined: piece.is_some() && before == Some((of(number), start)),
        text: piece.map_or_else(|| encoded.tokens[number].clone(), str::to_string),
    }
}

fn change(exact: &[f32], other: &[f32]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let difference = squares(&mut exact.iter().zip(other).map(|(a, b)| f64::from(a - b)));
    (difference / squares(&mut exact.iter().map(|x| f64::from(*x))).max(1e-300)).sqrt()
}
