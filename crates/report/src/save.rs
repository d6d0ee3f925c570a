//! The report on disk.

use crate::{BaseCard, Report};
use std::fs::File;
use std::io::{Error, Result, Write};
use std::path::Path;

impl Report {
    /// Writes `report.json`, `report.html` and `README.md` into a directory, which is made if it does not exist. Each is
    /// written whole or not at all. An error names the file.
    pub fn save(&self, directory: &Path, base: &BaseCard) -> Result<()> {
        let named = |path: &Path, e: Error| Error::new(e.kind(), format!("{}: cannot be written: {e}", path.display()));
        std::fs::create_dir_all(directory).map_err(|e| named(directory, e))?;
        for (name, text) in [("report.json", self.json()), ("report.html", self.html()), ("README.md", self.card(base))]
        {
            let path = directory.join(name);
            replace_file(&path, text.as_bytes()).map_err(|e| named(&path, e))?;
        }
        Ok(())
    }
}

/// Writes beside the file, then renames: what was there stays until the new one is whole.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut beside = path.as_os_str().to_os_string();
    beside.push(format!(".{}.tmp", std::process::id()));
    let written = File::create(&beside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        // Half a file is of no use; what matters is the first error.
        let _ = std::fs::remove_file(&beside);
    }
    written
}
