//! `/generate`: text that goes on from a prompt, whole or token by token as server-sent events. The JSON is that of
//! Hugging Face text-generation-inference.

use crate::error::{Kind, Refusal, json_body};
use crate::json::{Json, Object};
use crate::models::{Role, Served};
use crate::state::App;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Deserialize;
use serde_json::{Value, json};
use sparing_engine::GenerateOptions;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// The most new tokens of a request, all of which may wait for a slow reader.
const MOST: usize = 4096;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/generate", post(generate)).route(
        "/generate_stream",
        post(async |state, Json(request): Json<Request>| {
            generate(state, Json(Request { stream: true, ..request })).await
        }),
    )
}

#[derive(Deserialize)]
struct Request {
    inputs: String,
    #[serde(default)]
    parameters: Object<Parameters>,
    #[serde(default)]
    stream: bool,
    model: Option<String>,
}

#[derive(Deserialize, Default)]
struct Parameters {
    max_new_tokens: Option<usize>,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    seed: Option<u64>,
    do_sample: Option<bool>,
}

/// What the generating thread tells.
enum News {
    Token { id: u32, text: String },
    End { text: String, tokens: usize, reason: &'static str },
    Failed(Refusal),
}

async fn generate(State(app): State<Arc<App>>, Json(request): Json<Request>) -> Result<Response, Refusal> {
    let served = app.models.get(request.model.as_deref())?;
    served.role.require(&[Role::Generator])?;
    let options = request.parameters.options(&served)?;
    if request.inputs.is_empty() {
        return Err(Refusal::new(Kind::Empty, "`inputs` cannot be empty"));
    }
    let encoded = served.tokenizer.encode(&request.inputs, None, None);
    let encoded = encoded.map_err(|e| Refusal::new(Kind::Tokenizer, e.to_string()))?;
    app.metrics.request("single");
    let room = Arc::new(app.admit(1)?);
    // Without a bound, or a reader who takes nothing would hold everybody's turn.
    let (tell, mut news) = mpsc::unbounded_channel();
    let (generating, working) = (app.generating.clone(), room.clone());
    tokio::spawn(async move {
        // One text at a time; whoever leaves while waiting is skipped.
        let Ok(turn) = generating.acquire_owned().await else { return };
        if !tell.is_closed() {
            let work = move || write(&served, &encoded.sequence.ids, &options, &tell);
            let _ = tokio::task::spawn_blocking(work).await;
        }
        drop((turn, working));
    });
    if request.stream {
        return Ok(events(Events { news, _room: room }));
    }
    while let Some(one) = news.recv().await {
        match one {
            News::Token { .. } => {}
            News::End { text, tokens, reason } => {
                let details = json!({"finish_reason": reason, "generated_tokens": tokens});
                return Ok(json_body(&json!({"generated_text": text, "details": details})));
            }
            News::Failed(refusal) => return Err(refusal),
        }
    }
    Err(Refusal::backend("generation ended without a word"))
}

/// Generates until the end, or until nobody listens any more.
fn write(served: &Served, prompt: &[u32], options: &GenerateOptions, tell: &mpsc::UnboundedSender<News>) {
    let mut decode = served.tokenizer.stream(true);
    let mut text = String::new();
    let mut failed = None;
    let outcome = served.base.engine.generate(prompt, options, &mut |id| match decode(id) {
        Ok(piece) => {
            let piece = piece.unwrap_or_default();
            text += &piece;
            tell.send(News::Token { id, text: piece }).is_ok()
        }
        Err(error) => {
            failed = Some(error);
            false
        }
    });
    let last = match (outcome, failed) {
        (Ok(tokens), None) => {
            let long = tokens.len() >= options.max_new_tokens || prompt.len() + tokens.len() >= served.max_tokens();
            News::End { text, tokens: tokens.len(), reason: if long { "length" } else { "eos_token" } }
        }
        (Err(error), _) | (_, Some(error)) => News::Failed(Refusal::backend(error.to_string())),
    };
    // Nobody is left to tell if the client is gone.
    let _ = tell.send(last);
}

/// The news as server-sent events.
fn events(events: Events) -> Response {
    let mut response = Body::from_stream(events).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

struct Events {
    news: mpsc::UnboundedReceiver<News>,
    /// Kept until all is taken: so there are only so many streams whose tokens wait in memory.
    _room: Arc<OwnedSemaphorePermit>,
}

impl futures_core::Stream for Events {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.news.poll_recv(context).map(|one| one.map(|one| Ok(Bytes::from(format!("data:{}\n\n", one.event())))))
    }
}

impl News {
    fn event(&self) -> Value {
        match self {
            News::Token { id, text } => {
                json!({"token": {"id": id, "text": text, "special": false}, "generated_text": null, "details": null})
            }
            News::End { text, tokens, reason } => {
                let details = json!({"finish_reason": reason, "generated_tokens": tokens});
                json!({"token": null, "generated_text": text, "details": details})
            }
            News::Failed(refusal) => json!({"error": refusal.message, "error_type": "generation"}),
        }
    }
}

impl Parameters {
    fn options(&self, served: &Served) -> Result<GenerateOptions, Refusal> {
        let wrong = |what: &str| Err(Refusal::validation(format!("`parameters.{what}")));
        let sampled = self.do_sample.unwrap_or(self.temperature.is_some());
        let given = self.temperature.unwrap_or(1.0);
        if !(0.0..=100.0).contains(&given) {
            return wrong("temperature` is a number from 0 to 100");
        }
        let temperature = if sampled { given } else { 0.0 };
        let top_p = self.top_p.unwrap_or(1.0);
        if !(top_p > 0.0 && top_p <= 1.0) {
            return wrong("top_p` is a number above 0 and up to 1");
        }
        let max_new_tokens = self.max_new_tokens.unwrap_or(64);
        if !(1..=MOST).contains(&max_new_tokens) {
            return wrong(&format!("max_new_tokens` is a number from 1 to {MOST}"));
        }
        Ok(GenerateOptions {
            max_new_tokens,
            temperature,
            top_k: self.top_k.unwrap_or(0),
            top_p,
            seed: self.seed.unwrap_or(0),
            stop: served.tokenizer.end_id().into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Limits, LogStyle, Settings, Source};
    use std::time::Duration;

    /// Far more than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn app() -> Arc<App> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../engine/tests/fixtures/gpt2-causal-text");
        let source = Source {
            name: "gpt2".to_string(),
            origin: path.to_string(),
            directory: None,
            open: Arc::new(move || sparing_model::Model::load(path.as_ref())),
            precision: None,
            attention: None,
            pooling: None,
        };
        let app = App::new(Settings {
            address: ([127, 0, 0, 1], 0).into(),
            models: vec![source],
            threads: 1,
            limits: Limits { concurrent: 2, client_batch: 1, ..Limits::default() },
            auto_truncate: true,
            api_key: None,
            log: LogStyle::Off,
        });
        app.load().unwrap();
        Arc::new(app)
    }

    async fn ask(app: &Arc<App>, stream: bool) -> Response {
        let request = json!({"inputs": "the", "parameters": {"max_new_tokens": 64}, "stream": stream});
        let answer = generate(State(app.clone()), Json(serde_json::from_value(request).unwrap()));
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        answer.expect("it waits for its turn").unwrap()
    }

    #[tokio::test]
    async fn a_stream_that_nobody_reads_holds_its_room_and_nobodys_turn() {
        let app = app();
        let unread = ask(&app, true).await;
        let whole = ask(&app, false).await;
        let whole = axum::body::to_bytes(whole.into_body(), 1 << 20).await.unwrap();
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        // As much as the model can: more than any channel of a few tokens would take.
        assert!(whole["details"]["generated_tokens"].as_u64() > Some(35), "{whole}");
        // Both have been generated: what room is taken still is the stream's.
        let turn = tokio::time::timeout(PATIENCE, app.generating.clone().acquire_owned()).await.expect("a turn ends");
        admitted(&app, 1).await;
        assert!(app.admit(2).is_err());
        drop((turn, unread));
        admitted(&app, 2).await;
    }

    /// Waits until there is room for this many inputs.
    async fn admitted(app: &App, inputs: usize) {
        let room = async {
            while app.admit(inputs).is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, room).await.expect("room is given back");
    }
}
