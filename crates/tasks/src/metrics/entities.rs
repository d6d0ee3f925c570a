//! Entities spelt by one tag per word (`B-PER I-PER O`), as seqeval and the CoNLL script read them.

/// An entity: its type and the first and last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entity<'a> {
    /// What follows `B-`, `I-`, ... in the tags.
    pub kind: &'a str,
    /// First word.
    pub first: usize,
    /// Last word.
    pub last: usize,
}

/// The entities of a sentence, by seqeval's default (lenient) reading of IOB and BIOES tags.
pub fn entities<'a>(tags: &[&'a str]) -> Vec<Entity<'a>> {
    let mut found = Vec::new();
    let (mut before, mut kind_before, mut first) = ('O', "", 0);
    for (i, tag) in tags.iter().copied().chain(["O"]).enumerate() {
        let (mark, kind) = split(tag);
        let ends = match (before, mark) {
            ('E' | 'S', _) => true,
            ('B' | 'I', 'B' | 'S' | 'O') => true,
            _ => before != 'O' && before != '.' && kind_before != kind,
        };
        if ends {
            found.push(Entity { kind: kind_before, first, last: i - 1 });
        }
        let starts = match (before, mark) {
            (_, 'B' | 'S') => true,
            ('E' | 'S' | 'O', 'E' | 'I') => true,
            _ => mark != 'O' && mark != '.' && kind_before != kind,
        };
        if starts {
            first = i;
        }
        (before, kind_before) = (mark, kind);
    }
    found
}

/// `B-PER` is `B` and `PER`; a type that is empty is `_`.
fn split(tag: &str) -> (char, &str) {
    let mut letters = tag.chars();
    let mark = letters.next().unwrap_or('O');
    let rest = letters.as_str();
    let kind = rest.split_once('-').map_or(rest, |(_, kind)| kind);
    (mark, if kind.is_empty() { "_" } else { kind })
}

/// Micro-averaged F1 over entities from counts: right in both, predicted, and truly there.
pub fn entity_f1(right: usize, predicted: usize, gold: usize) -> f64 {
    super::f1(right, predicted - right, gold - right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tags: &str) -> Vec<(&str, usize, usize)> {
        let tags: Vec<&str> = tags.split_whitespace().collect();
        entities(&tags).into_iter().map(|e| (e.kind, e.first, e.last)).collect()
    }

    // Values computed with seqeval 1.2.2.
    #[test]
    fn as_seqeval() {
        assert_eq!(
            read("I-A I-A I-B O E-B S-C B-C I-A E-A I-A"),
            [("A", 0, 1), ("B", 2, 2), ("B", 4, 4), ("C", 5, 5), ("C", 6, 6), ("A", 7, 8), ("A", 9, 9)]
        );
        assert_eq!(read("B-A B-A L-A U-B O I-B"), [("A", 0, 0), ("A", 1, 2), ("B", 3, 3), ("B", 5, 5)]);
        // The example of seqeval's own documentation: one of two entities is right.
        let gold = "O O O B-MISC I-MISC I-MISC O";
        let predicted = "O O B-MISC I-MISC I-MISC I-MISC O";
        assert!(read(gold) != read(predicted));
        assert_eq!(entity_f1(1, 2, 2), 0.5);
    }

    proptest::proptest! {
        #[test]
        fn never_panics(tags in proptest::collection::vec("[BIEOSé.-]{0,3}", 0..12)) {
            let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
            let found = entities(&tags);
            proptest::prop_assert!(found.iter().all(|e| e.first <= e.last && e.last < tags.len()));
        }
    }
}
