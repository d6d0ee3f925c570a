//! What was tried already, on disk: a search that was stopped goes on where it was.

use crate::{Recipe, Verdict};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sparing_model::Error;
use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
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
    /// else is an error, unless it is to be begun `anew`. A last line that was cut off is dropped. Nobody else can open it as long as
    /// this one, or what [`Journal::held`] returns, is there.
    pub fn open(path: &Path, search: &str, anew: bool) -> Result<Journal, Error> {
        let failed = |e: std::io::Error| Error::new(format!("{}: cannot be written ({e})", path.display()));
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        lock(&file, path)?;
        if anew {
            file.set_len(0).map_err(failed)?;
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(failed)?;
        let mut lines = text[..whole].lines();
        let mut journal = Journal::default();
        match lines.next() {
            None => file.write_all(line(&Heading { search: search.to_string() }).as_bytes()).map_err(failed)?,
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

    /// Keeps others from opening the journal as long as it is there, whatever becomes of this one.
    pub fn held(&self) -> Option<File> {
        self.file.as_ref().and_then(|(_, file)| file.try_clone().ok())
    }

    /// Keeps others from opening a journal that may be there, whatever it is about.
    pub fn hold(path: &Path) -> Result<Option<File>, Error> {
        match File::open(path) {
            Ok(file) => lock(&file, path).map(|()| Some(file)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::new(format!("{}: cannot be read ({e})", path.display()))),
        }
    }

    fn write(&mut self, entry: &impl Serialize) -> Result<(), Error> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let failed = |e| Error::new(format!("{}: cannot be written ({e})", path.display()));
        file.write_all(line(entry).as_bytes()).map_err(failed)
    }
}

fn lock(file: &File, path: &Path) -> Result<(), Error> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let why = "another search is at it; wait for its end, or give another --out";
            Err(Error::new(format!("{}: {why}", path.display())))
        }
        // A file system that knows no locks cannot be helped.
        _ => Ok(()),
    }
}

/// Written at once, so that a line is there whole or not at all.
fn line(entry: &impl Serialize) -> String {
    serde_json::to_string(entry).unwrap_or_default() + "\n"
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
    fn what_was_no_number_is_not_judged_again() {
        use crate::judge::NO_NUMBER;
        let journal = tempfile::tempdir().unwrap();
        let path = journal.path().join("journal");
        let open = || Journal::open(&path, "a search", false).unwrap();
        let third = Verdict { score: 1.0 / 3.0, lost: f64::NEG_INFINITY, ..crate::judge::EMPTY };
        let mut first = open();
        first.note(&Recipe::default(), 8, NO_NUMBER).unwrap();
        first.note(&Recipe::default(), 9, third).unwrap();
        drop(first);
        let again = open();
        let [broken, exact] = [8, 9].map(|rows| again.find(&Recipe::default(), rows).unwrap());
        assert!(broken.score.is_nan());
        assert_eq!(Verdict { score: 0.0, ..broken }, Verdict { score: 0.0, ..NO_NUMBER });
        assert_eq!(exact, third);
        drop(again);
        // As earlier versions wrote it.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"NaN\"", "null").replace("\"inf\"", "null")).unwrap();
        let earlier = open().find(&Recipe::default(), 8).unwrap();
        assert!(!earlier.within(f64::MAX) && earlier.agreement == 0.0, "{earlier:?}");
    }

    #[test]
    fn the_clock_is_asked_once() {
        let path = std::env::temp_dir().join(format!("sparing-journal-{}", std::process::id()));
        let asked = |journal: &mut Journal, ratio: f64| journal.clocked("a race", || Ok(ratio)).unwrap();
        let mut first = Journal::open(&path, "a search", false).unwrap();
        first.note(&Recipe::default(), 8, crate::judge::EMPTY).unwrap();
        assert_eq!((asked(&mut first, 1.5), asked(&mut first, 2.5)), (1.5, 1.5));
        let open = |anew| Journal::open(&path, "a search", anew);
        let told = open(true).map(drop).unwrap_err().to_string();
        assert!(told.contains("another search is at it"), "{told}");
        let held = first.held();
        drop(first);
        assert!(open(false).is_err(), "it is still held");
        assert!(Journal::hold(&path).is_err(), "by one only");
        drop(held);
        let held = Journal::hold(&path).unwrap();
        assert!(held.is_some() && open(false).is_err(), "by whoever does not even read it");
        drop(held);
        let mut again = open(false).unwrap();
        assert_eq!((asked(&mut again, 3.5), again.len()), (1.5, 1));
        drop(again);
        assert!(open(true).unwrap().is_empty());
        std::fs::remove_file(&path).unwrap();
        assert!(Journal::hold(&path).unwrap().is_none() && !path.exists());
    }
}
