//! Text that may say anything.

/// Text as XML and HTML have it, in content and in quoted attributes.
///
/// Characters that XML forbids become spaces, and so do those that turn the direction of the text around them: nothing
/// that is quoted may rearrange what stands beside it.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push('\n'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => escaped.push(' '),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_has_a_meaning_is_left() {
        assert_eq!(
            escape("<a href='x' on=\"y\">&amp;</a>"),
            "&lt;a href=&#39;x&#39; on=&quot;y&quot;&gt;&amp;amp;&lt;/a&gt;"
        );
        assert_eq!(escape("a\u{0}b\u{1b}c\u{202e}d\ne"), "a b c d\ne");
        assert_eq!(escape("naïve 😀 ×"), "naïve 😀 ×");
    }
}
