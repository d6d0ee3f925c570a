//! From the inputs of a request to numbers: tokens, the queue, the wait for the engine.

use crate::error::{Kind, Refusal};
use crate::json::Object;
use crate::models::{Dial, Served, Variant};
use crate::queue::{Done, Job, Want};
use crate::state::App;
use crate::timing::Timing;
use serde::Deserialize;
use sparing_model::{Encoded, Sequence};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Bytes of text that are turned into tokens where the request is read; more goes to threads of its own.
const SHORT: usize = 4096;

/// One input.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    /// A text.
    Text(String),
    /// Two texts.
    Pair(String, String),
    /// Token ids, special tokens included.
    Ids(Vec<u32>),
}

impl Input {
    fn bytes(&self) -> usize {
        match self {
            Input::Text(text) => text.len(),
            Input::Pair(first, second) => first.len() + second.len(),
            Input::Ids(ids) => ids.len(),
        }
    }

    /// As text-embeddings-inference counts them for its header.
    fn characters(&self) -> usize {
        match self {
            Input::Text(text) => text.chars().count(),
            Input::Pair(first, second) => first.chars().count() + second.chars().count(),
            Input::Ids(ids) => ids.len(),
        }
    }
}

/// What requests of several routes may say.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Common {
    /// Cut what is too long, or refuse it.
    pub(crate) truncate: Option<bool>,
    pub(crate) truncation_direction: Option<String>,
    pub(crate) prompt_name: Option<String>,
    /// Which model; ours, text-embeddings-inference has one only.
    pub(crate) model: Option<String>,
    /// The accuracy dial.
    pub(crate) sparing: Option<Object<Dial>>,
    /// The most faithful plan that is done by then.
    pub(crate) deadline_ms: Option<u64>,
}

impl Common {
    /// Refuses what is not supported.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match self.truncation_direction.as_deref() {
            None | Some("right" | "Right") => {}
            Some("left" | "Left") => {
                return Err(Refusal::validation(
                    "`truncation_direction` left is not supported; texts are cut on the right",
                ));
            }
            Some(_) => return Err(Refusal::validation("`truncation_direction` is left or right")),
        }
        if self.prompt_name.is_some() {
            return Err(Refusal::validation("`prompt_name`: this model has no prompts; put yours before the text"));
        }
        if self.sparing.is_some() && self.deadline_ms.is_some() {
            return Err(Refusal::validation("`deadline_ms` chooses the plan, and so does `sparing`; give one of them"));
        }
        Ok(())
    }
}

/// What came of a request.
pub(crate) struct Ran {
    /// Per input: rows of `width` numbers.
    pub(crate) values: Vec<Vec<f32>>,
    pub(crate) width: usize,
    pub(crate) timing: Timing,
}

/// A request to compute.
pub(crate) struct Ask<'a> {
    pub(crate) served: &'a Arc<Served>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) common: &'a Common,
    pub(crate) want: Want,
    /// `single` or `batch`, for the figures.
    pub(crate) method: &'static str,
}

/// Computes a request; refuses it at once if there is no room.
pub(crate) async fn run(app: &Arc<App>, ask: Ask<'_>) -> Result<Ran, Refusal> {
    let began = Instant::now();
    app.metrics.request(ask.method);
    ask.common.check()?;
    check_count(app, ask.inputs.len())?;
    let _room = app.admit(ask.inputs.len())?;
    app.queue.check_room()?;
    let method = ask.method;
    let limit = app.settings.limits.timeout;
    let ran = tokio::time::timeout(limit, admitted(app, ask, began)).await;
    let ran = ran.unwrap_or_else(|_| Err(Refusal::new(Kind::Timeout, "the answer took too long")))?;
    let Timing { tokenization, queue, inference, .. } = ran.timing;
    app.metrics.success(
        method,
        [
            ("te_request_duration", began.elapsed()),
            ("te_request_tokenization_duration", tokenization),
            ("te_request_queue_duration", queue),
            ("te_request_inference_duration", inference),
        ],
    );
    Ok(ran)
}

/// Refuses no inputs and too many.
pub(crate) fn check_count(app: &App, inputs: usize) -> Result<(), Refusal> {
    let most = app.settings.limits.client_batch;
    match inputs {
        0 => Err(Refusal::new(Kind::Empty, "`inputs` cannot be empty")),
        count if count > most => {
            Err(Refusal::new(Kind::TooLarge, format!("batch size {count} > maximum allowed batch size {most}")))
        }
        _ => Ok(()),
    }
}

async fn admitted(app: &Arc<App>, ask: Ask<'_>, began: Instant) -> Result<Ran, Refusal> {
    let (count, characters) = (ask.inputs.len(), ask.inputs.iter().map(Input::characters).sum());
    let truncate = ask.common.truncate.unwrap_or(app.settings.auto_truncate);
    let sequences = tokenise(ask.served, ask.inputs, truncate).await?;
    let tokens = sequences.iter().map(|sequence| sequence.ids.len()).sum();
    sequences.iter().for_each(|sequence| app.metrics.input(sequence.ids.len()));
    let tokenization = began.elapsed() / count as u32;
    let deadline = ask.common.deadline_ms.map(|ms| Duration::from_millis(ms).saturating_sub(began.elapsed()));
    let within = deadline.map(|deadline| deadline.saturating_sub(app.queue.wait()));
    let variant = ask.served.variant(ask.common.sparing.as_deref(), within, tokens).await?;
    let answers = enqueue(app, variant, sequences, ask.want)?;
    let mut values = Vec::with_capacity(count);
    let (mut width, mut queue, mut inference) = (0, Duration::ZERO, Duration::ZERO);
    for answer in answers {
        let lost = |_| Err(Refusal::new(Kind::Unhealthy, "the server is about to stop"));
        let done = answer.await.unwrap_or_else(lost)?;
        width = done.width;
        queue += done.waited;
        inference += done.computed;
        values.push(done.values);
    }
    let (queue, inference) = (queue / count as u32, inference / count as u32);
    Ok(Ran { values, width, timing: Timing { began, characters, tokens, tokenization, queue, inference } })
}

type Answer = oneshot::Receiver<Result<Done, Refusal>>;

/// Puts sequences into the queue.
fn enqueue(app: &App, variant: Arc<Variant>, sequences: Vec<Sequence>, want: Want) -> Result<Vec<Answer>, Refusal> {
    let since = Instant::now();
    let (jobs, answers) = sequences
        .into_iter()
        .map(|sequence| {
            let (answer, receiver) = oneshot::channel();
            (Job { variant: variant.clone(), want, sequence, since, answer }, receiver)
        })
        .unzip();
    app.queue.push(jobs)?;
    Ok(answers)
}

/// Turns inputs into sequences; long texts on other threads than those that read requests.
async fn tokenise(served: &Arc<Served>, inputs: Vec<Input>, truncate: bool) -> Result<Vec<Sequence>, Refusal> {
    let bytes: usize = inputs.iter().map(Input::bytes).sum();
    let work = {
        let served = served.clone();
        move || inputs.into_iter().map(|input| sequence(&served, input, truncate)).collect()
    };
    if bytes <= SHORT {
        return work();
    }
    let failed = |_| Err(Refusal::new(Kind::Tokenizer, "the text cannot be tokenised"));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(failed)
}

/// One input as the network takes it.
fn sequence(served: &Served, input: Input, truncate: bool) -> Result<Sequence, Refusal> {
    let most = served.max_tokens();
    let too_long = |given: String| {
        Refusal::new(Kind::TooLarge, format!("`inputs` must have less than {most} tokens. Given: {given}"))
    };
    let encoded = match &input {
        Input::Ids(ids) if ids.is_empty() => return Err(empty()),
        Input::Ids(ids) if ids.len() > most && !truncate => return Err(too_long(ids.len().to_string())),
        Input::Ids(ids) => {
            let words = served.model.architecture.embeddings.vocabulary;
            if let Some(id) = ids.iter().find(|id| **id as usize >= words) {
                return Err(Refusal::validation(format!("token id {id} is outside the vocabulary of {words}")));
            }
            return Ok(Sequence { ids: ids[..ids.len().min(most)].to_vec(), types: Vec::new() });
        }
        Input::Text(text) => encode(served, text, None)?,
        Input::Pair(first, second) => encode(served, first, Some(second))?,
    };
    if encoded.truncated && !truncate {
        return Err(too_long(format!("more than {most}")));
    }
    Ok(encoded.sequence)
}

fn encode(served: &Served, text: &str, pair: Option<&str>) -> Result<Encoded, Refusal> {
    if text.is_empty() && pair.is_none_or(str::is_empty) {
        return Err(empty());
    }
    served.tokenizer.encode(text, pair, None).map_err(|e| Refusal::new(Kind::Tokenizer, e.to_string()))
}

fn empty() -> Refusal {
    Refusal::new(Kind::Empty, "`inputs` cannot be empty")
}
