//! Film reviews byte by byte (IMDB, Maas et al. 2011).

use super::{INTERRUPTED, Part, Set, Task, Wanted, read};
use serde::Deserialize;
use sparing_model::Error;
use std::path::Path;

#[derive(Deserialize)]
struct Review {
    text: String,
    label: u8,
}

/// Of this many reviews to train on, one is held out to choose by.
const HELD_OUT: usize = 20;

/// The files hold positive reviews after negative ones: a fixed stride mixes them, and leaves nothing out where it is a
/// prime that does not divide their number.
const STRIDE: usize = 7919;

pub(crate) fn make(
    part: Part,
    wanted: &Wanted,
    data: &Path,
    told: &mut dyn FnMut(usize) -> bool,
) -> Result<Set, Error> {
    let name = if part == Part::Test { "test.jsonl" } else { "train.jsonl" };
    let path = data.join("imdb").join(name);
    let bytes = read(&path)?;
    let lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()).collect();
    let mut set = Set::new(Task::Text);
    for number in 0..lines.len() {
        let at = (number * STRIDE) % lines.len();
        let wanted_here = match part {
            Part::Test => true,
            Part::Dev => number % HELD_OUT == 0,
            Part::Train => number % HELD_OUT != 0,
        };
        if !wanted_here || set.len() >= wanted.examples {
            continue;
        }
        let review: Review = serde_json::from_slice(lines[at])
            .map_err(|e| Error::new(format!("{}: line {}: {e}", path.display(), at + 1)))?;
        let bytes = review.text.as_bytes();
        set.push(&[&bytes[..bytes.len().min(wanted.length)]], review.label.min(1));
        if set.len().is_multiple_of(1000) && !told(set.len()) {
            return Err(Error::new(INTERRUPTED));
        }
    }
    Ok(set)
}
