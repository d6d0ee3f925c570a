//! CSV (RFC 4180 quoting) and TSV (no quoting: a quote is a character like another).

use super::{Cell, Row, Table};
use crate::glue::empty;
use crate::source::Lines;
use sparing_model::Error;

/// Reads comma separated values; semicolons or tabs if the header has those and no comma.
pub(crate) fn csv(source: &str, lines: Lines, limit: usize) -> Result<Table, Error> {
    let mut lines = lines.with_endings();
    let mut notes = Vec::new();
    let mut columns: Vec<String> = Vec::new();
    let mut delimiter = ',';
    let mut rows = Vec::new();
    while rows.len() < limit {
        let Some((line, mut text)) = lines.next().transpose()? else {
            break;
        };
        if text.trim_end_matches(['\r', '\n']).is_empty() {
            continue;
        }
        let others = [(';', "semicolons"), ('\t', "tabs")];
        if columns.is_empty()
            && !text.contains(',')
            && let Some((found, name)) = others.into_iter().find(|d| text.contains(d.0))
        {
            delimiter = found;
            notes.push(format!("{source}: columns are separated by {name}"));
        }
        // A quoted cell may go on in the next line.
        let mut cells = Cells::default();
        while !cells.read(&text, delimiter) {
            text = match lines.next().transpose()? {
                Some((_, text)) => text,
                None => {
                    return Err(Error::new(format!("{source} line {line}: a quote is opened here and never closed")));
                }
            };
        }
        if columns.is_empty() {
            columns = cells.done.iter().map(|c| c.trim().to_string()).collect();
            continue;
        }
        ragged(source, line, cells.done.len(), columns.len())?;
        let cells = cells.done.into_iter().map(Cell::Text).collect();
        rows.push(Row::new(line, cells));
    }
    finish(source, columns, rows, notes)
}

/// The cells of one record, which may span lines.
#[derive(Default)]
struct Cells {
    done: Vec<String>,
    cell: String,
    state: State,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum State {
    /// Nothing of the cell was read yet.
    #[default]
    Start,
    /// Outside quotes.
    Plain,
    /// Inside quotes.
    Quoted,
    /// After a quote inside quotes: the end, or half of a doubled quote.
    Closing,
}

impl Cells {
    /// Reads a line with its ending; true if the record ends with it.
    fn read(&mut self, line: &str, delimiter: char) -> bool {
        let body = line.strip_suffix('\n').unwrap_or(line);
        let body = body.strip_suffix('\r').unwrap_or(body);
        for c in body.chars() {
            self.state = match (self.state, c) {
                (State::Start, '"') => State::Quoted,
                (State::Quoted, '"') => State::Closing,
                (State::Closing, '"') => {
                    self.cell.push('"');
                    State::Quoted
                }
                (State::Quoted, _) => {
                    self.cell.push(c);
                    State::Quoted
                }
                (_, c) if c == delimiter => {
                    self.done.push(std::mem::take(&mut self.cell));
                    State::Start
                }
                _ => {
                    self.cell.push(c);
                    State::Plain
                }
            };
        }
        if self.state == State::Quoted {
            self.cell.push_str(&line[body.len()..]);
            return false;
        }
        self.done.push(std::mem::take(&mut self.cell));
        true
    }
}

/// Reads tab separated values.
pub(crate) fn tsv(source: &str, mut lines: Lines, limit: usize) -> Result<Table, Error> {
    let (_, header) = lines.next().transpose()?.ok_or_else(|| empty(source))?;
    let columns: Vec<String> = header.split('\t').map(|c| c.trim().to_string()).collect();
    if columns.iter().all(|column| is_quoted(column)) {
        return Err(Error::new(format!("{source}: the header stands in quotes; {LITERAL}")));
    }
    let mut rows = Vec::new();
    for line in lines {
        if rows.len() >= limit {
            break;
        }
        let (line, text) = line?;
        if text.is_empty() && columns.len() > 1 {
            continue;
        }
        let cells: Vec<Cell> = text.split('\t').map(|cell| Cell::Text(cell.to_string())).collect();
        ragged(source, line, cells.len(), columns.len())?;
        rows.push(Row::new(line, cells));
    }
    let is_text = |cell: &&Cell| matches!(cell, Cell::Text(text) if is_quoted(text));
    let quoted = rows.iter().flat_map(|row| &row.cells).filter(is_text).count();
    let fields = if quoted == 1 { "field stands" } else { "fields stand" };
    let notes = (quoted > 0).then(|| format!("{source}: {quoted} {fields} in quotes; {LITERAL}"));
    finish(source, columns, rows, notes.into_iter().collect())
}

const LITERAL: &str = "they are taken literally in .tsv; name the file .csv to have them read";

/// As programs write CSV.
fn is_quoted(text: &str) -> bool {
    text.len() > 1 && text.starts_with('"') && text.ends_with('"')
}

fn ragged(source: &str, line: usize, cells: usize, columns: usize) -> Result<(), Error> {
    if cells == columns {
        return Ok(());
    }
    Err(Error::new(format!("{source} line {line}: {cells} columns, but the header has {columns}")))
}

fn finish(source: &str, columns: Vec<String>, rows: Vec<Row>, notes: Vec<String>) -> Result<Table, Error> {
    match columns.as_slice() {
        [] => return Err(empty(source)),
        [only] if only.contains('|') => {
            let known = "commas, semicolons or tabs in .csv, tabs in .tsv";
            return Err(Error::new(format!("{source}: one column, {only:?}; columns are separated by {known}")));
        }
        _ => {}
    }
    Ok(Table { columns, rows, notes, place: "line" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn read(bytes: &[u8]) -> Result<Table, Error> {
        let reader = Box::new(Cursor::new(bytes.to_vec()));
        csv("f", Lines::new("f".into(), reader), usize::MAX)
    }

    #[test]
    fn lines_are_counted_through_quoted_newlines() {
        let table = read(b"\xef\xbb\xbftext,label\n\"a\nb\nc\",1\n\nd,0\n").unwrap();
        assert_eq!(table.columns, ["text", "label"]);
        let lines: Vec<_> = table.rows.iter().map(|r| r.line).collect();
        assert_eq!(lines, [2, 6]);
        let e = read(b"text,label\n\"a\nb\",1\nc\xff,0\n").unwrap_err();
        assert!(e.to_string().starts_with("f line 4: not valid UTF-8 (byte 0xff at position 2)"), "{e}");
        let e = read(b"text,label\na,1\n\"b,0\nc,1\n").unwrap_err();
        assert_eq!(e.to_string(), "f line 3: a quote is opened here and never closed");
    }

    #[test]
    fn semicolons_are_noticed() {
        let table = read(b"text;label\na, b;1\n").unwrap();
        assert_eq!(table.rows[0].cells[0], Cell::Text("a, b".into()));
        assert_eq!(table.notes, ["f: columns are separated by semicolons"]);
        let e = read(b"text|label\na|1\n").unwrap_err();
        assert_eq!(
            e.to_string(),
            "f: one column, \"text|label\"; columns are separated by commas, semicolons or tabs in .csv, tabs in .tsv"
        );
    }

    #[test]
    fn quotes_in_tsv_are_told_of() {
        let read = |text: &'static str| tsv("f", Lines::new("f".into(), Box::new(text.as_bytes())), 9);
        let table = read("text\tlabel\n\"a\"\t1\n\"\"\"b\"\" c\"\t0\n\"d\t\"\n").unwrap();
        assert_eq!(table.notes, [format!("f: 2 fields stand in quotes; {LITERAL}")]);
        assert!(read("text\tlabel\na \"b\" c\t1\n").unwrap().notes.is_empty());
        let e = read("\"text\"\t\"label\"\n\"a\"\t\"1\"\n").unwrap_err();
        assert_eq!(e.to_string(), format!("f: the header stands in quotes; {LITERAL}"));
    }

    proptest::proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>, quoted in "[\",;\t\r\na-c]{0,40}") {
            let _ = read(&bytes);
            let _ = read(quoted.as_bytes());
            let _ = tsv("f", Lines::new("f".into(), Box::new(Cursor::new(bytes))), 9);
        }

        #[test]
        fn written_csv_is_read_back(cells in proptest::collection::vec("[\",\r\na-c é]{1,8}", 1..20)) {
            let mut text = String::from("x,y\r\n");
            for cell in &cells {
                text += &format!("\"{}\",1\r\n", cell.replace('"', "\"\""));
            }
            let table = read(text.as_bytes()).unwrap();
            let got: Vec<_> = table.rows.into_iter().map(|mut r| r.cells.swap_remove(0)).collect();
            let want: Vec<_> = cells.into_iter().map(Cell::Text).collect();
            proptest::prop_assert_eq!(got, want);
        }
    }
}
