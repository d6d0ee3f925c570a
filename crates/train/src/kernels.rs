//! Where a GPU's compiled kernels are kept between runs.
//!
//! CubeCL 0.11 can keep them in a database, but processes cannot share one, and what another build of the program has
//! written cannot be taken over ("Should be cached now"). So every process has a database of its own: the first that no
//! other holds, begun anew if another build wrote it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Processes at a time that keep their kernels.
const PLACES: usize = 64;

/// A database that is this process's for as long as it lives.
pub(crate) struct Held {
    /// What the database is called.
    pub(crate) name: String,
    _lock: File,
}

/// Takes a database in a directory; `None` if all are taken, or if there is nowhere to write. `build` says which program
/// this is.
pub(crate) fn hold(directory: &Path, build: &str) -> Option<Held> {
    fs::create_dir_all(directory).ok()?;
    for number in 0..PLACES {
        let name = format!("sparing-{number}");
        let path = directory.join(format!("{name}.lock"));
        let mut lock = File::options().read(true).write(true).create(true).truncate(false).open(path).ok()?;
        if lock.try_lock().is_err() {
            continue;
        }
        let mut writer = String::new();
        // What cannot be read was not written by this build.
        let _ = lock.read_to_string(&mut writer);
        if writer != build {
            forget(directory, &name)?;
            lock.set_len(0).ok()?;
            lock.seek(SeekFrom::Start(0)).ok()?;
            lock.write_all(build.as_bytes()).ok()?;
        }
        return Some(Held { name, _lock: lock });
    }
    None
}

/// Deletes a database and the files beside it.
fn forget(directory: &Path, name: &str) -> Option<()> {
    let start = format!("{name}.db");
    for entry in fs::read_dir(directory).ok()?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&start) {
            fs::remove_file(entry.path()).ok()?;
        }
    }
    Some(())
}

/// Which program this is: two builds differ in it.
pub(crate) fn build() -> Option<String> {
    let file = fs::metadata(std::env::current_exe().ok()?).ok()?;
    let written = file.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", env!("CARGO_PKG_VERSION"), file.len(), written.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_has_kernels_of_its_own_build() {
        let folder = tempfile::tempdir().unwrap();
        let there = |name: &str| folder.path().join(name).exists();
        let first = hold(folder.path(), "a").unwrap();
        let second = hold(folder.path(), "a").unwrap();
        assert_eq!((first.name.as_str(), second.name.as_str()), ("sparing-0", "sparing-1"));
        for file in ["sparing-0.db", "sparing-0.db-wal", "sparing-1.db"] {
            fs::write(folder.path().join(file), "kernels").unwrap();
        }
        // Who comes later goes on with what is free, if it was this program's.
        drop(first);
        assert_eq!(hold(folder.path(), "a").unwrap().name, "sparing-0");
        assert!(there("sparing-0.db") && there("sparing-0.db-wal"));
        assert_eq!(hold(folder.path(), "b").unwrap().name, "sparing-0");
        assert!(!there("sparing-0.db") && !there("sparing-0.db-wal") && there("sparing-1.db"));
        assert!(build().is_some_and(|build| !build.is_empty()));
        // Where nothing can be written nothing is kept.
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(hold(&file, "a").is_none());
    }
}
