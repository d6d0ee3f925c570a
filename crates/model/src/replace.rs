//! Files that are there whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Writes beside the file, then renames: what was there stays until the new one is whole, and half a file never stays.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    replace_file_with(path, |file| file.write_all(bytes))
}

/// [`replace_file`] for what is written piece by piece.
pub fn replace_file_with(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    // A link stays one: what it points to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if fs::metadata(&path).is_ok_and(|known| !known.is_file() && !known.is_dir()) {
        // Pipes and devices hold nothing that could be lost, and must not be replaced by a file.
        return write(&mut File::options().write(true).open(&path)?);
    }
    let beside = sibling(&path, "partial")
        .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "this is not the name of a file"))?;
    let written = File::create(&beside)
        .and_then(|mut file| write(&mut file).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        // What matters is the first error.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// `.name.kind-1234-0` beside `path`, on the same file system; `None` if the path has no name.
pub(crate) fn sibling(path: &Path, kind: &str) -> Option<PathBuf> {
    let mut hidden = OsString::from(".");
    hidden.push(path.file_name()?);
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    hidden.push(format!(".{kind}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    Some(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<OsString> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_there_stays_until_the_new_file_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        replace_file(&path, b"one").unwrap();
        let failed = replace_file_with(&path, |file| {
            file.write_all(b"tw")?;
            assert_eq!(fs::read(&path).unwrap(), b"one");
            Err(Error::other("the disk is full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "the disk is full");
        assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"one".to_vec(), vec!["a.txt".into()]));
        replace_file(&path, b"two").unwrap();
        assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"two".to_vec(), vec!["a.txt".into()]));
        // A directory is not replaced by a file, and what has no name cannot be one.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(replace_file(&taken, b"x").is_err() && taken.is_dir());
        assert!(replace_file(Path::new("/"), b"x").is_err());
        assert_eq!(names(folder.path()), ["a.txt", "taken"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_pipes_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.txt"), "one").unwrap();
        std::os::unix::fs::symlink("a.txt", at("link")).unwrap();
        replace_file(&at("link"), b"two").unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read(at("a.txt")).unwrap(), b"two");
        let pipe = at("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        replace_file(&pipe, b"three").unwrap();
        assert_eq!(reader.join().unwrap(), b"three");
        assert_eq!(names(folder.path()), ["a.txt", "link", "pipe"]);
    }
}
