//! The report on disk.

use crate::{BaseCard, Report};
use sparing_model::replace_file;
use std::io::{Error, Result};
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
