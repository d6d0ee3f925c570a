//! An element of SVG or HTML.

use crate::escape;
use std::fmt;

/// Elements without content: they close themselves. All others need an end tag in HTML, even when they are empty.
const CHILDLESS: [&str; 9] = ["br", "circle", "col", "line", "meta", "path", "polygon", "polyline", "rect"];

/// An element with its attributes and its content, both already escaped.
#[derive(Debug, Clone)]
pub struct Element {
    name: &'static str,
    attributes: String,
    content: String,
}

impl Element {
    /// An empty element.
    pub fn new(name: &'static str) -> Element {
        Element { name, attributes: String::new(), content: String::new() }
    }

    /// With an attribute. Names are those of the program, never of its input.
    pub fn set(mut self, name: &'static str, value: impl Value) -> Element {
        self.attributes.push(' ');
        self.attributes.push_str(name);
        self.attributes.push_str("=\"");
        value.write(&mut self.attributes);
        self.attributes.push('"');
        self
    }

    /// With text at the end of its content.
    pub fn text(mut self, text: &str) -> Element {
        self.content.push_str(&escape(text));
        self
    }

    /// With a child at the end of its content.
    pub fn with(mut self, child: Element) -> Element {
        child.write(&mut self.content);
        self
    }

    /// With children at the end of its content.
    pub fn extend(self, children: impl IntoIterator<Item = Element>) -> Element {
        children.into_iter().fold(self, Element::with)
    }

    /// With the program's own CSS or JavaScript, as it is: HTML does not unescape there. Neither may hold `<` or `&`,
    /// so that the page stays XML.
    pub fn code(mut self, code: &'static str) -> Element {
        debug_assert!(!code.contains(['<', '&']));
        self.content.push_str(code);
        self
    }

    /// With what a pointer that rests on it shows and a screen reader says.
    pub fn tip(self, text: &str) -> Element {
        self.with(Element::new("title").text(text))
    }

    fn write(&self, out: &mut String) {
        let Element { name, attributes, content } = self;
        out.push('<');
        out.push_str(name);
        out.push_str(attributes);
        if content.is_empty() && CHILDLESS.contains(name) {
            out.push_str("/>");
        } else {
            out.push('>');
            out.push_str(content);
            out.push_str("</");
            out.push_str(name);
            out.push('>');
        }
        if !INLINE.contains(name) {
            out.push('\n');
        }
    }
}

/// Elements within a line of text, where a line break would be a space.
const INLINE: [&str; 8] = ["a", "b", "br", "code", "desc", "small", "span", "title"];

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(&out)
    }
}

/// What an attribute may be.
pub trait Value {
    /// Writes it, escaped.
    fn write(&self, out: &mut String);
}

impl Value for &str {
    fn write(&self, out: &mut String) {
        out.push_str(&escape(self).replace('\n', " "));
    }
}

impl Value for String {
    fn write(&self, out: &mut String) {
        self.as_str().write(out);
    }
}

impl Value for f64 {
    /// Two decimals at most: a hundredth of a pixel. What is no number becomes 0.
    fn write(&self, out: &mut String) {
        let number = if self.is_finite() { *self } else { 0.0 };
        let text = format!("{number:.2}");
        let short = text.trim_end_matches('0').trim_end_matches('.');
        out.push_str(if short == "-0" { "0" } else { short });
    }
}

impl Value for usize {
    fn write(&self, out: &mut String) {
        out.push_str(&self.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_close_themselves_and_escape_what_they_hold() {
        let element =
            Element::new("g").set("class", "a\"b").with(Element::new("rect").set("x", 1.0).tip("<b>")).text("&");
        assert_eq!(
            element.to_string(),
            "<g class=\"a&quot;b\"><rect x=\"1\"><title>&lt;b&gt;</title></rect>\n&amp;</g>\n"
        );
        assert_eq!(Element::new("rect").to_string(), "<rect/>\n");
        assert_eq!(Element::new("td").to_string(), "<td></td>\n");
    }

    #[test]
    fn numbers_are_short_and_always_numbers() {
        let shown = |number: f64| {
            let mut out = String::new();
            number.write(&mut out);
            out
        };
        let numbers = [0.0, -0.001, 1.0, 100.0, 2.5, 1.0 / 3.0, f64::NAN, f64::INFINITY, -7.129];
        assert_eq!(numbers.map(shown), ["0", "0", "1", "100", "2.5", "0.33", "0", "0", "-7.13"]);
    }
}
