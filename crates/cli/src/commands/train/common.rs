//! Options that all trainings share.

use crate::args::positive;
use crate::bits;
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use sparing_model::{AttentionPlan, Bits};
use sparing_train::{AdamOptions, Curve, Place, Rounding, Schedule, TrainOptions, Warmup};
use std::path::PathBuf;

/// Where the result goes.
#[derive(Debug, Args)]
pub struct OutArgs {
    /// Directory for the trained model. While training, checkpoints are in a directory of this name plus `.work`
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// Go on from the last checkpoint, to the same curve as if nothing had happened
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,

    /// Replace what is in --out, and an unfinished training
    #[arg(long)]
    pub overwrite: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl OutArgs {
    pub fn place(&self) -> Result<Place, Failure> {
        if self.out.file_name().is_none() {
            return Err(Failure::Usage(format!("--out {}: give a directory's name", self.out.display())));
        }
        Ok(Place { directory: self.out.clone(), resume: self.resume, overwrite: self.overwrite })
    }
}

/// How the rate goes on after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CurveArg {
    /// Down to zero along a line
    Linear,
    /// Down to zero along half a cosine
    Cosine,
    /// Down with the root of the step
    Rsqrt,
    /// As it is
    Constant,
}

/// How to train.
#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub struct HowArgs {
    /// Times every example is seen
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = positive)]
    pub epochs: usize,

    /// Updates in all, instead of --epochs
    #[arg(long, value_name = "N", value_parser = positive)]
    pub steps: Option<usize>,

    /// Examples per pass
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = positive)]
    pub batch: usize,

    /// Passes per update: a larger batch in the same memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub accumulate: usize,

    /// Highest learning rate
    #[arg(long, value_name = "RATE", default_value_t = 5e-5)]
    pub lr: f64,

    /// How the rate goes on after the warm-up
    #[arg(long, value_enum, value_name = "CURVE", default_value = "linear")]
    pub schedule: CurveArg,

    /// How long the rate rises: a share of all updates (0.1), or updates (500)
    #[arg(long, value_name = "N", default_value_t = 0.1)]
    pub warmup: f64,

    /// Share of a weight that decays per update, times the rate; biases and norms are spared
    #[arg(long, value_name = "X", default_value_t = 0.01)]
    pub weight_decay: f64,

    /// Largest norm of the gradients; 0: any
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub clip: f64,

    /// Adam's second decay
    #[arg(long, value_name = "X", default_value_t = 0.999)]
    pub beta2: f64,

    /// Adam's epsilon
    #[arg(long, value_name = "X", default_value_t = 1e-8)]
    pub epsilon: f64,

    /// Each layer's rate as a share of the rate of the layer above
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub layer_decay: f64,

    /// Dropout of hidden states and attention
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    pub dropout: f64,

    /// Leave tensors alone that have this in their name: embeddings, or embeddings,layer.0.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub freeze: Vec<String>,

    /// Cut texts to this many tokens, special tokens included [default: 128]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_tokens: Option<usize>,

    /// Seeds, one training each: 0 or 0,1,2,3,4
    #[arg(long, value_name = "SEEDS", default_value = "0", value_delimiter = ',')]
    pub seed: Vec<u64>,

    /// Evaluate after this many updates [default: after every epoch]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub eval_every: Option<usize>,

    /// Stop after this many evaluations without a better one
    #[arg(long, value_name = "N", value_parser = positive)]
    pub patience: Option<usize>,

    /// Save a checkpoint after this many updates
    #[arg(long, value_name = "N", value_parser = positive)]
    pub checkpoint_steps: Option<usize>,

    /// Save a checkpoint after this many minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 10.0)]
    pub checkpoint_minutes: f64,

    /// Where to compute: cpu, cuda or wgpu
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = crate::args::device_name)]
    pub device: String,

    /// Multiply matrices in bf16 (weights stay f32): faster on processors with AVX512-BF16 and on GPUs with tensor cores
    #[arg(long)]
    pub bf16: bool,

    /// On a GPU, ask for every step of every update instead of recording updates, which the device then repeats by itself: slower
    #[arg(long)]
    pub no_record: bool,
}

impl HowArgs {
    /// The most tokens of a text.
    pub fn tokens(&self) -> usize {
        self.max_tokens.unwrap_or(128)
    }

    /// For the trainer; the seed is set per run.
    pub fn options(&self) -> Result<TrainOptions, Failure> {
        let within = |name: &str, value: f64, low: f64, high: f64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Failure::Usage(format!("--{name} {value}: a number from {low} to {high} is expected")))
        };
        within("lr", self.lr, 0.0, 1e3)?;
        within("dropout", self.dropout, 0.0, 0.99)?;
        within("layer-decay", self.layer_decay, 1e-6, 1.0)?;
        within("warmup", self.warmup, 0.0, 1e9)?;
        within("beta2", self.beta2, 0.0, 1.0)?;
        within("weight-decay", self.weight_decay, 0.0, 1e3)?;
        within("epsilon", self.epsilon, 0.0, 1.0)?;
        within("clip", self.clip, 0.0, 1e9)?;
        within("checkpoint-minutes", self.checkpoint_minutes, 0.0, 1e9)?;
        let curve = match self.schedule {
            CurveArg::Linear => Curve::Linear,
            CurveArg::Cosine => Curve::Cosine,
            CurveArg::Rsqrt => Curve::Rsqrt,
            CurveArg::Constant => Curve::Constant,
        };
        let warmup = if self.warmup < 1.0 { Warmup::Ratio(self.warmup) } else { Warmup::Steps(self.warmup as u64) };
        let mut seeds = self.seed.clone();
        seeds.sort_unstable();
        seeds.dedup();
        if seeds.len() != self.seed.len() || seeds.is_empty() {
            return Err(Failure::Usage("--seed: different seeds are expected".to_string()));
        }
        Ok(TrainOptions {
            subject: String::new(),
            epochs: self.epochs as u64,
            steps: self.steps.map(|n| n as u64),
            batch: self.batch,
            accumulate: self.accumulate,
            schedule: Schedule { rate: self.lr, curve, warmup },
            adam: AdamOptions {
                beta2: self.beta2,
                epsilon: self.epsilon,
                weight_decay: self.weight_decay,
                clip: (self.clip > 0.0).then_some(self.clip),
                ..AdamOptions::default()
            },
            layer_decay: self.layer_decay,
            dropout: self.dropout,
            bf16: self.bf16,
            freeze: self.freeze.clone(),
            seed: self.seed[0],
            evaluate_every: self.eval_every.map(|n| n as u64),
            patience: self.patience,
            checkpoint_steps: self.checkpoint_steps.map(|n| n as u64),
            checkpoint_minutes: self.checkpoint_minutes,
            // A GPU works ahead while nobody asks for numbers.
            log_every: if self.device == "cpu" { 1 } else { 20 },
            record: !self.no_record,
        })
    }
}

/// Training with economies of attention.
#[derive(Debug, Args)]
pub struct EconomyArgs {
    /// Train with attention economised as the engine will: exact,drop=0.5, exact,skip=0.6 or graded:0.4 (see `sparing run --help`). The
    /// result carries it in its plan [default: what the model's plan says, else exact]
    #[arg(long, value_name = "HOW", value_parser = crate::attention::plan)]
    pub attention: Option<AttentionPlan>,
}

/// Quantization-aware training.
#[derive(Debug, Args)]
#[command(next_help_heading = "Quantization-aware training")]
pub struct QuantizeArgs {
    /// Round weights on the way forward: one number of bits, or embeddings=4,attention=8,ffn=6,head=8; parts that are not
    /// named stay f32. The result is stored in these bits and runs in int8
    #[arg(long, value_name = "BITS", value_parser = bits::parse)]
    pub bits: Option<Bits>,

    /// How what linear maps read is rounded, in training and in the engine
    #[arg(long, value_enum, value_name = "HOW", default_value = "token", requires = "bits")]
    pub activations: ActivationsArg,

    /// Round it to this many bits
    #[arg(long, value_name = "BITS", default_value_t = 8, requires = "bits", value_parser = clap::value_parser!(u32).range(2..=8))]
    pub activation_bits: u32,

    /// With --activations static: the share that a moving average keeps of itself at every update
    #[arg(long, value_name = "X", default_value_t = 0.9999, requires = "bits")]
    pub activation_decay: f64,
}

/// How what linear maps read is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ActivationsArg {
    /// Over each token's own range
    Token,
    /// Over one range per linear map, a moving average over the training
    Static,
}

impl QuantizeArgs {
    pub fn rounding(&self) -> Option<Rounding> {
        let decay = (self.activations == ActivationsArg::Static).then_some(self.activation_decay);
        Some(Rounding { bits: self.bits?, decay, activation_bits: Some(self.activation_bits), ..Rounding::new(8) })
    }
}
