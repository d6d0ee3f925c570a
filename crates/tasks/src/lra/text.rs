//! Film reviews byte by byte (IMDB, Maas et al. 2011).

use super::{INTERRUPTED, Part, Set, Task, Wanted, read};
use crate::random::Random;
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
    // Files are in the order of their labels, or have them in turns: whatever is taken by a fixed step may be of one label.
    let mut order: Vec<usize> = (0..lines.len()).collect();
    Random::new(wanted.seed).shuffle(&mut order);
    let mut set = Set::new(Task::Text);
    for (number, at) in order.into_iter().enumerate() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_both_labels_however_the_file_is_ordered() {
        let orders: [fn(usize) -> u8; 2] = [|i| (i % 2) as u8, |i| u8::from(i >= 1000)];
        for label in orders {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("imdb")).unwrap();
            let line = |i: usize| format!("{{\"text\": \"review {i}\", \"label\": {}}}\n", label(i));
            let lines: String = (0..2000).map(line).collect();
            for name in ["train.jsonl", "test.jsonl"] {
                std::fs::write(folder.path().join("imdb").join(name), &lines).unwrap();
            }
            let wanted = Wanted { examples: 1500, ..Wanted::of(Task::Text) };
            let mut seen = std::collections::BTreeSet::new();
            for (part, count) in [(Part::Train, 1500), (Part::Dev, 100), (Part::Test, 1500)] {
                let mut set = make(part, &wanted, folder.path(), &mut |_| true).unwrap();
                assert_eq!(set.len(), count);
                if part != Part::Test {
                    let texts = (0..set.len()).map(|i| set.example(i).sequences[0].to_vec());
                    assert!(texts.into_iter().all(|text| seen.insert(text)), "a review is in two parts");
                }
                // 50 of either, give or take five deviations.
                set.thin(100);
                let ones = (0..100).filter(|i| set.example(*i).label == 1).count();
                assert!((25..=75).contains(&ones), "{part:?}: {ones} of 100");
            }
        }
    }
}
