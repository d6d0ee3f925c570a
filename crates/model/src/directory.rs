//! A model directory: on disk, or in memory for tests and fuzzing.

use crate::Error;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The largest file that is read whole (tokenizers of big vocabularies have some tens of megabytes).
const MAX_SMALL_FILE: u64 = 1 << 28;

/// Where the files are.
#[derive(Debug, Clone)]
pub(crate) enum Directory {
    /// On disk.
    Disk(PathBuf),
    /// By relative path, forward slashes.
    Memory(BTreeMap<String, Cow<'static, [u8]>>),
}

impl Directory {
    /// How a file is called in errors.
    pub(crate) fn label(&self, name: &str) -> String {
        match self {
            Directory::Disk(path) => path.join(name).display().to_string(),
            Directory::Memory(_) => name.to_string(),
        }
    }

    /// Whether there is such a file.
    pub(crate) fn holds(&self, name: &str) -> bool {
        match self {
            Directory::Disk(path) => path.join(name).is_file(),
            Directory::Memory(files) => files.contains_key(name),
        }
    }

    /// A file's content, for all but the weights; `None` if it is not there.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = match self {
            Directory::Disk(path) => path.join(name),
            Directory::Memory(files) => return Ok(files.get(name).map(|content| content.to_vec())),
        };
        let failed = |e: std::io::Error| Error::new(format!("{}: cannot be read ({e})", path.display()));
        match std::fs::metadata(&path) {
            // A pipe may never end, and a device has no length.
            Ok(metadata) if !metadata.is_file() => Err(Error::new(format!("{}: is not a plain file", path.display()))),
            Ok(metadata) if metadata.len() > MAX_SMALL_FILE => Err(Error::new(format!(
                "{}: has {} bytes, {MAX_SMALL_FILE} is the limit",
                path.display(),
                metadata.len()
            ))),
            Ok(_) => std::fs::read(&path).map(Some).map_err(failed),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed(e)),
        }
    }
}
