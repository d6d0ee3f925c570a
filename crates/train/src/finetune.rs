//! Fine-tuning: a labelled dataset, the head it needs, one or several seeds.

use crate::economy::Economy;
use crate::session::{Session, begun, subject};
use crate::trainer::TrainOptions;
use crate::{FakeQuantization, LinearHook, Place, Prepared, Rounding, Summary, Supervised, Wanted, examples};
use burn::tensor::Device;
use sparing_model::{Architecture, AttentionPlan, Error, Model};
use sparing_tasks::Dataset;

/// What to fine-tune, on what, and how.
pub struct Finetune<'a> {
    /// The model to begin with; read it with [`sparing_model::HeadChoice::Hidden`] if its head does not fit.
    pub model: &'a Model,
    /// To learn from.
    pub train: &'a Dataset,
    /// To choose the best model by.
    pub dev: Option<&'a Dataset>,
    /// How. The seed is replaced by each of `seeds`.
    pub options: TrainOptions,
    /// One training each.
    pub seeds: Vec<u64>,
    /// Texts are cut to this many tokens.
    pub max_tokens: Option<usize>,
    /// Train with attention economised so; `None`: as the model's plan says.
    pub attention: Option<AttentionPlan>,
    /// Train with weights and activations rounded as the engine will round them.
    pub quantization: Option<Rounding>,
    /// Where to compute.
    pub device: Device,
    /// Where to write.
    pub place: Place,
}

impl Finetune<'_> {
    /// Trains with every seed. `watch` gets the seed's number in the list and the event; false asks to stop.
    pub fn run(&self, watch: &mut dyn FnMut(usize, &crate::Event) -> bool) -> Result<Summary, Error> {
        let mut notes = self.train.notes.clone();
        let wanted = Wanted::for_dataset(self.train, &mut notes)?;
        let prepared = Prepared::new(self.model, &wanted)?;
        let tokenizer = self.model.tokenizer()?;
        let examples = examples(self.train, tokenizer, &prepared.architecture, self.max_tokens, &mut notes)?;
        let economy = Economy::new(self.attention.as_ref(), self.model, &examples);
        let network = economy.network(&prepared, self.model, self.quantization.as_ref())?;
        let rounding = |r| FakeQuantization::new(r, &prepared.architecture, &self.device);
        let quantization = self.quantization.as_ref().map(rounding).transpose()?;
        let hook = quantization.as_ref().map(|q| q as &dyn LinearHook);
        let objective = Supervised::new(&network, &examples, hook);
        let session = Session {
            prepared: &prepared,
            tokenizer,
            dev: self.dev,
            max_tokens: self.max_tokens,
            quantization: quantization.as_ref(),
            economy: &economy,
            masks: None,
            place: &self.place,
            seeds: self.seeds.len(),
            title: format!("Fine-tuning on {}", self.train.task.name()),
        };
        let device = self.device.clone().autodiff();
        let make = |seed: u64| prepared.parameters(&self.model.weights, seed, &device);
        let economised = subject(self.quantization.as_ref(), &economy);
        let windows = windows(&prepared.architecture);
        let from = begun(self.model, self.max_tokens)?;
        let subject = format!("fine-tune {from} on {}{windows}{economised}", self.train.source);
        let options = TrainOptions { subject, ..self.options.clone() };
        session.all(&self.seeds, &options, &objective, notes, &make, watch)
    }
}

/// What a training that goes on must have in common with its beginning, of a model with windows.
fn windows(architecture: &Architecture) -> String {
    let window = architecture.layers.first().and_then(|layer| layer.attention.window.as_ref());
    let positions = architecture.longest_input().unwrap_or_default();
    window.map_or(String::new(), |w| format!(", windows of {} in {positions} positions", 2 * w.one_sided))
}
