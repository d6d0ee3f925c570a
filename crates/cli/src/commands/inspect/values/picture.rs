//! The picture: layers as rows, tokens as columns shaded by what was spent on them; at the side each layer's error and
//! bound on a logarithmic scale.
//!
//! Colours are classes of a style sheet, so that the picture follows a dark page. What knows no media queries shows the
//! light one, on its own ground.

use super::bands::{Band, Column, balanced};
use super::{Examined, Layer, shades, small};
use crate::console::shorten;
use crate::failure::Failure;
use crate::files;
use crate::table::percent;
use sparing_markup::escape;
use std::fmt::{Result as Written, Write};
use std::path::Path;

const MARGIN: f64 = 20.0;
const LEFT: f64 = 78.0;
/// Where the first band's words stand.
const TOP: f64 = 112.0;
const ROW: f64 = 23.0;
/// Height of a cell in its row.
const CELL: f64 = 21.0;
/// Widest first band, beside the chart, and widest others.
const FIRST: f64 = 560.0;
const OTHERS: f64 = FIRST + SIDE;
/// Room of the side: share spent, chart, relative error.
const SIDE: f64 = 300.0;
const CHART: f64 = 160.0;
const NARROWEST: f64 = 660.0;
/// Width of one letter of the 12 px font, near enough to decide what fits.
const LETTER: f64 = 7.0;

const PAGE: [(&str, &str, &str); 7] = [
    ("card", "#ffffff", "#0d1117"),
    ("ink", "#1f2328", "#e6edf3"),
    ("soft", "#59636e", "#9198a1"),
    ("error", "#c2570c", "#f0883e"),
    ("bound", "#dfe4ea", "#30363d"),
    ("edge", "#6e7781", "#8b949e"),
    ("line", "#d9dee3", "#2a3038"),
];

/// Writes the picture to a file.
pub(super) fn write(examined: &Examined, path: &Path) -> Result<(), Failure> {
    files::write(path, svg(examined).as_bytes())
}

fn svg(examined: &Examined) -> String {
    let bands = balanced(&examined.tokens, FIRST, OTHERS);
    let first = bands.first().map_or(0.0, |band| band.width);
    let widest = bands.iter().skip(1).map(|band| band.width).fold(first + SIDE, f64::max);
    let width = (LEFT + widest + MARGIN).max(NARROWEST).ceil();
    let band = examined.layers.len() as f64 * ROW + 44.0;
    let below = TOP + bands.len() as f64 * band - 16.0;
    let height = below + 56.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"12\" role=\"img\">\n"
    );
    let mut draw = || -> Written {
        style(&mut svg)?;
        heading(&mut svg, examined, width, height)?;
        for (i, columns) in bands.iter().enumerate() {
            cells(&mut svg, examined, columns, TOP + i as f64 * band)?;
        }
        side(&mut svg, examined, LEFT + first + 12.0)?;
        legend(&mut svg, examined, below)
    };
    // Writing to a string cannot fail.
    let _ = draw();
    svg + "</svg>\n"
}

fn style(svg: &mut String) -> Written {
    let rules = |dark: bool| {
        let pick = |(name, light, other): &(&str, &str, &str)| {
            format!(".{name}{{fill:{0};stroke:none}}.{name}-stroke{{stroke:{0}}}", if dark { other } else { light })
        };
        let step = |step: usize| {
            let (fill, ink) = if dark { shades::dark(step) } else { shades::light(step) };
            format!(".s{step}{{fill:{fill}}}.t{step}{{fill:{ink}}}")
        };
        let page: String = PAGE.iter().map(pick).collect();
        page + &(0..shades::STEPS).map(step).collect::<String>()
    };
    writeln!(
        svg,
        "<style>\n{}\n.token{{font-family:ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace}}\n\
         @media (prefers-color-scheme: dark){{{}}}\n</style>",
        rules(false),
        rules(true)
    )
}

fn heading(svg: &mut String, examined: &Examined, width: f64, height: f64) -> Written {
    let Examined { attention, model, tokens, seed, precision, .. } = examined;
    let title = format!("What attention {attention} spends on every token");
    let cost = format!(
        "{model}, {precision}, seed {seed}, {} tokens: value encoding at {} of its exact cost",
        tokens.len(),
        percent(examined.share)
    );
    let columns = ((width - 2.0 * MARGIN) / LETTER) as usize;
    writeln!(svg, "<title>{}</title>", escape(&title))?;
    writeln!(svg, "<rect class=\"card\" width=\"{width}\" height=\"{height}\"/>")?;
    let title = shorten(&title, (columns as f64 * 0.6) as usize);
    writeln!(
        svg,
        "<text class=\"ink\" x=\"{MARGIN}\" y=\"32\" font-size=\"18\" font-weight=\"600\">{}</text>",
        escape(&title)
    )?;
    text(svg, "soft", MARGIN, 54.0, "start", &shorten(&cost, columns))?;
    text(svg, "soft", MARGIN, 72.0, "start", &shorten(&format!("answer: {}", examined.answer.words()), columns))
}

/// A band: words above, a row of cells per layer.
fn cells(svg: &mut String, examined: &Examined, band: &Band, y: f64) -> Written {
    for (i, column) in band.columns.iter().enumerate() {
        let middle = LEFT + column.x + column.width / 2.0;
        text(svg, "ink token", middle, y - 9.0, "middle", &column.label)?;
        // A line below all pieces of a word.
        let pieces = 1 + band.columns[i + 1..].iter().take_while(|next| next.joined).count();
        if !column.joined && pieces > 1 {
            let last: &Column = &band.columns[i + pieces - 1];
            let (from, to) = (LEFT + column.x + 3.0, LEFT + last.x + last.width - 3.0);
            writeln!(svg, "<path class=\"edge-stroke\" d=\"M{from:.1} {0:.1}H{to:.1}\"/>", y - 4.5)?;
        }
    }
    for (row, layer) in examined.layers.iter().enumerate() {
        let top = y + row as f64 * ROW;
        text(svg, "ink", LEFT - 12.0, top + 15.0, "end", &format!("layer {}", layer.layer))?;
        for column in &band.columns {
            cell(svg, layer, column, &examined.tokens[column.token].text, top)?;
        }
    }
    Ok(())
}

fn cell(svg: &mut String, layer: &Layer, column: &Column, word: &str, top: f64) -> Written {
    let share = layer.spent[column.token];
    let step = shades::step(share);
    // Pieces of a word touch, with a hair between them.
    let (x, width) = (LEFT + column.x, column.width - 0.5);
    writeln!(
        svg,
        "<rect class=\"s{step}\" x=\"{x:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{CELL}\"><title>layer {}, {}: {}</title></rect>",
        layer.layer,
        escape(word),
        percent(f64::from(share))
    )?;
    let number = format!("{:.0}", 100.0 * share);
    writeln!(
        svg,
        "<text class=\"t{step}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10\">{number}</text>",
        x + width / 2.0,
        top + 14.5
    )
}

/// Beside the first band: what each layer spent, its error and bound, its relative error.
fn side(svg: &mut String, examined: &Examined, x: f64) -> Written {
    let chart = x + 56.0;
    let behind = chart + CHART + 12.0;
    text(svg, "soft", x + 40.0, TOP - 9.0, "end", "spent")?;
    text(svg, "soft", chart, TOP - 9.0, "start", "error made, and bound")?;
    text(svg, "soft", behind, TOP - 9.0, "start", "relative")?;
    let axis = Axis::new(&examined.layers);
    let bottom = TOP + examined.layers.len() as f64 * ROW;
    if let Some(axis) = &axis {
        axis.write(svg, chart, bottom)?;
    }
    for (row, layer) in examined.layers.iter().enumerate() {
        let top = TOP + row as f64 * ROW;
        text(svg, "ink", x + 40.0, top + 15.0, "end", &format!("{:.0}%", 100.0 * layer.share))?;
        let relative = if layer.alpha.is_some() { percent(layer.relative_error) } else { "exact".to_string() };
        text(svg, "ink", behind, top + 15.0, "start", &relative)?;
        let Some(axis) = &axis else { continue };
        let title = match layer.bound {
            Some(bound) => format!("layer {}: error {}, bound {}", layer.layer, small(layer.error), small(bound)),
            None => format!("layer {}: exact", layer.layer),
        };
        writeln!(svg, "<g><title>{title}</title>")?;
        if let Some(bound) = layer.bound.filter(|bound| *bound > 0.0) {
            let end = axis.place(bound);
            writeln!(
                svg,
                "<rect class=\"bound\" x=\"{chart:.1}\" y=\"{}\" width=\"{end:.1}\" height=\"15\"/>",
                top + 3.0
            )?;
            writeln!(
                svg,
                "<rect class=\"edge\" x=\"{:.1}\" y=\"{}\" width=\"2\" height=\"15\"/>",
                chart + end - 1.0,
                top + 3.0
            )?;
        }
        if layer.error > 0.0 {
            let end = axis.place(layer.error);
            writeln!(
                svg,
                "<rect class=\"error\" x=\"{chart:.1}\" y=\"{}\" width=\"{end:.1}\" height=\"7\"/>",
                top + 7.0
            )?;
        }
        writeln!(svg, "</g>")?;
    }
    Ok(())
}

/// A logarithmic axis over whole decades.
struct Axis {
    low: i32,
    high: i32,
}

impl Axis {
    /// From below the smallest number to above the largest; `None` where all are zero.
    fn new(layers: &[Layer]) -> Option<Axis> {
        let numbers = layers.iter().flat_map(|layer| [Some(layer.error), layer.bound]).flatten();
        let decades = numbers.filter(|x| *x > 0.0 && x.is_finite()).map(f64::log10);
        let (low, high) = decades.fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)));
        // A bar of no length would be none: begin a little below.
        (low <= high).then(|| Axis { low: (low - 0.1).floor() as i32, high: high.ceil() as i32 })
    }

    /// Length of a bar.
    fn place(&self, x: f64) -> f64 {
        CHART * (x.log10() - f64::from(self.low)) / f64::from(self.high - self.low)
    }

    fn write(&self, svg: &mut String, x: f64, bottom: f64) -> Written {
        let every = 1 + (self.high - self.low) / 6;
        for decade in (self.low..=self.high).step_by(every as usize) {
            let at = x + self.place(10f64.powi(decade));
            writeln!(svg, "<path class=\"line-stroke\" d=\"M{at:.1} {}V{bottom}\"/>", TOP - 2.0)?;
            let label =
                if (-3..=3).contains(&decade) { format!("{}", 10f64.powi(decade)) } else { format!("1e{decade}") };
            writeln!(
                svg,
                "<text class=\"soft\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\">{label}</text>",
                bottom + 13.0
            )?;
        }
        Ok(())
    }
}

/// What shades and bars mean.
fn legend(svg: &mut String, examined: &Examined, y: f64) -> Written {
    let swatch = 20.0;
    for step in 0..shades::STEPS {
        let x = LEFT + step as f64 * swatch;
        writeln!(svg, "<rect class=\"s{step}\" x=\"{x}\" y=\"{y}\" width=\"{swatch}\" height=\"12\"/>")?;
    }
    let end = LEFT + shades::STEPS as f64 * swatch;
    text(svg, "soft", LEFT - 12.0, y + 10.0, "end", "0%")?;
    text(svg, "soft", end + 10.0, y + 10.0, "start", "100% of a token's exact cost, mean over heads")?;
    let y = y + 24.0;
    writeln!(svg, "<rect class=\"error\" x=\"{LEFT}\" y=\"{}\" width=\"20\" height=\"7\"/>", y + 3.0)?;
    text(svg, "soft", LEFT + 28.0, y + 11.0, "start", "mean error of a head's output")?;
    let x = LEFT + 220.0;
    writeln!(svg, "<rect class=\"bound\" x=\"{x}\" y=\"{y}\" width=\"20\" height=\"13\"/>")?;
    writeln!(svg, "<rect class=\"edge\" x=\"{}\" y=\"{y}\" width=\"2\" height=\"13\"/>", x + 18.0)?;
    let words = format!("{}, logarithmic", examined.bound_words());
    text(svg, "soft", x + 28.0, y + 11.0, "start", &words)
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, anchor: &str, words: &str) -> Written {
    let words = escape(words);
    writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>")
}
