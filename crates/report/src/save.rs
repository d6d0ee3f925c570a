//! The report on disk.

use crate::{BaseCard, Report};
use sparing_model::replace_file;
use std::io::{Error, Result};
use std::path::Path;

impl Report {
    /// Writes `report.json`, `report.html` and `README.md` into a directory, which is made if it does not exist. Each is
    /// written whole or not at all. An error names the file.
    pub fn save(&self, directory: &Path, base: &BaseCard) -> Result<()> {
        std::fs::create_dir_all(directory).map_err(|e| named(directory, e))?;
        write(directory, "report.json", &self.json())?;
        write(directory, "report.html", &self.html())?;
        write(directory, CARD, &self.card(base))
    }

    /// The same in the place of an earlier report; a model card that is not that one's any more was written by somebody since, and
    /// stays. Returns whether it was written.
    pub fn renew(&self, directory: &Path, base: &BaseCard, earlier: &Report) -> Result<bool> {
        write(directory, "report.json", &self.json())?;
        write(directory, "report.html", &self.html())?;
        let is_ours = std::fs::read(directory.join(CARD)).is_ok_and(|card| card == earlier.card(base).as_bytes());
        if is_ours {
            write(directory, CARD, &self.card(base))?;
        }
        Ok(is_ours)
    }
}

/// The model card.
const CARD: &str = "README.md";

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    replace_file(&path, text.as_bytes()).map_err(|e| named(&path, e))
}

fn named(path: &Path, e: Error) -> Error {
    Error::new(e.kind(), format!("{}: cannot be written: {e}", path.display()))
}
