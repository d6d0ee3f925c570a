//! `sparing lra train`.

use super::caught::caught;
use super::memory::Meter;
use crate::args::positive;
use crate::commands::train::watch::watched_as;
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::interrupt;
use crate::table::{Align, Table, bytes, count, percent};
use clap::Args;
use sparing_model::Error;
use sparing_tasks::lra::{Part, Set, Task};
use sparing_train::device;
use sparing_train::lra::{Data, Job, Record, Settings, run};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Trains mechanisms on tasks, one after the other
///
/// Each has a directory of its own in --out with its checkpoint, its log and its record, which is written as training goes;
/// the same command goes on where it was stopped; one with other settings or data needs another --out. Data come from `sparing lra prepare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing lra train listops --attention full,local,linear --data lra --out runs --device cuda
  sparing lra train listops --attention mine.json --config mine-too.json --data lra --out runs
  sparing lra train text --attention all --steps 2000 --data lra --out runs --device cuda
  sparing lra train text --attention all --until 500 --data lra --out runs    stops early, goes on
  sparing lra train image text --attention linear --seconds 300 --data lra --out runs")]
pub struct TrainArgs {
    /// listops, text, wikipedia-retrieval, image, pathfinder, path-x
    #[arg(value_name = "TASK", required = true, value_parser = super::task)]
    tasks: Vec<Task>,

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

    /// Stop training after this many seconds, score what there is, and go on another time; what has not begun then does not begin
    #[arg(long, value_name = "N", value_parser = positive)]
    seconds: Option<usize>,

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

    /// Evaluate on so many examples of the dev set, evenly spread
    #[arg(long, value_name = "N", value_parser = positive)]
    dev_examples: Option<usize>,

    /// Test on so many examples, evenly spread
    #[arg(long, value_name = "N", value_parser = positive)]
    test_examples: Option<usize>,

    /// Save after this many updates
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = positive)]
    checkpoint_steps: usize,

    /// Seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Where to compute: cpu, cuda or wgpu
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = crate::args::device_name)]
    device: String,

    /// Print one JSON object per mechanism
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn train(args: &TrainArgs) -> Result<(), Failure> {
    let deadline = args.seconds.map(|n| Instant::now() + Duration::from_secs(n as u64));
    let mut jobs = Vec::new();
    for task in &args.tasks {
        jobs.extend(jobs_of(args, *task, deadline)?);
    }
    let place = device(&args.device)?;
    let names = jobs.iter().map(|job| format!("{} {}", job.task.name(), job.attention)).collect();
    let (mut records, mut failures, mut known) = (Vec::new(), Vec::new(), None);
    let complete = watched_as(names, |tell| {
        for (number, job) in jobs.iter().enumerate() {
            let directory = directory(&args.out, job);
            let data = match known.take() {
                Some((task, data)) if task == job.task => data,
                _ => read(args, job.task)?,
            };
            let mut failed = |e: Error| failures.push(format!("{} {}: {e}", job.task.name(), job.attention));
            match finished(&directory, job, &data) {
                Ok(Some(record)) => records.push(record),
                Err(e) => failed(e),
                Ok(None) if deadline.is_some_and(|at| Instant::now() >= at) => return Ok(false),
                Ok(None) => {
                    // What the one before has left reserved is not this one's.
                    place.memory_cleanup();
                    let meter = Meter::new(&args.device);
                    let on = (args.device.as_str(), place.clone());
                    let told = &mut |event: &_| tell(number, event);
                    // One that fails, for lack of memory or for its sizes, does not keep the others from being trained.
                    match caught(|| run(job, &data, &directory, on, &|| meter.peak(), told)) {
                        Ok(Some(record)) => records.push(record),
                        Ok(None) => return Ok(false),
                        Err(e) => failed(e),
                    }
                }
            }
            known = Some((job.task, data));
        }
        Ok(true)
    })?;
    show(args, &records)?;
    if interrupt::asked() || (!complete && deadline.is_none()) {
        console::note("saved; the same command goes on");
        return Err(Failure::Interrupted);
    }
    if !complete {
        let left = jobs.len() - records.len() - failures.len();
        console::note(&format!("out of time: {left} of {} not begun; the same command goes on", jobs.len()));
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(failures.join("\n"))),
    }
}

/// What is to be trained on a task.
fn jobs_of(args: &TrainArgs, task: Task, deadline: Option<Instant>) -> Result<Vec<Job>, Failure> {
    let (configuration, mut training) = super::configuration(&args.config, task)?;
    training.steps = args.steps.map_or(training.steps, |steps| steps as u64);
    training.batch = args.batch.unwrap_or(training.batch);
    training.length = args.length.unwrap_or(training.length);
    if let Some(rate) = args.lr {
        training.check_rate()?;
        training.schedule.rate = rate;
        training.check_rate().map_err(|e| Failure::Usage(e.to_string()))?;
    }
    if let Some(steps) = args.warmup {
        training.schedule.warmup = sparing_train::Warmup::Steps(steps);
    }
    let kinds = super::mechanisms(&args.attention, &training.catalogue()?)?;
    // Each has its own kind from here on, and a record says nothing of the others'.
    training.attention.clear();
    let job = |(attention, kind)| Job {
        task,
        configuration: configuration.clone(),
        training: training.clone(),
        attention,
        kind,
        seed: args.seed,
        evaluate_every: args.eval_every.map_or(training.steps.div_ceil(10), |n| n as u64),
        checkpoint_steps: args.checkpoint_steps as u64,
        stop_at: args.until.map(|n| n as u64),
        deadline,
    };
    Ok(kinds.into_iter().map(job).collect())
}

/// The directory of one run.
fn directory(out: &Path, job: &Job) -> PathBuf {
    out.join(format!("{}-{}-{}-{}", job.task.name(), job.configuration, job.attention, job.seed))
}

/// What an earlier call has finished already, as far as it is asked for now.
fn finished(directory: &Path, job: &Job, data: &Data) -> Result<Option<Record>, Error> {
    let record = Record::of(directory, job, &Settings::of(&job.training, data))?;
    let wanted = job.stop_at.unwrap_or(job.training.steps).min(job.training.steps);
    Ok(record.filter(|record| record.score.is_some() && record.steps >= wanted))
}

fn read(args: &TrainArgs, task: Task) -> Result<Data, Error> {
    let folder = args.data.join(task.name());
    let part = |part: Part| Set::read(&folder.join(format!("{}.lra", part.name())), task);
    let mut data = Data { train: part(Part::Train)?, dev: part(Part::Dev)?, test: part(Part::Test)? };
    data.dev.thin(args.dev_examples.unwrap_or(usize::MAX));
    data.test.thin(args.test_examples.unwrap_or(usize::MAX));
    if [&data.train, &data.dev, &data.test].iter().any(|set| set.is_empty()) {
        return Err(Error::new(format!("{}: a part has no examples", folder.display())));
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
        ("task", Align::Left),
        ("attention", Align::Left),
        ("updates", Align::Right),
        ("test", Align::Right),
        ("best dev", Align::Right),
        ("loss", Align::Right),
        ("updates/s", Align::Right),
        ("memory", Align::Right),
        ("parameters", Align::Right),
    ]);
    for record in records {
        table.row([
            record.task.name().to_string(),
            record.attention.clone(),
            record.steps.to_string(),
            percent(record.score.unwrap_or(f64::NAN)),
            percent(record.dev.unwrap_or(f64::NAN)),
            format!("{:.3}", record.late_loss.unwrap_or(f64::NAN)),
            format!("{:.2}", record.steps_per_second),
            bytes(record.peak_bytes as f64),
            count(record.parameters as f64),
        ]);
    }
    out.text(&table.text(out.paint))?;
    out.flush()
}
