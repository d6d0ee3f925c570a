//! Rows to calibrate with, rows to search with, and rows that only the report sees.

use crate::args::{ColumnArgs, positive, task};
use crate::failure::Failure;
use clap::Args;
use sparing_tasks::{Dataset, Example, Label, Select, Split, Task};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Labelled rows, half of which are searched with.
const LEAST: usize = 20;
/// Rows that say what a single part is worth (not whether it is good enough, so few will do): at least and at most.
const GLANCE: (usize, usize) = (64, 256);
/// As many of them as have about so many characters.
const GLANCE_CHARACTERS: usize = 65536;
/// More characters than that have nothing new to calibrate with.
const CALIBRATION_CHARACTERS: usize = 131_072;
/// Texts to calibrate with, however long they are.
const CALIBRATION_LEAST: usize = 128;

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

    /// Calibrate with at most this many texts (of a task: of its train part, if it is there)
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

impl DataArgs {
    /// Reads them.
    pub fn read(&self, builtin: bool, seed: u64) -> Result<Data, Failure> {
        let all = Select::default();
        let task = self.task.or((builtin && self.data.is_none()).then_some(Task::Sst2));
        let mut labelled = match (task, &self.data) {
            (Some(task), Some(path)) => Dataset::read(task, path, Split::Dev, &all)?,
            (Some(task), None) => Dataset::builtin(task.name(), &all)?,
            (None, Some(path)) => Dataset::table(path, &self.columns.columns(), &all)?,
            (None, None) => {
                return Err(Failure::Usage(
                    "give --task and --data, or --data with your own table: what is the model for?".into(),
                ));
            }
        };
        labelled.examples.retain(|example| example.label != Label::None);
        if labelled.examples.len() < LEAST {
            let (source, rows) = (&labelled.source, labelled.examples.len());
            return Err(Failure::new(format!(
                "{source}: {rows} labelled rows are too few to search with; {LEAST} at least, better 1000"
            )));
        }
        let name = task.map_or_else(|| file_name(self.data.as_deref()), |task| task.name().to_string());
        let (mut search, unseen) = match &self.unseen {
            Some(path) => {
                let mut unseen = self.unseen(task, path)?;
                if alike(&labelled, &unseen) {
                    return Err(Failure::Usage(format!("--unseen {}: these rows are searched with", unseen.source)));
                }
                drop_known(&mut labelled, &mut unseen);
                (labelled, unseen)
            }
            None => {
                let mut unseen = labelled.hold_out(seed)?;
                bring_together(&mut labelled, &mut unseen);
                (labelled, unseen)
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
        let calibration = self.calibration(task, &search, seed);
        search.thin(self.search_rows, seed);
        let glance = glance(&search, seed);
        Ok(Data { calibration, search, glance, unseen, name })
    }

    /// Rows to fine-tune with: a table of their own, else the task's train part.
    #[cfg(feature = "train")]
    pub fn train(&self, tutor: &super::TutorArgs, seed: u64) -> Result<Dataset, Failure> {
        let all = Select { sample: tutor.train_rows, seed, ..Select::default() };
        match (self.task, tutor.train.as_deref().or(self.data.as_deref().filter(|path| path.is_dir()))) {
            (Some(task), Some(path)) => Ok(Dataset::read(task, path, Split::Train, &all)?),
            (None, Some(path)) => Ok(Dataset::table(path, &self.columns.columns(), &all)?),
            (_, None) => {
                let needs = "--recover needs rows to train with: --data with the task's train part, or --train";
                Err(Failure::Usage(needs.into()))
            }
        }
    }

    fn unseen(&self, task: Option<Task>, path: &Path) -> Result<Dataset, Failure> {
        let all = Select::default();
        Ok(match task {
            Some(task) => Dataset::read(task, path, Split::Dev, &all)?,
            None => Dataset::table(path, &self.columns.columns(), &all)?,
        })
    }

    /// Texts to calibrate with: the train part if it is there, else those that are searched with.
    fn calibration(&self, task: Option<Task>, search: &Dataset, seed: u64) -> Dataset {
        let sample = Select { sample: Some(self.calibration_rows), seed, ..Select::default() };
        let train = match (task, &self.data) {
            (Some(task), Some(path)) if path.is_dir() => Dataset::read(task, path, Split::Train, &sample).ok(),
            _ => None,
        };
        let mut texts = train.unwrap_or_else(|| search.clone());
        let enough = rows_of(CALIBRATION_CHARACTERS, &texts).max(CALIBRATION_LEAST);
        texts.thin(self.calibration_rows.min(enough), seed);
        texts
    }
}

/// Whether both come from the same file, whatever its path is written like.
pub fn alike(a: &Dataset, b: &Dataset) -> bool {
    let file = |of: &Dataset| std::fs::canonicalize(&of.source).ok();
    a.source == b.source || file(a).is_some_and(|a| Some(a) == file(b))
}

/// What makes a row the same as another one: whoever has seen one has seen both.
type Texts = (String, Option<String>);

fn texts(example: &Example) -> Texts {
    (example.text.clone(), example.pair.clone())
}

/// Drops rows that are to be searched with and are among the unseen ones, with a note.
fn drop_known(search: &mut Dataset, unseen: &mut Dataset) {
    let known: HashSet<Texts> = unseen.examples.iter().map(texts).collect();
    let before = search.examples.len();
    search.examples.retain(|example| !known.contains(&texts(example)));
    let dropped = before - search.examples.len();
    if dropped > 0 {
        let s = if dropped == 1 { "" } else { "s" };
        let source = &search.source;
        unseen.notes.push(format!("{source}: {dropped} row{s} left out, for only the report may see these texts"));
    }
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
        drop_known(&mut search, &mut unseen);
        // The same text beside another one is another row.
        assert_eq!(lines(&search), [2, 4]);
        assert!(unseen.notes.last().unwrap().contains("2 rows left out"), "{:?}", unseen.notes);
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
