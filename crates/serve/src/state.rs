//! What all requests share.

use crate::error::{Kind, Refusal};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::models::{Models, Served};
use crate::queue::Queue;
use crate::settings::Settings;
use sparing_model::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What all requests share.
pub(crate) struct App {
    pub(crate) settings: Settings,
    pub(crate) models: Models,
    pub(crate) queue: Arc<Queue>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log: Log,
    /// One per input at work.
    inputs: Arc<Semaphore>,
    /// One text is generated at a time, others wait for their turn.
    pub(crate) generating: Arc<Semaphore>,
    /// So with explaining, which computes a text many times over, and beside the queue.
    pub(crate) explaining: Arc<Semaphore>,
    loading: tokio::sync::Mutex<()>,
    leaving: AtomicBool,
}

impl App {
    pub(crate) fn new(settings: Settings) -> App {
        let first = settings.models.first().map(|source| source.name.clone()).unwrap_or_default();
        App {
            models: Models::new(first),
            queue: Arc::new(Queue::new(settings.limits.queue_tokens, settings.limits.wait)),
            metrics: Arc::default(),
            log: Log::new(settings.log),
            inputs: Arc::new(Semaphore::new(settings.limits.concurrent)),
            generating: Arc::new(Semaphore::new(1)),
            explaining: Arc::new(Semaphore::new(1)),
            loading: tokio::sync::Mutex::default(),
            leaving: AtomicBool::new(false),
            settings,
        }
    }

    /// Room for this many inputs, now or not at all.
    pub(crate) fn admit(&self, inputs: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        self.inputs.clone().try_acquire_many_owned(inputs as u32).map_err(|_| Refusal::overloaded())
    }

    /// Reads and compiles all models; each replaces its predecessor when it is ready. Takes its time.
    pub(crate) fn load(&self) -> Result<(), Error> {
        for source in &self.settings.models {
            let served = Served::load(source, &self.settings)?;
            self.log.event("ready", &[("model", &served.name), ("role", served.role.name())]);
            self.models.put(Arc::new(served));
        }
        Ok(())
    }

    /// The same on another thread, once at a time. Where it fails the models that are there stay.
    pub(crate) async fn reload(self: &Arc<Self>) -> Result<(), Error> {
        let _one = self.loading.lock().await;
        let app = self.clone();
        let outcome = tokio::task::spawn_blocking(move || app.load()).await;
        let outcome = outcome.unwrap_or_else(|_| Err(Error::new("the model could not be loaded")));
        // Where none is there, the program ends and says why itself.
        if let (Err(error), false) = (&outcome, self.models.all().is_empty()) {
            self.log.event("not loaded", &[("error", &error.to_string())]);
        }
        outcome
    }

    /// Says no to health checks from now on.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// An error unless requests can be answered.
    pub(crate) fn healthy(&self) -> Result<(), Refusal> {
        if self.leaving.load(Ordering::Relaxed) {
            return Err(Refusal::new(Kind::Unhealthy, "the server is about to stop"));
        }
        if self.models.all().len() < self.settings.models.len() {
            return Err(Refusal::new(Kind::Unhealthy, "the model is being loaded"));
        }
        Ok(())
    }
}
