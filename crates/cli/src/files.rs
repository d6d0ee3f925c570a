//! Files that are either written whole or not at all, and directories that are not overwritten unasked.

use crate::failure::Failure;
use std::path::Path;

/// Writes beside the file, then renames: an interrupted write leaves what was there before.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if path.file_name().is_none() {
        return Err(Failure::new(format!("{}: is not the name of a file", path.display())));
    }
    let failed = |e: std::io::Error| Failure::new(format!("{}: cannot be written ({e})", path.display()));
    sparing_model::replace_file(path, bytes).map_err(failed)
}

/// Refuses a directory with something in it, unless that may be replaced, and one that holds other things than a model in any case.
pub fn free(out: &Path, overwrite: bool) -> Result<(), Failure> {
    sparing_model::check_replaceable(out)?;
    let occupied = std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    match occupied && !overwrite {
        true => Err(Failure::new(format!(
            "{} is not empty; give another --out, or --overwrite to replace it",
            out.display()
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        // A directory cannot be replaced by a file.
        let taken = folder.path().join("taken");
        std::fs::create_dir(&taken).unwrap();
        std::fs::write(taken.join("inside"), b"").unwrap();
        let message = write(&taken, b"x").unwrap_err().message().unwrap().to_string();
        assert!(message.contains("taken: cannot be written"), "{message}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
