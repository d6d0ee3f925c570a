//! `sparing eval --certify`: a cheap configuration that decides as the exact model does, with a promise and its price.

use super::certified::Certified;
use super::report::Summary;
use super::{EvalArgs, Watch, dataset, name, options, score, show};
use crate::args::positive;
use crate::cascade::{Engines, fingerprint};
use crate::console;
use crate::failure::Failure;
use crate::{files, interrupt};
use clap::Args;
use sparing_model::Model;
use sparing_tasks::{Cascade, Certificate, Check, Dataset, Decision, Escalate, Options, Pair, Progress};
use sparing_tasks::{Select, Split, Target, Trial};
use std::path::{Path, PathBuf};

/// How to certify.
#[derive(Debug, Args)]
#[command(next_help_heading = "Certified cascade")]
pub struct CertifyArgs {
    /// Run the exact model where the cheap one (--precision, --attention) is too close to call, so that this share of all
    /// decisions is the exact model's, such as 0.99
    #[arg(long, value_name = "SHARE", conflicts_with = "against", allow_negative_numbers = true)]
    pub certify: Option<f64>,

    /// How sure that is
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, requires = "certify")]
    confidence: f64,

    /// What to measure it on; labels are not needed: train, dev or test of --data, or a file or folder like it [default:
    /// half of the examples, drawn at random, which are then not scored]
    #[arg(long, value_name = "SPLIT|PATH", requires = "certify")]
    calibrate: Option<String>,

    /// Measure it on at most this many inputs, drawn at random
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = positive, requires = "certify")]
    calibrate_inputs: usize,

    /// Models that predict a number: the largest difference that does not matter
    #[arg(long, value_name = "NUMBER", requires = "certify")]
    tolerance: Option<f64>,

    /// Keep the certificate, for `sparing run --certificate`
    #[arg(long, value_name = "FILE", requires = "certify")]
    save_certificate: Option<PathBuf>,
}

impl CertifyArgs {
    /// What is to be promised, if anything; what cannot be is refused.
    pub fn target(&self) -> Result<Option<Target>, Failure> {
        let Some(certify) = self.certify else { return Ok(None) };
        let target = Target { certify, confidence: self.confidence };
        target.check().map_err(|e| Failure::Usage(e.to_string()))?;
        Ok(Some(target))
    }

    /// What the model decides; an error where it decides nothing.
    fn decision(&self, model: &Model, dataset: &Dataset) -> Result<Decision, Failure> {
        let decision = Decision::of(model.architecture.head.kind, self.tolerance);
        Ok(decision.map_err(|e| Failure::Usage(e.to_string()))?.about(dataset))
    }
}

/// Runs the command with a cascade.
pub fn eval(args: &EvalArgs, target: Target) -> Result<(), Failure> {
    let mut dataset = dataset(args)?;
    let model = args.model.open()?;
    dataset.keep_scorable(model.architecture.head.kind)?;
    let decision = args.certify.decision(&model, &dataset)?;
    let (trial, measured_on) = trial_data(args, &mut dataset)?;
    let engine_options = args.attention.apply(args.machine.options(), &model)?;
    let engines = Engines::compile(&model, &engine_options)?;
    let options = options(args);
    let tried = try_out(&model, &engines, decision, &trial, &options)?;
    let certificate = Certificate::new(&tried, decision, target, fingerprint(&model, &engine_options)?)?;
    tell(&certificate);
    if let Some(path) = &args.certify.save_certificate {
        let mut bytes = serde_json::to_vec_pretty(&certificate)?;
        bytes.push(b'\n');
        files::write(path, &bytes)?;
    }
    engines.cheap.reset_spending();
    let (cheap, exact) = (engines.cheap(), engines.exact());
    let cascade = Cascade::new(Pair { cheap: &cheap, exact: &exact, decision }, certificate.escalate);
    let report = score(args, &cascade, &model, &dataset, &options)?;
    let complete = report.complete;
    let summary = Summary::new(name(args), &dataset, &engines.cheap, report, None);
    if !complete {
        return show(args, &summary, false);
    }
    let price = price(&model, &engines, &certificate, &dataset, &options)?;
    let certified = Certified::new(certificate, measured_on, price);
    let complete = certified.is_complete();
    show(args, &summary.with(certified), complete)
}

/// The inputs to measure on; takes them out of the dataset where nothing else is named. And what to call them.
fn trial_data(args: &EvalArgs, dataset: &mut Dataset) -> Result<(Dataset, String), Failure> {
    let wanted = &args.certify;
    let select = Select { limit: None, sample: Some(wanted.calibrate_inputs), seed: args.seed };
    let read = |path: &Path, split: Split| match args.task {
        Some(task) => Dataset::read(task, path, split, &select),
        None => {
            let columns = args.columns.texts.columns();
            Dataset::table(path, &columns, &select)
        }
    };
    let found = match &wanted.calibrate {
        None => {
            let mut held = dataset.hold_out(args.seed)?;
            held.examples.truncate(wanted.calibrate_inputs);
            let whole = held.examples.len() + dataset.examples.len();
            let name =
                format!("{} of {whole} inputs drawn at random (seed {}), not scored", held.examples.len(), args.seed);
            return Ok((held, name));
        }
        Some(name) => match (Split::parse(name), &args.data) {
            (Ok(split), Some(_)) if args.task.is_some() && split == args.split => {
                let text = format!("--calibrate {name}: that is what is scored; name another part");
                return Err(Failure::Usage(text));
            }
            (Ok(split), Some(data)) if args.task.is_some() && data.is_dir() => {
                if split == Split::Train {
                    console::note(
                        "the certificate is about inputs like the train split's; a model that was trained on it decides them more clearly than others",
                    );
                }
                read(data, split)?
            }
            (Ok(_), _) if !Path::new(name).exists() => {
                let text = format!("--calibrate {name}: parts of a task are found in its folder; give it with --data");
                return Err(Failure::Usage(text));
            }
            _ => read(Path::new(name), Split::Train)?,
        },
    };
    let name = format!("{} inputs of {}", found.examples.len(), found.source);
    Ok((found, name))
}

/// Runs both engines over the inputs to measure on.
fn try_out(
    model: &Model,
    engines: &Engines,
    decision: Decision,
    trial: &Dataset,
    options: &Options,
) -> Result<Trial, Failure> {
    let (cheap, exact) = (engines.cheap(), engines.exact());
    let pair = Pair { cheap: &cheap, exact: &exact, decision };
    let mut watch = Watch::new(trial.examples.len());
    let mut step = |p: &Progress| watch.step(p, "trial, ");
    let tried = sparing_tasks::try_out(&pair, model.tokenizer()?, &model.architecture, trial, options, &mut step);
    watch.end();
    let tried = tried.map_err(interrupt::told)?;
    // A part of the inputs would do, but whoever stopped us does not want to wait for the rest either.
    if tried.complete { Ok(tried) } else { Err(Failure::Interrupted) }
}

/// Says why nothing is certified, if so.
fn tell(certificate: &Certificate) {
    let Certificate { target, inputs, .. } = certificate;
    let (share, sure, fewest) = (100.0 * target.certify, 100.0 * target.confidence, target.fewest_inputs());
    if certificate.escalate == Escalate::Everything {
        console::note(&match *inputs < fewest {
            true => format!(
                "{inputs} inputs are too few to certify {share}% with {sure}% confidence ({fewest} are needed): everything is run exactly"
            ),
            false => "no margin is safe enough: everything is run exactly".to_string(),
        });
    }
}

/// What a cascade cost beside both its engines alone.
pub struct Price {
    /// Decisions and seconds.
    pub check: Check,
    /// Operations of the cascade, of the cheap engine and of the exact one, each over all inputs.
    pub flops: [f64; 3],
}

/// Runs the cascade and both engines alone over what is scored.
fn price(
    model: &Model,
    engines: &Engines,
    certificate: &Certificate,
    dataset: &Dataset,
    options: &Options,
) -> Result<Price, Failure> {
    let decision = certificate.decision;
    let [(cheap, exact), (cheap_alone, exact_alone)] = [0; 2].map(|_| (engines.cheap(), engines.exact()));
    let cascade = Cascade::new(Pair { cheap: &cheap, exact: &exact, decision }, certificate.escalate);
    let alone = Pair { cheap: &cheap_alone, exact: &exact_alone, decision };
    let mut watch = Watch::new(dataset.examples.len());
    let mut step = |p: &Progress| watch.step(p, "cost, ");
    let tokenizer = model.tokenizer()?;
    let found = sparing_tasks::check(&cascade, &alone, tokenizer, &model.architecture, dataset, options, &mut step);
    watch.end();
    let flops = [cheap.flops() + exact.flops(), cheap_alone.flops(), exact_alone.flops()];
    Ok(Price { check: found.map_err(interrupt::told)?, flops })
}
