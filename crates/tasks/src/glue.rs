//! The nine GLUE tasks in their official files.
//!
//! Tab separated without any quoting: a quote is a character like another. All files but CoLA's train and dev have a header.

use crate::dataset::{Dataset, Example, Label, Select};
use crate::source::{Lines, extension};
use crate::table::{self, Columns, no_column};
use crate::{Split, Task};
use sparing_model::Error;
use std::path::{Path, PathBuf};

/// Reads a GLUE task from its folder, the GLUE root or a file.
pub(crate) fn read(task: Task, path: &Path, split: Split, select: &Select) -> Result<Dataset, Error> {
    let file = find(task, path, split)?;
    if let Some("csv" | "json" | "jsonl" | "ndjson" | "parquet") = extension(&file).as_deref() {
        return converted(task, &file, select);
    }
    let lines = Lines::open(&file)?;
    parse(task, file.display().to_string(), lines, split, select)
}

/// The file of this task and split at or under `path`.
fn find(task: Task, path: &Path, split: Split) -> Result<PathBuf, Error> {
    if path.is_file() {
        return Ok(path.to_path_buf());
    }
    if !path.is_dir() {
        return Err(Error::new(format!("{}: no such file or folder", path.display())));
    }
    let suffix = match (task, split) {
        (_, Split::Train) => "",
        (Task::Mnli, _) => "_matched",
        (Task::MnliMismatched, _) => "_mismatched",
        _ => "",
    };
    let name = format!("{}{suffix}.tsv", split.name());
    let folder = task.layout().map_or("", |layout| layout.folder);
    let candidates = [path.join(folder).join(&name), path.join(task.name()).join(&name), path.join(&name)];
    for candidate in &candidates {
        for file in [candidate.clone(), candidate.with_extension("tsv.gz")] {
            if file.is_file() {
                return Ok(file);
            }
        }
    }
    Err(Error::new(format!("{}: neither {name} nor {folder}/{name} is there", path.display())))
}

/// A GLUE task that someone has turned into another format, with the columns of the reference datasets or of the official files.
fn converted(task: Task, file: &Path, select: &Select) -> Result<Dataset, Error> {
    let (text, pair) = match task {
        Task::Cola | Task::Sst2 => ("sentence", None),
        Task::Qqp => ("question1", Some("question2")),
        Task::Mnli | Task::MnliMismatched => ("premise", Some("hypothesis")),
        Task::Qnli => ("question", Some("sentence")),
        _ => ("sentence1", Some("sentence2")),
    };
    let columns = Columns {
        text: Some(text.into()),
        pair: pair.map(Into::into),
        label: Some("label".into()),
        ..Columns::default()
    };
    let mut dataset = table::read(file, &columns, select)?;
    dataset.task = task;
    Ok(dataset)
}

/// Reads an official file's lines.
pub(crate) fn parse(
    task: Task,
    source: String,
    mut lines: Lines,
    split: Split,
    select: &Select,
) -> Result<Dataset, Error> {
    let Some(layout) = task.layout() else {
        return Err(Error::new(format!("{} is not a GLUE task", task.name())));
    };
    let (text, pair, label);
    if task == Task::Cola && split != Split::Test {
        (text, pair, label) = (3, None, Some(1));
    } else {
        let (_, header) = lines.next().transpose()?.ok_or_else(|| empty(&source))?;
        let names: Vec<&str> = header.split('\t').map(str::trim).collect();
        let column = |name: &str| names.iter().position(|n| n.eq_ignore_ascii_case(name));
        let must = |name: &str| {
            column(name).ok_or_else(|| {
                Error::new(format!(
                    "{}; this is not the official {} file",
                    no_column(&source, name, &names),
                    layout.folder
                ))
            })
        };
        text = must(layout.text)?;
        pair = layout.pair.map(must).transpose()?;
        label = match split {
            Split::Test => column(layout.label),
            _ => Some(must(layout.label)?),
        };
    }
    let needed = 1 + text.max(pair.unwrap_or(0)).max(label.unwrap_or(0));
    let mut examples = Vec::new();
    let mut short = 0;
    for line in lines {
        if examples.len() >= select.rows() {
            break;
        }
        let (number, line) = line?;
        let cells: Vec<&str> = line.split('\t').collect();
        if line.is_empty() {
            continue;
        }
        if cells.len() < needed {
            // A few rows of the official QQP files are broken; the reference leaves them out too.
            if task == Task::Qqp {
                short += 1;
                continue;
            }
            return Err(Error::new(format!(
                "{source} line {number}: {} columns, but {} needs {needed} (tab separated)",
                cells.len(),
                layout.folder
            )));
        }
        let raw = label.map(|i| cells[i].trim());
        if let Some(raw) = raw {
            check(task, raw)
                .map_err(|what| Error::new(format!("{source} line {number}, column {}: {what}", layout.label)))?;
        }
        examples.push(Example {
            id: None,
            text: cells[text].into(),
            pair: pair.map(|i| cells[i].into()),
            label: raw.map_or(Label::None, |raw| Label::One(raw.into())),
            line: number,
        });
    }
    let mut notes = Vec::new();
    if short > 0 {
        notes.push(format!("{source}: {short} rows with too few columns left out, as the reference does"));
    }
    let label_column = layout.label.into();
    Ok(Dataset { task, source, place: "line", label_column, columns: Vec::new(), examples, notes })
}

/// Is this a label of the task?
fn check(task: Task, raw: &str) -> Result<(), String> {
    if task == Task::Stsb {
        return match raw.parse::<f64>() {
            Ok(score) if (0.0..=5.0).contains(&score) => Ok(()),
            _ => Err(format!("{raw:?} is not a score from 0 to 5")),
        };
    }
    let labels = task.labels();
    let number = raw.parse::<usize>().is_ok_and(|n| n < labels.len());
    if number || labels.contains(&raw) {
        return Ok(());
    }
    Err(format!("label {raw:?} is not one of {} ({})", task.name(), labels.join(", ")))
}

pub(crate) fn empty(source: &str) -> Error {
    Error::new(format!("{source}: the file is empty"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    pub(crate) fn parse_bytes(task: Task, bytes: &[u8], split: Split) -> Result<Dataset, Error> {
        let lines = Lines::new("f".into(), Box::new(Cursor::new(bytes.to_vec())));
        parse(task, "f".into(), lines, split, &Select::default())
    }

    fn message(task: Task, text: &str) -> String {
        parse_bytes(task, text.as_bytes(), Split::Dev).unwrap_err().to_string()
    }

    #[test]
    fn quotes_are_literal() {
        let data = parse_bytes(
            Task::Mrpc,
            "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t1\t2\t\" He said .\tShe \"\" said\r\n"
                .as_bytes(),
            Split::Dev,
        )
        .unwrap();
        assert_eq!(data.examples[0].text, "\" He said .");
        assert_eq!(data.examples[0].pair.as_deref(), Some("She \"\" said"));
        assert_eq!(data.examples[0].label, Label::One("1".into()));
    }

    #[test]
    fn mnli_takes_the_gold_label() {
        let text = "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tgold_label\n0\t1\t1\tslate\ta\tb\tc\td\tone\ttwo\tneutral\tneutral\tcontradiction\n";
        let data = parse_bytes(Task::Mnli, text.as_bytes(), Split::Dev).unwrap();
        assert_eq!(data.examples[0].text, "one");
        assert_eq!(data.examples[0].label, Label::One("contradiction".into()));
    }

    #[test]
    fn test_files_have_no_labels() {
        let data = parse_bytes(Task::Cola, b"index\tsentence\n0\tBill fell.\n", Split::Test).unwrap();
        assert_eq!(data.examples[0].label, Label::None);
        assert_eq!(data.examples[0].text, "Bill fell.");
    }

    #[test]
    fn broken_files_are_named() {
        assert_eq!(message(Task::Sst2, ""), "f: the file is empty");
        assert_eq!(
            message(Task::Rte, "sentence\tlabel\nx\t1\n"),
            "f: no column \"sentence1\" (there are: sentence, label); this is not the official RTE file"
        );
        assert_eq!(
            message(Task::Sst2, "sentence\tlabel\nfine\t1\nnot fine\n"),
            "f line 3: 1 columns, but SST-2 needs 2 (tab separated)"
        );
        assert_eq!(
            message(Task::Sst2, "sentence\tlabel\nfine\t2\n"),
            "f line 2, column label: label \"2\" is not one of sst2 (negative, positive)"
        );
        assert_eq!(
            message(Task::Stsb, "sentence1\tsentence2\tscore\na\tb\tNaN\n"),
            "f line 2, column score: \"NaN\" is not a score from 0 to 5"
        );
    }

    #[test]
    fn broken_qqp_rows_are_left_out_with_a_note() {
        let text = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t1\t1\ta\tb\t1\n2\t2\n";
        let data = parse_bytes(Task::Qqp, text.as_bytes(), Split::Train).unwrap();
        assert_eq!(data.examples.len(), 1);
        assert_eq!(data.notes.len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>, task in 0..10usize, split in 0..3usize) {
            let split = [Split::Train, Split::Dev, Split::Test][split];
            let _ = parse_bytes(Task::ALL[task], &bytes, split);
            let mut with_header = b"sentence\tlabel\tsentence1\tsentence2\tscore\n".to_vec();
            with_header.extend(&bytes);
            let _ = parse_bytes(Task::ALL[task], &with_header, split);
        }
    }
}
