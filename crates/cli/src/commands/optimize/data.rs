//! Rows to calibrate with, rows to search with, and rows that only the report sees.

use crate::args::{ColumnArgs, positive, task};
use crate::failure::Failure;
use clap::Args;
use sparing_model::HeadKind;
use sparing_tasks::{Columns, Dataset, Example, Gold, Label, Select, Split, Task};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Rows, half of which are searched with.
const LEAST: usize = 20;
/// Rows that say what a single part is worth (not whether it is good enough, so few will do): at least and at most.
const GLANCE: (usize, usize) = (64, 256);
/// As many of them as have about so many characters.
const GLANCE_CHARACTERS: usize = 65536;
/// More characters than that have nothing new to calibrate with.
const CALIBRATION_CHARACTERS: usize = 131_072;
/// Texts to calibrate with, however long they are.
const CALIBRATION_LEAST: usize = 128;
/// Where there are few rows, one of so many is set apart to calibrate with.
const APART: usize = 3;

/// What to read.
#[derive(Debug, Args)]
#[command(next_help_heading = "Data")]
pub struct DataArgs {
    /// The task the model was fine-tuned for: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad
    /// [default for the built-in model: sst2]
    #[arg(long, value_name = "TASK", value_parser = task)]
    pub task: Option<Task>,

    /// The task's folder; without --task, your own labelled table (.csv, .tsv, .jsonl, .json, .parquet). Half of the labelled
    /// rows (of a task: of its dev part) are searched with, the other half is for the report alone
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,

    /// More rows that only the report sees: then all rows of --data with other texts are searched with
    #[arg(long, value_name = "PATH")]
    unseen: Option<PathBuf>,

    #[command(flatten)]
    columns: ColumnArgs,

    /// Search with at most this many rows, drawn at random
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = positive)]
    search_rows: usize,

    /// Report with at most this many rows, drawn at random
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = positive)]
    unseen_rows: usize,

    /// Texts to calibrate with, a table like --data whose labels are not looked at [default: the task's train part, else rows of --data
    /// that are then not searched with]
    #[arg(long, value_name = "PATH")]
    calibrate: Option<PathBuf>,

    /// Calibrate with at most this many texts
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = positive)]
    calibration_rows: usize,

    /// Cut texts to this many tokens, special tokens included [default: what the model takes]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_tokens: Option<usize>,
}

/// The three sets. No text is both in `search` and in `unseen`.
pub struct Data {
    pub calibration: Dataset,
    pub search: Dataset,
    /// Some of `search`, to look at single parts with; `None` where there are few anyway.
    pub glance: Option<Dataset>,
    pub unseen: Dataset,
    /// What to call it in the report.
    pub name: String,
}

/// Rows as they are in files.
pub struct Given {
    task: Option<Task>,
    rows: Dataset,
    unseen: Option<Dataset>,
}

impl DataArgs {
    /// The files that were named, with the flags that did so.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [("--data", &self.data), ("--unseen", &self.unseen), ("--calibrate", &self.calibrate)];
        all.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)))
    }

    /// Reads them.
    pub fn read(&self, builtin: bool) -> Result<Given, Failure> {
        let all = Select::default();
        let task = self.task.or((builtin && self.data.is_none()).then_some(Task::Sst2));
        let rows = match (task, &self.data) {
            (Some(task), Some(path)) => Dataset::read(task, path, Split::Dev, &all)?,
            (Some(task), None) => Dataset::builtin(task.name(), &all)?,
            (None, Some(path)) => Dataset::table(path, &self.columns.columns(), &all)?,
            (None, None) => {
                return Err(Failure::Usage(
                    "give --task and --data, or --data with your own table: what is the model for?".into(),
                ));
            }
        };
        enough(&rows, "rows")?;
        let unseen = self.unseen.as_deref().map(|path| self.unseen(task, path)).transpose()?;
        Ok(Given { task, rows, unseen })
    }

    /// Makes the three sets of them, for a model with this head and a search that calibrates or does not.
    pub fn divide(&self, given: Given, head: HeadKind, calibrates: bool, seed: u64) -> Result<Data, Failure> {
        let Given { task, rows: mut search, mut unseen } = given;
        for rows in std::iter::once(&mut search).chain(&mut unseen) {
            rows.keep_scorable(head)?;
        }
        if !Gold::is_text(head) {
            search.examples.retain(|example| example.label != Label::None);
            enough(&search, "labelled rows")?;
        }
        let name = task.map_or_else(|| file_name(self.data.as_deref()), |task| task.name().to_string());
        let mut unseen = match unseen {
            Some(unseen) if alike(&search, &unseen) => {
                return Err(Failure::Usage(format!("--unseen {}: these rows are searched with", unseen.source)));
            }
            Some(mut unseen) => {
                let dropped = drop_known(&mut search, &[&unseen]);
                unseen.notes.extend(left_out(&search, dropped, "only the report may see these texts"));
                unseen
            }
            None => {
                let mut unseen = search.hold_out(seed)?;
                bring_together(&mut search, &mut unseen);
                unseen
            }
        };
        if search.examples.len() < LEAST / 2 || unseen.examples.is_empty() {
            let (source, rows) = (&search.source, search.examples.len());
            return Err(Failure::new(format!(
                "{source}: {rows} rows are left to search with and {} to report with, for no text may be in both; give more, and \
                 different ones",
                unseen.examples.len()
            )));
        }
        if self.search_rows < LEAST / 2 {
            let (rows, least) = (self.search_rows, LEAST / 2);
            return Err(Failure::Usage(format!("--search-rows {rows}: {least} at least, better 1000")));
        }
        let all = unseen.examples.len();
        unseen.thin(self.unseen_rows, seed);
        if unseen.examples.len() < all {
            let rows = unseen.examples.len();
            unseen.notes.push(format!("{rows} of {all} unseen rows are reported with; --unseen-rows says how many"));
        }
        let mut calibration = match self.texts(task, &unseen, seed)? {
            None if calibrates => self.set_apart(&mut search, seed),
            texts => {
                search.thin(self.search_rows, seed);
                texts.unwrap_or_else(|| search.clone())
            }
        };
        self.cut(&mut calibration, seed);
        let glance = glance(&search, seed);
        Ok(Data { calibration, search, glance, unseen, name })
    }

    /// Rows to fine-tune with: a table of their own, else the task's train part. Those that are searched or reported with are left out,
    /// and the report says so.
    #[cfg(feature = "train")]
    pub fn train(&self, tutor: &super::TutorArgs, data: &mut Data, seed: u64) -> Result<Dataset, Failure> {
        let all = Select::default();
        let mut rows = match (self.task, tutor.train.as_deref().or(self.data.as_deref().filter(|path| path.is_dir()))) {
            (Some(task), Some(path)) => Dataset::read(task, path, Split::Train, &all)?,
            (None, Some(path)) => Dataset::table(path, &self.columns.columns(), &all)?,
            (_, None) => {
                let needs = "--recover needs rows to train with: --data with the task's train part, or --train";
                return Err(Failure::Usage(needs.into()));
            }
        };
        let why = "these rows are searched or reported with; training needs others";
        if [&data.search, &data.unseen].iter().any(|known| alike(&rows, known)) {
            return Err(Failure::Usage(format!("--train {}: {why}", rows.source)));
        }
        let dropped = drop_known(&mut rows, &[&data.search, &data.unseen]);
        if dropped > 0 && rows.examples.len() < LEAST {
            let (source, left) = (&rows.source, rows.examples.len());
            return Err(Failure::new(format!("{source}: {left} rows are left without {dropped} others: {why}")));
        }
        data.unseen.notes.extend(left_out(&rows, dropped, "training may not see what is searched or reported with"));
        tutor.train_rows.iter().for_each(|count| rows.thin(*count, seed));
        Ok(rows)
    }

    fn unseen(&self, task: Option<Task>, path: &Path) -> Result<Dataset, Failure> {
        let all = Select::default();
        Ok(match task {
            Some(task) => Dataset::read(task, path, Split::Dev, &all)?,
            None => Dataset::table(path, &self.columns.columns(), &all)?,
        })
    }

    /// Texts to calibrate with that are not searched with anyway: those that were named, else the task's train part.
    fn texts(&self, task: Option<Task>, unseen: &Dataset, seed: u64) -> Result<Option<Dataset>, Failure> {
        let sample = Select { sample: Some(self.calibration_rows), seed, ..Select::default() };
        Ok(match (&self.calibrate, task, &self.data) {
            (Some(path), ..) => {
                let mut texts = Dataset::table(
                    path,
                    &Columns { label: None, texts_only: true, ..self.columns.columns() },
                    &Select::default(),
                )?;
                drop_known(&mut texts, &[unseen]);
                Some(texts)
            }
            (None, Some(task), Some(path)) if path.is_dir() => Dataset::read(task, path, Split::Train, &sample).ok(),
            (None, Some(task), None) => Dataset::builtin_train(task.name(), &sample),
            _ => None,
        })
    }

    /// Thins rows to those that are searched with, and returns others to calibrate with. What makes up for what was removed fits the rows that
    /// it was calibrated with best: judged by the same ones it would seem better than it is.
    fn set_apart(&self, search: &mut Dataset, seed: u64) -> Dataset {
        let mut others = search.clone();
        let rows = search.examples.len();
        let apart = (rows / APART).min(CALIBRATION_LEAST);
        search.thin(self.search_rows.min(rows - apart), seed);
        leave_out(&mut others, search);
        others
    }

    /// Leaves as many texts as there is something to learn from.
    fn cut(&self, texts: &mut Dataset, seed: u64) {
        let enough = rows_of(CALIBRATION_CHARACTERS, texts).max(CALIBRATION_LEAST);
        texts.thin(self.calibration_rows.min(enough), seed);
    }
}

/// Whether both come from the same file, whatever its path is written like.
fn alike(a: &Dataset, b: &Dataset) -> bool {
    let file = |of: &Dataset| std::fs::canonicalize(&of.source).ok();
    a.source == b.source || file(a).is_some_and(|a| Some(a) == file(b))
}

/// What makes a row the same as another one: whoever has seen one has seen both.
type Texts = (String, Option<String>);

fn texts(example: &Example) -> Texts {
    (example.text.clone(), example.pair.clone())
}

/// Refuses rows that are too few to search with.
fn enough(rows: &Dataset, what: &str) -> Result<(), Failure> {
    match rows.examples.len() {
        few @ ..LEAST => Err(Failure::new(format!(
            "{}: {few} {what} are too few to search with; {LEAST} at least, better 1000",
            rows.source
        ))),
        _ => Ok(()),
    }
}

/// Drops rows whose texts others have too, and says how many.
fn drop_known(rows: &mut Dataset, others: &[&Dataset]) -> usize {
    let known: HashSet<Texts> = others.iter().flat_map(|rows| &rows.examples).map(texts).collect();
    let before = rows.examples.len();
    rows.examples.retain(|example| !known.contains(&texts(example)));
    before - rows.examples.len()
}

/// What to say of rows that were dropped.
fn left_out(rows: &Dataset, dropped: usize, why: &str) -> Option<String> {
    let s = if dropped == 1 { "" } else { "s" };
    (dropped > 0).then(|| format!("{}: {dropped} row{s} left out, for {why}", rows.source))
}

/// Leaves rows that nobody judges by: what makes up for what was removed fits the rows that it was calibrated with best, and these would flatter
/// it.
fn leave_out(others: &mut Dataset, searched: &Dataset) {
    let judged_by: HashSet<usize> = searched.examples.iter().map(|example| example.line).collect();
    others.examples.retain(|example| !judged_by.contains(&example.line));
}

/// Puts rows with the same texts on one side of a split: the one that has the first of them.
fn bring_together(search: &mut Dataset, unseen: &mut Dataset) {
    let mut first: HashMap<Texts, (usize, bool)> = HashMap::new();
    for (rows, is_unseen) in [(&*search, false), (&*unseen, true)] {
        for example in &rows.examples {
            let place = first.entry(texts(example)).or_insert((example.line, is_unseen));
            *place = (*place).min((example.line, is_unseen));
        }
    }
    if first.len() == search.examples.len() + unseen.examples.len() {
        return;
    }
    let belongs = |example: &Example| first.get(&texts(example)).is_some_and(|(_, is_unseen)| *is_unseen);
    let all = search.examples.drain(..).chain(unseen.examples.drain(..));
    let (theirs, ours): (Vec<Example>, Vec<Example>) = all.partition(belongs);
    (search.examples, unseen.examples) = (ours, theirs);
    for rows in [search, unseen] {
        rows.examples.sort_by_key(|example| example.line);
    }
}

/// Some of the rows, where there are many.
fn glance(rows: &Dataset, seed: u64) -> Option<Dataset> {
    let few = rows_of(GLANCE_CHARACTERS, rows).clamp(GLANCE.0, GLANCE.1);
    (rows.examples.len() >= 2 * few).then(|| {
        let mut glance = rows.clone();
        glance.thin(few, seed);
        glance
    })
}

/// How many such rows have this many characters.
fn rows_of(characters: usize, rows: &Dataset) -> usize {
    let length = |e: &Example| e.text.len() + e.pair.as_ref().map_or(0, String::len);
    let mean = rows.examples.iter().map(length).sum::<usize>() / rows.examples.len().max(1);
    characters / mean.max(1)
}

fn file_name(path: Option<&Path>) -> String {
    path.and_then(|path| path.file_name())
        .map_or_else(|| "your data".into(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, characters: usize) -> Dataset {
        let mut rows = Dataset::builtin("sst2", &Select { limit: Some(1), ..Select::default() }).unwrap();
        let one = Example { text: "x".repeat(characters), ..rows.examples[0].clone() };
        rows.examples = vec![one; count];
        rows
    }

    /// Rows with these texts, in this order.
    fn told(texts: &[&str]) -> Dataset {
        let mut all = rows(texts.len(), 1);
        for (number, (example, text)) in all.examples.iter_mut().zip(texts).enumerate() {
            (example.text, example.line) = (text.to_string(), number + 1);
        }
        all
    }

    fn lines(rows: &Dataset) -> Vec<usize> {
        rows.examples.iter().map(|example| example.line).collect()
    }

    #[test]
    fn the_same_text_is_on_one_side() {
        let mut search = told(&["a", "b", "a", "c", "b", "d"]);
        let mut unseen = search.clone();
        search.examples.retain(|example| [2, 3, 6].contains(&example.line));
        unseen.examples.retain(|example| [1, 4, 5].contains(&example.line));
        bring_together(&mut search, &mut unseen);
        assert_eq!((lines(&search), lines(&unseen)), (vec![2, 5, 6], vec![1, 3, 4]));
    }

    #[test]
    fn what_only_the_report_may_see_is_not_searched_with() {
        let mut search = told(&["a", "b", "a", "c"]);
        search.examples[3].pair = Some("x".into());
        let mut unseen = told(&["a", "c"]);
        unseen.source = "else.csv".into();
        let dropped = drop_known(&mut search, &[&unseen]);
        // The same text beside another one is another row.
        assert_eq!(lines(&search), [2, 4]);
        let note = left_out(&search, dropped, "only the report may see these texts").unwrap();
        assert!(note.contains("2 rows left out"), "{note}");
        assert_eq!(drop_known(&mut search, &[&unseen]), 0);
        assert_eq!(left_out(&search, 0, ""), None);
    }

    #[test]
    fn what_is_judged_by_is_not_calibrated_with() {
        let mut others = told(&["a", "b", "c", "d"]);
        let mut searched = others.clone();
        searched.examples.retain(|example| [2, 3].contains(&example.line));
        leave_out(&mut others, &searched);
        assert_eq!(lines(&others), [1, 4]);
    }

    #[test]
    fn parts_are_looked_at_with_a_share_of_many_rows() {
        let looked = |count, characters| glance(&rows(count, characters), 0).map(|rows| rows.examples.len());
        assert_eq!(looked(511, 100), None);
        assert_eq!(looked(512, 100), Some(256));
        assert_eq!(looked(512, 512), Some(128), "long rows say more each");
        assert_eq!(looked(512, 10_000), Some(64));
        assert_eq!(looked(127, 10_000), None);
    }
}
