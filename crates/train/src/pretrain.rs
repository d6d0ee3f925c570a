//! Pre-training on plain text: masked words, or the next word.

use crate::data::{Example, Target, parallel};
use crate::objective::{Loss, Objective, Pass, head_loss, pad};
use crate::random::Random;
use crate::session::{Place, Session};
use crate::trainer::{Event, TrainOptions};
use crate::{Capture, FakeQuantization, LinearHook, Network, Parameters, Prepared, Summary};
use burn::tensor::Device;
use sparing_model::{Error, HeadKind, Model, Sequence, Tokenizer};
use sparing_tasks::Dataset;

/// Share of tokens that are predicted (Devlin et al. 2018).
pub const MASKED_SHARE: f64 = 0.15;

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
    /// A text to choose the best model by.
    pub dev: Option<&'a Dataset>,
    /// How.
    pub options: TrainOptions,
    /// One training each.
    pub seeds: Vec<u64>,
    /// Tokens of a piece, special tokens included.
    pub max_tokens: usize,
    /// Train with numbers rounded as the engine will round them.
    pub quantization: Option<FakeQuantization>,
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
        let pieces = pieces(tokenizer, self.corpus, most, causal)?;
        let notes = vec![format!("{} pieces of at most {most} tokens", pieces.len())];
        let objective = Language {
            network: &Network::new(architecture),
            lengths: pieces.iter().map(|p| p.ids.len()).collect(),
            pieces: &pieces,
            masking: if causal { None } else { Some(Masking::new(tokenizer)?) },
            hook: self.quantization.as_ref().map(|q| q as &dyn LinearHook),
        };
        let session = Session {
            prepared: &self.prepared,
            tokenizer,
            dev: self.dev,
            max_tokens: Some(most),
            quantization: self.quantization,
            place: &self.place,
            seeds: self.seeds.len(),
            title: if causal { "Causal language modelling" } else { "Masked language modelling" }.to_string(),
        };
        let device = self.device.clone().autodiff();
        let make = |seed: u64| match self.scratch {
            true => Ok((Parameters::random(architecture, seed, &device), vec![])),
            false => self.prepared.parameters(&self.model.weights, seed, &device),
        };
        let options =
            TrainOptions { subject: format!("pre-train on {} texts", self.corpus.len()), ..self.options.clone() };
        session.all(&self.seeds, &options, &objective, notes, &make, watch)
    }
}

/// Cuts documents into pieces of at most `most` tokens with special tokens where the model wants them. A causal model
/// reads documents end to end, divided by the token that ends a text.
pub fn pieces(tokenizer: &Tokenizer, corpus: &[String], most: usize, causal: bool) -> Result<Vec<Sequence>, Error> {
    let documents: Vec<&str> = corpus.iter().map(String::as_str).collect();
    let tokens = parallel(&documents, &|text| {
        let mut ids = Vec::new();
        for window in tokenizer.encode_windows("", text, None, 0)? {
            let content = (0..window.texts.len()).filter(|&i| window.texts[i] == Some(1));
            ids.extend(content.map(|i| window.sequence.ids[i]));
        }
        Ok(ids)
    })?;
    let plain = |ids: Vec<u32>| Sequence { ids, types: Vec::new() };
    let all: Vec<Sequence> = if causal {
        let mut joined: Vec<u32> = Vec::new();
        for ids in tokens {
            joined.extend(ids);
            joined.extend(tokenizer.end_id());
        }
        joined.chunks(most).filter(|c| c.len() > 1).map(|c| plain(c.to_vec())).collect()
    } else {
        let edges = tokenizer.encode("", None, None)?.sequence.ids;
        let split = usize::from(edges.len() > 1);
        let room = most.saturating_sub(edges.len());
        if room == 0 {
            return Err(Error::new(format!("{most} tokens leave no room for text beside the special ones")));
        }
        let wrap = |chunk: &[u32]| plain([&edges[..split], chunk, &edges[split..]].concat());
        tokens.iter().flat_map(|ids| ids.chunks(room)).map(wrap).collect()
    };
    if all.is_empty() {
        return Err(Error::new("the corpus holds no text"));
    }
    Ok(all)
}

/// How tokens are hidden: of those chosen, 80% become the mask, 10% another token, 10% stay (Devlin et al. 2018).
#[derive(Debug, Clone)]
pub struct Masking {
    mask: u32,
    /// Tokens that may take another's place.
    ordinary: Vec<u32>,
    special: Vec<u32>,
}

impl Masking {
    /// For a tokenizer with a mask token.
    pub fn new(tokenizer: &Tokenizer) -> Result<Masking, Error> {
        let mask = tokenizer.mask_id().ok_or_else(|| Error::new("the tokenizer has no mask token"))?;
        let edges = tokenizer.encode("", None, None)?.sequence.ids;
        let mut special: Vec<u32> = tokenizer.special_ids().iter().copied().chain(edges).chain([mask]).collect();
        special.sort_unstable();
        special.dedup();
        let ordinary = (0..tokenizer.vocabulary() as u32).filter(|id| special.binary_search(id).is_err()).collect();
        Ok(Masking { mask, ordinary, special })
    }

    /// Hides tokens of a piece; the same seed hides the same. Special tokens stay.
    pub fn apply(&self, piece: &Sequence, seed: u64) -> Example {
        let mut random = Random::new(seed);
        let mut ids = piece.ids.clone();
        let mut rows = Vec::new();
        let mut candidates: Vec<usize> =
            (0..ids.len()).filter(|&i| self.special.binary_search(&ids[i]).is_err()).collect();
        random.shuffle(&mut candidates);
        let count = (candidates.len() as f64 * MASKED_SHARE).round().max(1.0) as usize;
        for &i in candidates.iter().take(count) {
            rows.push((i, ids[i]));
            match random.uniform() {
                u if u < 0.8 => ids[i] = self.mask,
                u if u < 0.9 && !self.ordinary.is_empty() => ids[i] = self.ordinary[random.below(self.ordinary.len())],
                _ => {}
            }
        }
        Example { sequence: Sequence { ids, types: piece.types.clone() }, target: Target::Rows(rows) }
    }
}

/// Predicting words.
struct Language<'a> {
    network: &'a Network,
    pieces: &'a [Sequence],
    lengths: Vec<usize>,
    masking: Option<Masking>,
    hook: Option<&'a dyn LinearHook>,
}

impl Objective for Language<'_> {
    fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    fn loss(&self, parameters: &Parameters, chosen: &[usize], pass: &Pass) -> Result<Loss, Error> {
        let example = |&i: &usize| match &self.masking {
            // Other tokens are hidden in every epoch.
            Some(masking) => masking.apply(&self.pieces[i], Random::at(pass.seed, &[i as u64]).bits()),
            None => next_tokens(&self.pieces[i]),
        };
        let examples: Vec<Example> = chosen.iter().map(example).collect();
        let chosen: Vec<&Example> = examples.iter().collect();
        let batch = pad(self.network, &chosen, parameters.device());
        let forward = self.network.forward_with(parameters, &batch, pass.mode(Capture::default()), self.hook)?;
        Ok(Loss { value: head_loss(forward.output, &batch, &chosen)?, tokens: batch.tokens() })
    }
}

/// Every row predicts the token after it.
fn next_tokens(piece: &Sequence) -> Example {
    let rows = piece.ids[1..].iter().copied().enumerate().collect();
    Example { sequence: piece.clone(), target: Target::Rows(rows) }
}
