//! How much longer the steps of a tokenizer can make a text.
//!
//! Forty steps that each write a letter twice are a file of a few kilobytes, and make a terabyte of one letter. No step
//! of a real tokenizer comes near that, so the file is read for it, and refused before any text is given to it.

use crate::Error;
use serde::Serialize;
use serde_json::Value;

/// Times as long: SentencePiece's longest replacement has 33 bytes, and a handful of steps may double.
const MOST: f64 = 2000.0;

/// Refuses a tokenizer whose normalizer, pre-tokenizer or decoder can make a text more than [`MOST`] times as long.
pub(super) fn check(tokenizer: &tokenizers::Tokenizer, file: &str) -> Result<(), Error> {
    let steps = [
        ("normalizer", described(tokenizer.get_normalizer())),
        ("pre_tokenizer", described(tokenizer.get_pre_tokenizer())),
        ("decoder", described(tokenizer.get_decoder())),
    ];
    for (part, step) in steps {
        if growth(&step) > MOST {
            return Err(Error::new(format!(
                "{file}: its {part} could make a text more than {MOST} times as long; take out what repeats or inserts"
            )));
        }
    }
    Ok(())
}

/// As the file has it.
fn described(step: Option<&impl Serialize>) -> Value {
    serde_json::to_value(step).unwrap_or_default()
}

/// Never too little; too much only where a regular expression looks as if it could match nothing.
fn growth(step: &Value) -> f64 {
    let text = |field: &str| step[field].as_str().unwrap_or_default();
    match text("type") {
        "Sequence" => {
            let lists =
                ["normalizers", "pretokenizers", "decoders"].into_iter().filter_map(|list| step[list].as_array());
            lists.flatten().map(growth).product()
        }
        "Replace" => replaced(&step["pattern"], text("content").len() as f64),
        "Prepend" => 1.0 + text("prepend").len() as f64,
        "Precompiled" => longest(text("precompiled_charsmap")) as f64,
        // A byte becomes a character of two; a space comes between any two characters where the suffix is empty.
        "ByteLevel" | "BPEDecoder" | "CTC" => 2.0,
        _ => 1.0,
    }
}

/// Without any of these, a regular expression matches at least a byte.
const MAYBE_NOTHING: [char; 8] = ['*', '?', '|', '^', '$', '\\', '{', '('];

fn replaced(pattern: &Value, content: f64) -> f64 {
    match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
        (Some(literal), _) if !literal.is_empty() => (content / literal.len() as f64).max(1.0),
        (_, Some(regex)) if !regex.is_empty() && !regex.contains(MAYBE_NOTHING) => content.max(1.0),
        // What matches nothing leaves all that was there and writes beside every byte.
        _ => 1.0 + content,
    }
}

/// Bytes of the longest replacement of a SentencePiece table: the size of its trie, the trie, then texts that end in 0.
fn longest(table: &str) -> usize {
    let bytes = from_base64(table);
    let Some((size, rest)) = bytes.split_first_chunk::<4>() else { return 1 };
    let texts = rest.get(u32::from_le_bytes(*size) as usize..).unwrap_or(rest);
    texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or_default().max(1)
}

/// The library has checked it already: what is no digit is left out.
fn from_base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(|c| digit(c).map(u32::from)).collect();
    let whole = |four: &[u32]| {
        let number = four.iter().chain([&0; 3]).take(4).fold(0, |number, digit| number << 6 | digit);
        number.to_be_bytes()[1..].iter().copied().take(four.len() * 6 / 8).collect::<Vec<u8>>()
    };
    digits.chunks(4).flat_map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_grows_is_counted() {
        let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
        let regex = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"Regex": from}, "content": to});
        let twice = json!({"type": "Sequence", "normalizers": [replace("a", "bb"), replace("b", "aa")]});
        for (step, times) in [
            (Value::Null, 1.0),
            (json!({"type": "Lowercase"}), 1.0),
            (replace("``", "\""), 1.0),
            (replace(" ", "▁"), 3.0),
            (replace("", "ab"), 3.0),
            (regex("[\r\n]", " "), 1.0),
            (regex("(?=a)", "aa"), 3.0),
            (json!({"type": "Prepend", "prepend": "▁"}), 4.0),
            (json!({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]}), 4.0),
            (json!({"type": "Sequence", "decoders": [twice, replace("a", "xyz")]}), 12.0),
        ] {
            assert_eq!(growth(&step), times, "{step}");
        }
    }

    #[test]
    fn tables_are_measured() {
        assert_eq!(from_base64("aGVsbG8="), b"hello");
        assert_eq!(from_base64("aGVsbG8h"), b"hello!");
        // A trie of four bytes; "ab" and "xyz".
        assert_eq!(longest("BAAAAAAAAABhYgB4eXoA"), 3);
        assert_eq!(longest(""), 1);
    }
}
