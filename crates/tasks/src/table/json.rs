//! JSONL (an object per line) and JSON (a list of objects, or an object with such a list under `data`).

use super::{Cell, Row, Table};
use crate::glue::empty;
use crate::source::Lines;
use serde_json::{Map, Value};
use sparing_model::Error;
use std::io::{BufRead, Read};

/// Reads an object per line.
pub(crate) fn lines(source: &str, lines: Lines, limit: usize) -> Result<Table, Error> {
    let mut objects = Vec::new();
    for line in lines {
        if objects.len() >= limit {
            break;
        }
        let (number, text) = line?;
        if text.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(&text) {
            Ok(Value::Object(object)) => objects.push((number, object)),
            Ok(_) => {
                return Err(Error::new(format!("{source} line {number}: not a JSON object ({{...}})")));
            }
            Err(e) => {
                return Err(Error::new(format!(
                    "{source} line {number}: not JSON: {} at column {}",
                    reason(&e),
                    e.column()
                )));
            }
        }
    }
    Ok(table(objects, "line"))
}

/// Reads a list of objects.
pub(crate) fn whole(source: &str, mut reader: Box<dyn BufRead>, limit: usize) -> Result<Table, Error> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|e| Error::new(format!("{source}: cannot read: {e}")))?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(empty(source));
    }
    let value: Value = serde_json::from_slice(&bytes).map_err(|e| {
        Error::new(format!("{source} line {}: not JSON: {} at column {}", e.line(), reason(&e), e.column()))
    })?;
    let list = match value {
        Value::Array(list) => list,
        Value::Object(mut object) => match object.remove("data") {
            Some(Value::Array(list)) => list,
            _ => return Err(not_rows(source)),
        },
        _ => return Err(not_rows(source)),
    };
    let mut objects = Vec::new();
    for (i, value) in list.into_iter().take(limit).enumerate() {
        match value {
            Value::Object(object) => objects.push((i + 1, object)),
            _ => {
                return Err(Error::new(format!("{source} row {}: not a JSON object ({{...}})", i + 1)));
            }
        }
    }
    Ok(table(objects, "row"))
}

fn not_rows(source: &str) -> Error {
    Error::new(format!(
        "{source}: neither a list of objects nor an object with such a list under \"data\" (one object per line is .jsonl)"
    ))
}

/// serde_json's words without its own line and column.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

/// The columns are all keys that occur.
fn table(objects: Vec<(usize, Map<String, Value>)>, place: &'static str) -> Table {
    let mut columns: Vec<String> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for (_, object) in &objects {
        for key in object.keys() {
            if known.insert(key.clone()) {
                columns.push(key.clone());
            }
        }
    }
    let rows = objects
        .into_iter()
        .map(|(line, mut object)| Row {
            line,
            cells: columns.iter().map(|c| object.remove(c).map_or(Cell::Missing, cell)).collect(),
        })
        .collect();
    Table { columns, rows, notes: Vec::new(), place }
}

fn cell(value: Value) -> Cell {
    match value {
        Value::Null => Cell::Missing,
        Value::Array(list) => Cell::List(list.into_iter().map(text).collect()),
        other => Cell::Text(text(other)),
    }
}

fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn read_lines(text: &str) -> Result<Table, Error> {
        let reader = Box::new(Cursor::new(text.as_bytes().to_vec()));
        lines("f", Lines::new("f".into(), reader), usize::MAX)
    }

    #[test]
    fn keys_may_come_late() {
        let table = read_lines("{\"a\": 1.5}\n{\"b\": true, \"a\": null}\n").unwrap();
        assert_eq!(table.columns, ["a", "b"]);
        assert_eq!(table.rows[0].cells, [Cell::Text("1.5".into()), Cell::Missing]);
        assert_eq!(table.rows[1].cells, [Cell::Missing, Cell::Text("true".into())]);
    }

    #[test]
    fn errors_name_the_line() {
        assert_eq!(read_lines("{}\n[1]\n").unwrap_err().to_string(), "f line 2: not a JSON object ({...})");
        assert_eq!(
            read_lines("{}\n{\"a\"\n").unwrap_err().to_string(),
            "f line 2: not JSON: EOF while parsing an object at column 4"
        );
        let whole =
            |t: &str| super::whole("f", Box::new(Cursor::new(t.as_bytes().to_vec())), 9).unwrap_err().to_string();
        assert_eq!(whole("[{},\n3]"), "f row 2: not a JSON object ({...})");
        assert!(whole("3").contains(".jsonl"));
        assert!(whole("[{},\n,]").starts_with("f line 2: not JSON: expected value at column 1"));
    }

    proptest::proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>, text in "[\\[\\]{}:,\"a1 \n]{0,40}") {
            let _ = whole("f", Box::new(Cursor::new(bytes)), 9);
            let _ = whole("f", Box::new(Cursor::new(text.clone().into_bytes())), 9);
            let _ = read_lines(&text);
        }
    }
}
