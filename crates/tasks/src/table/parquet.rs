//! Parquet tables through the record API: it needs neither arrow nor C code, and a table of texts gains nothing from columns.

use super::{Cell, Row, Table};
use crate::source::most_unpacked;
use parquet::basic::Compression;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use sparing_model::{Error, guarded};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes that the rows may take however small the file is: one text again and again is a few bytes in it.
const ALWAYS: u64 = 1 << 30;

/// Bytes of a row beside its cells, and of what the allocator adds to their place.
const ROW: u64 = size_of::<Row>() as u64 + 16;

/// Bytes that an element of a list takes at the most beside its text: as the library has it, and as a string of its own.
const ELEMENT: u64 = (size_of::<Field>() + size_of::<String>()) as u64 + 2 * ALLOCATED;

/// Bytes that the allocator takes at least for a short text.
const ALLOCATED: u64 = 32;

/// Bytes of a footer that is read. One of a thousand row groups of ten columns has about one million.
const FOOTER: u64 = 1 << 24;

/// Bytes of stack for every byte of the footer: the library follows a schema that is nested as deep as it goes. A level takes eight
/// bytes of footer or more, and about 900 of the stack.
const STACK: u64 = 192;

/// Reads at most `limit` rows.
pub(crate) fn read(source: &str, path: &Path, limit: usize) -> Result<Table, Error> {
    let file = File::open(path).map_err(|e| crate::source::cannot_read(path, &e))?;
    let most = most_unpacked(file.metadata().map_or(0, |metadata| metadata.len()), ALWAYS);
    read_bounded(source, file, limit, most)
}

fn read_bounded(source: &str, file: File, limit: usize, most: u64) -> Result<Table, Error> {
    let footer = footer(&file).map_err(|e| broken(source, &e.to_string()))?;
    if footer > FOOTER {
        let why = format!("its footer takes {} MB, more than {} are not read", footer / 1_000_000, FOOTER / 1_000_000);
        return Err(broken(source, &why));
    }
    // The parquet crate asserts in places where a broken file should be an error.
    let read = || {
        guarded(|| rows(source, file, limit, most))
            .unwrap_or_else(|why| Err(broken(source, &format!("its pages contradict its header ({why})"))))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(((1 << 22) + STACK * footer) as usize);
        let thread = thread.spawn_scoped(scope, read);
        let thread = thread.map_err(|e| Error::new(format!("{source}: no thread to read it with ({e})")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Bytes of the footer, as the file says.
fn footer(mut file: &File) -> std::io::Result<u64> {
    // Its length and four letters are the last. What is shorter, or has others, is told by the library.
    let mut tail = [0; 8];
    let long = file.seek(SeekFrom::End(0))? >= tail.len() as u64;
    if long {
        file.seek(SeekFrom::End(-(tail.len() as i64)))?;
        file.read_exact(&mut tail)?;
    }
    file.rewind()?;
    let [a, b, c, d, ..] = tail;
    Ok(u32::from_le_bytes([a, b, c, d]).into())
}

/// Refuses lists that would not fit, before a row of them is made: an element that is there again and again takes nothing in the file.
fn check_lists(source: &str, reader: &SerializedFileReader<File>, most: u64) -> Result<(), Error> {
    let wrong = |e: parquet::errors::ParquetError| broken(source, &e.to_string());
    let metadata = reader.metadata();
    let mut held = 0;
    for number in 0..metadata.num_row_groups() {
        let group = reader.get_row_group(number).map_err(wrong)?;
        for (place, column) in metadata.row_group(number).columns().iter().enumerate() {
            if column.column_descr().max_rep_level() == 0 {
                continue;
            }
            let mut pages = group.get_column_page_reader(place).map_err(wrong)?;
            while let Some(page) = pages.peek_next_page().map_err(wrong)? {
                // What a header says may be any number.
                let elements = page.num_levels.or(page.num_rows).unwrap_or(0) as u64;
                held = ELEMENT.saturating_mul(elements).saturating_add(held);
                if held > most {
                    return Err(too_much(
                        &format!("{source}, column {}", column.column_path().string()),
                        "lists",
                        most,
                    ));
                }
                pages.skip_next_page().map_err(wrong)?;
            }
        }
    }
    Ok(())
}

fn too_much(place: &str, what: &str, most: u64) -> Error {
    Error::new(format!(
        "{place}: the {what} take more than {} MB, which few texts of the file's size do; if they are right, write fewer of them to a \
         file, or write .csv",
        most / 1_000_000
    ))
}

fn rows(source: &str, file: File, limit: usize, most: u64) -> Result<Table, Error> {
    let wrong = |e: parquet::errors::ParquetError| broken(source, &e.to_string());
    let reader = SerializedFileReader::new(file).map_err(wrong)?;
    let metadata = reader.metadata();
    let columns: Vec<String> =
        metadata.file_metadata().schema().get_fields().iter().map(|f| f.name().to_string()).collect();
    // Such rows have no end but the number that the file gives, whatever that is.
    if columns.is_empty() {
        return Err(broken(source, "it has no columns"));
    }
    for group in metadata.row_groups() {
        for column in group.columns() {
            let codec = match column.compression() {
                Compression::ZSTD(_) => Some("zstd"),
                Compression::BROTLI(_) => Some("brotli"),
                Compression::LZO => Some("lzo"),
                _ => None,
            };
            if let Some(codec) = codec {
                return Err(Error::new(format!(
                    "{source}, column {}: compressed with {}, which is not read; write it with snappy, lz4, gzip or no compression",
                    column.column_path().string(),
                    codec
                )));
            }
        }
    }
    check_lists(source, &reader, most)?;
    let (mut rows, mut held) = (Vec::new(), 0);
    for (i, row) in reader.get_row_iter(None).map_err(wrong)?.take(limit).enumerate() {
        let fields = row.map_err(|e| broken(source, &format!("row {}: {e}", i + 1)))?.into_columns();
        let cells = fields
            .into_iter()
            .map(|(name, field)| {
                cell(field).ok_or_else(|| Error::new(format!("{source} row {}, column {name}: not valid UTF-8", i + 1)))
            })
            .collect::<Result<Vec<_>, _>>()?;
        if cells.len() != columns.len() {
            return Err(broken(source, "a row has another number of columns"));
        }
        held += ROW + cells.iter().map(size).sum::<u64>();
        if held > most {
            return Err(too_much(&format!("{source} row {}", i + 1), "rows", most));
        }
        rows.push(Row::new(i + 1, cells));
    }
    Ok(Table { columns, rows, notes: Vec::new(), place: "row" })
}

fn broken(source: &str, why: &str) -> Error {
    let why: String = why.chars().take(160).collect();
    Error::new(format!("{source}: not a readable Parquet file: {}", why.replace('\n', " ")))
}

/// Bytes in memory.
fn size(cell: &Cell) -> u64 {
    let texts = match cell {
        Cell::Missing => 0,
        Cell::Text(text) => text.len() as u64,
        Cell::List(list) => list.iter().map(|text| size_of::<String>() as u64 + ALLOCATED + text.len() as u64).sum(),
    };
    size_of::<Cell>() as u64 + texts
}

/// `None`: bytes that are not UTF-8.
fn cell(field: Field) -> Option<Cell> {
    Some(match field {
        Field::Null => Cell::Missing,
        Field::ListInternal(list) => Cell::List(list.elements().iter().map(text).collect::<Option<_>>()?),
        Field::Str(text) => Cell::Text(text),
        other => Cell::Text(text(&other)?),
    })
}

fn text(field: &Field) -> Option<String> {
    Some(match field {
        Field::Str(text) => text.clone(),
        Field::Bytes(bytes) => String::from_utf8(bytes.data().to_vec()).ok()?,
        Field::Bool(value) => value.to_string(),
        Field::Byte(n) => n.to_string(),
        Field::Short(n) => n.to_string(),
        Field::Int(n) => n.to_string(),
        Field::Long(n) => n.to_string(),
        Field::UByte(n) => n.to_string(),
        Field::UShort(n) => n.to_string(),
        Field::UInt(n) => n.to_string(),
        Field::ULong(n) => n.to_string(),
        Field::Float(x) => x.to_string(),
        Field::Double(x) => x.to_string(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Written by pyarrow (see the README beside it): text, label, tags (list of text), score.
    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
    }

    #[test]
    fn files_of_pyarrow() {
        for name in ["snappy.parquet", "gzip.parquet", "lz4.parquet", "none.parquet"] {
            let table = read("f", &fixture(name), usize::MAX).unwrap();
            assert_eq!(table.columns, ["text", "label", "tags", "score"], "{name}");
            assert_eq!(table.rows.len(), 3, "{name}");
            let text = |t: &str| Cell::Text(t.into());
            assert_eq!(
                table.rows[0].cells,
                [text("good \"film\""), text("1"), Cell::List(vec!["a".into(), "b".into()]), text("0.5")],
                "{name}"
            );
            assert_eq!(
                table.rows[1].cells,
                [text("schlecht, öde"), text("0"), Cell::List(vec![]), Cell::Missing],
                "{name}"
            );
            assert_eq!(table.rows[2].cells[2], Cell::List(vec!["c".into()]), "{name}");
            assert_eq!(read("f", &fixture(name), 2).unwrap().rows.len(), 2);
        }
    }

    #[test]
    fn zstd_is_refused_with_advice() {
        let e = read("f", &fixture("zstd.parquet"), 9).unwrap_err().to_string();
        assert!(e.starts_with("f, column text: compressed with zstd"), "{e}");
    }

    #[test]
    fn rows_that_take_too_much_are_refused() {
        let (_folder, path) = again_and_again(100, false);
        let read = |most| read_bounded("f", File::open(&path).unwrap(), usize::MAX, most);
        let told = read(300).unwrap_err().to_string();
        assert!(told.starts_with("f row ") && told.contains(": the rows take more than 0 MB"), "{told}");
        let rows = read(30_000).unwrap().rows;
        assert!(rows.len() == 100 && rows.iter().all(|row| row.cells == [Cell::Text("a".into())]));

        let read = |most| read_bounded("f", File::open(fixture("snappy.parquet")).unwrap(), usize::MAX, most);
        assert_eq!(read(3000).unwrap().rows.len(), 3);
        // Three rows of four cells.
        let least = 3 * (ROW + 4 * size_of::<Cell>() as u64);
        assert!(read(least).is_err());
    }

    /// Thrift's compact protocol, as far as a footer and a page need it.
    #[derive(Default)]
    struct Thrift {
        bytes: Vec<u8>,
        field: u8,
    }

    fn number(mut n: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let more = if n >= 0x80 { 0x80 } else { 0 };
            bytes.push((n & 0x7f) as u8 | more);
            n >>= 7;
            if n == 0 {
                return bytes;
            }
        }
    }

    fn text_of(text: &str) -> Vec<u8> {
        [number(text.len() as u64), text.into()].concat()
    }

    impl Thrift {
        fn put(mut self, field: u8, kind: u8, value: &[u8]) -> Thrift {
            self.bytes.push((field - self.field) << 4 | kind);
            self.bytes.extend(value);
            Thrift { field, ..self }
        }

        fn int(self, field: u8, n: u64) -> Thrift {
            self.put(field, 5, &number(2 * n))
        }

        fn long(self, field: u8, n: u64) -> Thrift {
            self.put(field, 6, &number(2 * n))
        }

        fn name(self, field: u8, text: &str) -> Thrift {
            self.put(field, 8, &text_of(text))
        }

        fn list(self, field: u8, kind: u8, of: &[Vec<u8>]) -> Thrift {
            let head = match of.len() {
                few @ 0..15 => vec![(few as u8) << 4 | kind],
                many => [vec![0xf0 | kind], number(many as u64)].concat(),
            };
            self.put(field, 9, &[head, of.concat()].concat())
        }

        fn part(self, field: u8, part: Thrift) -> Thrift {
            self.put(field, 12, &part.end())
        }

        fn end(mut self) -> Vec<u8> {
            self.bytes.push(0);
            self.bytes
        }
    }

    fn root(children: u64) -> Vec<u8> {
        Thrift::default().name(4, "m").int(5, children).end()
    }

    /// A file with this body, schema, row groups and number of rows.
    fn written(body: &[u8], schema: &[Vec<u8>], groups: &[Vec<u8>], rows: u64) -> (tempfile::TempDir, PathBuf) {
        let footer = Thrift::default().int(1, 1).list(2, 12, schema).long(3, rows).list(4, 12, groups).end();
        let length = (footer.len() as u32).to_le_bytes();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        std::fs::write(&path, [&b"PAR1"[..], body, &footer, &length, b"PAR1"].concat()).unwrap();
        (folder, path)
    }

    /// The letter a as often as that, in a column of rows or in the list of one row: runs of levels and of places in a dictionary are
    /// a few bytes.
    fn again_and_again(times: u64, listed: bool) -> (tempfile::TempDir, PathBuf) {
        let run = |count: u64, value: u8| [number(2 * count), vec![value]].concat();
        let sized = |bytes: Vec<u8>| [(bytes.len() as u32).to_le_bytes().to_vec(), bytes].concat();
        let dictionary = sized(b"a".to_vec());
        let levels = [sized([run(1, 0), run(times - 1, 1)].concat()), sized(run(times, 1))].concat();
        let values = [if listed { levels } else { vec![] }, vec![1], run(times, 0)].concat();
        let header = |kind: u64, bytes: &[u8]| {
            Thrift::default().int(1, kind).int(2, bytes.len() as u64).int(3, bytes.len() as u64)
        };
        let words = header(2, &dictionary).part(7, Thrift::default().int(1, 1).int(2, 0)).end();
        let of_page = Thrift::default().int(1, times).int(2, 8).int(3, 3).int(4, 3);
        let page = header(0, &values).part(5, of_page).end();
        let first = [words, dictionary].concat();
        let body = [first.clone(), page, values].concat();
        let column = Thrift::default()
            .int(1, 6)
            .list(2, 5, &[number(16), number(6), number(0)])
            .list(3, 8, &[text_of("tags")])
            .int(4, 0)
            .long(5, times)
            .long(6, body.len() as u64)
            .long(7, body.len() as u64)
            .long(9, 4 + first.len() as u64)
            .long(11, 4);
        let rows = if listed { 1 } else { times };
        let chunk = Thrift::default().long(2, 4).part(3, column).end();
        let group = Thrift::default().list(1, 12, &[chunk]).long(2, body.len() as u64).long(3, rows).end();
        let leaf = Thrift::default().int(1, 6).int(3, if listed { 2 } else { 0 }).name(4, "tags").int(6, 0).end();
        written(&body, &[root(1), leaf], &[group], rows)
    }

    #[test]
    fn rows_without_columns_are_refused() {
        let group = Thrift::default().list(1, 12, &[]).long(2, 0).long(3, 1 << 40).end();
        let (_folder, path) = written(&[], &[root(0)], &[group], 1 << 40);
        let told = read("f", &path, 9).unwrap_err().to_string();
        assert_eq!(told, "f: not a readable Parquet file: it has no columns");
    }

    #[test]
    fn a_list_that_does_not_fit_is_refused_before_it_is_made() {
        let (_folder, path) = again_and_again(40_000_000, true);
        let told = read("f", &path, 9).unwrap_err().to_string();
        assert!(told.starts_with("f, column tags: the lists take more than 1073 MB"), "{told}");
        let (_folder, path) = again_and_again(4, true);
        assert_eq!(read("f", &path, 9).unwrap().rows[0].cells, [Cell::List(vec!["a".into(); 4])]);
    }

    #[test]
    fn a_schema_without_a_bottom_is_no_end_of_the_program() {
        let inner = Thrift::default().int(3, 1).name(4, "a").int(5, 1).end();
        let leaf = Thrift::default().int(1, 6).int(3, 1).name(4, "a").int(6, 0).end();
        let schema = [vec![root(1)], vec![inner; 20_000], vec![leaf]].concat();
        let (_folder, path) = written(&[], &schema, &[], 1);
        // That it ends is what is asked.
        assert!(read("f", &path, 9).is_ok_and(|table| table.rows.is_empty()));
    }

    #[test]
    fn a_footer_of_any_length_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        std::fs::write(&path, [&b"PAR1"[..], &[0xff; 4], b"PAR1"].concat()).unwrap();
        let told = read("f", &path, 9).unwrap_err().to_string();
        assert!(told.contains("its footer takes 4294 MB"), "{told}");
    }

    #[test]
    fn broken_files_are_errors() {
        let whole = std::fs::read(fixture("snappy.parquet")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let check = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            if let Err(e) = read("f", &path, usize::MAX) {
                assert!(!e.to_string().contains('\n'));
            }
        };
        check(b"");
        check(b"PAR1PAR1");
        let mut random = crate::random::Random::new(3);
        for _ in 0..60 {
            check(&whole[..random.below(whole.len())]);
            let mut flipped = whole.clone();
            for _ in 0..3 {
                let at = random.below(whole.len());
                flipped[at] = random.next() as u8;
            }
            check(&flipped);
        }
    }
}
