//! SQuAD v1.1 and v2: the official JSON, and JSONL with a question or a paragraph per line.

use crate::dataset::{Answer, Dataset, Example, Label, Select};
use crate::glue::empty;
use crate::source::{self, Lines};
use crate::{Split, Task};
use serde::Deserialize;
use sparing_model::Error;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Official {
    data: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    paragraphs: Vec<Paragraph>,
}

#[derive(Deserialize)]
struct Paragraph {
    context: String,
    qas: Vec<Question>,
}

#[derive(Deserialize)]
struct Question {
    #[serde(alias = "idx")]
    id: Option<Id>,
    question: String,
    #[serde(default)]
    answers: Answers,
    #[serde(default)]
    is_impossible: bool,
}

#[derive(Deserialize)]
struct Flat {
    context: String,
    #[serde(flatten)]
    question: Question,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Text(String),
    Number(u64),
}

/// The forms answers come in: objects (official), texts, or two lists (the reference's datasets).
#[derive(Deserialize)]
#[serde(untagged)]
enum Answers {
    Objects(Vec<Object>),
    Texts(Vec<String>),
    Columns {
        text: Vec<String>,
        #[serde(default)]
        answer_start: Vec<i64>,
    },
}

#[derive(Deserialize)]
struct Object {
    text: String,
    #[serde(alias = "first_occurrence")]
    answer_start: Option<i64>,
}

impl Default for Answers {
    fn default() -> Self {
        Answers::Texts(Vec::new())
    }
}

/// Reads SQuAD from a folder or a file.
pub(crate) fn read(task: Task, path: &Path, split: Split, select: &Select) -> Result<Dataset, Error> {
    let file = find(task, path, split)?;
    let name = file.display().to_string();
    let unpacked = file.with_extension("");
    let inner = if source::extension(&file).as_deref() == Some("gz") { &unpacked } else { &file };
    if source::extension(inner).as_deref() == Some("json") {
        let mut bytes = Vec::new();
        source::open(&file)?.read_to_end(&mut bytes).map_err(|e| source::cannot_read(&file, &e))?;
        parse_json(task, name, &bytes, select)
    } else {
        parse_lines(task, name, Lines::open(&file)?, select)
    }
}

/// The one file of this split at or under `path`.
fn find(task: Task, path: &Path, split: Split) -> Result<PathBuf, Error> {
    if path.is_file() {
        return Ok(path.to_path_buf());
    }
    let list = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries
            .map(|e| e.path())
            .filter(|p| {
                let name = p.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
                let kind = name.trim_end_matches(".gz");
                name.starts_with(split.name())
                    && (kind.ends_with(".json") || kind.ends_with(".jsonl"))
                    && (name.contains("v2") == (task == Task::SquadV2) || !name.contains("-v"))
            })
            .collect();
        files.sort();
        files
    };
    for folder in [path.to_path_buf(), path.join("squad"), path.join("SQuAD")] {
        let files = list(&folder);
        match files.as_slice() {
            [] => {}
            [one] => return Ok(one.clone()),
            [first, second, ..] => {
                return Err(Error::new(format!(
                    "{}: both {} and {} could be meant; name the file",
                    folder.display(),
                    first.display(),
                    second.display()
                )));
            }
        }
    }
    Err(Error::new(format!("{}: no {}*.json or {}*.jsonl there", path.display(), split.name(), split.name())))
}

fn parse_json(task: Task, source: String, bytes: &[u8], select: &Select) -> Result<Dataset, Error> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(empty(&source));
    }
    let official: Official =
        serde_json::from_slice(bytes).map_err(|e| Error::new(format!("{source}: not SQuAD's official JSON: {e}")))?;
    let mut examples = Vec::new();
    for paragraph in official.data.into_iter().flat_map(|a| a.paragraphs) {
        for question in paragraph.qas {
            let row = examples.len() + 1;
            examples.push(example(paragraph.context.clone(), question, row));
        }
        if examples.len() >= select.rows() {
            examples.truncate(select.rows());
            break;
        }
    }
    Ok(dataset(task, source, "question", examples))
}

fn parse_lines(task: Task, source: String, lines: Lines, select: &Select) -> Result<Dataset, Error> {
    let mut examples = Vec::new();
    for line in lines {
        if examples.len() >= select.rows() {
            examples.truncate(select.rows());
            break;
        }
        let (number, line) = line?;
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |e: serde_json::Error| Error::new(format!("{source} line {number}: not a SQuAD example: {e}"));
        let value: serde_json::Value = serde_json::from_str(&line).map_err(wrong)?;
        if value.get("qas").is_some() {
            let paragraph: Paragraph = serde_json::from_value(value).map_err(wrong)?;
            for question in paragraph.qas {
                examples.push(example(paragraph.context.clone(), question, number));
            }
        } else {
            let flat: Flat = serde_json::from_value(value).map_err(wrong)?;
            examples.push(example(flat.context, flat.question, number));
        }
    }
    examples.truncate(select.rows());
    if examples.is_empty() && select.rows() > 0 {
        return Err(empty(&source));
    }
    Ok(dataset(task, source, "line", examples))
}

fn dataset(task: Task, source: String, place: &'static str, examples: Vec<Example>) -> Dataset {
    Dataset { task, source, place, label_column: "answers".into(), columns: Vec::new(), examples, notes: Vec::new() }
}

fn example(context: String, question: Question, line: usize) -> Example {
    let pairs: Vec<(String, Option<i64>)> = match question.answers {
        Answers::Objects(list) => list.into_iter().map(|a| (a.text, a.answer_start)).collect(),
        Answers::Texts(list) => list.into_iter().map(|text| (text, None)).collect(),
        Answers::Columns { text, answer_start } => {
            text.into_iter().enumerate().map(|(i, text)| (text, answer_start.get(i).copied())).collect()
        }
    };
    let answers = pairs
        .into_iter()
        .filter(|_| !question.is_impossible)
        .map(|(text, start)| Answer { start: start.and_then(|s| byte_offset(&context, s, &text)), text })
        .collect();
    Example {
        id: question.id.map(|id| match id {
            Id::Text(text) => text,
            Id::Number(number) => number.to_string(),
        }),
        text: question.question,
        pair: Some(context),
        label: Label::Answers(answers),
        line,
    }
}

/// SQuAD counts characters; tokenizers count bytes. `None` if the answer is not where the file says.
fn byte_offset(context: &str, characters: i64, answer: &str) -> Option<usize> {
    let characters = usize::try_from(characters).ok()?;
    let byte =
        if context.is_ascii() { characters } else { context.char_indices().nth(characters).map(|(byte, _)| byte)? };
    context.get(byte..)?.starts_with(answer).then_some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    const OFFICIAL: &str = r#"{"version": "v2.0", "data": [{"title": "T", "paragraphs": [{"context": "Über 50 was won.", "qas": [
        {"id": "a", "question": "Which?", "answers": [{"text": "50", "answer_start": 5}], "is_impossible": false},
        {"id": "b", "question": "Who?", "answers": [], "plausible_answers": [{"text": "won", "answer_start": 12}], "is_impossible": true}]}]}]}"#;

    fn lines(text: &str) -> Result<Dataset, Error> {
        let lines = Lines::new("f".into(), Box::new(Cursor::new(text.as_bytes().to_vec())));
        parse_lines(Task::Squad, "f".into(), lines, &Select::default())
    }

    #[test]
    fn official_json() {
        let data = parse_json(Task::SquadV2, "f".into(), OFFICIAL.as_bytes(), &Select::default()).unwrap();
        assert_eq!(data.examples.len(), 2);
        assert_eq!(data.examples[0].id.as_deref(), Some("a"));
        let Label::Answers(answers) = &data.examples[0].label else { panic!() };
        // Byte 6, because the first letter takes two bytes.
        assert_eq!(answers, &[Answer { text: "50".into(), start: Some(6) }]);
        assert_eq!(data.examples[1].label, Label::Answers(vec![]));
    }

    #[test]
    fn all_forms_of_lines() {
        let data = lines(concat!(
            r#"{"context": "c d", "qas": [{"idx": 7, "question": "q", "answers": [{"text": "d", "first_occurrence": 2}]}]}"#,
            "\n\n",
            r#"{"id": "x", "context": "c d", "question": "q", "answers": {"text": ["d"], "answer_start": [0]}}"#,
            "\n",
            r#"{"context": "c d", "question": "q", "answers": ["d"]}"#,
            "\n",
        ))
        .unwrap();
        assert_eq!(data.examples.len(), 3);
        assert_eq!(data.examples[0].id.as_deref(), Some("7"));
        assert_eq!(data.examples[1].line, 3);
        let starts: Vec<_> = data
            .examples
            .iter()
            .map(|e| match &e.label {
                Label::Answers(a) => a[0].start,
                _ => panic!(),
            })
            .collect();
        assert_eq!(starts, [Some(2), None, None]);
    }

    #[test]
    fn errors_name_the_line() {
        let message = lines("{\"context\": \"c\", \"question\": \"q\"}\n{\"context\": 3}\n").unwrap_err().to_string();
        assert!(message.starts_with("f line 2: not a SQuAD example: "), "{message}");
        assert_eq!(lines("\n").unwrap_err().to_string(), "f: the file is empty");
        let e = parse_json(Task::Squad, "f".into(), b"{}", &Select::default()).unwrap_err();
        assert!(e.to_string().starts_with("f: not SQuAD's official JSON: missing field `data`"));
    }

    proptest::proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>, cut in 0..OFFICIAL.len(), start: i64) {
            let _ = parse_json(Task::Squad, "f".into(), &bytes, &Select::default());
            let _ = parse_json(Task::Squad, "f".into(), &OFFICIAL.as_bytes()[..cut], &Select::default());
            let _ = byte_offset("Über", start, "x");
            let _ = byte_offset("Über", start % 8, "");
        }
    }
}
