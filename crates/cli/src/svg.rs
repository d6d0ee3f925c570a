//! A picture of where things go: horizontal bars, each divided among the parts of the network.

use sparing_markup::{Element, label, line, rect, standalone};

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
        let legend = self.legend();
        let legend_rows = legend.last().map_or(0.0, |(_, row, _)| row + 1.0);
        let bottom = TOP + self.bars.len() as f64 * (BAR + GAP);
        let height = bottom + 34.0 + legend_rows * 22.0;
        let mut svg = standalone(WIDTH, height, &self.title, &self.subtitle)
            .extend((0..=4).flat_map(|quarter| quarter_line(quarter, bottom)));
        for (i, bar) in self.bars.iter().enumerate() {
            svg = self.with_bar(svg, bar, TOP + i as f64 * (BAR + GAP));
        }
        for (i, row, x) in legend {
            let y = bottom + 30.0 + row * 22.0;
            let (fill, _) = COLOURS[i % COLOURS.len()];
            svg = svg
                .with(rect(x, y, 12.0, 12.0).set("rx", 2.0).set("fill", fill))
                .with(label(x + 18.0, y + 10.5, &self.parts[i]).set("fill", "#1f2328"));
        }
        svg.to_string()
    }

    fn with_bar(&self, svg: Element, bar: &Bar, y: f64) -> Element {
        let middle = y + BAR / 2.0 + 4.0;
        let name = label(LEFT - 12.0, middle, &bar.label).set("text-anchor", "end").set("fill", "#1f2328");
        let mut svg = svg.with(name);
        let mut x = LEFT;
        for (i, share) in bar.shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let width = (WIDTH - LEFT - RIGHT) * share;
            let (fill, ink) = COLOURS[i % COLOURS.len()];
            let percent = format!("{:.1}%", share * 100.0);
            let name = self.parts.get(i).map_or("", String::as_str);
            let segment = rect(x, y, width, BAR).set("fill", fill).set("stroke", "#ffffff");
            svg = svg.with(segment.tip(&format!("{name}: {percent}")));
            // The label that fits: name and share, the share alone, or nothing.
            let full = format!("{name} {percent}");
            let fitting = [full, percent].into_iter().find(|text| text.chars().count() as f64 * LETTER + 6.0 < width);
            svg = svg.extend(
                fitting.map(|text| label(x + width / 2.0, middle, &text).set("text-anchor", "middle").set("fill", ink)),
            );
            x += width;
        }
        svg.with(label(WIDTH - RIGHT + 12.0, middle, &bar.total).set("fill", "#59636e"))
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

/// A faint line at a quarter of the whole, with its percentage.
fn quarter_line(quarter: u32, bottom: f64) -> [Element; 2] {
    let x = LEFT + (WIDTH - LEFT - RIGHT) * f64::from(quarter) / 4.0;
    let percent = format!("{}%", quarter * 25);
    let text = label(x, bottom + 8.0, &percent).set("text-anchor", "middle").set("font-size", 11.0);
    [line((x, TOP - 6.0), (x, bottom - GAP + 6.0)).set("stroke", "#d9dee3"), text.set("fill", "#818b98")]
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
        // The ground, two segments, two colours of the legend.
        assert_eq!(svg.matches("<rect").count(), 5);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
