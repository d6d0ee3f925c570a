//! Reading text files line by line, trusting nothing: errors name the file and the line.

use flate2::bufread::MultiGzDecoder;
use sparing_model::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Opens a file for reading; `.gz` is unpacked on the way.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead>, Error> {
    let file = File::open(path).map_err(|e| cannot_read(path, &e))?;
    if path.is_dir() {
        return Err(Error::new(format!("{} is a folder, not a file", path.display())));
    }
    let reader = BufReader::with_capacity(1 << 16, file);
    if extension(path) == Some("zst".into()) {
        return Err(Error::new(format!("{}: .zst files are not read; unpack it first (zstd -d)", path.display())));
    }
    if extension(path) == Some("gz".into()) {
        return Ok(Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(reader))));
    }
    Ok(Box::new(reader))
}

/// The last extension in lower case.
pub(crate) fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_lowercase())
}

pub(crate) fn cannot_read(path: &Path, error: &std::io::Error) -> Error {
    Error::new(format!("{}: cannot read: {error}", path.display()))
}

/// The lines of a text with their numbers from 1, checked to be UTF-8, without `\n`, `\r\n` and a leading byte order mark.
pub(crate) struct Lines {
    reader: Box<dyn BufRead>,
    name: String,
    number: usize,
    endings: bool,
}

impl Lines {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        Ok(Lines::new(path.display().to_string(), open(path)?))
    }

    /// `name` is what errors call the text.
    pub(crate) fn new(name: String, reader: Box<dyn BufRead>) -> Self {
        Lines { reader, name, number: 0, endings: false }
    }

    /// Lines keep their endings.
    pub(crate) fn with_endings(mut self) -> Self {
        self.endings = true;
        self
    }

    fn read(&mut self) -> Result<Option<(usize, String)>, Error> {
        let mut bytes = Vec::new();
        let read = self.reader.read_until(b'\n', &mut bytes);
        self.number += 1;
        let read = read.map_err(|e| Error::new(format!("{} line {}: cannot read: {e}", self.name, self.number)))?;
        if read == 0 {
            return Ok(None);
        }
        if !self.endings && bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        if self.number == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        let text = String::from_utf8(bytes).map_err(|e| not_utf8(&self.name, self.number, e.as_bytes()))?;
        Ok(Some((self.number, text)))
    }
}

impl Iterator for Lines {
    type Item = Result<(usize, String), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// The error for bytes of one line that are not UTF-8.
pub(crate) fn not_utf8(name: &str, line: usize, bytes: &[u8]) -> Error {
    let hint = if line == 1 && (bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff")) {
        "; it looks like UTF-16, save it as UTF-8, e.g. iconv -f utf-16 -t utf-8".to_string()
    } else {
        match std::str::from_utf8(bytes) {
            Err(e) => {
                let (at, advice) = (e.valid_up_to(), "save it as UTF-8, e.g. iconv -f windows-1252 -t utf-8");
                format!(" (byte 0x{:02x} at position {}); {advice}", bytes[at], at + 1)
            }
            Ok(_) => String::new(),
        }
    };
    Error::new(format!("{name} line {line}: not valid UTF-8{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};

    fn lines(bytes: &[u8]) -> Vec<Result<(usize, String), Error>> {
        Lines::new("t".into(), Box::new(Cursor::new(bytes.to_vec()))).collect()
    }

    #[test]
    fn numbers_endings_and_mark() {
        let got: Vec<_> = lines(b"\xef\xbb\xbfone\r\n\ntwo\"").into_iter().map(|l| l.unwrap()).collect();
        assert_eq!(got, [(1, "one".into()), (2, "".into()), (3, "two\"".into())]);
    }

    #[test]
    fn bad_bytes_name_file_and_line() {
        let got = lines(b"fine\nbad \xff\n");
        let advice = "save it as UTF-8, e.g. iconv -f windows-1252 -t utf-8";
        let told = format!("t line 2: not valid UTF-8 (byte 0xff at position 5); {advice}");
        assert_eq!(got[1].as_ref().unwrap_err().to_string(), told);
        let got = lines(b"\xff\xfea\0");
        assert!(got[0].as_ref().unwrap_err().to_string().contains("looks like UTF-16"));
    }

    #[test]
    fn gz_is_unpacked_and_broken_gz_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt.gz");
        let mut gz = flate2::write::GzEncoder::new(File::create(&path).unwrap(), Default::default());
        gz.write_all(b"one\ntwo\n").unwrap();
        gz.finish().unwrap();
        assert_eq!(Lines::open(&path).unwrap().count(), 2);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
        let last = Lines::open(&path).unwrap().find(|l| l.is_err());
        assert!(last.unwrap().unwrap_err().to_string().contains("cannot read"));
        assert!(open(&folder.path().join("none")).err().unwrap().to_string().contains("cannot read"));
    }
}
