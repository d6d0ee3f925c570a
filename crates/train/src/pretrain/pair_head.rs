//! The head that says how two texts belong together, under the names of the published pre-training models.

use crate::Parameters;
use crate::random::Random;
use burn::tensor::Tensor;
use sparing_model::{Architecture, Error, Family, Weights};

/// Deviation of fresh weights.
const DEVIATION: f64 = 0.02;

/// Pooler and two answers.
pub(super) struct PairHead {
    pooler: String,
    answers: String,
    width: usize,
    /// What base-model tensors begin with.
    prefix: String,
}

impl PairHead {
    pub(super) fn new(architecture: &Architecture) -> Result<PairHead, Error> {
        let word = &architecture.embeddings.word;
        let prefix = word.strip_suffix("embeddings.word_embeddings.weight").unwrap_or_default().to_string();
        let (pooler, answers) = match architecture.family {
            Family::Bert => ("pooler.dense", "cls.seq_relationship"),
            Family::Albert => ("pooler", "sop_classifier.classifier"),
            other => return Err(Error::new(format!("{other:?} models are not trained on pairs; BERT and ALBERT are"))),
        };
        let (pooler, answers) = (format!("{prefix}{pooler}"), answers.to_string());
        Ok(PairHead { pooler, answers, width: architecture.hidden, prefix })
    }

    /// Its tensors.
    pub(super) fn names(&self) -> Vec<String> {
        let both = |name: &str| [format!("{name}.weight"), format!("{name}.bias")];
        both(&self.pooler).into_iter().chain(both(&self.answers)).collect()
    }

    /// Puts its numbers among the others: a model's where it has them, else fresh ones.
    pub(super) fn begin(&self, parameters: &mut Parameters, weights: Option<&Weights>, seed: u64) {
        for (number, name) in self.names().into_iter().enumerate() {
            let outputs = if number < 2 { self.width } else { 2 };
            let shape = if name.ends_with("bias") { vec![outputs] } else { vec![outputs, self.width] };
            let count: usize = shape.iter().product();
            let bare = name.strip_prefix(&self.prefix).unwrap_or(&name);
            let there = weights.and_then(|w| w.vector(&name, count).or_else(|_| w.vector(bare, count)).ok());
            let mut random = Random::at(seed, &[4, number as u64]);
            let values = there.unwrap_or_else(|| match name.ends_with("bias") {
                true => vec![0.0; count],
                false => (0..count).map(|_| (random.normal() * DEVIATION) as f32).collect(),
            });
            parameters.insert_values(&name, values, shape);
        }
    }

    /// Two logits per pair from the first token's hidden state `[pairs, hidden]`.
    pub(super) fn answers(&self, parameters: &Parameters, first: Tensor<2>) -> Result<Tensor<2>, Error> {
        let linear = |name: &str, x: Tensor<2>| -> Result<Tensor<2>, Error> {
            let weight = parameters.get(&format!("{name}.weight"))?.value.clone();
            Ok(x.matmul(weight.transpose()) + parameters.get(&format!("{name}.bias"))?.value.clone())
        };
        linear(&self.answers, linear(&self.pooler, first)?.tanh())
    }
}
