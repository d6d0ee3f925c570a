//! A head that answers per token: labels of words, and the spans they form.

use super::{Item, Session, largest, softmax};
use crate::console::Out;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::table::{Align, Table, percent};
use serde::Serialize;

/// A word, or a span of words, with its label.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Span<'a> {
    text: &'a str,
    label: &'a str,
    score: f32,
    /// First character.
    start: usize,
    /// One past the last character.
    end: usize,
    /// The same in bytes.
    #[serde(skip)]
    bytes: (usize, usize),
}

#[derive(Serialize)]
struct Answer<'a> {
    /// Spans of words with one label, where labels are `B-...` and `I-...`.
    #[serde(skip_serializing_if = "Option::is_none")]
    entities: Option<Vec<Span<'a>>>,
    words: Vec<Span<'a>>,
}

/// Runs the head on all inputs.
pub(super) fn run(session: &Session<'_>, inputs: &mut Inputs, out: &mut Out) -> Result<(), Failure> {
    let labels = &session.model.architecture.head.labels;
    let spans = labels.iter().any(|label| label.starts_with("B-") || label.starts_with("I-"));
    session.each(inputs, out, None, &mut |item, logits, width, out| {
        let words = words(item, logits, width, labels);
        let entities = spans.then(|| entities(&item.input.text, &words));
        if session.args.json {
            return out.json(&item.line(Answer { entities, words }));
        }
        if !session.single {
            out.line(&out.paint.faint(&item.excerpt(0)))?;
        }
        let mut table = Table::new(&[("text", Align::Left), ("label", Align::Left), ("score", Align::Right)]);
        for span in entities.as_ref().unwrap_or(&words) {
            table.row([span.text.to_string(), span.label.to_string(), percent(f64::from(span.score))]);
        }
        out.text(&table.text(out.paint))
    })
}

/// Words with the label of their first token, as the reference's `first` strategy does.
fn words<'a>(item: &'a Item, logits: &[f32], width: usize, labels: &'a [String]) -> Vec<Span<'a>> {
    let text = &item.input.text;
    let mut words: Vec<Span<'a>> = Vec::new();
    let mut characters = Characters::new(text);
    for (i, row) in logits.chunks(width.max(1)).enumerate() {
        let first_text = item.encoded.texts.get(i) == Some(&Some(0));
        let Some(&bytes) = item.encoded.offsets.get(i).filter(|(start, end)| first_text && start < end) else {
            continue;
        };
        if let Some(word) = words.last_mut().filter(|word| continues(text, word.bytes.1, bytes.0)) {
            word.bytes.1 = bytes.1;
            word.end = characters.at(bytes.1);
            word.text = text.get(word.bytes.0..bytes.1).unwrap_or_default();
            continue;
        }
        let p = softmax(row);
        let best = largest(&p, 1).first().copied().unwrap_or(0);
        words.push(Span {
            text: text.get(bytes.0..bytes.1).unwrap_or_default(),
            label: labels.get(best).map_or("", String::as_str),
            score: p.get(best).copied().unwrap_or(f32::NAN),
            start: characters.at(bytes.0),
            end: characters.at(bytes.1),
            bytes,
        });
    }
    words
}

/// Whether a token that begins at `start` goes on with the word that ends at `end`: nothing between, letters on both sides.
fn continues(text: &str, end: usize, start: usize) -> bool {
    let before = text.get(..end).and_then(|t| t.chars().next_back());
    let after = text.get(start..).and_then(|t| t.chars().next());
    start == end && before.is_some_and(char::is_alphanumeric) && after.is_some_and(char::is_alphanumeric)
}

/// Joins words: `B-` begins a span, `I-` of the same label goes on with it, anything else ends it.
fn entities<'a>(text: &'a str, words: &[Span<'a>]) -> Vec<Span<'a>> {
    let mut found: Vec<Span<'a>> = Vec::new();
    let mut scores: Vec<f32> = Vec::new();
    let mut open = false;
    for word in words {
        let (begins, label) = match (word.label.strip_prefix("B-"), word.label.strip_prefix("I-")) {
            (Some(label), _) => (true, label),
            (_, Some(label)) => (false, label),
            _ => {
                open = false;
                continue;
            }
        };
        match found.last_mut() {
            Some(span) if open && !begins && span.label == label => {
                span.bytes.1 = word.bytes.1;
                span.end = word.end;
                span.text = text.get(span.bytes.0..span.bytes.1).unwrap_or_default();
                scores.push(word.score);
                span.score = scores.iter().sum::<f32>() / scores.len() as f32;
            }
            _ => {
                found.push(Span { label, ..word.clone() });
                scores = vec![word.score];
            }
        }
        open = true;
    }
    found
}

/// From byte to character positions, looking at every byte only once as long as positions ascend.
pub(super) struct Characters<'a> {
    text: &'a str,
    byte: usize,
    character: usize,
}

impl<'a> Characters<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Characters { text, byte: 0, character: 0 }
    }

    pub(super) fn at(&mut self, byte: usize) -> usize {
        if byte < self.byte {
            (self.byte, self.character) = (0, 0);
        }
        let between = self.text.as_bytes().get(self.byte..byte).unwrap_or_default();
        // Every byte that does not continue a character begins one.
        self.character += between.iter().filter(|b| (**b & 0xc0) != 0x80).count();
        self.byte = byte;
        self.character
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word<'a>(text: &'a str, label: &'a str, start: usize) -> Span<'a> {
        let end = start + text.len();
        Span { text, label, score: 0.5, start, end, bytes: (start, end) }
    }

    #[test]
    fn words_join_into_entities() {
        let text = "Ann saw New York and Bob";
        let words = [
            word("Ann", "B-PER", 0),
            word("saw", "O", 4),
            word("New", "B-LOC", 8),
            word("York", "I-LOC", 12),
            word("and", "O", 17),
            word("Bob", "I-PER", 21),
        ];
        let found: Vec<(&str, &str)> = entities(text, &words).iter().map(|s| (s.text, s.label)).collect();
        assert_eq!(found, [("Ann", "PER"), ("New York", "LOC"), ("Bob", "PER")]);
    }

    #[test]
    fn characters_are_counted_not_bytes() {
        let mut characters = Characters::new("aé漢b");
        assert_eq!(
            [characters.at(1), characters.at(3), characters.at(6), characters.at(7), characters.at(3)],
            [1, 2, 3, 4, 2]
        );
    }

    #[test]
    fn only_letters_continue_a_word() {
        assert!(continues("playing", 4, 4));
        assert!(!continues("it's", 2, 2));
        assert!(!continues("two words", 3, 4));
    }
}
