//! Fine-tuning of candidates, with the model as it came as teacher.

use crate::args::positive;
use crate::failure::Failure;
#[cfg(feature = "train")]
use crate::files;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
#[cfg(feature = "train")]
use {
    sparing_model::Error, sparing_model::Model, sparing_optimize::Elsewhere, sparing_optimize::Recipe,
    sparing_tasks::Dataset, std::path::Path,
};

/// Whether and how to fine-tune.
// What cannot train still says what it would need to.
#[cfg_attr(not(feature = "train"), allow(dead_code))]
#[derive(Debug, Args)]
#[command(next_help_heading = "Fine-tuning")]
pub struct TutorArgs {
    /// Fine-tune what is left, with the model as it came as teacher, and economise further than evaluation alone could: in
    /// rounds, as long as the score stays within the accepted loss. Needs rows to train with, and is best done on a GPU
    #[arg(long)]
    pub recover: bool,

    /// How to find out what an element is worth: by evaluation alone, or by training without it for a while (the published way, and slow)
    #[arg(long, value_enum, value_name = "HOW", default_value = "evaluate")]
    pub analysis: AnalysisArg,

    /// Rows that such a training sees once [default: 512]
    #[arg(long, value_name = "N", value_parser = positive, requires = "recover")]
    pub analysis_rows: Option<usize>,

    /// Rows to train with [default: the task's train part]
    #[arg(long, value_name = "PATH", requires = "recover")]
    pub train: Option<PathBuf>,

    /// Train with at most this many of them, drawn at random
    #[arg(long, value_name = "N", value_parser = positive, requires = "recover")]
    pub train_rows: Option<usize>,

    /// Trainings at most; strategies other than cost train what they took, and less of it while that loses too much [default: 8]
    #[arg(long, value_name = "N", value_parser = positive, requires = "recover")]
    pub rounds: Option<usize>,

    /// Train every candidate so many times and take the mean of the weights, which is often better than each [default: 3 with
    /// --focus accuracy, else 1]. Candidates with numbers of few bits are trained once
    #[arg(long, value_name = "N", value_parser = positive, requires = "recover")]
    pub average: Option<usize>,

    /// Times every row is seen in a training
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = positive, requires = "recover")]
    pub epochs: usize,

    /// Rows per update
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = positive, requires = "recover")]
    pub update_rows: usize,

    /// Highest learning rate
    #[arg(long, value_name = "RATE", default_value_t = 1e-4, requires = "recover")]
    pub lr: f64,

    /// Weight of the labels; the teacher's answers have the rest to one
    #[arg(long, value_name = "X", default_value_t = 0.5, requires = "recover")]
    pub hard: f64,

    /// Weight of the teacher's hidden states
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "recover")]
    pub hidden: f64,

    /// Where to train: cpu, cuda or wgpu
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = crate::args::device_name, requires = "recover")]
    pub device: String,

    /// Multiply in bf16 while training (weights stay f32): faster on processors with AVX512-BF16 and on GPUs with tensor cores
    #[arg(long, requires = "recover")]
    pub bf16: bool,
}

/// How to find out what an element is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AnalysisArg {
    /// By evaluation alone
    Evaluate,
    /// By training without it for a while
    Finetune,
}

impl TutorArgs {
    /// What the report says of it.
    pub fn name(&self) -> &'static str {
        match (self.recover, self.analysis) {
            (false, _) => "evaluate",
            (true, AnalysisArg::Evaluate) => "evaluate, then fine-tune",
            (true, AnalysisArg::Finetune) => "fine-tune",
        }
    }
}

/// Fine-tunes candidates.
#[cfg(feature = "train")]
pub struct Tutor<'a> {
    pub args: &'a TutorArgs,
    /// The model as it came.
    pub teacher: &'a Model,
    pub rows: &'a Dataset,
    /// Times it goes through them.
    pub epochs: usize,
    /// Trainings of every candidate.
    pub average: usize,
    /// Texts are cut to this many tokens.
    pub max_tokens: Option<usize>,
    pub seed: u64,
    /// Where trainings are kept until the result is saved.
    pub directory: &'a Path,
}

#[cfg(feature = "train")]
impl Tutor<'_> {
    /// Trains a candidate, with weights in the bits that it will be stored in and rounding as int8 will where it is to run so;
    /// `None` if it was asked to stop. A training of this name that was finished before is taken as it is.
    pub fn teach(&self, student: &Model, stored: &Recipe, name: &str) -> Result<Option<Model>, Failure> {
        use crate::commands::train::watch::watched_as;
        use sparing_model::HeadKind;
        use sparing_train::{
            Distill, Mapping, Place, Prepared, Schedule, Teaching, TrainOptions, Wanted, average, device,
        };

        let shape = self.directory.join(format!("{name}-before"));
        let rounded = shape.join("rounding.txt");
        let earlier = shape.exists().then(|| (Model::load(&shape), std::fs::read_to_string(&rounded).ok()));
        student.save(&shape)?;
        let student = Model::load(&shape)?;
        let quantization = rounding(&student, stored);
        let rounds = format!("{quantization:?}");
        files::write(&rounded, rounds.as_bytes())?;
        let same = |found: Model| found.architecture == student.architecture && found.plan == student.plan;
        // Neither a training of something else nor one for other bits is gone on with.
        if earlier.is_some_and(|(found, other)| !found.is_ok_and(same) || other.is_some_and(|other| other != rounds)) {
            self.forget(name)?;
        }
        let regresses = student.architecture.head.kind == HeadKind::Regress;
        let soft = 1.0 - self.args.hard;
        let teaching = Teaching {
            hard: self.args.hard,
            soft: 0.0,
            divergence: if regresses { 0.0 } else { soft },
            temperature: 2.0,
            logits: if regresses { soft } else { 0.0 },
            hidden: self.args.hidden,
            attention: 0.0,
            attention_divergence: 0.0,
            mapping: Mapping::Uniform,
        };
        let trainings = if quantization.is_some() { 1 } else { self.average as u64 };
        let seeds: Vec<u64> = (0..trainings).map(|number| self.seed.wrapping_add(number)).collect();
        let names = if trainings == 1 {
            vec![name.to_string()]
        } else {
            seeds.iter().map(|s| format!("{name}, seed {s}")).collect()
        };
        let defaults = TrainOptions::default();
        let out = self.directory.join(name);
        let job = Distill {
            teacher: self.teacher,
            student: Prepared::new(&student, &Wanted::of(&student))?,
            origin: &student,
            train: self.rows,
            dev: None,
            teaching,
            options: TrainOptions {
                epochs: self.epochs as u64,
                batch: self.args.update_rows,
                schedule: Schedule { rate: self.args.lr, ..defaults.schedule },
                seed: self.seed,
                bf16: self.args.bf16,
                log_every: if self.args.device == "cpu" { 1 } else { 20 },
                ..defaults
            },
            seeds,
            max_tokens: self.max_tokens,
            attention: None,
            quantization,
            device: device(&self.args.device)?,
            place: Place { directory: out.clone(), resume: true, overwrite: false },
        };
        let summary = watched_as(names, |watch| job.run(watch))?;
        if !summary.complete {
            return Ok(None);
        }
        let mut trained = match &summary.runs[..] {
            [run] => Model::load(&run.directory)?,
            runs => {
                let models = runs.iter().map(|run| Model::load(&run.directory)).collect::<Result<Vec<_>, _>>()?;
                let mean = self.directory.join(format!("{name}-mean"));
                average(&models.iter().map(|model| (model, 1.0)).collect::<Vec<_>>(), &mean)?;
                Model::load(&mean)?
            }
        };
        (trained.plan.precision, trained.plan.bf16) = (student.plan.precision, student.plan.bf16.clone());
        Ok(Some(trained))
    }

    /// Deletes trainings of this name: they began with something else.
    fn forget(&self, name: &str) -> Result<(), Failure> {
        for name in [name.to_string(), format!("{name}.work"), format!("{name}-mean")] {
            let path = self.directory.join(name);
            if path.exists() {
                std::fs::remove_dir_all(&path).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
            }
        }
        Ok(())
    }

    /// Trains a candidate that nobody keeps.
    pub fn try_out(&self, student: &Model) -> Result<Model, Error> {
        let trained = self
            .teach(student, &Recipe::default(), "trial")
            .map_err(|e| Error::new(e.message().unwrap_or("stopped")))?;
        for name in ["trial", "trial-before"] {
            let _ = std::fs::remove_dir_all(self.directory.join(name));
        }
        trained.ok_or_else(|| Error::new("stopped"))
    }
}

/// How a candidate's numbers are rounded in training: weights to the bits of a recipe where these are fewer than 8 somewhere, and what
/// maps read if it is to run in int8. 8 bits of the weights alone need no training.
#[cfg(feature = "train")]
fn rounding(student: &Model, stored: &Recipe) -> Option<sparing_train::Rounding> {
    use sparing_model::{Bits, Precision};
    use sparing_train::Rounding;
    let int8 = student.plan.precision == Some(Precision::Int8);
    let (bits, layers) = (stored.bits.unwrap_or(Bits::all(8)), stored.layer_bits.clone());
    let bf16 = student.plan.bf16.clone();
    let rounding = Rounding { bits, layers, activation_bits: int8.then_some(8), bf16, decay: None };
    (int8 || rounding.weight_bits().any(|bits| bits < 8)).then_some(rounding)
}

/// Where candidates answer while they are searched for: on the device that trains, if that is not the one that the engine runs on.
/// Numbers that are rounded and what is chosen while a model runs are the engine's alone.
#[cfg(feature = "train")]
pub fn elsewhere(args: &TutorArgs) -> Result<Option<Box<Elsewhere<'static>>>, Failure> {
    use sparing_model::{Executor, Precision};
    if !args.recover || args.device == "cpu" {
        return Ok(None);
    }
    let device = sparing_train::device(&args.device)?;
    Ok(Some(Box::new(move |model: &Model| {
        let plan = &model.plan;
        let exact = plan.precision == Some(Precision::F32) && plan.attention.is_none() && plan.functions.is_none();
        let run = || sparing_train::BurnExecutor::from_model(model, &device);
        let executor = exact.then(run).transpose()?;
        Ok(executor.map(|executor| Box::new(executor) as Box<dyn Executor>))
    })))
}

/// Refuses what this program cannot do, before any work is done.
pub fn check(args: &TutorArgs) -> Result<(), Failure> {
    if !args.recover && args.analysis == AnalysisArg::Finetune {
        return Err(Failure::Usage(
            "--analysis finetune trains every trial, and what it finds has to be trained to the end: add --recover (and --train \
             PATH, unless the task has a train part), or leave it out to judge by evaluation alone"
                .into(),
        ));
    }
    if !args.recover {
        return Ok(());
    }
    for (name, value, high) in [("lr", args.lr, 1.0), ("hard", args.hard, 1.0), ("hidden", args.hidden, 1e6)] {
        if !(0.0..=high).contains(&value) {
            return Err(Failure::Usage(format!("--{name} {value}: a number from 0 to {high} is expected")));
        }
    }
    #[cfg(not(feature = "train"))]
    return Err(crate::commands::training().at("--recover"));
    #[cfg(feature = "train")]
    return sparing_train::device(&args.device).map(drop).map_err(Failure::from);
}
