//! Where tokens stand in the picture: columns as wide as their words, in bands one below the other like lines of text.

use super::tokens::Token;
use crate::console;
use unicode_width::UnicodeWidthStr;

/// Width of one letter of the tokens' font, 12 px and of one width.
const LETTER: f64 = 7.25;
/// Between a word and the edge of its column.
const PADDING: f64 = 5.0;
/// Between two words.
const GAP: f64 = 5.0;
/// Room for `100`.
const NARROWEST: f64 = 27.0;
/// Letters of a token that are shown.
const LONGEST: usize = 24;

/// One line of the text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Band {
    pub columns: Vec<Column>,
    pub width: f64,
}

/// One token.
#[derive(Debug, PartialEq)]
pub(super) struct Column {
    pub token: usize,
    /// What is written above.
    pub label: String,
    pub x: f64,
    pub width: f64,
    /// It touches the column before: two pieces of a word.
    pub joined: bool,
}

/// Breaks the tokens into a first band of at most `first` and others of at most `rest`, as few as they can be, and those
/// about as long as each other.
pub(super) fn balanced(tokens: &[Token], first: f64, rest: f64) -> Vec<Band> {
    let fewest = bands(tokens, first, rest);
    // In steps that nobody sees; the first that needs no further band.
    let narrower = (1..20).map(|step| bands(tokens, first, rest * f64::from(step) / 20.0));
    narrower.into_iter().find(|bands| bands.len() == fewest.len()).unwrap_or(fewest)
}

/// The same without balance: bands are filled one after the other, and broken between words where they can be.
fn bands(tokens: &[Token], first: f64, rest: f64) -> Vec<Band> {
    let mut bands = vec![Band::default()];
    let mut begin = 0;
    while begin < tokens.len() {
        let end = (begin + 1..tokens.len()).find(|i| !tokens[*i].joined).unwrap_or(tokens.len());
        let word: f64 = (begin..end).map(|i| width(&label(&tokens[i]))).sum();
        let limit = if bands.len() == 1 { first } else { rest };
        let used = bands.last().map_or(0.0, |band| band.width);
        if used > 0.0 && used + GAP + word > limit {
            bands.push(Band::default());
        }
        for (i, token) in tokens.iter().enumerate().take(end).skip(begin) {
            let limit = if bands.len() == 1 { first } else { rest };
            place(&mut bands, i, token, i > begin, limit);
        }
        begin = end;
    }
    bands
}

/// Puts a token at the end of the last band, or on a new one where a single word is wider than a band.
fn place(bands: &mut Vec<Band>, token: usize, of: &Token, joined: bool, limit: f64) {
    let label = label(of);
    let width = width(&label);
    if bands.last().is_none_or(|band| band.width > 0.0 && band.width + width > limit) {
        bands.push(Band::default());
    }
    let Some(band) = bands.last_mut() else { return };
    let joined = joined && !band.columns.is_empty();
    let x = if joined || band.columns.is_empty() { band.width } else { band.width + GAP };
    band.columns.push(Column { token, label, x, width, joined });
    band.width = x + width;
}

fn label(token: &Token) -> String {
    console::shorten(&token.text, LONGEST)
}

fn width(label: &str) -> f64 {
    (label.width() as f64 * LETTER + 2.0 * PADDING).max(NARROWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str, joined: bool) -> Token {
        Token { token: text.to_string(), text: text.to_string(), joined }
    }

    #[test]
    fn words_stay_together_and_no_band_is_too_wide() {
        let pieces = ["a", "word", "of", "seven", "pieces"].map(|text| token(text, false));
        let mut tokens = pieces.to_vec();
        tokens.push(token("more", true));
        let bands = bands(&tokens, 120.0, 200.0);
        let words: Vec<Vec<usize>> = bands.iter().map(|b| b.columns.iter().map(|c| c.token).collect()).collect();
        assert_eq!(words, [vec![0, 1, 2], vec![3, 4, 5]]);
        assert!(
            bands[1].columns[2].joined && bands[1].columns[2].x == bands[1].columns[1].x + bands[1].columns[1].width
        );
        assert!(bands[0].width <= 120.0 && bands[1].width <= 200.0, "{bands:?}");
    }

    #[test]
    fn the_last_band_is_not_left_with_a_word() {
        let tokens: Vec<Token> = (0..22).map(|_| token("word", false)).collect();
        let lengths = |bands: &[Band]| bands.iter().map(|b| b.columns.len()).collect::<Vec<_>>();
        assert_eq!(lengths(&bands(&tokens, 100.0, 440.0)), [2, 10, 10]);
        assert_eq!(lengths(&balanced(&tokens[..14], 100.0, 440.0)), [2, 6, 6]);
    }

    #[test]
    fn a_word_wider_than_a_band_is_broken() {
        let tokens: Vec<Token> = (0..9).map(|i| token("piece", i > 0)).collect();
        let bands = bands(&tokens, 100.0, 100.0);
        assert_eq!(bands.iter().map(|b| b.columns.len()).sum::<usize>(), 9);
        assert!(bands.iter().all(|b| b.width <= 100.0 && !b.columns[0].joined), "{bands:?}");
    }
}
