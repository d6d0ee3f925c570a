//! Pre-training on plain text: masked words (and the order of two pieces), or the next word.

mod pair_head;

use crate::corpus::{Masking, PairTask, Pairs, pieces};
use crate::data::{Example, Target};
use crate::economy::Economy;
use crate::losses::cross_entropy;
use crate::objective::{Loss, Objective, Pass, pad};
use crate::random::Random;
use crate::session::{Session, begun, subject};
use crate::trainer::{Event, TrainOptions};
use crate::{
    Capture, FakeQuantization, LinearHook, Network, PaddedBatch, Parameters, Place, Prepared, Rounding, Summary,
};
use burn::tensor::{Device, Int, Tensor, TensorData};
use pair_head::PairHead;
use sparing_model::{Error, HeadKind, Model, Sequence};
use sparing_tasks::Dataset;

/// Model, texts and how.
pub struct Pretrain<'a> {
    /// Tokenizer and shape, and the numbers to begin with.
    pub model: &'a Model,
    /// The network with its language head.
    pub prepared: Prepared,
    /// Begin with fresh numbers instead of the model's.
    pub scratch: bool,
    /// Texts; each document is cut into pieces.
    pub corpus: &'a [String],
    /// What is asked beside hidden words (BERT and ALBERT).
    pub pairs: Option<PairTask>,
    /// A text to choose the best model by.
    pub dev: Option<&'a Dataset>,
    /// How.
    pub options: TrainOptions,
    /// One training each.
    pub seeds: Vec<u64>,
    /// Tokens of a piece, special tokens included.
    pub max_tokens: usize,
    /// Train with numbers rounded as the engine will round them.
    pub quantization: Option<Rounding>,
    /// Where to compute.
    pub device: Device,
    /// Where to write.
    pub place: Place,
}

impl Pretrain<'_> {
    /// Trains with every seed. `watch` gets the seed's number in the list and the event; false asks to stop.
    pub fn run(&self, watch: &mut dyn FnMut(usize, &Event) -> bool) -> Result<Summary, Error> {
        let tokenizer = self.model.tokenizer()?;
        let architecture = &self.prepared.architecture;
        let most = architecture.max_tokens.map_or(self.max_tokens, |n| n.min(self.max_tokens));
        let causal = match architecture.head.kind {
            HeadKind::CausalLm => true,
            HeadKind::MaskedLm => false,
            _ => return Err(Error::new("pre-training needs a head that predicts words")),
        };
        let network = Network::new(architecture);
        let texts = match self.pairs {
            None => Texts::Pieces(pieces(tokenizer, self.corpus, most, causal)?),
            Some(_) if causal => return Err(Error::new("pairs are for models that fill masks")),
            Some(task) => Texts::Pairs(Pairs::new(tokenizer, self.corpus, most, task)?, PairHead::new(architecture)?),
        };
        let lengths = texts.lengths();
        let notes = vec![format!("{} pieces of at most {most} tokens", lengths.len())];
        let rounding = |r| FakeQuantization::new(r, architecture, &self.device);
        let quantization = self.quantization.as_ref().map(rounding).transpose()?;
        let objective = Language {
            network: &network,
            lengths,
            texts: &texts,
            masking: if causal { None } else { Some(Masking::new(tokenizer)?) },
            hook: quantization.as_ref().map(|q| q as &dyn LinearHook),
        };
        let mut prepared = self.prepared.clone();
        if let Texts::Pairs(_, head) = &texts {
            prepared.keep_also(head.names());
        }
        let session = Session {
            prepared: &prepared,
            tokenizer,
            dev: self.dev,
            max_tokens: Some(most),
            quantization: quantization.as_ref(),
            economy: &Economy::default(),
            masks: None,
            place: &self.place,
            seeds: self.seeds.len(),
            title: if causal { "Causal language modelling" } else { "Masked language modelling" }.to_string(),
        };
        let device = self.device.clone().autodiff();
        let make = |seed: u64| {
            let (mut parameters, fresh) = match self.scratch {
                true => (Parameters::random(architecture, seed, &device), vec![]),
                false => self.prepared.parameters(&self.model.weights, seed, &device)?,
            };
            if let Texts::Pairs(_, head) = &texts {
                head.begin(&mut parameters, (!self.scratch).then_some(&self.model.weights), seed);
            }
            Ok((parameters, fresh))
        };
        let rounded = subject(self.quantization.as_ref(), session.economy);
        let from = if self.scratch { "fresh numbers like " } else { "" };
        let model = begun(self.model, Some(most))?;
        let (texts, bytes) = (self.corpus.len(), self.corpus.iter().map(String::len).sum::<usize>());
        let subject = format!("pre-train {from}{model} on {texts} texts, {bytes} bytes, {:?}{rounded}", self.pairs);
        let options = TrainOptions { subject, ..self.options.clone() };
        session.all(&self.seeds, &options, &objective, notes, &make, watch)
    }
}

/// What is read.
enum Texts {
    Pieces(Vec<Sequence>),
    Pairs(Pairs, PairHead),
}

impl Texts {
    fn lengths(&self) -> Vec<usize> {
        match self {
            Texts::Pieces(pieces) => pieces.iter().map(|p| p.ids.len()).collect(),
            Texts::Pairs(pairs, _) => pairs.lengths(),
        }
    }
}

/// Predicting words.
struct Language<'a> {
    network: &'a Network,
    texts: &'a Texts,
    lengths: Vec<usize>,
    masking: Option<Masking>,
    hook: Option<&'a dyn LinearHook>,
}

impl Objective for Language<'_> {
    fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    fn hook(&self) -> Option<&dyn LinearHook> {
        self.hook
    }

    fn changed(&self) -> Vec<(String, Tensor<2>)> {
        self.network.changed()
    }

    fn loss(&self, parameters: &Parameters, chosen: &[usize], pass: &Pass) -> Result<Loss, Error> {
        let mut changed = Vec::new();
        let mut examples = Vec::with_capacity(chosen.len());
        for &i in chosen {
            // Other tokens are hidden, other pairs are made in every epoch.
            let seed = Random::at(pass.seed, &[i as u64]).bits();
            let piece = match self.texts {
                Texts::Pieces(pieces) => pieces[i].clone(),
                Texts::Pairs(pairs, _) => {
                    let (pair, swapped) = pairs.pair(i, seed);
                    changed.push(swapped as i32);
                    pair
                }
            };
            examples.push(match &self.masking {
                Some(masking) => masking.apply(&piece, seed ^ 1),
                None => next_tokens(piece),
            });
        }
        let chosen: Vec<&Example> = examples.iter().collect();
        let batch = pad(self.network.architecture().longest_input(), &chosen, parameters.device());
        let mode = pass.mode(Capture::default());
        let last = self.network.encode(parameters, &batch, mode, self.hook)?.last;
        let [count, length, width] = last.dims();
        let device = last.device();
        let indices = |values: Vec<i32>| -> Tensor<1, Int> {
            let length = values.len();
            Tensor::from_data(TensorData::new(values, [length]), &device)
        };
        let (places, classes) = wanted_rows(&chosen, &batch);
        let flat = last.reshape([count * length, width]);
        // The vocabulary is the dearest map of all: only rows that are asked for go through it.
        let rows = flat.clone().select(0, indices(places));
        let logits = self.network.head(parameters, rows, &batch, mode, self.hook)?;
        let mut value = cross_entropy(logits, indices(classes));
        if let Texts::Pairs(_, head) = self.texts {
            let firsts = indices((0..count).map(|i| batch.row(i, 0) as i32).collect());
            let answers = head.answers(parameters, flat.select(0, firsts))?;
            value = value + cross_entropy(answers, indices(changed));
        }
        Ok(Loss { value, tokens: batch.tokens() })
    }
}

/// Where tokens are to be predicted in the padded batch, and which.
pub(crate) fn wanted_rows(examples: &[&Example], batch: &PaddedBatch) -> (Vec<i32>, Vec<i32>) {
    let mut found = (Vec::new(), Vec::new());
    for (i, example) in examples.iter().enumerate() {
        if let Target::Rows(rows) = &example.target {
            for &(row, id) in rows {
                found.0.push(batch.row(i, row) as i32);
                found.1.push(id as i32);
            }
        }
    }
    found
}

/// Every row predicts the token after it.
fn next_tokens(piece: Sequence) -> Example {
    let rows = piece.ids[1..].iter().copied().enumerate().collect();
    Example { sequence: piece, target: Target::Rows(rows) }
}
