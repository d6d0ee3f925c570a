//! Parquet tables through the record API: it needs neither arrow nor C code, and a table of texts gains nothing from columns.

use super::{Cell, Row, Table};
use crate::source::most_unpacked;
use parquet::basic::Compression;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use sparing_model::{Error, guarded};
use std::fs::File;
use std::path::Path;

/// Bytes that the rows may take however small the file is: one text again and again is a few bytes in it.
const ALWAYS: u64 = 1 << 30;

/// Bytes of a row beside its cells, and of what the allocator adds to their place.
const ROW: u64 = size_of::<Row>() as u64 + 16;

/// Reads at most `limit` rows.
pub(crate) fn read(source: &str, path: &Path, limit: usize) -> Result<Table, Error> {
    let file = File::open(path).map_err(|e| crate::source::cannot_read(path, &e))?;
    let most = most_unpacked(file.metadata().map_or(0, |metadata| metadata.len()), ALWAYS);
    read_bounded(source, file, limit, most)
}

fn read_bounded(source: &str, file: File, limit: usize, most: u64) -> Result<Table, Error> {
    // The parquet crate asserts in places where a broken file should be an error.
    guarded(|| rows(source, file, limit, most))
        .unwrap_or_else(|why| Err(broken(source, &format!("its pages contradict its header ({why})"))))
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
            return Err(Error::new(format!(
                "{source} row {}: the rows take more than {} MB, which few texts of the file's size do; if they are \
                 right, write fewer of them to a file, or write .csv",
                i + 1,
                most / 1_000_000
            )));
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
        Cell::Text(text) => text.len(),
        Cell::List(list) => list.iter().map(|text| size_of::<String>() + text.len()).sum(),
    };
    (size_of::<Cell>() + texts) as u64
}

/// `None`: bytes that are not UTF-8.
fn cell(field: Field) -> Option<Cell> {
    Some(match field {
        Field::Null => Cell::Missing,
        Field::ListInternal(list) => {
            let texts = list.elements().iter().cloned().map(text);
            Cell::List(texts.collect::<Option<_>>()?)
        }
        other => Cell::Text(text(other)?),
    })
}

fn text(field: Field) -> Option<String> {
    Some(match field {
        Field::Str(text) => text,
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
        let read = |most| read_bounded("f", File::open(fixture("snappy.parquet")).unwrap(), usize::MAX, most);
        let told = read(300).unwrap_err().to_string();
        assert!(told.starts_with("f row ") && told.contains(": the rows take more than 0 MB"), "{told}");
        assert_eq!(read(3000).unwrap().rows.len(), 3);
        // Three rows of four cells.
        let least = 3 * (ROW + 4 * size_of::<Cell>() as u64);
        assert!(read(least).is_err());
    }

    /// The footer of a file that has nothing but a name and a number of rows, in Thrift's compact protocol.
    #[test]
    fn rows_without_columns_are_refused() {
        // 2^40 of them.
        let rows = [0x80, 0x80, 0x80, 0x80, 0x80, 0x40];
        let mut footer = vec![0x15, 2, 0x19, 0x1c, 0x48, 1, b'm', 0x15, 0, 0, 0x16];
        footer.extend(rows);
        footer.extend([0x19, 0x1c, 0x19, 0x0c, 0x16, 0, 0x16]);
        footer.extend(rows);
        footer.extend([0, 0]);
        let length = (footer.len() as u32).to_le_bytes();
        let whole = [&b"PAR1"[..], &footer, &length, b"PAR1"].concat();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        std::fs::write(&path, whole).unwrap();
        let told = read("f", &path, 9).unwrap_err().to_string();
        assert_eq!(told, "f: not a readable Parquet file: it has no columns");
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
