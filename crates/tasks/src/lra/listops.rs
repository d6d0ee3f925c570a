//! ListOps (Nangia and Bowman 2018, <https://arxiv.org/abs/1804.06028>) with the arena's lengths.

use super::{INTERRUPTED, Part, Set, Task, Wanted};
use crate::random::Random;
use sparing_model::Error;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Different tokens: ten digits, four operators that open a list, and what closes it.
pub(crate) const TOKENS: usize = 15;
const MIN: u8 = 10;
const MAX: u8 = 11;
const MED: u8 = 12;
const CLOSE: u8 = 14;

/// Draws in a row without a new expression before it is given up, and after how many of them Ctrl-C is looked for.
const PATIENCE: u64 = 5_000_000;
const LOOK: u64 = 100_000;

/// How expressions are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Lists within lists; the root is at depth 1.
    pub depth: usize,
    /// Most arguments of an operator; the least is 2.
    pub arguments: usize,
    /// Expressions have more tokens than this
    pub shortest: usize,
    /// and fewer than this.
    pub longest: usize,
}

impl Rules {
    /// An expression, or nothing if it is too long.
    fn draw(&self, random: &mut Random, depth: usize, out: &mut Vec<u8>) -> Option<()> {
        if out.len() >= self.longest {
            return None;
        }
        // A node is an operator with probability 1/4, up to a depth.
        if depth >= self.depth || random.below(4) != 0 {
            out.push(random.below(10) as u8);
            return Some(());
        }
        out.push(MIN + random.below(4) as u8);
        for _ in 0..2 + random.below(self.arguments - 1) {
            self.draw(random, depth + 1, out)?;
        }
        out.push(CLOSE);
        Some(())
    }

    /// An expression that is long enough and not too long, if that is what was drawn.
    fn attempt(&self, random: &mut Random) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.draw(random, 1, &mut out)?;
        (out.len() > self.shortest && out.len() < self.longest).then_some(out)
    }
}

/// What an expression comes to; `None` if it is none.
pub fn value(tokens: &[u8]) -> Option<u8> {
    let mut lists: Vec<(u8, Vec<u8>)> = vec![(MAX, vec![])];
    for token in tokens {
        match *token {
            digit @ 0..=9 => lists.last_mut()?.1.push(digit),
            operator @ MIN..CLOSE => lists.push((operator, vec![])),
            CLOSE => {
                let (operator, arguments) = lists.pop()?;
                let result = apply(operator, arguments)?;
                lists.last_mut()?.1.push(result);
            }
            _ => return None,
        }
    }
    match lists.as_slice() {
        [(_, results)] if results.len() == 1 => results.first().copied(),
        _ => None,
    }
}

fn apply(operator: u8, mut arguments: Vec<u8>) -> Option<u8> {
    match operator {
        MIN => arguments.into_iter().min(),
        MAX => arguments.into_iter().max(),
        MED => {
            arguments.sort_unstable();
            let middle = arguments.len() / 2;
            // The median of an even number of digits is truncated.
            match (arguments.len(), arguments.len() % 2) {
                (0, _) => None,
                (_, 1) => Some(arguments[middle]),
                _ => Some((arguments[middle - 1] + arguments[middle]) / 2),
            }
        }
        _ => Some((arguments.iter().map(|a| u32::from(*a)).sum::<u32>() % 10) as u8),
    }
}

pub(crate) fn make(part: Part, wanted: &Wanted, told: &mut dyn FnMut(usize) -> bool) -> Result<Set, Error> {
    let rules = Rules { depth: 10, arguments: 10, shortest: wanted.shortest, longest: wanted.length };
    let mut random = Random::new(wanted.seed);
    let mut seen = HashSet::new();
    let mut set = Set::new(Task::Listops);
    // No expression is in two parts: they are drawn one after the other, those to evaluate on first.
    for drawn in [Part::Test, Part::Dev, Part::Train] {
        let (mut done, mut fruitless) = (0, 0);
        while done < wanted.count(drawn) {
            fruitless += 1;
            if fruitless % LOOK == 0 && !told(set.len()) {
                return Err(Error::new(INTERRUPTED));
            }
            if fruitless > PATIENCE {
                return Err(Error::new(format!(
                    "ListOps: {PATIENCE} draws in a row gave no new expression of more than {} and fewer than {} tokens; \
                     ask for fewer with --examples, or change --length or --min-length",
                    wanted.shortest, wanted.length
                )));
            }
            let Some(tokens) = rules.attempt(&mut random) else { continue };
            let mut hash = DefaultHasher::new();
            tokens.hash(&mut hash);
            if !seen.insert(hash.finish()) {
                continue;
            }
            (done, fruitless) = (done + 1, 0);
            if drawn == part {
                let value = value(&tokens).ok_or_else(|| Error::new("ListOps: an expression without a value"))?;
                set.push(&[&tokens], value);
                if done.is_multiple_of(1000) && !told(done) {
                    return Err(Error::new(INTERRUPTED));
                }
            }
        }
        if drawn == part {
            break;
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[MAX 4 3 [MIN 2 3] 1 0 [MED 1 5 8 9 2]]` is 5: the example of the benchmark.
    #[test]
    fn the_published_example() {
        let tokens = [11, 4, 3, 10, 2, 3, 14, 1, 0, 12, 1, 5, 8, 9, 2, 14, 14];
        assert_eq!(value(&tokens), Some(5));
        assert_eq!(value(&[12, 1, 2, 14]), Some(1), "a median of two is truncated");
        assert_eq!(value(&[13, 7, 8, 9, 14]), Some(4), "a sum is taken modulo ten");
        assert_eq!(value(&[3]), Some(3));
        for broken in [&[14][..], &[11], &[10, 14], &[1, 2], &[15]] {
            assert_eq!(value(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn expressions_follow_the_rules() {
        let wanted = Wanted { examples: 300, length: 2000, shortest: 500, seed: 3 };
        let set = make(Part::Train, &wanted, &mut |_| true).unwrap();
        assert_eq!(set.len(), 300);
        let mut labels = [0; 10];
        let (mut operators, mut arguments) = (0usize, 0usize);
        for number in 0..set.len() {
            let example = set.example(number);
            let tokens = example.sequences[0];
            assert!(tokens.len() > 500 && tokens.len() < 2000);
            assert_eq!(value(tokens), Some(example.label));
            labels[usize::from(example.label)] += 1;
            let (mut depth, mut deepest) = (1, 0);
            for token in tokens {
                match *token {
                    CLOSE => depth -= 1,
                    MIN..CLOSE => {
                        deepest = deepest.max(depth);
                        depth += 1;
                        operators += 1;
                    }
                    _ => {}
                }
                arguments += usize::from(*token != CLOSE);
            }
            assert!(depth == 1 && deepest < 10, "{deepest}");
        }
        assert!(labels.iter().all(|count| *count > 0), "{labels:?}");
        // Every token but the root and the ends is an argument; long expressions have more of them than 6 on average.
        let mean = arguments as f64 / operators as f64;
        assert!((5.5..7.5).contains(&mean), "{mean}");
    }

    /// Where there are not so many expressions, it ends, and Ctrl-C ends it sooner.
    #[test]
    fn too_many_are_refused() {
        let wanted = Wanted { examples: 100, length: 4, shortest: 0, seed: 0 };
        let message = make(Part::Train, &wanted, &mut |_| true).unwrap_err().to_string();
        assert!(message.contains("--examples"), "{message}");
        assert_eq!(make(Part::Train, &wanted, &mut |_| false).unwrap_err().to_string(), INTERRUPTED);
    }

    #[test]
    fn the_seed_decides_and_parts_are_apart() {
        let wanted = Wanted { examples: 100, length: 60, shortest: 10, seed: 1 };
        let of = |part, wanted: &Wanted| make(part, wanted, &mut |_| true).unwrap();
        assert_eq!(of(Part::Train, &wanted), of(Part::Train, &wanted));
        assert_ne!(of(Part::Train, &wanted), of(Part::Train, &Wanted { seed: 2, ..wanted.clone() }));
        let test = of(Part::Test, &wanted);
        let train = of(Part::Train, &wanted);
        let all: HashSet<_> = (0..train.len()).map(|i| train.example(i).sequences[0]).collect();
        assert!((0..test.len()).all(|i| !all.contains(test.example(i).sequences[0])));
    }
}
