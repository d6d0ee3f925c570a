//! The user's own tables: named columns of CSV, TSV, JSONL, JSON and Parquet files.

mod columns;
mod delimited;
mod json;
#[cfg(feature = "parquet")]
mod parquet;

pub use columns::Columns;
pub(crate) use columns::{list, no_column};

use crate::Task;
use crate::dataset::{Dataset, Example, Label, Select};
use crate::glue::empty;
use crate::source::extension;
use sparing_model::Error;
use std::path::Path;

/// A value of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    /// Null, or not there.
    Missing,
    /// A text, number or truth value as text.
    Text(String),
    /// A list of them.
    List(Vec<String>),
}

/// A row and where it stands.
#[derive(Debug)]
pub(crate) struct Row {
    pub line: usize,
    /// One per column of the table, or per column in `columns`.
    cells: Vec<Cell>,
    /// Ascending; the row has nothing in the others. `None`: all columns.
    columns: Option<Box<[usize]>>,
}

impl Row {
    /// A cell for every column.
    pub(crate) fn new(line: usize, cells: Vec<Cell>) -> Row {
        Row { line, cells, columns: None }
    }

    /// Cells for these columns, ascending.
    pub(crate) fn sparse(line: usize, columns: Vec<usize>, cells: Vec<Cell>) -> Row {
        Row { line, cells, columns: Some(columns.into()) }
    }

    /// The cell of a column.
    pub(crate) fn cell(&self, column: usize) -> &Cell {
        let at = match &self.columns {
            None => Some(column),
            Some(columns) => columns.binary_search(&column).ok(),
        };
        at.map_or(&Cell::Missing, |at| &self.cells[at])
    }
}

/// A table in memory.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
    /// What the user should be told.
    pub notes: Vec<String>,
    /// `line` or `row`.
    pub place: &'static str,
}

/// Reads a table by its extension; the columns that are not named are guessed.
pub(crate) fn read(path: &Path, columns: &Columns, select: &Select) -> Result<Dataset, Error> {
    let source = path.display().to_string();
    let mut kind = extension(path);
    if kind.as_deref() == Some("gz") {
        // Parquet is read from its end.
        kind = extension(&path.with_extension("")).filter(|kind| kind != "parquet").or(kind);
    }
    let rows = select.rows();
    let table = match kind.as_deref() {
        Some("csv") => delimited::csv(&source, crate::source::Lines::open(path)?, rows)?,
        Some("tsv" | "tab") => delimited::tsv(&source, crate::source::Lines::open(path)?, rows)?,
        Some("jsonl" | "ndjson") => json::lines(&source, crate::source::Lines::open(path)?, rows)?,
        Some("json") => json::whole(&source, crate::source::open(path)?, rows)?,
        #[cfg(feature = "parquet")]
        Some("parquet") => parquet::read(&source, path, rows)?,
        Some("gz" | "zst" | "bz2" | "xz" | "zip" | "7z" | "tar" | "tgz") => {
            return Err(Error::new(format!(
                "{source}: packed files are not read, but for .csv.gz and the like; unpack it first"
            )));
        }
        _ => {
            path.metadata().map_err(|e| crate::source::cannot_read(path, &e))?;
            return Err(Error::new(format!(
                "{source}: not a table by its name; there are .csv, .tsv, .jsonl, .json and .parquet"
            )));
        }
    };
    examples(source, table, columns)
}

/// Takes the text, pair and label of every row.
fn examples(source: String, table: Table, columns: &Columns) -> Result<Dataset, Error> {
    if table.rows.is_empty() && table.columns.is_empty() {
        return Err(empty(&source));
    }
    if table.rows.is_empty() {
        return Err(Error::new(format!("{source}: there is a header ({}) and no row below it", list(&table.columns))));
    }
    let mut notes = table.notes.clone();
    let found = columns.find(&source, &table, &mut notes)?;
    let place = table.place;
    let name = |i: usize| table.columns[i].clone();
    let label_column = found.label.map_or(String::new(), name);
    let mut examples = Vec::with_capacity(table.rows.len());
    for row in &table.rows {
        let at = |column: usize| format!("{source} {place} {}, column {}", row.line, table.columns[column]);
        let text = |column: usize| match row.cell(column) {
            Cell::Text(text) => Ok(text.clone()),
            Cell::List(words) => Ok(words.join(" ")),
            // Who answers every row cannot leave one out.
            Cell::Missing if columns.texts_only => Err(Error::new(format!("{}: no text", at(column)))),
            Cell::Missing => Ok(String::new()),
        };
        let label = match found.label.map(|c| (c, row.cell(c))) {
            None | Some((_, Cell::Missing)) => Label::None,
            Some((_, Cell::Text(label))) => Label::One(label.trim().to_string()),
            Some((c, Cell::List(tags))) => match row.cell(found.text) {
                // A list of words with a list of labels: one label per word.
                Cell::List(words) if words.len() == tags.len() => tagged(words, tags),
                Cell::List(words) => {
                    return Err(Error::new(format!("{}: {} labels for {} words", at(c), tags.len(), words.len())));
                }
                _ => Label::Many(tags.clone()),
            },
        };
        examples.push(Example {
            id: None,
            text: text(found.text)?,
            pair: found.pair.map(text).transpose()?,
            label,
            line: row.line,
        });
    }
    Ok(Dataset { task: Task::Own, source, place, label_column, columns: table.columns, examples, notes })
}

/// Words joined by spaces, with where each begins and ends.
fn tagged(words: &[String], tags: &[String]) -> Label {
    let mut at = 0;
    let words = words
        .iter()
        .map(|word| {
            let range = (at, at + word.len());
            at += word.len() + 1;
            range
        })
        .collect();
    Label::Tags { words, tags: tags.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    fn read_text(name: &str, text: &str, columns: &Columns) -> Result<Dataset, String> {
        let (_folder, path) = file(name, text);
        let place = path.parent().unwrap().display().to_string();
        read(&path, columns, &Select::default()).map_err(|e| e.to_string().replace(&format!("{place}/"), ""))
    }

    fn named(text: &str, pair: Option<&str>, label: &str) -> Columns {
        Columns { text: Some(text.into()), pair: pair.map(Into::into), label: Some(label.into()), ..Columns::default() }
    }

    #[test]
    fn the_same_rows_from_every_text_format() {
        let columns = named("Review", Some("about"), "stars");
        let formats = [
            ("a.csv", "review,stars,about\n\"good, \"\"really\"\"\nyes\",1,x\nbad,0,y\n"),
            (
                "a.jsonl",
                "{\"review\": \"good, \\\"really\\\"\\nyes\", \"stars\": 1, \"about\": \"x\"}\n{\"review\": \"bad\", \"stars\": 0, \"about\": \"y\"}\n",
            ),
            (
                "a.json",
                "[{\"review\": \"good, \\\"really\\\"\\nyes\", \"stars\": 1, \"about\": \"x\"}, {\"review\": \"bad\", \"stars\": 0, \"about\": \"y\"}]",
            ),
        ];
        for (name, text) in formats {
            let data = read_text(name, text, &columns).unwrap();
            assert_eq!(data.examples.len(), 2, "{name}");
            assert_eq!(data.examples[0].text, "good, \"really\"\nyes", "{name}");
            assert_eq!(data.examples[0].pair.as_deref(), Some("x"), "{name}");
            assert_eq!(data.examples[1].label, Label::One("0".into()), "{name}");
        }
        let data = read_text("a.tsv", "review\tstars\tabout\n\"good\t1\tx\n", &columns).unwrap();
        assert_eq!(data.examples[0].text, "\"good");
    }

    #[test]
    fn errors_name_file_line_and_column() {
        let columns = named("text", None, "label");
        let message = |name: &str, text: &str| read_text(name, text, &columns).unwrap_err();
        assert_eq!(message("a.csv", "body,label\nx,1\n"), "a.csv: no column \"text\" (there are: body, label)");
        assert_eq!(message("a.csv", "text,label\nx,1\ny\n"), "a.csv line 3: 1 columns, but the header has 2");
        assert_eq!(message("a.tsv", "text\tlabel\nx\t1\ny\t2\t3\n"), "a.tsv line 3: 3 columns, but the header has 2");
        assert_eq!(message("a.csv", ""), "a.csv: the file is empty");
        assert_eq!(message("a.csv", "text,label\n"), "a.csv: there is a header (text, label) and no row below it");
        assert_eq!(message("a.jsonl", "\n"), "a.jsonl: the file is empty");
        let packed = "packed files are not read, but for .csv.gz and the like; unpack it first";
        for name in ["a.csv.zst", "a.zip", "a.parquet.gz"] {
            assert_eq!(message(name, "text\n"), format!("{name}: {packed}"));
        }
        assert_eq!(
            message("a.xls", "text\n"),
            "a.xls: not a table by its name; there are .csv, .tsv, .jsonl, .json and .parquet"
        );
    }

    #[test]
    fn lists_are_labels_or_tags() {
        let many = read_text(
            "a.jsonl",
            "{\"text\": \"a\", \"labels\": [\"x\", 2]}\n{\"text\": \"b\", \"labels\": []}\n",
            &Columns::default(),
        )
        .unwrap();
        assert_eq!(many.examples[0].label, Label::Many(vec!["x".into(), "2".into()]));
        let tags = read_text(
            "a.jsonl",
            "{\"tokens\": [\"New\", \"York\", \"!\"], \"ner_tags\": [\"B-LOC\", \"I-LOC\", \"O\"]}\n",
            &Columns::default(),
        )
        .unwrap();
        assert_eq!(tags.examples[0].text, "New York !");
        let Label::Tags { words, tags } = &tags.examples[0].label else { panic!() };
        assert_eq!(words, &[(0, 3), (4, 8), (9, 10)]);
        assert_eq!(tags[1], "I-LOC");
        let bad = read_text("a.jsonl", "{\"tokens\": [\"a\"], \"tags\": [1, 2]}\n", &Columns::default());
        assert_eq!(bad.unwrap_err(), "a.jsonl line 1, column tags: 2 labels for 1 words");
    }
}
