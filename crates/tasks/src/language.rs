//! Plain text for language modelling (WikiText, Penn Treebank, any text file).

use crate::dataset::{Dataset, Example, Label, Select};
use crate::glue::empty;
use crate::source::Lines;
use crate::{Split, Task};
use sparing_model::Error;
use std::path::{Path, PathBuf};

/// Reads a text file as one example, every line with its newline. `limit` counts lines.
pub(crate) fn read(path: &Path, split: Split, select: &Select) -> Result<Dataset, Error> {
    if select.sample.is_some() {
        return Err(Error::new("a text cannot be sampled line by line without losing its context; use a limit"));
    }
    let file = find(path, split)?;
    let source = file.display().to_string();
    let mut text = String::new();
    for line in Lines::open(&file)?.take(select.rows()) {
        text.push_str(&line?.1);
        text.push('\n');
    }
    if text.trim().is_empty() {
        return Err(empty(&source));
    }
    Ok(Dataset {
        task: Task::Language,
        source,
        place: "line",
        label_column: String::new(),
        columns: Vec::new(),
        examples: vec![Example { text, label: Label::None, line: 1, ..Example::default() }],
        notes: Vec::new(),
    })
}

/// The text of this split at `path`: a file, or a folder with the published names.
fn find(path: &Path, split: Split) -> Result<PathBuf, Error> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let part = match split {
        Split::Train => "train",
        Split::Dev => "valid",
        Split::Test => "test",
    };
    let names =
        [format!("wiki.{part}.tokens"), format!("wiki.{part}.raw"), format!("ptb.{part}.txt"), format!("{part}.txt")];
    names
        .iter()
        .map(|name| path.join(name))
        .find(|file| file.is_file())
        .ok_or_else(|| Error::new(format!("{}: none of {} is there; name the file", path.display(), names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_folder_and_file_with_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ptb.test.txt");
        std::fs::write(&file, " one two \n three \n").unwrap();
        let all = read(folder.path(), Split::Test, &Select::default()).unwrap();
        assert_eq!(all.examples[0].text, " one two \n three \n");
        let one = Select { limit: Some(1), ..Select::default() };
        assert_eq!(read(&file, Split::Dev, &one).unwrap().examples[0].text, " one two \n");
        assert!(read(folder.path(), Split::Dev, &one).is_err());
        std::fs::write(&file, "\n\n").unwrap();
        assert!(read(&file, Split::Dev, &Select::default()).unwrap_err().to_string().ends_with("the file is empty"));
    }
}
