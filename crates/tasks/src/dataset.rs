//! Examples with what is right for them, wherever they come from.

use crate::random::Random;
use crate::{Columns, Split, Task, glue, language, squad, table};
use sparing_model::Error;
use std::path::Path;

/// One example, its label still as the file has it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Example {
    /// The file's own name for it, if it has one (SQuAD's ids).
    pub id: Option<String>,
    /// The text; for question answering the question.
    pub text: String,
    /// The second text; for question answering the text that holds the answer.
    pub pair: Option<String>,
    /// What is right.
    pub label: Label,
    /// Where it stands in the file, from 1 (line or row: [`Dataset::place`]).
    pub line: usize,
}

/// What is right for an example, as the file says it. What it means depends on the model's head.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Label {
    /// The file does not say.
    #[default]
    None,
    /// A label's name or number, several of them separated by `|`, or a score.
    One(String),
    /// A list of labels' names or numbers.
    Many(Vec<String>),
    /// One label per word of the text.
    Tags {
        /// Byte ranges of the words in the text.
        words: Vec<(usize, usize)>,
        /// A label's name or number per word.
        tags: Vec<String>,
    },
    /// Accepted answers; none at all if the question has no answer in the text.
    Answers(Vec<Answer>),
}

/// An accepted answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The answer.
    pub text: String,
    /// The byte of the context where it begins, if the file says so and the answer is really there.
    pub start: Option<usize>,
}

/// Examples of one task.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// What kind of examples these are.
    pub task: Task,
    /// What errors and reports call it (usually the file's path).
    pub source: String,
    /// `line` or `row`: what [`Example::line`] counts.
    pub place: &'static str,
    /// The column the labels come from.
    pub label_column: String,
    /// The columns of the user's own table; none of an official file, whose columns are not for the user to name.
    pub columns: Vec<String>,
    /// The examples in the file's order.
    pub examples: Vec<Example>,
    /// What the user should be told: guessed columns, rows left out.
    pub notes: Vec<String>,
}

/// Which examples to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Select {
    /// At most this many from the beginning.
    pub limit: Option<usize>,
    /// This many drawn at random, kept in the file's order. Drawn before `limit` is applied.
    pub sample: Option<usize>,
    /// Seed of the draw.
    pub seed: u64,
}

impl Select {
    /// How many rows have to be read at most.
    pub(crate) fn rows(&self) -> usize {
        match self.sample {
            Some(_) => usize::MAX,
            None => self.limit.unwrap_or(usize::MAX),
        }
    }

    fn apply(&self, examples: &mut Vec<Example>) {
        if let Some(k) = self.sample {
            let chosen = Random::new(self.seed).choose(examples.len(), k);
            let mut next = chosen.into_iter().peekable();
            let mut i = 0;
            examples.retain(|_| {
                let keep = next.next_if_eq(&i).is_some();
                i += 1;
                keep
            });
        }
        if let Some(limit) = self.limit {
            examples.truncate(limit);
        }
    }
}

impl Dataset {
    /// Reads a task's official files. `path` is the task's folder, the folder above it (the GLUE root), or the file itself.
    pub fn read(task: Task, path: &Path, split: Split, select: &Select) -> Result<Dataset, Error> {
        match task {
            Task::Squad | Task::SquadV2 => squad::read(task, path, split, select),
            Task::Language => language::read(path, split, select),
            Task::Own => table::read(path, &Columns::default(), select),
            _ => glue::read(task, path, split, select),
        }?
        .finish(select)
    }

    /// Reads the user's own table: CSV, TSV, JSONL, JSON or Parquet, by the file's extension (`.gz` on top is unpacked).
    pub fn table(path: &Path, columns: &Columns, select: &Select) -> Result<Dataset, Error> {
        let mut table = table::read(path, columns, select)?;
        columns.renamed.apply(&mut table);
        table.finish(select)
    }

    /// Data that comes with the program: the SST-2 development set under the name `sst2`.
    pub fn builtin(name: &str, select: &Select) -> Result<Dataset, Error> {
        match Task::parse(name) {
            Ok(Task::Sst2) => sst2("sst2-dev.tsv (built in)", include_str!("../data/sst2-dev.tsv"), Split::Dev, select),
            _ => Err(Error::new(format!(
                "no built-in data is called {name:?}; there is sst2 (give --data for the others)"
            ))),
        }
    }

    /// Some rows of the train set that belongs to [`Dataset::builtin`]'s, under the same name; `None` for any other.
    pub fn builtin_train(name: &str, select: &Select) -> Option<Dataset> {
        let text = include_str!("../data/sst2-train-512.tsv");
        let is_there = Task::parse(name).is_ok_and(|task| task == Task::Sst2);
        is_there.then(|| sst2("sst2-train-512.tsv (built in)", text, Split::Train, select).ok()).flatten()
    }

    /// Takes half of the examples out, drawn at random: what is measured on them says something of the others.
    pub fn hold_out(&mut self, seed: u64) -> Result<Dataset, Error> {
        let half = self.examples.len() / 2;
        if half == 0 {
            return Err(Error::new(format!("{}: too few examples to set half of them apart", self.source)));
        }
        let mut taken = Random::new(seed).choose(self.examples.len(), half).into_iter().peekable();
        let (mut held, mut kept) = (Vec::with_capacity(half), Vec::new());
        for (i, example) in std::mem::take(&mut self.examples).into_iter().enumerate() {
            if taken.next_if_eq(&i).is_some() { held.push(example) } else { kept.push(example) }
        }
        // Cloned while it holds nothing.
        let held = Dataset { examples: held, notes: Vec::new(), ..self.clone() };
        self.examples = kept;
        Ok(held)
    }

    /// Leaves so many examples at most, drawn at random, in their order.
    pub fn thin(&mut self, rows: usize, seed: u64) {
        Select { sample: Some(rows), seed, ..Select::default() }.apply(&mut self.examples);
    }

    fn finish(mut self, select: &Select) -> Result<Dataset, Error> {
        if self.examples.is_empty() && select.rows() > 0 {
            return Err(Error::new(format!("{}: no examples in it", self.source)));
        }
        select.apply(&mut self.examples);
        if self.examples.is_empty() {
            return Err(Error::new(format!("{}: limit or sample leaves no examples", self.source)));
        }
        Ok(self)
    }

    /// Says where an example is: `FILE line 12`.
    pub fn at(&self, example: &Example) -> String {
        format!("{} {} {}", self.source, self.place, example.line)
    }
}

/// Reads a built-in file of SST-2.
fn sst2(source: &str, text: &'static str, split: Split, select: &Select) -> Result<Dataset, Error> {
    let lines = crate::source::Lines::new(source.into(), Box::new(text.as_bytes()));
    glue::parse(Task::Sst2, source.into(), lines, split, select)?.finish(select)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_sst2_is_whole() {
        let data = Dataset::builtin("sst2", &Select::default()).unwrap();
        assert_eq!(data.examples.len(), 872);
        let positive = data.examples.iter().filter(|e| e.label == Label::One("1".into())).count();
        assert_eq!(positive, 444);
        assert_eq!(data.examples[1].text, "unflinchingly bleak and desperate ");
        assert_eq!(data.examples[1].line, 3);
        assert!(Dataset::builtin("rte", &Select::default()).is_err());
    }

    #[test]
    fn built_in_texts_to_calibrate_with_are_no_dev_rows() {
        let texts = |data: &Dataset| data.examples.iter().map(|e| e.text.trim().to_string()).collect::<Vec<_>>();
        let train = texts(&Dataset::builtin_train("sst2", &Select::default()).unwrap());
        assert_eq!(train.len(), 512);
        let dev = texts(&Dataset::builtin("sst2", &Select::default()).unwrap());
        assert!(train.iter().all(|text| !dev.contains(text)));
        assert!(Dataset::builtin_train("rte", &Select::default()).is_none());
    }

    #[test]
    fn halves_share_nothing() {
        let mut data = Dataset::builtin("sst2", &Select::default()).unwrap();
        let held = data.hold_out(7).unwrap();
        let mut lines: Vec<usize> = held.examples.iter().chain(&data.examples).map(|e| e.line).collect();
        assert_eq!((held.examples.len(), data.examples.len()), (436, 436));
        lines.sort_unstable();
        assert_eq!(lines, (2..874).collect::<Vec<_>>());
        data.examples.truncate(1);
        assert!(data.hold_out(7).unwrap_err().to_string().contains("too few"));
    }

    #[test]
    fn sample_is_seeded_and_ordered() {
        let select = |sample, limit, seed| Select { limit, sample, seed };
        let take = |s: Select| {
            let data = Dataset::builtin("sst2", &s).unwrap();
            data.examples.iter().map(|e| e.line).collect::<Vec<_>>()
        };
        let a = take(select(Some(50), None, 1));
        assert_eq!(a.len(), 50);
        assert!(a.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(a, take(select(Some(50), None, 1)));
        assert_ne!(a, take(select(Some(50), None, 2)));
        assert_eq!(a[..5], take(select(Some(50), Some(5), 1)));
        assert_eq!(take(select(None, Some(3), 0)), [2, 3, 4]);
        let mut thinned = Dataset::builtin("sst2", &Select::default()).unwrap();
        thinned.thin(50, 1);
        assert_eq!(thinned.examples.iter().map(|e| e.line).collect::<Vec<_>>(), a);
        assert!(Dataset::builtin("sst2", &select(None, Some(0), 0)).is_err());
    }
}
