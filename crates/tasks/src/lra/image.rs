//! Grey pictures pixel by pixel (CIFAR-10, Krizhevsky 2009).

use super::{Part, Set, Task, Wanted, read};
use sparing_model::Error;
use std::path::Path;

/// A label and 32 x 32 pixels.
const RECORD: usize = 1 + 1024;
/// Pictures to train on; the others of that file are to choose by.
const TRAIN: usize = 45_000;

pub(crate) fn make(part: Part, wanted: &Wanted, data: &Path) -> Result<Set, Error> {
    let name = if part == Part::Test { "grey_test.bin" } else { "grey_train.bin" };
    let path = data.join("cifar10").join(name);
    let bytes = read(&path)?;
    let bad = |why: &str| Error::new(format!("{}: {why}", path.display()));
    if bytes.is_empty() || !bytes.len().is_multiple_of(RECORD) {
        return Err(bad("records of 1025 bytes are expected: a label and 32 x 32 pixels"));
    }
    let records = bytes.chunks_exact(RECORD);
    let mut set = Set::new(Task::Image);
    let (skipped, most) = match part {
        Part::Train => (0, TRAIN),
        Part::Dev => (TRAIN, usize::MAX),
        Part::Test => (0, usize::MAX),
    };
    for record in records.skip(skipped).take(most.min(wanted.examples)) {
        if record[0] > 9 {
            return Err(bad(&format!("a record has label {}; 0 to 9 are expected", record[0])));
        }
        set.push(&[&record[1..]], record[0]);
    }
    Ok(set)
}
