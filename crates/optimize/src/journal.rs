//! What was tried already, on disk: a search that was stopped goes on where it was.

use crate::{Recipe, Verdict};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sparing_model::Error;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// One line of the journal.
#[derive(Serialize, Deserialize)]
struct Line {
    recipe: Recipe,
    /// How many rows it was judged by.
    rows: usize,
    verdict: Verdict,
}

/// The first line: what the others are about.
#[derive(Serialize, Deserialize)]
struct Heading {
    search: String,
}

/// A line that says what was measured by the clock.
#[derive(Serialize, Deserialize)]
struct Clocked {
    clocked: String,
    said: Value,
}

/// Verdicts by recipe and number of rows, and what the clock said: a search that goes on must not ask it again, for it could
/// answer otherwise and lead elsewhere.
#[derive(Default)]
pub struct Journal {
    known: HashMap<(String, usize), Verdict>,
    clocked: HashMap<String, Value>,
    file: Option<(PathBuf, File)>,
}

impl Journal {
    /// Opens or begins the journal of a search: `search` says in one line what it is about, and a journal about something
    /// else is an error. A last line that was cut off is dropped.
    pub fn open(path: &Path, search: &str) -> Result<Journal, Error> {
        let failed = |e: std::io::Error| Error::new(format!("{}: cannot be written ({e})", path.display()));
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(failed)?;
        let mut lines = text[..whole].lines();
        let mut journal = Journal::default();
        match lines.next() {
            None => writeln!(file, "{}", json(&Heading { search: search.to_string() })).map_err(failed)?,
            Some(line) => {
                let heading: Heading = serde_json::from_str(line)
                    .map_err(|_| Error::new(format!("{}: is not the journal of a search", path.display())))?;
                if heading.search != search {
                    return Err(Error::new(format!(
                        "{}: belongs to another search; give another --out, or leave out --resume to begin anew",
                        path.display()
                    )));
                }
            }
        }
        for line in lines {
            if let Ok(Line { recipe, rows, verdict }) = serde_json::from_str(line) {
                journal.known.insert((recipe.key(), rows), verdict);
            } else if let Ok(Clocked { clocked, said }) = serde_json::from_str(line) {
                journal.clocked.insert(clocked, said);
            }
        }
        journal.file = Some((path.to_path_buf(), file));
        Ok(journal)
    }

    /// The verdict on a recipe that was tried before, by so many rows.
    pub fn find(&self, recipe: &Recipe, rows: usize) -> Option<Verdict> {
        self.known.get(&(recipe.key(), rows)).copied()
    }

    /// Number of recipes that were tried.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether nothing was tried.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Notes a verdict.
    pub fn note(&mut self, recipe: &Recipe, rows: usize, verdict: Verdict) -> Result<(), Error> {
        self.known.insert((recipe.key(), rows), verdict);
        self.write(&Line { recipe: recipe.clone(), rows, verdict })
    }

    /// What the clock said of something: then, or now.
    pub fn clocked<T: Serialize + DeserializeOwned>(
        &mut self,
        what: &str,
        ask: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(said) = self.clocked.get(what).and_then(|said| T::deserialize(said).ok()) {
            return Ok(said);
        }
        let said = ask()?;
        let line = Clocked { clocked: what.into(), said: serde_json::to_value(&said).unwrap_or_default() };
        self.write(&line)?;
        self.clocked.insert(line.clocked, line.said);
        Ok(said)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), Error> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        writeln!(file, "{}", json(line)).map_err(|e| Error::new(format!("{}: cannot be written ({e})", path.display())))
    }
}

fn json(line: &impl Serialize) -> String {
    serde_json::to_string(line).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_few_rows_say_is_not_what_all_say() {
        let mut journal = Journal::default();
        let [few, all] = [0.1, 0.2].map(|divergence| Verdict { divergence, ..crate::judge::EMPTY });
        journal.note(&Recipe::default(), 256, few).unwrap();
        assert_eq!(journal.find(&Recipe::default(), 1024), None);
        journal.note(&Recipe::default(), 1024, all).unwrap();
        assert_eq!(journal.find(&Recipe::default(), 256), Some(few));
        assert_eq!(journal.find(&Recipe::default(), 1024), Some(all));
    }

    #[test]
    fn the_clock_is_asked_once() {
        let path = std::env::temp_dir().join(format!("sparing-journal-{}", std::process::id()));
        let asked = |journal: &mut Journal, ratio: f64| journal.clocked("a race", || Ok(ratio)).unwrap();
        let mut first = Journal::open(&path, "a search").unwrap();
        first.note(&Recipe::default(), 8, crate::judge::EMPTY).unwrap();
        assert_eq!((asked(&mut first, 1.5), asked(&mut first, 2.5)), (1.5, 1.5));
        let mut again = Journal::open(&path, "a search").unwrap();
        assert_eq!((asked(&mut again, 3.5), again.len()), (1.5, 1));
        std::fs::remove_file(&path).unwrap();
    }
}
