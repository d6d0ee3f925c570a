//! Where a training writes.

use crate::session::TRAINING;
use sparing_model::{Error, check_replaceable};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

/// Where the result goes, and what to do with what is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The model's directory. Until training is done everything is in a directory of this name with `.work` appended.
    pub directory: PathBuf,
    /// Go on from the checkpoint, if there is one.
    pub resume: bool,
    /// Replace what is there.
    pub overwrite: bool,
}

impl Place {
    /// Where everything is until training is done: beside the result, whether or not a slash is at the end of its name.
    pub(crate) fn beside(&self) -> PathBuf {
        let mut name = self.directory.components().collect::<PathBuf>().into_os_string();
        name.push(".work");
        PathBuf::from(name)
    }

    /// The work directory of one seed.
    pub(crate) fn work(&self, seed: u64) -> PathBuf {
        self.beside().join(format!("seed-{seed}"))
    }

    /// The directory of one seed's model: the place itself if there is one seed.
    pub(crate) fn model(&self, seed: u64, seeds: usize) -> PathBuf {
        if seeds == 1 { self.directory.clone() } else { self.directory.join(format!("seed-{seed}")) }
    }

    /// Keeps others from training into the same place, for as long as what it gives lives.
    pub(crate) fn hold(&self) -> Result<Held, Error> {
        let directory: PathBuf = self.directory.components().collect();
        let Some(name) = directory.file_name() else { return Ok(Held(None)) };
        let path = directory.with_file_name(format!(".{}.lock", name.to_string_lossy()));
        // Where nothing can be written, the training says so; a file system that knows no locks cannot be helped.
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        if made.is_err() {
            return Ok(Held(None));
        }
        loop {
            let file = File::options().write(true).create(true).truncate(false).open(&path);
            let Ok(file) = file else { return Ok(Held(None)) };
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                let why = "another training writes there; wait for its end, or give another --out";
                return Err(Error::new(format!("{}: {why}", directory.display())));
            }
            // Whoever held it may have removed it since it was opened.
            if is_at(&file, &path) {
                return Ok(Held(Some((file, path))));
            }
        }
    }

    /// Refuses to lose anything.
    pub(crate) fn check(&self, seeds: &[u64]) -> Result<(), Error> {
        // Nobody wants to hear of it after the training.
        seeds.iter().try_for_each(|seed| check_replaceable(&self.model(*seed, seeds.len())))?;
        for seed in seeds {
            let work = self.work(*seed);
            if work.exists() && self.overwrite {
                fs::remove_dir_all(&work).map_err(|e| Error::new(format!("{}: {e}", work.display())))?;
            } else if work.exists() && !self.resume {
                let why = "holds an unfinished training; go on with --resume, or start over with --overwrite";
                return Err(Error::new(format!("{} {why}", work.display())));
            }
        }
        let occupied = fs::read_dir(&self.directory).is_ok_and(|mut entries| entries.next().is_some());
        // What is finished, or was begun, is gone on with; somebody else's model is not.
        let begun = |seed: &u64| self.work(*seed).exists() || self.model(*seed, seeds.len()).join(TRAINING).exists();
        let goes_on = self.resume && seeds.iter().any(begun);
        if occupied && !goes_on && !self.overwrite {
            let why = "is not empty; give another --out, or --overwrite to replace it";
            return Err(Error::new(format!("{} {why}", self.directory.display())));
        }
        Ok(())
    }
}

/// Whether this is the file of that name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |found: std::io::Result<fs::Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
    number(file.metadata()) == number(fs::metadata(path))
}

/// Files that are open cannot be removed.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// A place that nobody else trains into.
pub(crate) struct Held(Option<(File, PathBuf)>);

impl Drop for Held {
    fn drop(&mut self) {
        // While it is still locked: who has it open already sees that it is gone.
        if let Some((_, path)) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}
