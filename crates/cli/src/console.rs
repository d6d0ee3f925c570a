//! The terminal: colour only where someone sees it, one locked and buffered way out.

use crate::failure::Failure;
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use unicode_width::UnicodeWidthChar;

/// Escape codes, or none.
#[derive(Debug, Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    /// Colour for a stream that is a terminal, unless `NO_COLOR` (<https://no-color.org>) or a dumb terminal forbids it.
    fn for_stream(is_terminal: bool) -> Paint {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Paint(is_terminal && !forbidden && !dumb)
    }

    /// No colour at all.
    #[cfg(test)]
    pub fn none() -> Paint {
        Paint(false)
    }

    /// For standard output.
    pub fn stdout() -> Paint {
        Paint::for_stream(io::stdout().is_terminal())
    }

    /// For standard error.
    pub fn stderr() -> Paint {
        Paint::for_stream(io::stderr().is_terminal())
    }

    /// Whether there is colour.
    pub fn is_on(self) -> bool {
        self.0
    }

    /// On a ground that is the darker the larger the share, from 0 to 1.
    pub fn shade(self, share: f32, text: &str) -> String {
        let step = (share.clamp(0.0, 1.0) * (SHADES.len() - 1) as f32).round() as usize;
        let (ground, ink) = SHADES[step];
        self.wrap(&format!("38;5;{ink};48;5;{ground}"), text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// What matters most on the line.
    pub fn strong(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// What may be overlooked.
    pub fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// An answer.
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// What is good enough like an answer, the rest faint.
    pub fn judged(self, good: bool, text: &str) -> String {
        if good { self.good(text) } else { self.faint(text) }
    }

    /// The word "error".
    pub fn bad(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    /// The word "note".
    pub fn note(self, text: &str) -> String {
        self.wrap("33", text)
    }
}

/// Backgrounds for shares of 0, 20, … 100%, from the 256 colours that terminals have, each with what can be read on it.
/// Both are set, so that dark and light terminals show the same.
const SHADES: [(u8, u8); 6] = [(255, 16), (153, 16), (75, 16), (32, 16), (25, 231), (18, 231)];

/// Says on standard error that not all went well, where what came of it is of use all the same.
pub fn warning(text: &str) {
    let _ = writeln!(io::stderr(), "{} {text}", Paint::stderr().bad("warning:"));
}

/// Says something on standard error that is not part of the result.
pub fn note(text: &str) {
    // Nobody to tell if standard error is closed.
    let _ = writeln!(io::stderr(), "{} {text}", Paint::stderr().note("note:"));
}

/// Standard output.
pub struct Out {
    writer: BufWriter<Stdout>,
    /// How to colour what goes there.
    pub paint: Paint,
}

impl Out {
    /// Standard output, buffered.
    pub fn new() -> Out {
        Out { writer: BufWriter::new(io::stdout()), paint: Paint::stdout() }
    }

    /// Writes one line.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(self.writer, "{text}")?)
    }

    /// Writes text as it is.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        Ok(self.writer.write_all(text.as_bytes())?)
    }

    /// Writes one JSON value on one line.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.writer, value)?;
        Ok(self.writer.write_all(b"\n")?)
    }

    /// Writes one JSON value over several lines, for people.
    pub fn pretty(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer_pretty(&mut self.writer, value)?;
        Ok(self.writer.write_all(b"\n")?)
    }

    /// Hands everything to the reader now.
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.writer.flush()?)
    }
}

/// The first `columns` columns of a text on one line, with an ellipsis where something is left out.
pub fn shorten(text: &str, columns: usize) -> String {
    let mut line = String::new();
    let mut used = 0;
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        let width = c.width().unwrap_or(0);
        if used + width > columns {
            // Make room for the ellipsis itself.
            while used + 1 > columns {
                let Some(last) = line.pop() else { break };
                used -= last.width().unwrap_or(0);
            }
            line.push('…');
            return line;
        }
        line.push(c);
        used += width;
    }
    line
}

/// Columns of the terminal that standard output is, or a sensible number where it is none.
pub fn columns() -> usize {
    terminal_size::terminal_size_of(io::stdout()).map_or(100, |(width, _)| usize::from(width.0)).clamp(40, 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortening_counts_columns_not_bytes() {
        assert_eq!(shorten("plain", 5), "plain");
        assert_eq!(shorten("plainer", 5), "plai…");
        assert_eq!(shorten("näive", 5), "näive");
        assert_eq!(shorten("漢字漢字", 5), "漢字…");
        assert_eq!(shorten("a\tb\nc", 9), "a b c");
        assert_eq!(shorten("abc", 0), "…");
    }

    #[test]
    fn without_colour_text_is_untouched() {
        assert_eq!(Paint(false).strong("x"), "x");
        assert_eq!(Paint(true).strong("x"), "\x1b[1mx\x1b[0m");
        assert_eq!(Paint(false).shade(0.5, "x"), "x");
        assert_eq!(Paint(true).shade(1.0, "x"), "\x1b[38;5;231;48;5;18mx\x1b[0m");
    }
}
