//! Whether two texts are parts of one Wikipedia article.
//!
//! Not the arena's task, which asks whether one paper cites another: that corpus cannot be had. Two encodings are compared
//! all the same, and what they are compared by is spread over thousands of bytes. All texts have one length, and the second
//! of a pair is drawn alike whether it is of the same article or of another: neither where it is cut nor how it ends tells.

use super::{INTERRUPTED, Part, Set, Task, Wanted, read};
use crate::random::Random;
use sparing_model::Error;
use std::path::Path;

/// Two texts' worth of an article: a pair is both halves of one, or one's first and another's second half.
#[derive(Debug, Clone, Copy)]
struct Stretch<'a> {
    article: usize,
    halves: [&'a [u8]; 2],
}

pub(crate) fn make(
    part: Part,
    wanted: &Wanted,
    data: &Path,
    told: &mut dyn FnMut(usize) -> bool,
) -> Result<Set, Error> {
    let path = data.join("wikipedia").join("enwiki.txt");
    let bytes = read(&path)?;
    let mut all = stretches(&bytes, wanted.length);
    let there: usize = all.iter().map(Vec::len).sum();
    Random::new(wanted.seed).shuffle(&mut all);
    let mut articles = all.into_iter();
    let mut mine = Vec::new();
    // No article is in two parts: those to evaluate on take theirs first.
    for drawn in [Part::Test, Part::Dev, Part::Train] {
        mine.clear();
        while mine.len() < wanted.count(drawn) {
            let Some(article) = articles.next() else { break };
            mine.extend(article);
        }
        if drawn == part {
            break;
        }
    }
    let count = wanted.count(part);
    if mine.len() < count || mine.iter().all(|stretch| stretch.article == mine[0].article) {
        let needed: usize = Part::ALL.iter().map(|part| wanted.count(*part)).sum();
        let what_to_do = "ask for fewer with --examples, or for shorter texts with --length";
        let path = path.display();
        return Err(Error::new(format!(
            "{path}: gives {there} pairs, too few for {needed} in three parts; {what_to_do}"
        )));
    }
    let mut random = Random::new(wanted.seed ^ (1 + count as u64));
    random.shuffle(&mut mine);
    let mut set = Set::new(Task::WikipediaRetrieval);
    for own in &mine[..count] {
        let same = random.below(2) == 1;
        let second = if same { own } else { partner(own, &mine, &mut random) };
        set.push(&[own.halves[0], second.halves[1]], u8::from(same));
        if set.len().is_multiple_of(1000) && !told(set.len()) {
            return Err(Error::new(INTERRUPTED));
        }
    }
    Ok(set)
}

/// A stretch of another article. There must be another article.
fn partner<'a, 'b>(own: &Stretch<'_>, all: &'b [Stretch<'a>], random: &mut Random) -> &'b Stretch<'a> {
    loop {
        let other = &all[random.below(all.len())];
        if other.article != own.article {
            return other;
        }
    }
}

/// Articles cut into stretches of two texts each. What is left at an article's end is left out: it would be told by its end.
fn stretches<'a>(bytes: &'a [u8], length: usize) -> Vec<Vec<Stretch<'a>>> {
    let cut = |(article, body): (usize, &'a [u8])| {
        let halved = body.chunks_exact(2 * length).map(|text| text.split_at(length));
        halved.map(|(first, second)| Stretch { article, halves: [first, second] }).collect()
    };
    articles(bytes).enumerate().map(cut).collect()
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
    use super::super::cheap::best_rule;
    use super::*;
    use std::collections::HashSet;

    /// A directory with articles that repeat a word of their own up to their length, and end like a sentence.
    fn wikipedia(lengths: impl Iterator<Item = usize>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("wikipedia")).unwrap();
        let article = |(i, length): (usize, usize)| format!("Title {i}\n{}.\n\n", format!("w{i} ").repeat(length / 4));
        let text: String = lengths.enumerate().map(article).collect();
        std::fs::write(folder.path().join("wikipedia/enwiki.txt"), text).unwrap();
        folder
    }

    fn word(text: &[u8]) -> String {
        String::from_utf8_lossy(text).split(' ').nth(3).unwrap_or_default().to_string()
    }

    #[test]
    fn pairs_are_of_one_article_or_of_two_and_parts_share_none() {
        let folder = wikipedia((0..60).map(|_| 4000));
        let wanted = Wanted { examples: 80, length: 700, shortest: 0, seed: 4 };
        let mut seen: Vec<HashSet<String>> = Vec::new();
        for part in Part::ALL {
            let set = make(part, &wanted, folder.path(), &mut |_| true).unwrap();
            assert_eq!(set.len(), wanted.count(part), "more pairs than articles");
            let examples: Vec<_> = (0..set.len()).map(|number| set.example(number)).collect();
            for example in &examples {
                assert!(example.sequences.iter().all(|s| s.len() == 700));
                assert_eq!(word(example.sequences[0]) == word(example.sequences[1]), example.label == 1);
            }
            let positive = examples.iter().filter(|example| example.label == 1).count();
            // 40 of 80, give or take five deviations.
            assert!(part != Part::Train || (18..=62).contains(&positive), "{positive}");
            let words = examples.iter().flat_map(|example| example.sequences).map(word).collect();
            assert!(seen.iter().all(|other| other.is_disjoint(&words)), "an article is in two parts");
            seen.push(words);
        }
        let message = make(Part::Train, &Wanted { examples: 900, ..wanted }, folder.path(), &mut |_| true).unwrap_err();
        assert!(message.to_string().contains("--examples"), "{message}");
    }

    /// Neither lengths nor ends say anything: best rules by either stay within five deviations of chance.
    #[test]
    fn neither_lengths_nor_ends_give_the_label_away() {
        let mut random = Random::new(6);
        let folder = wikipedia((0..1500).map(|_| 1000 + random.below(5000)));
        let wanted = Wanted { examples: 1000, length: 1000, shortest: 0, seed: 1 };
        let set = make(Part::Train, &wanted, folder.path(), &mut |_| true).unwrap();
        let examples: Vec<_> = (0..set.len()).map(|number| set.example(number)).collect();
        type Statistic = fn([&[u8]; 2]) -> usize;
        let statistics: [Statistic; 4] = [
            |[a, _]| a.len(),
            |[_, b]| b.len(),
            |[a, b]| a.len().abs_diff(b.len()),
            |[_, b]| b.iter().rev().take(3).filter(|byte| **byte == b'.').count(),
        ];
        for of in statistics {
            let case = |e: &super::super::Example<'_>| (of(e.sequences) as f64, e.label == 1);
            let share = best_rule(&examples.iter().map(case).collect::<Vec<_>>());
            assert!(share < 0.5 + 5.0 * 0.5 / 500f64.sqrt(), "{share}");
        }
    }
}
