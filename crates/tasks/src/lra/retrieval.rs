//! Whether two texts are parts of one Wikipedia article.
//!
//! Not the arena's task, which asks whether one paper cites another: that corpus cannot be had. Two encodings are compared
//! all the same, and what they are compared by is spread over thousands of bytes. Both texts of a pair have one length, which
//! is settled before a coin decides whether they are of one article or of two.

use super::{INTERRUPTED, Part, Set, Task, Wanted, read};
use crate::random::Random;
use sparing_model::Error;
use std::path::Path;

/// Each of the two texts has at least this many bytes, unless fewer are asked for.
const SHORTEST: usize = 500;
/// Stretches that are looked at for one that is as long as another.
const TRIALS: usize = 30;

/// A stretch of an article; a pair's texts are the beginnings of its halves, or of one's first and another's second half.
#[derive(Debug, Clone, Copy)]
struct Stretch<'a> {
    article: usize,
    text: &'a [u8],
}

impl<'a> Stretch<'a> {
    fn half(&self) -> usize {
        self.text.len() / 2
    }

    fn first(&self, length: usize) -> &'a [u8] {
        &self.text[..length]
    }

    fn second(&self, length: usize) -> &'a [u8] {
        &self.text[self.half()..][..length]
    }
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
        let other = partner(own, &mine, &mut random);
        let length = own.half().min(other.half());
        let same = random.below(2) == 1;
        let second = if same { own.second(length) } else { other.second(length) };
        set.push(&[own.first(length), second], u8::from(same));
        if set.len().is_multiple_of(1000) && !told(set.len()) {
            return Err(Error::new(INTERRUPTED));
        }
    }
    Ok(set)
}

/// A stretch of another article, at least as long if one is met soon. There must be another article.
fn partner<'a>(own: &Stretch<'_>, all: &[Stretch<'a>], random: &mut Random) -> Stretch<'a> {
    let mut another = || loop {
        let other = all[random.below(all.len())];
        if other.article != own.article {
            return other;
        }
    };
    let last = another();
    let mut met = std::iter::once(last).chain(std::iter::repeat_with(another)).take(TRIALS);
    met.find(|other| other.half() >= own.half()).unwrap_or(last)
}

/// Articles cut into stretches of two texts each; what is left of one counts if it is not too short.
fn stretches(bytes: &[u8], length: usize) -> Vec<Vec<Stretch<'_>>> {
    let long_enough = |text: &&[u8]| text.len() >= 2 * SHORTEST.min(length);
    let cut = articles(bytes).map(|body| body.chunks(2 * length).filter(long_enough));
    cut.enumerate().map(|(article, texts)| texts.map(|text| Stretch { article, text }).collect()).collect()
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

    /// A directory with articles that repeat a word of their own up to their length.
    fn wikipedia(lengths: impl Iterator<Item = usize>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("wikipedia")).unwrap();
        let article = |(i, length): (usize, usize)| format!("Title {i}\n{}\n\n", format!("w{i} ").repeat(length / 4));
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
                assert!(example.sequences.iter().all(|s| (500..=700).contains(&s.len())));
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

    /// Lengths say nothing: neither a text's nor by how much two differ. Five deviations.
    #[test]
    fn lengths_do_not_give_the_label_away() {
        let mut random = Random::new(6);
        let folder = wikipedia((0..1500).map(|_| 1000 + random.below(5000)));
        let wanted = Wanted { examples: 2000, length: 1000, shortest: 0, seed: 1 };
        let set = make(Part::Train, &wanted, folder.path(), &mut |_| true).unwrap();
        let examples: Vec<_> = (0..set.len()).map(|number| set.example(number)).collect();
        let statistics: [fn([usize; 2]) -> usize; 3] = [|[a, _]| a, |[_, b]| b, |[a, b]| a.abs_diff(b)];
        for of in statistics {
            let case = |e: &super::super::Example<'_>| (of(e.sequences.map(<[u8]>::len)) as f64, e.label == 1);
            let share = best_rule(&examples.iter().map(case).collect::<Vec<_>>());
            assert!(share < 0.5 + 5.0 * 0.5 / 1000f64.sqrt(), "{share}");
        }
        assert!(examples.iter().all(|e| e.sequences[0].len() == e.sequences[1].len()));
        let short = examples.iter().filter(|e| e.sequences[0].len() < 1000).count();
        assert!(short > 100, "{short}: the test is about pairs that are not cut");
    }
}
