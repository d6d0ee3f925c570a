//! `sparing lra speed`: training steps per second and memory by length.

use super::caught::caught;
use super::memory::Meter;
use super::speeds;
use crate::args::positive;
use crate::console::{self, Out};
use crate::failure::Failure;
use crate::{interrupt, progress};
use clap::Args;
use sparing_model::Error;
use sparing_tasks::lra::Task;
use sparing_train::attention::Kind;
use sparing_train::device;
use sparing_train::lra::{MeasuredSpeed, Training, UpdateClock};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Measures updates per second and memory of mechanisms by length: forward, backward and Adam's step
///
/// One process takes mechanism after mechanism, so that a GPU's kernels are compiled once and nothing runs beside; where
/// one fails, for lack of memory say, that is written down and another process takes the rest. Every figure is a file in
/// DIR/speed, which `sparing lra table` reads too; the same command goes on where it was stopped. Texts are random bytes
/// without padding. Memory is the process's peak on the CPU; on a GPU what was reserved there, which is more than was in use.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing lra speed --out runs --device cuda
  sparing lra speed --out runs --device cuda --length 16384 --seconds 120
  sparing lra speed --out runs --attention full,linear --length 512,1024 --batch 4
  sparing lra table runs --svg speed.svg")]
pub struct SpeedArgs {
    /// Mechanisms by name, or files NAME.json; all: every one there is
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    attention: Vec<String>,

    /// Tokens
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1024,2048,3072,4096", value_parser = positive)]
    length: Vec<usize>,

    /// small (2 layers of width 64), benchmark (the authors' own), or a file NAME.json; what it has for text is taken
    #[arg(long, value_name = "NAME", default_value = "small")]
    config: String,

    /// Sequences per update [default: the configuration's]
    #[arg(long, value_name = "N", value_parser = positive)]
    batch: Option<usize>,

    /// Directory for the figures: that of the runs
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Time updates of one mechanism at one length for about so long
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    each: f64,

    /// Give one up that takes longer than this, compiling included
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = positive)]
    patience: usize,

    /// Begin nothing after this many seconds; the same command goes on
    #[arg(long, value_name = "N", value_parser = positive)]
    seconds: Option<usize>,

    /// Measure again what has failed
    #[arg(long)]
    retry: bool,

    /// Where to compute: cpu, cuda or wgpu
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = crate::args::device_name)]
    device: String,

    /// Print one JSON object per figure
    #[arg(long)]
    json: bool,

    /// Be the process that measures, for so many seconds
    #[arg(long, hide = true, value_name = "SECONDS")]
    worker: Option<f64>,
}

/// What the file of a figure says while it is being measured.
const BEGUN: &str = "being measured";
/// How often the measuring process is looked after.
const LOOK: Duration = Duration::from_millis(100);

/// One mechanism at one length.
struct Cell {
    path: PathBuf,
    training: Training,
    /// Nothing measured yet.
    blank: MeasuredSpeed,
}

impl Cell {
    fn new(args: &SpeedArgs, config: &(String, Training), (attention, kind): &(String, Kind), length: usize) -> Cell {
        let mut training = config.1.clone();
        training.batch = args.batch.unwrap_or(training.batch);
        training.length = length;
        let blank = MeasuredSpeed {
            configuration: config.0.clone(),
            attention: attention.clone(),
            kind: kind.clone(),
            length,
            batch: training.batch,
            device: args.device.clone(),
            updates: 0,
            updates_per_second: None,
            peak_bytes: 0,
            parameters: 0,
            failure: None,
            training: Some(training.clone()),
        };
        let name = format!("{}-{attention}-{length}-{}-{}.json", config.0, training.batch, args.device);
        Cell { path: args.out.join(speeds::FOLDER).join(name), training, blank }
    }

    /// What is known, if it is of this mechanism in this encoder: a configuration of the same name may have changed.
    fn known(&self) -> Option<MeasuredSpeed> {
        let found = MeasuredSpeed::read(&self.path).ok().flatten();
        found.filter(|found| found.is_of(&self.blank.kind, &self.training))
    }

    fn failed(&self, why: &str) -> Result<(), Error> {
        MeasuredSpeed { failure: Some(why.to_string()), ..self.blank.clone() }.write(&self.path)
    }

    fn measure(&self, args: &SpeedArgs) -> Result<MeasuredSpeed, Error> {
        let place = device(&args.device)?;
        // What the one before has left reserved is not this one's.
        let ready = |e| Error::new(format!("the device failed ({e})"));
        place.sync().map_err(ready)?;
        place.memory_cleanup();
        place.sync().map_err(ready)?;
        let meter = Meter::new(&args.device);
        let mut clock = UpdateClock::new(&self.training, &self.blank.kind, &place)?;
        let (updates, speed) = clock.measure(Duration::from_secs_f64(args.each))?;
        Ok(MeasuredSpeed {
            updates,
            updates_per_second: Some(speed),
            peak_bytes: meter.peak(),
            parameters: clock.parameters(),
            ..self.blank.clone()
        })
    }
}

/// Runs the command.
pub fn speed(args: &SpeedArgs) -> Result<(), Failure> {
    if !(0.0..=3600.0).contains(&args.each) {
        return Err(Failure::Usage(format!("--each {}: a number of seconds from 0 to 3600 is expected", args.each)));
    }
    let mut config = super::configuration(&args.config, Task::Text)?;
    let kinds = super::mechanisms(&args.attention, &config.1.catalogue()?)?;
    // Each has its own kind from here on.
    config.1.attention.clear();
    let cells: Vec<Cell> = kinds
        .iter()
        .flat_map(|kind| args.length.iter().map(|length| Cell::new(args, &config, kind, *length)))
        .collect();
    if let Some(seconds) = args.worker {
        return work(args, &cells, seconds);
    }
    cells.iter().try_for_each(|cell| cell.training.check(&cell.blank.kind))?;
    device(&args.device)?;
    let folder = args.out.join(speeds::FOLDER);
    std::fs::create_dir_all(&folder)
        .map_err(|e| Failure::new(format!("{}: cannot be made ({e})", folder.display())))?;
    for cell in &cells {
        let failure = cell.known().and_then(|known| known.failure);
        if failure.is_some_and(|failure| args.retry || failure == BEGUN) {
            let _ = std::fs::remove_file(&cell.path);
        }
    }
    let complete = oversee(args, &cells)?;
    show(args, &cells)?;
    if interrupt::asked() {
        console::note("saved; the same command goes on");
        return Err(Failure::Interrupted);
    }
    if !complete {
        console::note("out of time; the same command goes on");
    }
    Ok(())
}

/// Starts measuring processes until all is known or the time is up; whether all is known.
fn oversee(args: &SpeedArgs, cells: &[Cell]) -> Result<bool, Failure> {
    let start = Instant::now();
    let left = || args.seconds.map_or(f64::INFINITY, |most| most as f64 - start.elapsed().as_secs_f64());
    let bar = progress::bar(cells.len() as u64, "figures");
    loop {
        let known = count(cells);
        if known == cells.len() {
            return Ok(true);
        }
        if left() <= 0.0 || interrupt::asked() {
            return Ok(false);
        }
        let mut worker = Command::new(std::env::current_exe()?);
        worker.args(std::env::args_os().skip(1)).arg("--worker").arg(left().to_string());
        let status = attend(args, cells, worker.spawn()?, &bar)?;
        // What was being measured then is measured anew.
        if interrupt::asked() {
            return Ok(false);
        }
        for cell in cells {
            if cell.known().and_then(|known| known.failure).is_some_and(|failure| failure == BEGUN) {
                cell.failed(&status.map_or_else(
                    || format!("took longer than {} s", args.patience),
                    |status| format!("the process ended ({status})"),
                ))?;
            }
        }
        if count(cells) == known && left() > 0.0 && !interrupt::asked() {
            return Err(Failure::new("the process that measures did not begin; run it with --worker 60 to see why"));
        }
    }
}

fn count(cells: &[Cell]) -> usize {
    cells.iter().filter(|cell| cell.known().is_some_and(|known| known.failure.as_deref() != Some(BEGUN))).count()
}

/// Waits for a process; how it ended, `None` if it was stopped, by Ctrl-C or because nothing came of it for too long.
fn attend(
    args: &SpeedArgs,
    cells: &[Cell],
    mut worker: Child,
    bar: &indicatif::ProgressBar,
) -> Result<Option<ExitStatus>, Failure> {
    let (mut known, mut since) = (count(cells), Instant::now());
    loop {
        if let Some(status) = worker.try_wait()? {
            return Ok(Some(status));
        }
        sleep(LOOK);
        let now = count(cells);
        if now != known {
            (known, since) = (now, Instant::now());
            bar.set_position(now as u64);
        }
        if since.elapsed() > Duration::from_secs(args.patience as u64) || interrupt::asked() {
            worker.kill()?;
            worker.wait()?;
            return Ok(None);
        }
    }
}

/// Measures one after the other. On the CPU only one, as memory is the process's; on a GPU until one fails.
fn work(args: &SpeedArgs, cells: &[Cell], seconds: f64) -> Result<(), Failure> {
    let start = Instant::now();
    for cell in cells.iter().filter(|cell| cell.known().is_none()) {
        if start.elapsed().as_secs_f64() > seconds || interrupt::asked() {
            break;
        }
        cell.failed(BEGUN)?;
        let found = caught(|| cell.measure(args));
        match &found {
            Ok(found) => found.write(&cell.path)?,
            Err(e) => cell.failed(&e.to_string())?,
        }
        if found.is_err() || args.device == "cpu" {
            break;
        }
    }
    Ok(())
}

fn show(args: &SpeedArgs, cells: &[Cell]) -> Result<(), Failure> {
    let known: Vec<MeasuredSpeed> = cells.iter().filter_map(Cell::known).collect();
    let mut out = Out::new();
    if args.json {
        known.iter().try_for_each(|speed| out.json(speed))?;
        return out.flush();
    }
    for group in speeds::groups(&known) {
        out.text(&speeds::table(&group).text(out.paint))?;
        speeds::failures(&group).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}
