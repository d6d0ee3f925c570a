//! `sparing study mca`: the experiments of Monte-Carlo Attention (Kim and Ko 2022), done again.

mod equal;
mod figures;
mod measure;
mod paper;
mod results;
mod subject;
mod tables;

use crate::args::{PrecisionArg, positive, threads};
use crate::attention;
use crate::console::{Out, note};
use crate::failure::Failure;
use crate::{interrupt, progress};
use clap::{Args, Subcommand};
use measure::Effort;
use results::{Part, Results};
use sparing_model::{AttentionPlan, Length, Sampler};
use std::path::{Path, PathBuf};
use subject::{Named, Planned, Subject};

/// Repeats the experiments of Monte-Carlo Attention: score, operations and time by alpha, sampler, precision and length
///
/// Every combination is added to results.jsonl in the folder as soon as it is measured; a run that was stopped goes on where it
/// was, and a run with other options adds to what is there. In the end mca.md has tables in the paper's shape with its numbers
/// beside, and figures.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sparing study mca --model sst2=my-sst2 --model rte=my-rte --data glue --out study
  sparing study mca --model sst2=my-sst2 --data glue --out study --seeds 8 --rows 300
  sparing study mca --model sst2=my-sst2 --data glue --out study --attention exact,drop=0.6
  sparing study mca --model imdb.csv=my-longformer --out study
  sparing study mca table --out study                     tables and figures once more"
)]
pub struct McaArgs {
    #[command(subcommand)]
    command: Option<McaCommand>,

    /// A task and the model trained for it, for Table 1 (a Longformer: Table 3). Instead of a task, a table of your own
    #[arg(long, value_name = "TASK=DIR")]
    model: Vec<String>,

    /// The same for a compressed model: Table 2
    #[arg(long, value_name = "TASK=DIR")]
    student: Vec<String>,

    /// The folder that holds GLUE's folders
    #[arg(long, value_name = "GLUE")]
    data: Option<PathBuf>,

    /// The folder of results, tables and figures
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Error coefficients
    #[arg(
        long,
        value_name = "ALPHA",
        value_delimiter = ',',
        default_value = "0.2,0.4,0.6,1.0",
        allow_negative_numbers = true
    )]
    alpha: Vec<String>,

    /// How budgets are spent: paper, calibrated, systematic, graded, mean, int8; or none, for --attention alone
    #[arg(long, value_name = "SAMPLER", value_delimiter = ',', default_value = "paper")]
    samplers: Vec<String>,

    /// Precisions of the weights
    #[arg(long, value_enum, value_name = "PRECISION", value_delimiter = ',', default_value = "f32,bf16")]
    precision: Vec<PrecisionArg>,

    /// What n is in equation 9: actual, or what inputs are padded to [default: 128,actual; tables of your own: actual]
    #[arg(long, value_name = "LENGTH", value_delimiter = ',', value_parser = length)]
    length: Option<Vec<Length>>,

    /// Another way to economise, as `sparing eval` takes it, such as exact,drop=0.6; may be repeated
    #[arg(long, value_name = "HOW", value_parser = attention::plan)]
    attention: Vec<AttentionPlan>,

    /// Seeds of every combination that draws
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = positive)]
    seeds: usize,

    /// Fewer seeds, but 2, where they would take more inputs than this in a combination
    #[arg(long, value_name = "N", default_value_t = 150_000, value_parser = positive)]
    inputs: usize,

    /// Take N inputs of every task, drawn at random
    #[arg(long, value_name = "N", value_parser = positive)]
    rows: Option<usize>,

    /// Rounds that are timed; the best counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = positive)]
    rounds: usize,

    /// Training texts that calibrated samplers are calibrated on
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    calibrate: usize,

    /// Cut texts to this many tokens [default: GLUE 128 as the authors do, else what the model takes]
    #[arg(long, value_name = "N", value_parser = positive)]
    max_tokens: Option<usize>,

    /// Print one JSON object per result
    #[arg(long)]
    json: bool,

    /// Threads to compute with; 0 means all cores
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,
}

#[derive(Debug, Subcommand)]
enum McaCommand {
    /// Writes tables and figures from results.jsonl, and measures nothing
    #[command(after_help = "Example:\n  sparing study mca table --out study")]
    Table {
        /// The folder of a study
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

impl McaArgs {
    fn alphas(&self) -> Result<Vec<f32>, Failure> {
        let one = |text: &String| match text.trim().parse::<f32>() {
            Ok(alpha) if alpha.is_finite() && alpha > 0.0 => Ok(alpha),
            _ => Err(Failure::Usage(format!("--alpha {text}: a number above 0 is needed, such as 0.4"))),
        };
        self.alpha.iter().map(one).collect()
    }

    fn samplers(&self) -> Result<Vec<Sampler>, Failure> {
        let one = |name: &String| {
            let plan = attention::plan(&format!("{name}:1")).map_err(|e| Failure::Usage(format!("--samplers: {e}")))?;
            let sampler = plan.mca.map(|mca| mca.sampler);
            sampler.ok_or_else(|| Failure::Usage(format!("--samplers {name}: is no sampler; such as paper,graded")))
        };
        self.samplers.iter().filter(|name| *name != "none").map(one).collect()
    }

    fn named(&self) -> Result<Vec<Named>, Failure> {
        let models = self.model.iter().map(|text| Named::parse(text, Part::Model));
        let named: Vec<Named> = models
            .chain(self.student.iter().map(|text| Named::parse(text, Part::Student)))
            .collect::<Result<_, _>>()?;
        if named.is_empty() {
            return Err(Failure::Usage("give --model TASK=DIR: what should be studied?".to_string()));
        }
        Ok(named)
    }
}

fn length(text: &str) -> Result<Length, String> {
    if text == "actual" {
        return Ok(Length::Actual);
    }
    positive(text).map(Length::Padded).map_err(|_| "actual or a number of tokens, such as 128, is expected".to_string())
}

/// Runs the command.
pub fn mca(args: &McaArgs) -> Result<(), Failure> {
    if let Some(McaCommand::Table { out }) = &args.command {
        return tell(&Results::open(out)?, out, false);
    }
    interrupt::watch();
    let named = args.named()?;
    args.alphas()?;
    args.samplers()?;
    let folder = args.out.as_deref().ok_or_else(|| Failure::Usage("give --out DIR for the results".to_string()))?;
    std::fs::create_dir_all(folder).map_err(|e| Failure::new(format!("{}: cannot be made ({e})", folder.display())))?;
    let mut results = Results::open(folder)?;
    let subjects: Vec<Subject> = named.into_iter().map(|named| named.read(args)).collect::<Result<_, _>>()?;
    let done = measure_all(args, folder, &subjects, &mut results);
    match done {
        Ok(()) => tell(&results, folder, args.json),
        Err(Failure::Interrupted) if !results.newest().is_empty() => {
            tell(&results, folder, args.json)?;
            note("interrupted: the same command goes on where this one stopped");
            Err(Failure::Interrupted)
        }
        Err(failure) => Err(failure),
    }
}

/// Measures what is not known yet.
fn measure_all(args: &McaArgs, folder: &Path, subjects: &[Subject], results: &mut Results) -> Result<(), Failure> {
    let effort = Effort { threads: args.threads, rounds: args.rounds };
    let mut work: Vec<(&Subject, Vec<Planned>)> = Vec::new();
    for subject in subjects {
        let mut planned = subject.plan(args)?;
        planned.retain(|planned| !results.has(&planned.cell));
        work.push((subject, planned));
    }
    let inputs = work.iter().flat_map(|(_, planned)| planned).map(|planned| effort.inputs(planned)).sum();
    let bar = progress::bar(inputs, "inputs");
    for (subject, planned) in &work {
        let needs = |p: &Planned| p.plan.mca.as_ref().is_some_and(|mca| mca.sampler.needs_calibration());
        let calibration = if planned.iter().any(needs) { subject.calibration(args, folder)? } else { None };
        for planned in planned {
            let cell = &planned.cell;
            bar.set_message(format!("{} {} {}, {} seeds", cell.task, cell.precision, cell.attention, cell.seeds));
            let mut step = |inputs: usize| bar.inc(inputs as u64);
            let measured = measure::measure(subject, planned, calibration.clone(), effort, &mut step)
                .map_err(|failure| failure.at(format!("{} {}", subject.name, cell.attention)))?;
            results.add(measured)?;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Writes tables and figures, and says what there is.
fn tell(results: &Results, folder: &Path, json: bool) -> Result<(), Failure> {
    let measured = results.newest();
    if measured.is_empty() {
        return Err(Failure::new(format!("{}: no results there yet", folder.display())));
    }
    let mut written = vec![tables::write(&measured, folder)?];
    written.extend(figures::write(&measured, folder)?);
    let mut out = Out::new();
    if json {
        measured.iter().try_for_each(|measured| out.json(measured))?;
    } else {
        out.text(&tables::everything(&measured).text(out.paint))?;
        out.line(&format!("\n{} and {} figures written", written[0].display(), written.len() - 1))?;
    }
    out.flush()
}
