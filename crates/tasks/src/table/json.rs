//! JSONL (an object per line) and JSON (a list of objects, or an object with such a list under `data`).

use super::{Cell, Row, Table};
use crate::glue::empty;
use crate::source::Lines;
use serde_json::{Map, Value};
use sparing_model::Error;
use std::collections::HashMap;
use std::io::{BufRead, Read};

/// Reads an object per line.
pub(crate) fn lines(source: &str, lines: Lines, limit: usize) -> Result<Table, Error> {
    let mut rows = Rows::default();
    for line in lines {
        if rows.rows.len() >= limit {
            break;
        }
        let (number, text) = line?;
        if text.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(&text) {
            Ok(Value::Object(object)) => rows.push(number, object),
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
    Ok(rows.table("line"))
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
    let mut rows = Rows::default();
    for (i, value) in list.into_iter().take(limit).enumerate() {
        match value {
            Value::Object(object) => rows.push(i + 1, object),
            _ => {
                return Err(Error::new(format!("{source} row {}: not a JSON object ({{...}})", i + 1)));
            }
        }
    }
    Ok(rows.table("row"))
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

/// Rows whose columns are all keys that occur. Each holds its own keys alone: files in which every row has other ones
/// would take rows times columns otherwise.
#[derive(Default)]
struct Rows {
    columns: Vec<String>,
    known: HashMap<String, usize>,
    rows: Vec<Row>,
}

impl Rows {
    fn push(&mut self, line: usize, object: Map<String, Value>) {
        let mut cells: Vec<(usize, Cell)> =
            object.into_iter().map(|(key, value)| (self.column(key), cell(value))).collect();
        cells.sort_unstable_by_key(|(column, _)| *column);
        let (columns, cells) = cells.into_iter().unzip();
        self.rows.push(Row::sparse(line, columns, cells));
    }

    fn column(&mut self, key: String) -> usize {
        if let Some(column) = self.known.get(&key) {
            return *column;
        }
        let column = self.columns.len();
        self.columns.push(key.clone());
        self.known.insert(key, column);
        column
    }

    fn table(self, place: &'static str) -> Table {
        Table { columns: self.columns, rows: self.rows, notes: Vec::new(), place }
    }
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
        let row = |i: usize| [0, 1].map(|column| table.rows[i].cell(column).clone());
        assert_eq!(row(0), [Cell::Text("1.5".into()), Cell::Missing]);
        assert_eq!(row(1), [Cell::Missing, Cell::Text("true".into())]);
    }

    /// As much memory as the file has cells, not as rows times columns.
    #[test]
    fn a_new_key_on_every_line() {
        let text: String = (0..3000).map(|i| format!("{{\"text\": \"t{i}\", \"key{i}\": {i}}}\n")).collect();
        let table = read_lines(&text).unwrap();
        assert_eq!((table.columns.len(), table.rows.len()), (3001, 3000));
        assert_eq!(table.rows.iter().map(|row| row.cells.len()).sum::<usize>(), 6000);
        let at = |column: &str| table.columns.iter().position(|name| name == column).unwrap();
        assert_eq!(table.rows[7].cell(at("text")), &Cell::Text("t7".into()));
        assert_eq!(table.rows[2999].cell(at("key2999")), &Cell::Text("2999".into()));
        assert_eq!(table.rows[7].cell(at("key8")), &Cell::Missing);
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
