//! `sparing lra table`: what came of all trainings.

use super::scatter::{Dot, scatter};
use super::speeds;
use crate::console::Out;
use crate::failure::Failure;
use crate::files;
use crate::table::{Align, Table, bytes, count};
use clap::Args;
use sparing_tasks::lra::Task;
use sparing_train::lra::{MeasuredSpeed, Record};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Gathers the records of trainings into tables, and a picture of score against speed
///
/// Markdown with a row per mechanism: scores of all tasks and their mean over those that all were tested on, with the published
/// table beside; then for each task with which knobs, how long and on how many examples each was trained; then what `sparing lra
/// speed` has measured, speed and memory at every length.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing lra table runs
  sparing lra table runs --out table.md --picture table.svg")]
pub struct TableArgs {
    /// Directory of the runs
    #[arg(value_name = "DIR")]
    runs: PathBuf,

    /// Only trainings of this configuration
    #[arg(long, value_name = "NAME", default_value = "small")]
    config: String,

    /// Write to this file instead of showing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Write the picture to this file: score against speed, memory as the area
    #[arg(long, visible_alias = "svg", value_name = "FILE")]
    picture: Option<PathBuf>,

    /// What the picture's speed and memory are of: a length that `sparing lra speed` has measured, or a training's task
    /// [default: 4096 if that was measured, or else text]
    #[arg(long, value_name = "LENGTH|TASK", value_parser = speed_of)]
    speed_of: Option<SpeedOf>,

    /// The records as one JSON array instead of tables
    #[arg(long)]
    json: bool,
}

/// What speed and memory in the picture are of.
#[derive(Debug, Clone, Copy)]
enum SpeedOf {
    Length(usize),
    Task(Task),
}

fn speed_of(text: &str) -> Result<SpeedOf, String> {
    text.parse().map(SpeedOf::Length).or_else(|_| super::task(text).map(SpeedOf::Task))
}

/// The published table (Tay et al. 2020): ListOps, text, retrieval, image, Pathfinder.
const PUBLISHED: [(&str, [f64; 5]); 11] = [
    ("full", [36.37, 64.27, 57.46, 42.44, 71.40]),
    ("local", [15.82, 52.98, 53.39, 41.46, 66.63]),
    ("sparse-fixed", [17.07, 63.58, 59.59, 44.24, 71.71]),
    ("longformer", [35.63, 62.85, 56.89, 42.22, 69.71]),
    ("linformer", [35.70, 53.94, 52.27, 38.56, 76.34]),
    ("reformer", [37.27, 56.10, 53.40, 38.07, 68.50]),
    ("sinkhorn", [33.67, 61.20, 53.83, 41.23, 67.45]),
    ("synthesizer-dense", [36.99, 61.68, 54.67, 41.61, 69.45]),
    ("bigbird", [36.05, 64.02, 59.29, 40.83, 74.87]),
    ("linear", [16.13, 65.90, 53.09, 42.34, 75.30]),
    ("performer", [18.01, 65.40, 53.82, 42.77, 77.05]),
];

/// The length of the survey's picture.
const USUAL: usize = 4096;

/// Runs the command.
pub fn table(args: &TableArgs) -> Result<(), Failure> {
    let mut records = read(args)?;
    records.retain(|record| record.configuration == args.config);
    let speeds = speeds::read(&args.runs, &args.config)?;
    if records.is_empty() && speeds.is_empty() {
        let why = "holds no record of this configuration; train with `sparing lra train`";
        return Err(Failure::new(format!("{} {why}", args.runs.display())));
    }
    let mut out = Out::new();
    if let Some(path) = &args.picture {
        files::write(path, picture(&records, &speeds, args.speed_of).as_bytes())?;
    }
    let trained = || if records.is_empty() { String::new() } else { markdown(&records) };
    let text = match args.json {
        true => serde_json::to_string_pretty(&records)? + "\n",
        false => trained() + &speeds::markdown(&speeds),
    };
    match &args.out {
        Some(path) => files::write(path, text.as_bytes())?,
        None => out.text(&text)?,
    }
    out.flush()
}

fn read(args: &TableArgs) -> Result<Vec<Record>, Failure> {
    let failed = |e: std::io::Error| Failure::new(format!("{}: cannot be read ({e})", args.runs.display()));
    let mut records = Vec::new();
    for entry in std::fs::read_dir(&args.runs).map_err(failed)? {
        records.extend(Record::read(&entry.map_err(failed)?.path())?);
    }
    records.sort_by(|a, b| (&a.attention, a.task.name(), a.seed).cmp(&(&b.attention, b.task.name(), b.seed)));
    Ok(records)
}

/// Records of one mechanism by task, one for every seed.
type ByTask<'a> = BTreeMap<&'static str, Vec<&'a Record>>;

fn by_mechanism(records: &[Record]) -> BTreeMap<&str, ByTask<'_>> {
    let mut all: BTreeMap<&str, ByTask<'_>> = BTreeMap::new();
    for record in records {
        all.entry(&record.attention).or_default().entry(record.task.name()).or_default().push(record);
    }
    all
}

/// The mean of what seeds have scored on the test set, in percent, and their standard deviation if there are several.
fn tested(seeds: &[&Record]) -> Option<(f64, Option<f64>)> {
    let scores: Vec<f64> = seeds.iter().filter_map(|record| record.score).map(|score| 100.0 * score).collect();
    let count = scores.len() as f64;
    let mean = scores.iter().sum::<f64>() / count;
    let squares: f64 = scores.iter().map(|score| (score - mean).powi(2)).sum();
    match scores.len() {
        0 => None,
        1 => Some((mean, None)),
        _ => Some((mean, Some((squares / (count - 1.0)).sqrt()))),
    }
}

/// What differs between seeds beside the seed: their mean is of different things.
fn unlike(seeds: &[&Record]) -> Option<&'static str> {
    let done: Vec<&&Record> = seeds.iter().filter(|record| record.score.is_some()).collect();
    done.windows(2).find_map(|two| two[0].difference(two[1]))
}

/// In percent, with a star if fewer updates were done than planned, a dagger if seeds differ in more than the seed, and how many
/// seeds it is the mean of; of what is not tested yet, the dev set's in brackets.
fn score(seeds: &[&Record]) -> String {
    let star = |of: &[&Record]| if of.iter().any(|record| record.steps < record.planned) { "*" } else { "" };
    let done: Vec<&Record> = seeds.iter().copied().filter(|record| record.score.is_some()).collect();
    match (tested(&done), seeds.iter().find_map(|record| record.dev)) {
        (Some((mean, None)), _) => format!("{mean:.1}{}", star(&done)),
        (Some((mean, Some(deviation))), _) => {
            let dagger = if unlike(&done).is_some() { "†" } else { "" };
            format!("{mean:.1}{}{dagger} ± {deviation:.1} ({} seeds)", star(&done), done.len())
        }
        (None, Some(dev)) => format!("({:.1}){}", 100.0 * dev, star(seeds)),
        (None, None) => "–".to_string(),
    }
}

/// What the signs in the first table mean, for those that are in it.
fn legend(records: &[Record]) -> String {
    let mut text = String::new();
    if records.iter().any(|record| record.steps < record.planned) {
        text += "\\* fewer updates than the others: see the tables below. ";
    }
    if records.iter().any(|record| record.score.is_none() && record.dev.is_some()) {
        text += "In brackets: stopped before it was tested, so the dev set's score. ";
    }
    if by_mechanism(records).values().flat_map(BTreeMap::values).any(|seeds| seeds.len() > 1) {
        text += "±: the standard deviation over seeds. ";
    }
    let different: Vec<String> = by_mechanism(records)
        .iter()
        .flat_map(|(name, of)| of.iter().map(move |(task, seeds)| (name, task, seeds)))
        .filter_map(|(name, task, seeds)| Some(format!("{name} on {task}: {}", unlike(seeds)?)))
        .collect();
    if !different.is_empty() {
        text += &format!("† of seeds that were not trained alike ({}).", different.join("; "));
    }
    if text.is_empty() { text } else { format!("{}\n\n", text.trim_end()) }
}

/// Tasks that anything was trained on.
fn tasks_of(records: &[Record]) -> Vec<Task> {
    Task::ALL.into_iter().filter(|task| records.iter().any(|record| record.task == *task)).collect()
}

/// Tasks that all mechanisms were tested on, of those that were tested at all. Only they have a part in means: other tasks are
/// easier or harder, and a few mechanisms' extra ones must not take the mean from the rest.
fn shared(all: &BTreeMap<&str, ByTask<'_>>) -> Vec<Task> {
    let has = |of: &ByTask<'_>, task: &Task| of.get(task.name()).is_some_and(|seeds| tested(seeds).is_some());
    let some: Vec<&ByTask<'_>> = all.values().filter(|of| Task::ALL.iter().any(|task| has(of, task))).collect();
    Task::ALL.into_iter().filter(|task| !some.is_empty() && some.iter().all(|of| has(of, task))).collect()
}

/// The mean score of a mechanism over tasks, in percent; `None` if one is missing, or there are none.
fn mean(of: &ByTask<'_>, tasks: &[Task]) -> Option<f64> {
    let scores: Option<Vec<f64>> = tasks.iter().map(|task| Some(tested(of.get(task.name())?)?.0)).collect();
    scores.filter(|scores| !scores.is_empty()).map(|scores| scores.iter().sum::<f64>() / scores.len() as f64)
}

/// `listops, text`.
fn names(tasks: &[Task]) -> String {
    tasks.iter().map(|task| task.name()).collect::<Vec<_>>().join(", ")
}

fn markdown(records: &[Record]) -> String {
    let all = by_mechanism(records);
    let tasks = tasks_of(records);
    let shared = shared(&all);
    let heading = if shared.is_empty() { "mean".to_string() } else { format!("mean of {}", names(&shared)) };
    let mut columns = vec![("attention", Align::Left)];
    columns.extend(tasks.iter().map(|task| (task.name(), Align::Right)));
    columns.extend([(heading.as_str(), Align::Right)]);
    columns.extend([("published: ListOps, text, retrieval, image, Pathfinder", Align::Left)]);
    let mut table = Table::new(&columns);
    for (name, of) in &all {
        let of_task = |task: &Task| of.get(task.name());
        let shown = tasks.iter().map(|task| of_task(task).map_or("–".to_string(), |seeds| score(seeds)));
        let mean = mean(of, &shared).map_or("–".to_string(), |mean| format!("{mean:.1}"));
        let published = PUBLISHED.iter().find(|(published, _)| published == name);
        let published = published.map_or("–".to_string(), |(_, scores)| scores.map(|s| format!("{s:.1}")).join(", "));
        table.row([name.to_string()].into_iter().chain(shown).chain([mean, published]));
    }
    let mut text = format!("{}\n{}", table.markdown(), legend(records));
    for task in tasks {
        text += &format!("### {}\n\n{}\n", task.name(), details(&all, task).markdown());
    }
    text
}

fn details(all: &BTreeMap<&str, ByTask<'_>>, task: Task) -> Table {
    let mut table = Table::new(&[
        ("attention", Align::Left),
        ("knobs", Align::Left),
        ("seed", Align::Right),
        ("score", Align::Right),
        ("updates", Align::Right),
        ("batch", Align::Right),
        ("examples", Align::Right),
        ("length", Align::Right),
        ("loss", Align::Right),
        ("updates/s", Align::Right),
        ("memory", Align::Right),
        ("parameters", Align::Right),
        ("device", Align::Left),
    ]);
    let rows =
        all.iter().flat_map(|(name, of)| of.get(task.name()).into_iter().flatten().map(move |record| (name, record)));
    for (name, record) in rows {
        // 95% of a share's normal approximation.
        let half = |share: f64| 196.0 * (share * (1.0 - share) / record.tested.max(1) as f64).sqrt();
        let scored =
            record.score.map_or("–".to_string(), |share| format!("{:.1} ± {:.1}", 100.0 * share, half(share)));
        let trained = match record.steps == record.planned {
            true => record.steps.to_string(),
            false => format!("{} of {}", record.steps, record.planned),
        };
        table.row([
            name.to_string(),
            super::knobs(&record.kind),
            record.seed.to_string(),
            scored,
            trained,
            record.batch.to_string(),
            record.trained_on().map_or("–".to_string(), |examples| examples.to_string()),
            record.length.to_string(),
            record.late_loss.map_or("–".to_string(), |loss| format!("{loss:.3}")),
            format!("{:.2}", record.steps_per_second),
            bytes(record.peak_bytes as f64),
            count(record.parameters as f64),
            record.device.clone(),
        ]);
    }
    table
}

/// Scores against what was measured at a length, or on a task.
fn picture(records: &[Record], speeds: &[MeasuredSpeed], of: Option<SpeedOf>) -> String {
    let measured = |length: usize| speeds::at(speeds, length);
    let usual = if measured(USUAL).is_empty() { SpeedOf::Task(Task::Text) } else { SpeedOf::Length(USUAL) };
    match of.unwrap_or(usual) {
        SpeedOf::Length(length) => drawn(records, &measured(length), &format!("at {length} tokens")),
        SpeedOf::Task(task) => {
            // Of several seeds the first: they do not differ in what they compute.
            let known = records.iter().filter(|record| record.task == task).rev();
            let speed = |record: &'_ Record| (record.steps_per_second, record.peak_bytes);
            let known = known.map(|record| (record.attention.as_str(), speed(record))).collect();
            drawn(records, &known, &format!("on {}", task.name()))
        }
    }
}

/// The picture with a dot per mechanism whose score, the mean over what all were tested on, speed and memory are known.
fn drawn(records: &[Record], measured: &BTreeMap<&str, (f64, u64)>, of: &str) -> String {
    let all = by_mechanism(records);
    let tasks = shared(&all);
    let dot = |(name, of): (&str, ByTask<'_>)| {
        let (speed, peak) = *measured.get(name)?;
        Some(Dot { name: name.to_string(), speed, score: mean(&of, &tasks)?, bytes: peak as f64 })
    };
    let dots: Vec<Dot> = all.into_iter().filter_map(dot).collect();
    let scored = if tasks.is_empty() { "no task that all were tested on".to_string() } else { names(&tasks) };
    scatter(&dots, &format!("mean score of {scored}; updates per second and memory (area) {of}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparing_train::attention::catalogue;
    use sparing_train::lra::{Settings, Training};

    /// BigBird on ListOps.
    fn example() -> Record {
        let (attention, kind) = catalogue().unwrap().into_iter().find(|(name, _)| name == "bigbird").unwrap();
        Record {
            task: Task::Listops,
            configuration: "small".into(),
            attention,
            kind,
            seed: 0,
            steps: 500,
            planned: 5000,
            batch: 32,
            length: 2000,
            score: Some(0.365),
            tested: 2000,
            dev: Some(0.37),
            best_step: 400,
            late_loss: Some(1.81),
            steps_per_second: 7.25,
            peak_bytes: 1 << 30,
            parameters: 220_000,
            device: "cuda".into(),
            settings: None,
        }
    }

    /// With these settings, but for the batch.
    fn with_batch(record: Record, batch: usize) -> Record {
        let recipes = sparing_train::lra::recipes("small", None).unwrap();
        let training = Training { batch, ..Training::of(&recipes, record.task).unwrap().clone() };
        let part = |count: usize| format!("{count} examples, 00000000");
        let settings = Settings { training, train: part(96_000), dev: part(2000), test: part(2000) };
        Record { batch, settings: Some(settings), ..record }
    }

    /// A few mechanisms' extra tasks, and one that is not tested yet, take nothing from the others.
    #[test]
    fn means_are_over_what_all_were_tested_on() {
        let of = |attention: &str, task: Task, score: f64| Record {
            attention: attention.into(),
            task,
            score: Some(score),
            ..example()
        };
        let both = |name: &str, scores: [f64; 2]| [of(name, Task::Listops, scores[0]), of(name, Task::Text, scores[1])];
        let mut records = [both("full", [0.36, 0.64]), both("local", [0.30, 0.60])].concat();
        records.push(of("local", Task::PathX, 0.99));
        records.push(Record { score: None, ..of("linear", Task::Listops, 0.0) });
        let text = markdown(&records);
        assert!(text.contains("| mean of listops, text |"), "{text}");
        assert!(text.contains("| full | 36.0* | 64.0* | – | 50.0 |"), "{text}");
        assert!(text.contains("| local | 30.0* | 60.0* | 99.0* | 45.0 |"), "{text}");
        let picture = picture(&records, &[], Some(SpeedOf::Task(Task::Text)));
        assert!(
            picture.matches("<circle").count() == 2 && picture.contains("mean score of listops, text;"),
            "{picture}"
        );
    }

    /// Seeds that differ in more than the seed are not averaged as if they did not.
    #[test]
    fn seeds_are_alike_or_it_is_said() {
        let seed = |seed, batch| with_batch(Record { seed, ..example() }, batch);
        let text = markdown(&[seed(0, 32), seed(1, 32)]);
        assert!(!text.contains('†') && text.contains("| 96000 |"), "{text}");
        let text = markdown(&[seed(0, 32), seed(1, 16)]);
        assert!(text.contains("36.5*† ± 0.0 (2 seeds)"), "{text}");
        assert!(text.contains("bigbird on listops: the batch differs"), "{text}");
    }

    #[test]
    fn every_training_has_a_row_that_says_what_it_was() {
        let record = example();
        let other = Record { task: Task::Text, score: Some(0.64), planned: 500, ..record.clone() };
        let text = markdown(&[record.clone(), other.clone()]);
        assert!(text.contains("| bigbird | 36.5* | 64.0 | 50.2 | 36.0, 64.0, 59.3, 40.8, 74.9 |"), "{text}");
        assert!(
            text.contains("### listops")
                && text.contains("500 of 5000")
                && text.contains("block 64, globals 1, random 3")
        );
        let running = Record { score: None, late_loss: None, ..record.clone() };
        let text = markdown(&[running]);
        assert!(text.contains("| bigbird | (37.0)* | – |") && text.contains("fewer updates"), "{text}");
        let seeds: Vec<Record> = [0.365, 0.385]
            .into_iter()
            .zip(0..)
            .map(|(score, seed)| Record { score: Some(score), seed, steps: 5000, ..record.clone() })
            .collect();
        let text = markdown(&seeds);
        assert!(text.contains("| bigbird | 37.5 ± 1.4 (2 seeds) | 37.5 |") && text.contains("over seeds"), "{text}");
        assert!(text.contains("| 0 | 36.5 ± 2.1 | 5000 |") && text.contains("| 1 | 38.5 ± 2.1 | 5000 |"), "{text}");
        let trained = [record, other];
        let speed = |length, updates_per_second: Option<f64>| MeasuredSpeed {
            configuration: "small".into(),
            attention: "bigbird".into(),
            kind: trained[0].kind.clone(),
            length,
            batch: 32,
            device: "cuda".into(),
            updates: 9,
            updates_per_second,
            peak_bytes: 3 << 30,
            parameters: 220_000,
            failure: updates_per_second.is_none().then(|| "CUDA_ERROR_OUT_OF_MEMORY at 0x1".into()),
            training: None,
        };
        let speeds = [speed(4096, Some(31.5)), speed(16384, None)];
        let text = speeds::markdown(&speeds);
        let row = "| bigbird | 31.50 | – | 3.00 GiB | – | – | block 64, globals 1, random 3 |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("- out of memory: bigbird at 16384") && text.contains("batch 32, cuda"), "{text}");
        for (of, tip) in [
            (None, "31.50 updates/s, 3.00 GiB"),
            (Some(SpeedOf::Task(Task::Text)), "7.25 updates/s, 1.00 GiB"),
            (Some(SpeedOf::Length(4096)), "31.50 updates/s"),
        ] {
            let picture = picture(&trained, &speeds, of);
            assert!(picture.contains(tip) && picture.matches("<circle").count() == 1, "{picture}");
        }
        assert!(!picture(&trained, &speeds, Some(SpeedOf::Length(16384))).contains("<circle"));
    }
}
