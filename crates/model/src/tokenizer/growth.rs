//! How much longer the steps of a tokenizer can make a text.
//!
//! Forty steps that each write a letter twice are a file of a few kilobytes, and make a terabyte of one letter. No step
//! of a real tokenizer comes near that, so the file is read for it, and refused before any text is given to it.

use crate::Error;
use serde::Serialize;
use serde_json::Value;

/// Times as long: SentencePiece's longest replacement has 33 bytes, a space becomes a character of 3, and a handful of
/// steps may double.
const MOST: f64 = 2000.0;

/// Refuses a tokenizer that can make a text more than [`MOST`] times as long before it is cut into tokens, or the tokens
/// when it puts them together again.
pub(super) fn check(tokenizer: &tokenizers::Tokenizer, file: &str) -> Result<(), Error> {
    let normalizer = growth(&described(tokenizer.get_normalizer()));
    let pre_tokenizer = growth(&described(tokenizer.get_pre_tokenizer()));
    let parts = [
        ("normalizer", normalizer),
        ("pre_tokenizer", pre_tokenizer),
        ("normalizer and pre_tokenizer together", normalizer * pre_tokenizer),
        ("decoder", growth(&described(tokenizer.get_decoder()))),
    ];
    match parts.into_iter().find(|(_, times)| *times > MOST) {
        Some((part, _)) => Err(Error::new(format!(
            "{file}: its {part} could make a text more than {MOST} times as long; take out what repeats or inserts"
        ))),
        None => Ok(()),
    }
}

/// As the file has it.
fn described(step: Option<&impl Serialize>) -> Value {
    serde_json::to_value(step).unwrap_or_default()
}

/// How many times as long a text can become in one step after the other. Never too little, but for what a text may bring
/// along: its own characters can be decomposed or lowered once, which is no growth without end.
fn growth(step: &Value) -> f64 {
    counted(step, &mut false)
}

/// `written` says whether the steps before have written what is not ASCII: then others can make that longer, time and
/// again.
fn counted(step: &Value, written: &mut bool) -> f64 {
    let text = |field: &str| step[field].as_str().unwrap_or_default();
    let bytes = |field: &str| text(field).len() as f64;
    let (times, writes) = match text("type") {
        "Sequence" => {
            let lists =
                ["normalizers", "pretokenizers", "decoders"].into_iter().filter_map(|list| step[list].as_array());
            return lists.flatten().map(|step| counted(step, written)).product();
        }
        "Replace" => (replaced(&step["pattern"], bytes("content")), !text("content").is_ascii()),
        "Prepend" => (1.0 + bytes("prepend"), !text("prepend").is_ascii()),
        // It stands before every piece, and another step may have cut a text into its characters.
        "Metaspace" => (1.0 + bytes("replacement"), true),
        "Precompiled" => (longest(text("precompiled_charsmap")) as f64, true),
        // A byte becomes a character of two, and so does the space that comes before every piece.
        "ByteLevel" if step["add_prefix_space"] == true => (4.0, true),
        "ByteLevel" => (2.0, true),
        // A space comes before every token, or between any two characters where the suffix is empty.
        "WordPiece" | "BPEDecoder" | "CTC" => (2.0, false),
        // U+FDFA, of 3 bytes, is 18 characters.
        "NFKC" | "NFKD" if *written => (11.0, false),
        // U+0390, of 2 bytes, is 3 characters of 2.
        "NFC" | "NFD" | "BertNormalizer" if *written => (3.0, false),
        // U+023A, of 2 bytes, is one of 3.
        "Lowercase" if *written => (1.5, false),
        _ => (1.0, false),
    };
    *written |= writes;
    times
}

fn replaced(pattern: &Value, content: f64) -> f64 {
    let matched = match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
        (Some(literal), _) => literal.len(),
        (_, Some(regex)) => least(regex),
        _ => 0,
    };
    match matched {
        // What matches nothing leaves all that was there and writes beside every byte.
        0 => 1.0 + content,
        bytes => (content / bytes as f64).max(1.0),
    }
}

/// Bytes that any match of a regular expression has; 0 also for those that look around or back.
fn least(regex: &str) -> usize {
    let parsed = regex_syntax::parse(regex);
    parsed.ok().and_then(|parsed| parsed.properties().minimum_len()).unwrap_or_default()
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
        let normalizers = |steps: &[Value]| json!({"type": "Sequence", "normalizers": steps});
        let twice = normalizers(&[replace("a", "bb"), replace("b", "aa")]);
        let (nfkd, lower) = (json!({"type": "NFKD"}), json!({"type": "Lowercase"}));
        for (step, times) in [
            (Value::Null, 1.0),
            (json!({"type": "Lowercase"}), 1.0),
            (replace("``", "\""), 1.0),
            (replace(" ", "▁"), 3.0),
            (replace("", "ab"), 3.0),
            (regex("[\r\n]", " "), 1.0),
            (regex("\\s+", " "), 1.0),
            (regex("^\\s+|\\s+$", ""), 1.0),
            (regex(" {2,}", "▁"), 1.5),
            (regex("(?i)(?:ab|c)d?", "xyz"), 3.0),
            (regex("\\s*", " "), 2.0),
            (regex("(?=a)", "aa"), 3.0),
            (regex("(a)\\1", "aa"), 3.0),
            (json!({"type": "Prepend", "prepend": "▁"}), 4.0),
            (json!({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]}), 4.0),
            (json!({"type": "ByteLevel", "add_prefix_space": true}), 4.0),
            (json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}), 4.0),
            (normalizers(&[nfkd.clone(), lower.clone(), replace("a", "b"), nfkd.clone()]), 1.0),
            (normalizers(&[replace("ل", "ﷺ"), nfkd.clone(), lower.clone()]), 1.5 * 11.0 * 1.5),
            (normalizers(&[replace("ⱥ", "ȺȺ"), lower.clone()]), 4.0 / 3.0 * 1.5),
            (json!({"type": "Sequence", "decoders": [twice, replace("a", "xyz")]}), 12.0),
        ] {
            assert_eq!(growth(&step), times, "{step}");
        }
    }

    /// The steps of families that grow most.
    #[test]
    fn what_is_in_use_stays() {
        let step = |name: &str| json!({"type": name});
        let replace = |from: Value, to: &str| json!({"type": "Replace", "pattern": from, "content": to});
        // A replacement of 35 bytes.
        let table = "AAAAAGFh".to_string() + &"YWFh".repeat(11);
        assert_eq!(longest(&table), 35);
        let precompiled = json!({"type": "Precompiled", "precompiled_charsmap": table});
        let spaces = replace(json!({"Regex": " {2,}"}), "▁");
        let quotes = replace(json!({"String": "``"}), "\"");
        let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"});
        let albert = json!([quotes, step("NFKD"), step("StripAccents"), step("Lowercase"), precompiled, spaces]);
        let cased = json!([quotes, precompiled, spaces, step("Lowercase")]);
        let nfkc = json!([precompiled, step("NFKC")]);
        let llama = json!([json!({"type": "Prepend", "prepend": "▁"}), replace(json!({"String": " "}), "▁")]);
        for steps in [albert, cased, nfkc, llama] {
            let times = growth(&json!({"type": "Sequence", "normalizers": steps})) * growth(&metaspace);
            assert!(times <= MOST, "{times}: {steps}");
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
