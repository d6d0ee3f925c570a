//! A picture of where things go: horizontal bars, each divided among the parts of the network.
//!
//! Plain SVG 1.1 with its own light background, so that it reads the same in a browser, a README and a paper.

use std::fmt::Write;

/// Bars that each add up to a whole.
pub struct Bars {
    /// Above the picture.
    pub title: String,
    /// Below the title.
    pub subtitle: String,
    /// What the colours stand for, in order.
    pub parts: Vec<String>,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// One bar.
pub struct Bar {
    /// To the left.
    pub label: String,
    /// To the right: the whole that is divided.
    pub total: String,
    /// Share of each part, adding up to one.
    pub shares: Vec<f64>,
}

/// Fill and text colour of each part: distinguishable with colour-blind eyes and in grey
/// (after <https://jfly.uni-koeln.de/color/>).
pub const COLOURS: [(&str, &str); 8] = [
    ("#56b4e9", "#10303f"),
    ("#0072b2", "#ffffff"),
    ("#e69f00", "#3a2800"),
    ("#009e73", "#ffffff"),
    ("#cc79a7", "#3a1029"),
    ("#f0e442", "#3d3900"),
    ("#d55e00", "#ffffff"),
    ("#999999", "#1a1a1a"),
];

const WIDTH: f64 = 860.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 120.0;
const BAR: f64 = 34.0;
const GAP: f64 = 14.0;
const TOP: f64 = 84.0;
/// Width of one letter of the 12 px font, near enough to decide what fits.
pub const LETTER: f64 = 7.0;

impl Bars {
    /// The whole picture.
    pub fn svg(&self) -> String {
        let legend_rows = self.legend().last().map_or(0.0, |(_, row, _)| row + 1.0);
        let bottom = TOP + self.bars.len() as f64 * (BAR + GAP);
        let height = bottom + 34.0 + legend_rows * 22.0;
        let mut svg = header(WIDTH, height, &self.title, &self.subtitle);
        // Writing to a string cannot fail.
        let _ = self.write(&mut svg, bottom);
        svg + "</svg>\n"
    }

    fn write(&self, svg: &mut String, bottom: f64) -> std::fmt::Result {
        self.write_axis(svg, bottom)?;
        for (i, bar) in self.bars.iter().enumerate() {
            self.write_bar(svg, bar, TOP + i as f64 * (BAR + GAP))?;
        }
        for (i, row, x) in self.legend() {
            let y = bottom + 30.0 + row * 22.0;
            let (fill, _) = COLOURS[i % COLOURS.len()];
            writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{fill}\"/>")?;
            writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" fill=\"#1f2328\">{}</text>",
                x + 18.0,
                y + 10.5,
                escape(&self.parts[i])
            )?;
        }
        Ok(())
    }

    /// Faint lines at every quarter, with their percentages.
    fn write_axis(&self, svg: &mut String, bottom: f64) -> std::fmt::Result {
        for quarter in 0..=4 {
            let x = LEFT + (WIDTH - LEFT - RIGHT) * f64::from(quarter) / 4.0;
            writeln!(
                svg,
                "<line x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{}\" stroke=\"#d9dee3\"/>",
                TOP - 6.0,
                bottom - GAP + 6.0
            )?;
            writeln!(
                svg,
                "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\" fill=\"#818b98\">{}%</text>",
                bottom + 8.0,
                quarter * 25
            )?;
        }
        Ok(())
    }

    fn write_bar(&self, svg: &mut String, bar: &Bar, y: f64) -> std::fmt::Result {
        let middle = y + BAR / 2.0 + 4.0;
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\" fill=\"#1f2328\">{}</text>",
            LEFT - 12.0,
            escape(&bar.label)
        )?;
        let mut x = LEFT;
        for (i, share) in bar.shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let width = (WIDTH - LEFT - RIGHT) * share;
            let (fill, ink) = COLOURS[i % COLOURS.len()];
            let percent = format!("{:.1}%", share * 100.0);
            let name = self.parts.get(i).map_or("", String::as_str);
            writeln!(
                svg,
                "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{BAR}\" fill=\"{fill}\" stroke=\"#ffffff\"><title>{}: {percent}</title></rect>",
                escape(name)
            )?;
            // The label that fits: name and share, the share alone, or nothing.
            let full = format!("{name} {percent}");
            let label = [full.as_str(), percent.as_str()]
                .into_iter()
                .find(|label| label.chars().count() as f64 * LETTER + 6.0 < width);
            if let Some(label) = label {
                writeln!(
                    svg,
                    "<text x=\"{:.2}\" y=\"{middle}\" text-anchor=\"middle\" fill=\"{ink}\">{}</text>",
                    x + width / 2.0,
                    escape(label)
                )?;
            }
            x += width;
        }
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{middle}\" fill=\"#59636e\">{}</text>",
            WIDTH - RIGHT + 12.0,
            escape(&bar.total)
        )
    }

    /// Part, row and left edge of each legend entry, flowing over as many rows as needed.
    fn legend(&self) -> Vec<(usize, f64, f64)> {
        let mut places = Vec::new();
        let (mut row, mut x) = (0.0, LEFT);
        for (i, part) in self.parts.iter().enumerate() {
            let width = 18.0 + part.chars().count() as f64 * LETTER + 18.0;
            if x + width > WIDTH - 20.0 && x > LEFT {
                (row, x) = (row + 1.0, LEFT);
            }
            places.push((i, row, x));
            x += width;
        }
        places
    }
}

/// The beginning of a picture: its ground, title and subtitle.
pub fn header(width: f64, height: f64, title: &str, subtitle: &str) -> String {
    let (title, subtitle) = (escape(title), escape(subtitle));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>{title}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"20\" y=\"32\" font-size=\"18\" font-weight=\"600\" fill=\"#1f2328\">{title}</text>\n\
         <text x=\"20\" y=\"54\" fill=\"#59636e\">{subtitle}</text>\n"
    )
}

/// Text as XML has it.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Control characters are not allowed in XML at all.
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
    fn every_part_is_drawn_and_text_is_escaped() {
        let bars = Bars {
            title: "a <b> & \"c\"".into(),
            subtitle: "1 x 128".into(),
            parts: vec!["embeddings".into(), "attention".into()],
            bars: vec![Bar { label: "time".into(), total: "4 ms".into(), shares: vec![0.25, 0.75] }],
        };
        let svg = bars.svg();
        assert!(svg.contains("a &lt;b&gt; &amp; &quot;c&quot;"));
        assert!(svg.contains(">attention 75.0%</text>") && svg.contains(">embeddings 25.0%</text>"));
        assert_eq!(svg.matches("<rect").count(), svg.matches("/>").count() + svg.matches("</rect>").count() - 5);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
