//! The routes, by API.

mod admin;
mod docs;
mod explain;
mod generate;
mod metrics;
mod oip;
mod openai;
mod page;
mod tei;

use crate::error::{Kind, Refusal};
use crate::state::App;
use crate::watch;
use axum::Router;
use std::sync::Arc;

/// All routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    let guarded = Router::new()
        .merge(tei::routes())
        .merge(openai::routes())
        .merge(oip::routes())
        .merge(generate::routes())
        .merge(explain::routes())
        .merge(admin::routes());
    let guarded = guarded.route_layer(axum::middleware::from_fn_with_state(app.clone(), watch::key));
    let open = Router::new()
        .merge(tei::health_routes())
        .merge(oip::health_routes())
        .merge(metrics::routes())
        .merge(docs::routes())
        .merge(page::routes());
    guarded
        .merge(open)
        .fallback(async || Refusal::new(Kind::NotFound, "there is no such route; see /docs"))
        .method_not_allowed_fallback(async || Refusal::new(Kind::Method, "this route takes another method; see /docs"))
        .layer(axum::middleware::from_fn_with_state(app.clone(), watch::request))
        .with_state(app)
}
