//! Reading text files line by line, trusting nothing: errors name the file and the line.

use flate2::bufread::MultiGzDecoder;
use sparing_model::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Unpacked bytes that a file may have however small it is. Short rows take some thirty times as much in memory: half a
/// gigabyte.
const ALWAYS: u64 = 1 << 24;
/// Times its size that a larger one may unpack to: text packs to a third or a tenth, to far less where rows repeat a long
/// context, and a bomb to a thousandth.
const MOST_TIMES: u64 = 100;

/// Opens a file for reading; `.gz` is unpacked on the way, up to what a text of its size can be.
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
        // A pipe has no size to go by, and comes from whoever runs this.
        let packed = path.metadata().ok().filter(|metadata| metadata.is_file()).map_or(u64::MAX, |file| file.len());
        let unpacked = Bounded::new(MultiGzDecoder::new(reader), most_unpacked(packed, ALWAYS));
        return Ok(Box::new(BufReader::with_capacity(1 << 16, unpacked)));
    }
    Ok(Box::new(reader))
}

/// What a file of so many bytes may unpack to; `always` is granted to any.
pub(crate) fn most_unpacked(packed: u64, always: u64) -> u64 {
    packed.saturating_mul(MOST_TIMES).max(always)
}

/// A reader that fails once it has given more than a bound.
struct Bounded<R> {
    reader: R,
    most: u64,
    given: u64,
}

impl<R: Read> Bounded<R> {
    fn new(reader: R, most: u64) -> Self {
        Bounded { reader, most, given: 0 }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.given += read as u64;
        if self.given > self.most {
            return Err(io::Error::other(format!(
                "it unpacks to more than {} MB, which few texts of its size do; if it is right, unpack it first (gunzip)",
                self.most / 1_000_000
            )));
        }
        Ok(read)
    }
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

    #[test]
    fn what_unpacks_without_end_is_refused() {
        let bounded = |most| {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            gz.write_all(&b"a line\n".repeat(3_000_000 / 7)).unwrap();
            let unpacked = Bounded::new(MultiGzDecoder::new(Cursor::new(gz.finish().unwrap())), most);
            Lines::new("t.gz".into(), Box::new(BufReader::new(unpacked))).find_map(Result::err)
        };
        assert!(bounded(3_000_000).is_none());
        let told = bounded(2_000_000).unwrap().to_string();
        assert!(
            told.starts_with("t.gz line 28") && told.contains("more than 2 MB") && told.contains("gunzip"),
            "{told}"
        );
        assert_eq!((most_unpacked(9, 1000), most_unpacked(100, 1000)), (1000, 10_000));
    }

    /// Gzip of so many bytes of the same letter: a thousandth of them.
    fn packed(bytes: usize) -> Vec<u8> {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        gz.write_all(&vec![b'a'; bytes]).unwrap();
        gz.finish().unwrap()
    }

    #[test]
    fn a_bomb_on_disk_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv.gz");
        std::fs::write(&path, packed(30_000_000)).unwrap();
        let told = io::copy(&mut open(&path).unwrap(), &mut io::sink()).unwrap_err().to_string();
        assert!(told.contains("it unpacks to more than 16 MB"), "{told}");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_has_no_size_to_go_by() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv.gz");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let to = path.clone();
        let writer = std::thread::spawn(move || std::fs::write(to, packed(30_000_000)).unwrap());
        assert_eq!(io::copy(&mut open(&path).unwrap(), &mut io::sink()).unwrap(), 30_000_000);
        writer.join().unwrap();
    }
}
