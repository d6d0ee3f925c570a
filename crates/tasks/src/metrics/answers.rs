//! SQuAD's exact match and F1, as the official scripts compute them.

use std::collections::HashMap;

/// Lower case, without ASCII punctuation, without the articles a, an and the, words separated by one space.
pub fn normalise_answer(text: &str) -> String {
    let lower = text.to_lowercase();
    let bare: String = lower.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let mut spaced = String::with_capacity(bare.len());
    let mut word = String::new();
    // Articles are whole words in the sense of a regular expression's \b: "the–end" loses its article too.
    for c in bare.chars().chain([' ']) {
        if c.is_alphanumeric() {
            word.push(c);
            continue;
        }
        spaced.push_str(if matches!(word.as_str(), "a" | "an" | "the") { " " } else { &word });
        word.clear();
        spaced.push(c);
    }
    let words: Vec<&str> = spaced.split(is_space).filter(|w| !w.is_empty()).collect();
    words.join(" ")
}

/// Python's `str.split` splits at the four information separators as well.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// 1 if the prediction is one of the accepted answers after normalisation, else 0. No accepted answer at
/// all means that the right prediction is the empty one.
pub fn answer_exact(accepted: &[&str], predicted: &str) -> f64 {
    let predicted = normalise_answer(predicted);
    best(accepted, |answer| f64::from(normalise_answer(answer) == predicted))
}

/// The best F1 over words against the accepted answers. No accepted answer at all means that the right
/// prediction is the empty one.
pub fn answer_f1(accepted: &[&str], predicted: &str) -> f64 {
    let predicted = normalise_answer(predicted);
    best(accepted, |answer| words_f1(&normalise_answer(answer), &predicted))
}

/// Accepted answers that are nothing after normalisation do not count if there are others (the v2 script).
fn best(accepted: &[&str], score: impl Fn(&str) -> f64) -> f64 {
    let real = accepted.iter().filter(|a| !normalise_answer(a).is_empty());
    real.map(|answer| score(answer)).reduce(f64::max).unwrap_or_else(|| score(""))
}

fn words_f1(gold: &str, predicted: &str) -> f64 {
    let count = |text: &str| text.split_whitespace().count();
    let (gold_words, predicted_words) = (count(gold), count(predicted));
    if gold_words == 0 || predicted_words == 0 {
        return f64::from(gold_words == predicted_words);
    }
    let mut left: HashMap<&str, usize> = HashMap::new();
    for word in gold.split_whitespace() {
        *left.entry(word).or_default() += 1;
    }
    let mut same = 0;
    for word in predicted.split_whitespace() {
        if let Some(n) = left.get_mut(word).filter(|n| **n > 0) {
            *n -= 1;
            same += 1;
        }
    }
    super::f1(same, predicted_words - same, gold_words - same)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Values computed with the official evaluate-v2.0.py functions.
    #[test]
    fn normalisation_as_official() {
        for (text, want) in [
            ("The  Denver Broncos!", "denver broncos"),
            ("an apple a day", "apple day"),
            ("Levi's Stadium.", "levis stadium"),
            ("the–end of theory", "–end of theory"),
            ("24–10", "24–10"),
            ("A.", ""),
            ("\u{a0}Über \t the\nTop", "über top"),
            ("$1.2 million", "12 million"),
        ] {
            assert_eq!(normalise_answer(text), want, "{text}");
        }
    }

    #[test]
    fn scores_as_official() {
        let accepted = ["Santa Clara, California", "Levi's Stadium"];
        assert_eq!(answer_exact(&accepted, "the Levi's Stadium"), 1.0);
        assert_eq!(answer_exact(&accepted, "Levi's"), 0.0);
        assert!((answer_f1(&accepted, "Levi's") - 2.0 / 3.0).abs() < 1e-12);
        assert!((answer_f1(&accepted, "in Santa Clara, Santa Clara") - 0.5).abs() < 1e-12);
        // Unanswerable: only silence is right.
        assert_eq!((answer_exact(&[], ""), answer_f1(&[], "")), (1.0, 1.0));
        assert_eq!((answer_exact(&[], "x"), answer_f1(&[], "x")), (0.0, 0.0));
        assert_eq!(answer_f1(&["x"], ""), 0.0);
    }

    proptest::proptest! {
        #[test]
        fn normalising_twice_changes_nothing_more(text: String) {
            let once = normalise_answer(&text);
            proptest::prop_assert_eq!(normalise_answer(&once), once.clone());
            proptest::prop_assert_eq!(answer_exact(&[&text], &text), 1.0);
            proptest::prop_assert_eq!(answer_f1(&[&text], &text), 1.0);
        }

        #[test]
        fn f1_is_symmetric_and_at_least_exact(a in "[a-e ]{0,12}", b in "[a-e ]{0,12}") {
            let (x, y) = (answer_f1(&[&a], &b), answer_f1(&[&b], &a));
            proptest::prop_assert!((x - y).abs() < 1e-12);
            proptest::prop_assert!(x >= answer_exact(&[&a], &b));
        }
    }
}
