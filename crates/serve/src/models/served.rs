//! One model that is served, and the ways to compute it that requests asked for.

use super::ladder::Ladder;
use super::{Choice, Dial, Role, Variant};
use crate::error::Refusal;
use crate::settings::{Settings, Source};
use sparing_engine::{Engine, Options};
use sparing_model::{Error, HeadKind, HeadRows, Model, Tokenizer};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;

/// One model that is served.
pub(crate) struct Served {
    pub(crate) name: String,
    /// Where it comes from, as the operator said it.
    pub(crate) origin: String,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) model: Model,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) role: Role,
    /// Whether samplers that need a calibration can be asked for.
    pub(crate) calibrated: bool,
    /// The way it is computed where a request does not say.
    pub(crate) base: Arc<Variant>,
    threads: usize,
    /// Ways that requests asked for, the latest last; the served one is not among them.
    others: Mutex<Vec<Arc<Variant>>>,
    most_others: usize,
    /// One is compiled at a time.
    compiling: tokio::sync::Mutex<()>,
    ladder: OnceCell<Ladder>,
}

/// Tokens of an input to a model that has no limit of its own: what attention takes grows with their square, and nobody else is served
/// meanwhile.
const UNLIMITED: usize = 8192;

impl Served {
    /// Reads and compiles a model. Takes its time.
    pub(crate) fn load(source: &Source, settings: &Settings) -> Result<Served, Error> {
        let mut model = (source.open)()?;
        model.tokenizer()?;
        let tokenizer = model.tokenizer.clone().ok_or_else(|| Error::new("the model has no tokenizer"))?;
        prepare_head(&mut model, source.pooling);
        let options = Options {
            threads: settings.threads,
            precision: source.precision,
            attention: source.attention.clone(),
            ..Options::default()
        };
        let engine = Engine::compile(&model, &options).map_err(|e| Error::new(here(&e)))?;
        let choice = Choice { precision: engine.precision(), attention: engine.attention().clone() };
        Ok(Served {
            name: source.name.clone(),
            origin: source.origin.clone(),
            directory: source.directory.clone(),
            role: Role::of(&model.architecture.head),
            calibrated: model.calibration().is_ok_and(|calibration| calibration.is_some()),
            model,
            tokenizer,
            base: Arc::new(Variant::new(choice, Arc::new(engine))),
            threads: settings.threads,
            others: Mutex::default(),
            most_others: settings.limits.plans,
            compiling: tokio::sync::Mutex::default(),
            ladder: OnceCell::new(),
        })
    }

    /// The longest input, in tokens.
    pub(crate) fn max_tokens(&self) -> usize {
        self.tokenizer.max_tokens().or(self.model.architecture.longest_input()).unwrap_or(UNLIMITED)
    }

    /// Where the optimiser's report is, if there is one.
    pub(crate) fn report(&self) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join("report.html")).filter(|path| path.is_file())
    }

    /// The way to compute a request of this many tokens: what its dial says, or done `within` a time, or as served.
    pub(crate) async fn variant(
        self: &Arc<Self>,
        dial: Option<&Dial>,
        within: Option<Duration>,
        tokens: usize,
    ) -> Result<Arc<Variant>, Refusal> {
        if let Some(dial) = dial {
            return self.compiled(dial.choice(&self.base.choice)?).await;
        }
        let Some(within) = within else { return Ok(self.base.clone()) };
        let ladder = self.ladder.get_or_try_init(|| Ladder::measure(self)).await?;
        self.compiled(ladder.step(within, tokens)).await
    }

    /// A way to compute the model, from the shelf or compiled now.
    pub(crate) async fn compiled(self: &Arc<Self>, choice: Choice) -> Result<Arc<Variant>, Refusal> {
        if let Some(found) = self.found(&choice) {
            return Ok(found);
        }
        choice.attention.check_for(&self.model.architecture).map_err(|e| Refusal::validation(e.to_string()))?;
        let _one = self.compiling.lock().await;
        if let Some(found) = self.found(&choice) {
            return Ok(found);
        }
        let served = self.clone();
        let compile = move || {
            let options = Options {
                threads: served.threads,
                precision: Some(choice.precision),
                attention: Some(choice.attention.clone()),
                ..Options::default()
            };
            // A calibration that is missing is the request's fault, as it asks for a sampler that needs one.
            let engine = Engine::compile(&served.model, &options).map_err(|e| Refusal::validation(here(&e)))?;
            Ok(served.shelve(Arc::new(Variant::new(choice, Arc::new(engine)))))
        };
        tokio::task::spawn_blocking(compile)
            .await
            .unwrap_or_else(|_| Err(Refusal::backend("the plan does not compile")))
    }

    /// A way that is ready. An exact one needs no engine of its own where one of its precision is there.
    fn found(&self, choice: &Choice) -> Option<Arc<Variant>> {
        if *choice == self.base.choice {
            return Some(self.base.clone());
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = others.iter().position(|variant| variant.choice == *choice) {
            let variant = others.remove(place);
            others.push(variant.clone());
            return Some(variant);
        }
        let same = |variant: &&Arc<Variant>| variant.choice.precision == choice.precision;
        let engine = std::iter::once(&self.base).chain(others.iter()).find(same)?.engine.clone();
        drop(others);
        choice.attention.is_exact().then(|| self.shelve(Arc::new(Variant::new(choice.clone(), engine))))
    }

    /// Keeps a way for the next request; what was not used for longest gives way.
    fn shelve(&self, variant: Arc<Variant>) -> Arc<Variant> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.push(variant.clone());
        let surplus = others.len().saturating_sub(self.most_others);
        others.drain(..surplus);
        variant
    }

    /// Every way that is ready, the served one first.
    pub(crate) fn variants(&self) -> Vec<Arc<Variant>> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(&self.base).chain(others.iter()).cloned().collect()
    }
}

/// An error without flags that a server has not.
fn here(error: &Error) -> String {
    error.to_string().replace(", or use --calibration FILE", ", which puts it into MODEL, and serve again")
}

/// Bare encoders get a pooling head; unit length is left to requests, which may not want it.
fn prepare_head(model: &mut Model, pooling: Option<HeadRows>) {
    let head = &mut model.architecture.head;
    match head.kind {
        HeadKind::Hidden => head.rows = pooling.unwrap_or(HeadRows::First),
        HeadKind::Embed { .. } => head.rows = pooling.unwrap_or(head.rows),
        _ => return,
    }
    head.kind = HeadKind::Embed { normalise: false };
}
