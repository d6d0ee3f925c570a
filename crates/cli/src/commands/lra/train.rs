//! `sparing lra train`.

use super::memory::Meter;
use crate::args::positive;
use crate::commands::train::watch::watched_as;
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::interrupt;
use crate::table::{Align, Table, bytes, count, percent};
use clap::Args;
use sparing_tasks::lra::{Part, Set, Task};
use sparing_train::device;
use sparing_train::lra::{Data, Job, RECORD, Record, Training, recipes, run};
use std::path::{Path, PathBuf};

/// Trains mechanisms on a task, one after the other
///
/// Each has a directory of its own in --out with its checkpoint, its log and its record; the same command goes on where it
/// was stopped. Data come from `sparing lra prepare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing lra train listops --attention full,local,linear --data lra --out runs --device cuda
  sparing lra train listops --attention mine.json --config mine-too.json --data lra --out runs
  sparing lra train text --attention all --steps 2000 --data lra --out runs --device cuda
  sparing lra train text --attention all --until 500 --data lra --out runs    stops early; goes on when asked again")]
pub struct TrainArgs {
    /// listops, text, wikipedia-retrieval, image, pathfinder, path-x
    #[arg(value_name = "TASK", value_parser = super::task)]
    task: Task,

    /// Mechanisms by name, or files NAME.json; all: every one there is
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "full")]
    attention: Vec<String>,

    /// small (2 layers of width 64), benchmark (the authors' own), or a file NAME.json
    #[arg(long, value_name = "NAME", default_value = "small")]
    config: String,

    /// Directory with prepared data
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Directory for the runs
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Updates in all, on which the rate's course depends [default: the configuration's]
    #[arg(long, value_name = "N", value_parser = positive)]
    steps: Option<usize>,

    /// Stop after this many updates, to go on another time
    #[arg(long, value_name = "N", value_parser = positive)]
    until: Option<usize>,

    /// Examples per update [default: the configuration's]
    #[arg(long, value_name = "N", value_parser = positive)]
    batch: Option<usize>,

    /// Longest sequence [default: the configuration's]
    #[arg(long, value_name = "N", value_parser = positive)]
    length: Option<usize>,

    /// Highest learning rate [default: the configuration's]
    #[arg(long, value_name = "RATE")]
    lr: Option<f64>,

    /// Updates of the warm-up [default: the configuration's]
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,

    /// Evaluate after this many updates [default: a tenth of all]
    #[arg(long, value_name = "N", value_parser = positive)]
    eval_every: Option<usize>,

    /// Test on the first examples only
    #[arg(long, value_name = "N", value_parser = positive)]
    test_examples: Option<usize>,

    /// Save after this many updates
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = positive)]
    checkpoint_steps: usize,

    /// Seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Where to compute: cpu, cuda or wgpu
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: String,

    /// Print one JSON object per mechanism
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn train(args: &TrainArgs) -> Result<(), Failure> {
    let jobs = jobs(args)?;
    let place = device(&args.device)?;
    let data = read(args)?;
    let names: Vec<String> = jobs.iter().map(|job| job.attention.clone()).collect();
    let mut records = Vec::new();
    let complete = watched_as(names, |tell| {
        for (number, job) in jobs.iter().enumerate() {
            let directory = directory(&args.out, job);
            if let Some(record) = finished(&directory, job) {
                records.push(record);
                continue;
            }
            let meter = Meter::new(&args.device);
            let on = (args.device.as_str(), place.clone());
            let watch = &mut |event: &_| tell(number, event);
            let result = run(job, &data, &directory, on, &|| meter.peak(), watch);
            // One that fails, for lack of memory or for its sizes, does not keep the others from being trained.
            match result {
                Ok(Some(record)) => records.push(record),
                Ok(None) => return Ok(false),
                Err(e) if jobs.len() > 1 => console::note(&format!("{}: {e}", job.attention)),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    })?;
    show(args, &records)?;
    if !complete || interrupt::asked() {
        console::note("saved; the same command goes on");
        return Err(Failure::Interrupted);
    }
    Ok(())
}

/// What is to be trained.
fn jobs(args: &TrainArgs) -> Result<Vec<Job>, Failure> {
    let text = match args.config.ends_with(".json") {
        true => Some(
            std::fs::read_to_string(&args.config)
                .map_err(|e| Failure::new(format!("{}: cannot be read ({e})", args.config)))?,
        ),
        false => None,
    };
    let recipes = recipes(&args.config, text.as_deref())?;
    let mut training = Training::of(&recipes, args.task)?.clone();
    training.steps = args.steps.map_or(training.steps, |steps| steps as u64);
    training.batch = args.batch.unwrap_or(training.batch);
    training.length = args.length.unwrap_or(training.length);
    training.schedule.rate = args.lr.unwrap_or(training.schedule.rate);
    if let Some(steps) = args.warmup {
        training.schedule.warmup = sparing_train::Warmup::Steps(steps);
    }
    let configuration = Path::new(&args.config).file_stem().map_or_else(String::new, |s| s.to_string_lossy().into());
    let all = args.attention.iter().any(|name| name == "all");
    let kinds = match all {
        true => sparing_train::attention::catalogue()?,
        false => args.attention.iter().map(|name| super::mechanism(name)).collect::<Result<_, _>>()?,
    };
    let job = |(attention, kind)| Job {
        task: args.task,
        configuration: configuration.clone(),
        training: training.clone(),
        attention,
        kind,
        seed: args.seed,
        evaluate_every: args.eval_every.map_or(training.steps.div_ceil(10), |n| n as u64),
        checkpoint_steps: args.checkpoint_steps as u64,
        stop_at: args.until.map(|n| n as u64),
    };
    Ok(kinds.into_iter().map(job).collect())
}

/// The directory of one run.
fn directory(out: &Path, job: &Job) -> PathBuf {
    out.join(format!("{}-{}-{}-{}", job.task.name(), job.configuration, job.attention, job.seed))
}

/// What an earlier call has finished already, as far as it is asked for now.
fn finished(directory: &Path, job: &Job) -> Option<Record> {
    let text = std::fs::read(directory.join(RECORD)).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    let wanted = job.stop_at.unwrap_or(job.training.steps).min(job.training.steps);
    (record.steps >= wanted && record.planned == job.training.steps && record.kind == job.kind).then_some(record)
}

fn read(args: &TrainArgs) -> Result<Data, Failure> {
    let folder = args.data.join(args.task.name());
    let part = |part: Part| Set::read(&folder.join(format!("{}.lra", part.name())), args.task);
    let mut data = Data { train: part(Part::Train)?, dev: part(Part::Dev)?, test: part(Part::Test)? };
    data.test.truncate(args.test_examples.unwrap_or(usize::MAX));
    if [&data.train, &data.dev, &data.test].iter().any(|set| set.is_empty()) {
        return Err(Failure::new(format!("{}: a part has no examples", folder.display())));
    }
    Ok(data)
}

fn show(args: &TrainArgs, records: &[Record]) -> Result<(), Failure> {
    let mut out = Out::new();
    if args.json {
        records.iter().try_for_each(|record| out.json(record))?;
        return out.flush();
    }
    let mut table = Table::new(&[
        ("attention", Align::Left),
        ("updates", Align::Right),
        ("test", Align::Right),
        ("best dev", Align::Right),
        ("loss", Align::Right),
        ("updates/s", Align::Right),
        ("peak memory", Align::Right),
        ("parameters", Align::Right),
    ]);
    for record in records {
        table.row([
            record.attention.clone(),
            record.steps.to_string(),
            percent(record.score),
            percent(record.dev),
            format!("{:.3}", record.late_loss),
            format!("{:.2}", record.steps_per_second),
            bytes(record.peak_bytes as f64),
            count(record.parameters as f64),
        ]);
    }
    out.text(&table.text(out.paint))?;
    out.flush()
}
