//! Examples in memory and as a compact file: bytes behind each other, deflated; pictures as differences from what the
//! pixels around predict.

use super::Task;
use flate2::{Compression, Crc, read::GzDecoder, write::GzEncoder};
use sparing_model::{Error, replace_file_with};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

/// What a set is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// To train on.
    Train,
    /// To choose by.
    Dev,
    /// To report.
    Test,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 3] = [Part::Train, Part::Dev, Part::Test];

    /// The name of its file.
    pub fn name(self) -> &'static str {
        match self {
            Part::Train => "train",
            Part::Dev => "dev",
            Part::Test => "test",
        }
    }
}

/// Examples of one task.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    task: Task,
    /// All sequences end to end.
    tokens: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    labels: Vec<u8>,
}

/// One example.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Example<'a> {
    /// Its one or two sequences; the second is empty where there is one.
    pub sequences: [&'a [u8]; 2],
    /// The right answer.
    pub label: u8,
}

/// The first bytes of a file.
const MAGIC: &str = "sparing-lra 1";
/// No sequence is longer.
const LONGEST: usize = 1 << 20;

impl Set {
    /// No examples yet.
    pub fn new(task: Task) -> Set {
        Set { task, tokens: vec![], ends: vec![], labels: vec![] }
    }

    /// Adds an example of as many sequences as the task has.
    pub fn push(&mut self, sequences: &[&[u8]], label: u8) {
        debug_assert_eq!(sequences.len(), self.task.sequences());
        for sequence in sequences {
            self.tokens.extend_from_slice(sequence);
            self.ends.push(self.tokens.len());
        }
        self.labels.push(label);
    }

    /// The task.
    pub fn task(&self) -> Task {
        self.task
    }

    /// Examples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// At most so many examples, evenly spread: a set may be in the order of its labels.
    pub fn thin(&mut self, examples: usize) {
        let count = self.labels.len();
        if examples >= count {
            return;
        }
        let mut thinned = Set::new(self.task);
        for number in (0..examples).map(|i| i * count / examples) {
            let Example { sequences, label } = self.example(number);
            thinned.push(&sequences[..self.task.sequences()], label);
        }
        *self = thinned;
    }

    /// An example by number.
    pub fn example(&self, number: usize) -> Example<'_> {
        let each = self.task.sequences();
        let sequence = |at: usize| {
            let start = if at == 0 { 0 } else { self.ends[at - 1] };
            &self.tokens[start..self.ends[at]]
        };
        let first = number * each;
        let second = if each == 2 { sequence(first + 1) } else { &[] };
        Example { sequences: [sequence(first), second], label: self.labels[number] }
    }

    /// Tokens of the longest sequence of each example.
    pub fn lengths(&self) -> Vec<usize> {
        let longest = |number| self.example(number).sequences.iter().map(|s| s.len()).max().unwrap_or(0);
        (0..self.len()).map(longest).collect()
    }

    /// How many examples there are and a checksum of all they hold: other examples have another one, nearly always.
    pub fn fingerprint(&self) -> String {
        let mut sum = Crc::new();
        sum.update(&self.tokens);
        self.ends.iter().for_each(|end| sum.update(&(*end as u64).to_le_bytes()));
        sum.update(&self.labels);
        format!("{} examples, {:08x}", self.len(), sum.sum())
    }

    /// Writes a file, whole or not at all; its size.
    pub fn write(&self, path: &Path) -> Result<u64, Error> {
        let failed = |e: std::io::Error| Error::new(format!("{}: cannot be written ({e})", path.display()));
        let write = |file: &mut File| -> std::io::Result<()> {
            let mut out = GzEncoder::new(BufWriter::new(file), Compression::default());
            writeln!(out, "{MAGIC} {} {}", self.task.name(), self.len())?;
            for number in 0..self.len() {
                let example = self.example(number);
                out.write_all(&[example.label])?;
                for sequence in &example.sequences[..self.task.sequences()] {
                    out.write_all(&(sequence.len() as u32).to_le_bytes())?;
                    match self.task.side() {
                        Some(side) => out.write_all(&differences(sequence, side))?,
                        None => out.write_all(sequence)?,
                    }
                }
            }
            out.finish()?.flush()
        };
        replace_file_with(path, write).map_err(failed)?;
        std::fs::metadata(path).map(|m| m.len()).map_err(failed)
    }

    /// Reads a file of this task.
    pub fn read(path: &Path, task: Task) -> Result<Set, Error> {
        let bad = |why: &str| Error::new(format!("{}: {why}; make it with `sparing lra prepare`", path.display()));
        let file = File::open(path).map_err(|e| bad(&format!("cannot be read ({e})")))?;
        let mut bytes = Vec::new();
        let unpacked = GzDecoder::new(BufReader::new(file)).read_to_end(&mut bytes);
        unpacked.map_err(|e| bad(&format!("is no file of the arena ({e})")))?;
        let end = bytes.iter().take(100).position(|b| *b == b'\n').ok_or_else(|| bad("is no file of the arena"))?;
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let count = line.strip_prefix(&format!("{MAGIC} {} ", task.name())).and_then(|n| n.parse::<usize>().ok());
        let count = count.ok_or_else(|| bad(&format!("begins with {line:?}, not with examples of {}", task.name())))?;
        let mut rest = &bytes[end + 1..];
        let mut set = Set::new(task);
        for _ in 0..count {
            let label = take(&mut rest, 1).ok_or_else(|| bad("ends early"))?[0];
            if usize::from(label) >= task.classes() {
                return Err(bad(&format!("has label {label}; {} has {}", task.name(), task.classes())));
            }
            let mut sequences = Vec::new();
            for _ in 0..task.sequences() {
                let length = take(&mut rest, 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
                let length = length.map(|l| l as usize).filter(|l| *l <= LONGEST);
                let sequence = length.and_then(|length| take(&mut rest, length)).ok_or_else(|| bad("ends early"))?;
                if let Some(token) = sequence.iter().find(|t| usize::from(**t) >= task.vocabulary()) {
                    return Err(bad(&format!("has token {token}; {} has {}", task.name(), task.vocabulary())));
                }
                sequences.push(match task.side() {
                    Some(side) => pixels(sequence, side),
                    None => sequence.to_vec(),
                });
            }
            set.push(&sequences.iter().map(Vec::as_slice).collect::<Vec<_>>(), label);
        }
        Ok(set)
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

/// The median of left, above and left plus above minus their corner (LOCO-I's prediction).
fn predicted(done: &[u8], at: usize, side: usize) -> u8 {
    let (row, column) = (at / side, at % side);
    match (row, column) {
        (0, 0) => 0,
        (0, _) => done[at - 1],
        (_, 0) => done[at - side],
        _ => {
            let (left, above, corner) = (done[at - 1], done[at - side], done[at - side - 1]);
            if corner >= left.max(above) {
                left.min(above)
            } else if corner <= left.min(above) {
                left.max(above)
            } else {
                left.wrapping_add(above).wrapping_sub(corner)
            }
        }
    }
}

fn differences(pixels: &[u8], side: usize) -> Vec<u8> {
    (0..pixels.len()).map(|at| pixels[at].wrapping_sub(predicted(pixels, at, side))).collect()
}

fn pixels(differences: &[u8], side: usize) -> Vec<u8> {
    let mut found = Vec::with_capacity(differences.len());
    for (at, difference) in differences.iter().enumerate() {
        let pixel = difference.wrapping_add(predicted(&found, at, side));
        found.push(pixel);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random::new(5);
        for task in Task::ALL {
            let mut set = Set::new(task);
            for _ in 0..7 {
                let length = task.side().map_or_else(|| random.below(50), |side| side * side);
                let mut bytes = || (0..length).map(|_| random.below(task.vocabulary()) as u8).collect::<Vec<u8>>();
                let (a, b) = (bytes(), bytes());
                let label = a.first().copied().unwrap_or(0) % task.classes() as u8;
                set.push(&[a.as_slice(), &b][..task.sequences()], label);
            }
            let path = folder.path().join("train.lra");
            set.write(&path).unwrap();
            assert_eq!(Set::read(&path, task).unwrap(), set);
            assert!(set.write(folder.path()).is_err(), "a directory is no file");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half written is left");
            let whole = std::fs::read(&path).unwrap();
            std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
            assert!(Set::read(&path, task).unwrap_err().to_string().contains("sparing lra prepare"));
            let whole = set.clone();
            set.thin(3);
            assert_eq!(set.len(), 3);
            assert_ne!(set.fingerprint(), whole.fingerprint());
            for (thinned, kept) in [0, 2, 4].into_iter().enumerate() {
                assert_eq!(set.example(thinned), whole.example(kept));
            }
            set.thin(8);
            assert_eq!(set.len(), 3);
        }
    }
}
