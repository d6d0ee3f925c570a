//! The models that are served.

mod dial;
mod ladder;
mod role;
mod served;
mod variant;

pub(crate) use dial::{Choice, Dial};
pub(crate) use role::Role;
pub(crate) use served::Served;
pub(crate) use variant::Variant;

use crate::error::{Kind, Refusal};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The models by name. Whoever got one may go on using it after it was replaced.
pub(crate) struct Models {
    first: String,
    ready: RwLock<BTreeMap<String, Arc<Served>>>,
}

impl Models {
    /// None yet; `first` is served where a request names none.
    pub(crate) fn new(first: String) -> Models {
        Models { first, ready: RwLock::default() }
    }

    /// The model of a request.
    pub(crate) fn get(&self, name: Option<&str>) -> Result<Arc<Served>, Refusal> {
        let ready = self.ready.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = name.unwrap_or(&self.first);
        if ready.is_empty() {
            return Err(Refusal::new(Kind::Unhealthy, "the model is being loaded"));
        }
        ready.get(wanted).cloned().ok_or_else(|| {
            let names: Vec<&str> = ready.keys().map(String::as_str).collect();
            Refusal::new(
                Kind::NotFound,
                format!("no model is called \"{}\" here; there is {}", shown(wanted), names.join(", ")),
            )
        })
    }

    /// The model of a request in an API whose clients send names that mean nothing here (OpenAI's): an unknown name is
    /// the first model's.
    pub(crate) fn get_or_first(&self, name: Option<&str>) -> Result<Arc<Served>, Refusal> {
        self.get(name).or_else(|_| self.get(None))
    }

    /// Puts a model in its place; requests from now on get it.
    pub(crate) fn put(&self, served: Arc<Served>) {
        self.ready.write().unwrap_or_else(PoisonError::into_inner).insert(served.name.clone(), served);
    }

    /// All models, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Served>> {
        self.ready.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// A client's word, short enough to be repeated.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().filter(|c| !c.is_control()).take(80).collect();
    if short.len() < text.len() { short + "…" } else { short }
}
