//! `/metrics`.

use crate::metrics::Reading;
use crate::models::Served;
use crate::state::App;
use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use std::sync::Arc;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let ((jobs, tokens), wait) = (app.queue.size(), app.queue.wait());
    let gauge = |name, help, value: f64| Reading { name, kind: "gauge", help, values: vec![(String::new(), value)] };
    let mut readings = vec![
        gauge("te_queue_size", "Inputs that wait for the engine.", jobs as f64),
        gauge("sparing_queue_tokens", "Tokens that wait for the engine.", tokens as f64),
        gauge("sparing_queue_seconds", "How long a request that comes now is expected to wait.", wait.as_secs_f64()),
    ];
    let models = app.models.all();
    let counter = |name, help, of: fn(&Served) -> Vec<(String, f64)>| Reading {
        name,
        kind: "counter",
        help,
        values: models.iter().flat_map(|served| of(served)).collect(),
    };
    readings.push(counter(
        "sparing_flops_exact_total",
        "Operations the exact model would have taken, where the plan economises.",
        |served| spending(served, |spent| spent.model_exact as f64),
    ));
    readings.push(counter("sparing_flops_saved_total", "Operations that the plan saved.", |served| {
        spending(served, |spent| (spent.values_exact + spent.skipped) as f64 - spent.values as f64)
    }));
    readings.push(counter("sparing_value_tokens_total", "Heads times tokens whose values had a budget.", |served| {
        spending(served, |spent| spent.tokens as f64)
    }));
    readings.push(counter("sparing_value_tokens_exact_total", "Those of them that were computed exactly.", |served| {
        spending(served, |spent| spent.full as f64)
    }));
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.text(&readings))
}

/// A figure of every plan of a model.
fn spending(served: &Served, of: fn(&sparing_engine::Spending) -> f64) -> Vec<(String, f64)> {
    let economised = served.variants().into_iter().filter(|variant| !variant.choice.attention.is_exact());
    let series = economised.map(|variant| {
        let (precision, attention) = (variant.choice.precision.name(), &variant.choice.attention);
        let labels =
            format!("{{model=\"{}\",precision=\"{precision}\",attention=\"{attention}\"}}", label(&served.name));
        (labels, of(&variant.engine.spending()))
    });
    series.collect()
}

/// A label's value as Prometheus wants it.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
