//! `sparing train transfer`.

use super::common::{HowArgs, OutArgs};
use super::finetune::DataArgs;
use super::pretrain::documents;
use super::report;
use super::watch::watched;
use crate::args::positive;
use crate::failure::Failure;
use crate::load;
use clap::{Args, ValueEnum};
use sparing_model::{Functions, Model, Relu, SoftmaxNetwork};
use sparing_train::{Beginning, Mapping, Teaching, Transfer, TransferTexts, device};
use std::path::PathBuf;

/// Replaces non-linear functions of a model and teaches it what the original computes (MA-BERT)
///
/// The student is the teacher with a small network in softmax's place, ReLU in GELU's, PowerNorm in layer norm's and
/// clipping in tanh's: nothing but sums, products and comparisons is left. It learns the teacher's hidden states, attention
/// and answers, first on plain text (--corpus), then on a task (--task or --data), with the first result as --student.
#[derive(Debug, Args)]
#[command(mut_arg("lr", |arg| arg.default_value("5e-4")), mut_arg("dropout", |arg| arg.default_value("0")))]
#[command(after_help = "\
Examples:
  sparing train transfer --teacher M --to ma --corpus wiki.txt --steps 2000 --out general
  sparing train transfer --teacher T --to ma --student general --task sst2 --data glue --out ma-sst2
  sparing train transfer --teacher T --to ma --linear 64 --task sst2 --data glue --out fewer-keys
  sparing train transfer --teacher T --student S --no-teacher --lr 5e-5 --task rte --data D --out ma")]
pub struct TransferArgs {
    /// The model to learn from: a directory or Hub id; for a task, fine-tuned on it
    #[arg(long, value_name = "MODEL")]
    teacher: String,

    /// What is replaced [default: ma; what a --student has]
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    to: Vec<To>,

    /// A student that was made by a transfer before, to go on with; its head is the teacher's
    #[arg(long, value_name = "MODEL")]
    student: Option<String>,

    /// Networks in softmax's place: one in every layer, or one for all [default: per-layer; what a --student has]
    #[arg(long, value_enum, value_name = "HOW")]
    softmax: Option<SoftmaxArg>,

    /// Keys and values are projected to so many first (Linformer)
    #[arg(long, value_name = "KEYS", value_parser = positive)]
    linear: Option<usize>,

    /// Text files to learn from instead of a task
    #[arg(long, value_name = "FILE", num_args = 1..)]
    #[arg(conflicts_with_all = ["task", "data", "dev", "limit", "text", "pair", "label", "eval_every", "patience"])]
    corpus: Vec<PathBuf>,

    /// Learn from the labels alone, not from what the teacher computes. The student still begins as the teacher's weights with norms and
    /// networks fitted to it, or as --student with the teacher's head, and what its layers read is held to the teacher's largest
    /// numbers
    #[arg(long, conflicts_with_all = ["alpha", "beta", "gamma", "temperature", "guided"])]
    no_teacher: bool,

    #[command(flatten)]
    losses: LossArgs,

    /// Updates in which layers read what the teacher's layers read, then less and less of it: a share of all (0.5), or updates
    /// (500) [default: 0.5; 0 with --student, whose layers have learnt to read their own, and with --no-teacher]
    #[arg(long, value_name = "N")]
    guided: Option<f64>,

    /// PowerNorm divides by the batch's own statistics for so many updates, a share of all (0.1) or their number (500), then by
    /// running ones, as published [default: by what the teacher's texts gave at the beginning]
    #[arg(long, value_name = "N")]
    norm_warmup: Option<f64>,

    /// Texts that the teacher reads before: norms and networks begin as close to it as they can; 0: fresh [default: 256]
    #[arg(long, value_name = "N", conflicts_with = "student")]
    begin_texts: Option<usize>,

    /// Updates of every network in softmax's place before transfer begins [default: 300]
    #[arg(long, value_name = "N", conflicts_with = "student")]
    begin_steps: Option<usize>,

    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    out: OutArgs,

    #[command(flatten)]
    how: HowArgs,
}

/// What is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum To {
    /// Everything: matrix arithmetic only
    Ma,
    /// Softmax, by a network
    Softmax,
    /// GELU, by ReLU
    Relu,
    /// Layer norm, by PowerNorm
    Norm,
    /// Tanh in the head, by clipping
    Clip,
}

/// How many networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SoftmaxArg {
    /// One in every layer
    PerLayer,
    /// One for all layers
    Shared,
}

/// The paper's objective: `(1 - alpha) hard + alpha soft + beta (hidden + gamma attention)`.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Losses")]
struct LossArgs {
    /// Share of the teacher's softened answers; the labels have the rest [default: 0.9]
    #[arg(long, value_name = "X")]
    alpha: Option<f64>,

    /// Weight of what is inside: hidden states, embeddings included, and attention [default: 1]
    #[arg(long, value_name = "X")]
    beta: Option<f64>,

    /// Weight of attention beside hidden states [default: 100]
    #[arg(long, value_name = "X")]
    gamma: Option<f64>,

    /// How much answers are softened [default: 15]
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
}

impl LossArgs {
    fn teaching(&self, layers: usize, teacher: bool) -> Result<Teaching, Failure> {
        let (alpha, beta) = (self.alpha.unwrap_or(0.9), self.beta.unwrap_or(1.0));
        let (gamma, temperature) = (self.gamma.unwrap_or(100.0), self.temperature.unwrap_or(15.0));
        let sound = |x: f64| x.is_finite() && x >= 0.0;
        if !((0.0..=1.0).contains(&alpha) && sound(beta) && sound(gamma) && sound(temperature) && temperature > 0.0) {
            let what = "--alpha from 0 to 1, --beta and --gamma from 0 on and --temperature above 0 are expected";
            return Err(Failure::Usage(what.to_string()));
        }
        let (alpha, beta) = if teacher { (alpha, beta) } else { (0.0, 0.0) };
        Ok(Teaching {
            hard: 1.0 - alpha,
            // The paper's cross-entropy has no factor for the temperature, ours has its square.
            soft: alpha / (temperature * temperature),
            divergence: 0.0,
            temperature,
            logits: 0.0,
            // The paper sums over layers, we take the mean.
            hidden: beta * (layers + 1) as f64,
            attention: beta * gamma * layers as f64,
            attention_divergence: 0.0,
            mapping: Mapping::Uniform,
        })
    }
}

impl TransferArgs {
    /// What stands in the place of functions: what was asked for, which must be a student's own.
    fn functions(&self, teacher: &Model, student: Option<&Model>) -> Result<Functions, Failure> {
        let asked = self.asked(teacher)?;
        let Some(own) = student.and_then(|student| student.plan.functions.clone()) else { return Ok(asked) };
        let others = Functions { softmax: own.softmax, ..asked.clone() };
        let network = own.softmax.zip(asked.softmax);
        let differs = [
            (!self.to.is_empty() && (own.softmax.is_some() != asked.softmax.is_some() || others != own), "to"),
            (self.softmax.is_some() && network.is_none_or(|(own, asked)| own.shared != asked.shared), "softmax"),
            (self.linear.is_some() && network.is_none_or(|(own, asked)| own.keys != asked.keys), "linear"),
        ];
        match differs.iter().find(|(differs, _)| *differs) {
            Some((_, flag)) => Err(Failure::Usage(format!("--{flag}: the student has other functions; leave it out"))),
            None => Ok(own),
        }
    }

    /// Refuses options that say how something is done that is not done.
    fn check(&self, teacher: &Model, student: Option<&Model>, functions: &Functions) -> Result<(), Failure> {
        let mut architecture = teacher.architecture.clone();
        functions.apply(&mut architecture)?;
        let made = architecture.replacements();
        let norms = made.keys().any(|name| name.ends_with(".running_phi"));
        let networks = functions.softmax.is_some();
        let idle = [
            (self.norm_warmup.is_some() && !norms, "norm-warmup", "no layer norm becomes PowerNorm"),
            (self.begin_steps.is_some() && !networks, "begin-steps", "no network takes softmax's place"),
            (self.begin_texts.is_some() && made.is_empty(), "begin-texts", "nothing new has to begin anywhere"),
        ];
        if let Some((_, flag, why)) = idle.iter().find(|(idle, ..)| *idle) {
            return Err(Failure::Usage(format!("--{flag}: {why} with these functions; leave it out")));
        }
        if self.begin_texts == Some(0) && norms && student.is_none() && self.norm_warmup.is_none() {
            let why = "norms would divide by 1 for ever; give --norm-warmup too, or texts";
            return Err(Failure::Usage(format!("--begin-texts 0: {why}")));
        }
        let network = student.and_then(|student| student.plan.functions.as_ref()?.softmax);
        if let Some((asked, network)) = self.how.max_tokens.zip(network).filter(|(asked, own)| *asked > own.tokens) {
            let most = network.tokens;
            let why = format!("the student's networks take {most} at most; leave it out, or begin without --student");
            return Err(Failure::Usage(format!("--max-tokens {asked}: {why}")));
        }
        self.check_weights(functions)
    }

    /// The same for numbers of what has no weight or no texts.
    fn check_weights(&self, functions: &Functions) -> Result<(), Failure> {
        let LossArgs { alpha, beta, gamma, temperature } = self.losses;
        let projected = functions.softmax.is_some_and(|softmax| softmax.keys.is_some());
        let idle = [
            (gamma.is_some() && projected, "gamma", "shares of projected keys (--linear) are not compared"),
            (gamma.is_some() && beta == Some(0.0), "gamma", "attention is not compared with --beta 0"),
            (temperature.is_some() && alpha == Some(0.0), "temperature", "no answers are softened with --alpha 0"),
            (
                self.begin_steps.is_some() && self.begin_texts == Some(0),
                "begin-steps",
                "networks have no texts to begin with (--begin-texts 0)",
            ),
        ];
        match idle.iter().find(|(idle, ..)| *idle) {
            Some((_, flag, why)) => Err(Failure::Usage(format!("--{flag}: {why}; leave it out"))),
            None => Ok(()),
        }
    }

    /// What the options ask for.
    fn asked(&self, teacher: &Model) -> Result<Functions, Failure> {
        let has = |what: To| self.to.is_empty() || self.to.iter().any(|to| *to == To::Ma || *to == what);
        let idle = [(self.softmax.is_some(), "softmax"), (self.linear.is_some(), "linear")];
        if let Some((_, flag)) = idle.iter().find(|(given, _)| *given && !has(To::Softmax)) {
            return Err(Failure::Usage(format!("--{flag} says how softmax is replaced, and --to leaves it as it is")));
        }
        let longest = teacher.architecture.longest_input().unwrap_or(usize::MAX);
        if let Some(asked) = self.how.max_tokens.filter(|asked| *asked > longest) {
            let why = format!("the teacher takes {longest} at most; leave it out, or ask for fewer");
            return Err(Failure::Usage(format!("--max-tokens {asked}: {why}")));
        }
        let network = SoftmaxNetwork {
            tokens: self.how.tokens().min(longest),
            shared: self.softmax == Some(SoftmaxArg::Shared),
            keys: self.linear,
        };
        Ok(Functions {
            softmax: has(To::Softmax).then_some(network),
            relu: has(To::Relu).then_some(Relu::ALL),
            power_norm: has(To::Norm),
            clip: has(To::Clip),
        })
    }
}

/// Runs the command.
pub fn transfer(args: &TransferArgs) -> Result<(), Failure> {
    let mut options = args.how.options()?;
    let device = device(&args.how.device)?;
    let documents = args.corpus.iter().map(|path| documents(path)).collect::<Result<Vec<_>, _>>()?.concat();
    let (read, judge);
    let texts = match documents.is_empty() {
        true => {
            (read, judge) = args.data.read()?;
            TransferTexts::Task { train: &read, dev: &judge }
        }
        false if args.no_teacher => {
            return Err(Failure::Usage("--no-teacher needs labels: give --task and --data".to_string()));
        }
        false => TransferTexts::Corpus { documents: &documents, dev: None },
    };
    let teacher = load::open_sound(&args.teacher, None)?;
    let student = args.student.as_ref().map(|name| load::open_sound(name, None)).transpose()?;
    let functions = args.functions(&teacher, student.as_ref())?;
    args.check(&teacher, student.as_ref(), &functions)?;
    let defaults = Beginning::default();
    // Positions and token types stay the teacher's, as in the paper.
    let e = &teacher.architecture.embeddings;
    let tables = e.positions.iter().map(|p| &p.name).chain(e.token_types.iter().map(|t| &t.name));
    options.freeze.extend(tables.map(|name| name.rsplit('.').nth(1).unwrap_or(name).to_string()));
    let guided = args.guided.unwrap_or(if student.is_some() || args.no_teacher { 0.0 } else { 0.5 });
    for (name, number) in [("guided", guided), ("norm-warmup", args.norm_warmup.unwrap_or(0.0))] {
        if !(0.0..=1e9).contains(&number) {
            return Err(Failure::Usage(format!("--{name} {number}: a number from 0 to 1e9 is expected")));
        }
    }
    let job = Transfer {
        teaching: args.losses.teaching(teacher.architecture.layers.len(), !args.no_teacher)?,
        teacher: &teacher,
        student: student.as_ref(),
        functions,
        texts,
        guided,
        norm_warmup: args.norm_warmup,
        beginning: Beginning {
            texts: args.begin_texts.unwrap_or(defaults.texts),
            steps: args.begin_steps.unwrap_or(defaults.steps),
            ..defaults
        },
        options,
        seeds: args.how.seed.clone(),
        max_tokens: args.how.tokens(),
        device,
        place: args.out.place()?,
    };
    let summary = watched(&args.how.seed, |watch| job.run(watch))?;
    report::print(&summary, &args.out)
}
