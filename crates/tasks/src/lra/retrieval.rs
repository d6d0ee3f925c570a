//! Whether two texts are parts of one Wikipedia article.
//!
//! Not the arena's task, which asks whether one paper cites another: that corpus cannot be had. Two encodings are compared
//! all the same, and what they are compared by is spread over thousands of bytes.

use super::{INTERRUPTED, Part, Set, Task, Wanted, read};
use crate::random::Random;
use sparing_model::Error;
use std::path::Path;

/// Each of the two texts has at least this many bytes.
const SHORTEST: usize = 500;

pub(crate) fn make(
    part: Part,
    wanted: &Wanted,
    data: &Path,
    told: &mut dyn FnMut(usize) -> bool,
) -> Result<Set, Error> {
    let path = data.join("wikipedia").join("enwiki.txt");
    let bytes = read(&path)?;
    let mut bodies: Vec<&[u8]> = articles(&bytes).filter(|body| body.len() >= 2 * SHORTEST).collect();
    Random::new(wanted.seed).shuffle(&mut bodies);
    let counts = [Part::Test, Part::Dev, Part::Train].map(|part| wanted.count(part));
    let from = match part {
        Part::Test => 0,
        Part::Dev => counts[0],
        Part::Train => counts[0] + counts[1],
    };
    // Of this part's articles each begins one pair; no article is in two parts.
    let mine = bodies.get(from..).unwrap_or_default();
    let mine = &mine[..mine.len().min(wanted.count(part))];
    if mine.len() < 2 {
        return Err(Error::new(format!("{}: has too few long articles for so many examples", path.display())));
    }
    let mut random = Random::new(wanted.seed ^ (1 + from as u64));
    let mut set = Set::new(Task::WikipediaRetrieval);
    for (number, body) in mine.iter().enumerate() {
        let (first, second) = halves(body, wanted.length);
        let same = random.below(2) == 1;
        let other = (number + 1 + random.below(mine.len() - 1)) % mine.len();
        let second = if same { second } else { halves(mine[other], wanted.length).1 };
        set.push(&[first, second], u8::from(same));
        if set.len().is_multiple_of(1000) && !told(set.len()) {
            return Err(Error::new(INTERRUPTED));
        }
    }
    Ok(set)
}

/// The two halves of a text, each cut to a length.
fn halves(body: &[u8], length: usize) -> (&[u8], &[u8]) {
    let (first, second) = body.split_at(body.len() / 2);
    (&first[..first.len().min(length)], &second[..second.len().min(length)])
}

/// Texts without their title lines: documents are separated by an empty line.
fn articles(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.windows(2).position(|two| two == b"\n\n").unwrap_or(rest.len());
        let article = &rest[..end];
        rest = rest.get(end + 2..).unwrap_or_default();
        let title = article.iter().position(|b| *b == b'\n').map_or(article.len(), |at| at + 1);
        Some(&article[title..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_of_one_article_or_of_two() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("wikipedia")).unwrap();
        // Every article repeats a word of its own.
        let text: String = (0..60).map(|i| format!("Title {i}\n{}\n\n", format!("w{i} ").repeat(400))).collect();
        std::fs::write(folder.path().join("wikipedia/enwiki.txt"), text).unwrap();
        let wanted = Wanted { examples: 40, length: 700, shortest: 0, seed: 4 };
        let set = make(Part::Train, &wanted, folder.path(), &mut |_| true).unwrap();
        assert_eq!(set.len(), 40);
        let mut positive = 0;
        for number in 0..set.len() {
            let example = set.example(number);
            let word = |of: usize| {
                let text = String::from_utf8_lossy(example.sequences[of]).into_owned();
                text.split(' ').nth(3).unwrap_or_default().to_string()
            };
            assert!(example.sequences.iter().all(|s| s.len() <= 700 && s.len() >= 500));
            assert_eq!(word(0) == word(1), example.label == 1);
            positive += u32::from(example.label);
        }
        assert!((8..=32).contains(&positive), "{positive}");
    }
}
