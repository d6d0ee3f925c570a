//! `/info`.

use crate::error::{Refusal, json_body};
use crate::models::{Role, Served};
use crate::state::App;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};
use sparing_model::{HeadRows, Precision};
use std::sync::Arc;

pub(super) async fn info(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let served = app.models.get(None)?;
    let limits = &app.settings.limits;
    Ok(json_body(&json!({
        "model_id": served.origin,
        "model_sha": null,
        "model_dtype": dtype(served.base.choice.precision),
        "served_model_name": served.name,
        "model_type": { served.role.name(): kind(&served) },
        "max_concurrent_requests": limits.concurrent,
        "max_input_length": served.max_tokens(),
        "max_batch_tokens": limits.batch_tokens,
        "max_batch_requests": null,
        "max_client_batch_size": limits.client_batch,
        "auto_truncate": app.settings.auto_truncate,
        "tokenization_workers": crate::server::WORKERS,
        "version": env!("CARGO_PKG_VERSION"),
        "sha": null,
        "docker_label": null,
        "sparing": {
            "precision": served.base.choice.precision.name(),
            "attention": served.base.choice.attention.to_string(),
            "calibrated": served.calibrated,
            "report": app.settings.api_key.is_none() && served.report().is_some(),
            "models": app.models.all().iter().map(|model| model.name.clone()).collect::<Vec<_>>(),
        },
    })))
}

fn dtype(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "float32",
        Precision::Bf16 => "bfloat16",
        Precision::Int8 => "int8",
    }
}

/// What text-embeddings-inference says of a type of model.
fn kind(served: &Served) -> Value {
    let head = &served.model.architecture.head;
    match served.role {
        Role::Embedder => {
            let pooling = match head.rows {
                HeadRows::First => "cls",
                HeadRows::Last => "last_token",
                HeadRows::Mean => "mean",
                HeadRows::Max => "max",
                HeadRows::All => "none",
            };
            json!({"pooling": pooling})
        }
        Role::Classifier | Role::Reranker => {
            let labels = head.labels.iter().enumerate();
            let names: Map<String, Value> = labels.clone().map(|(i, name)| (i.to_string(), json!(name))).collect();
            let numbers: Map<String, Value> = labels.map(|(i, name)| (name.clone(), json!(i))).collect();
            json!({"id2label": names, "label2id": numbers})
        }
        Role::Generator | Role::Tokens => json!({"labels": head.labels}),
    }
}
