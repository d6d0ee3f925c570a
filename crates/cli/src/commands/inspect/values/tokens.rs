//! Tokens as people read them: the piece of text each stands for, and which belong to one word.

use serde::Serialize;
use sparing_model::Encoded;

/// One token.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Token {
    /// As the vocabulary spells it.
    pub token: String,
    /// The piece of text it stands for; a special token's own name.
    pub text: String,
    /// It goes on with the word of the token before.
    pub joined: bool,
}

/// The tokens of one or two texts.
pub(super) fn tokens(encoded: &Encoded, texts: [Option<&str>; 2]) -> Vec<Token> {
    let piece = |i: usize| {
        let text = texts[usize::from(encoded.texts[i]?)]?;
        let (start, end) = encoded.offsets[i];
        text.get(start..end)
    };
    let joined = |i: usize| {
        let before = i.checked_sub(1)?;
        let touching = encoded.texts[i] == encoded.texts[before] && encoded.offsets[i].0 == encoded.offsets[before].1;
        // Punctuation touches a word and is none of it.
        let last = piece(before)?.chars().next_back()?;
        let first = piece(i)?.chars().next()?;
        Some(touching && last.is_alphanumeric() && first.is_alphanumeric())
    };
    let token = |i: usize| {
        let token = &encoded.tokens[i];
        // Half a character has no text of its own, and a byte-level token may begin with its space.
        let text = piece(i).map(str::trim).filter(|text| !text.is_empty()).unwrap_or(token);
        Token { token: token.clone(), text: text.to_string(), joined: joined(i).unwrap_or(false) }
    };
    (0..encoded.tokens.len()).map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparing_model::Sequence;

    #[test]
    fn pieces_of_a_word_are_joined_and_punctuation_is_not() {
        let encoded = Encoded {
            sequence: Sequence::default(),
            tokens: ["[CLS]", "un", "##true", ".", "[SEP]"].map(String::from).to_vec(),
            offsets: vec![(0, 0), (0, 2), (2, 6), (6, 7), (0, 0)],
            texts: vec![None, Some(0), Some(0), Some(0), None],
            truncated: false,
        };
        let tokens = tokens(&encoded, [Some("Untrue."), None]);
        let shown: Vec<(&str, bool)> = tokens.iter().map(|t| (t.text.as_str(), t.joined)).collect();
        assert_eq!(shown, [("[CLS]", false), ("Un", false), ("true", true), (".", false), ("[SEP]", false)]);
    }
}
