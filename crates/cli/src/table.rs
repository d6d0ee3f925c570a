//! Tables: aligned for people, or as Markdown and CSV.

use crate::console::Paint;
use unicode_width::UnicodeWidthStr;

/// Where a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of cells under named columns.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// Rows from this index on are set apart (a total).
    footer: Option<usize>,
}

impl Table {
    /// An empty table with these columns.
    pub fn new(columns: &[(&str, Align)]) -> Table {
        let columns = columns.iter().map(|(title, align)| (title.to_string(), *align)).collect();
        Table { columns, rows: Vec::new(), footer: None }
    }

    /// Adds a row; missing cells are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// What follows is a footer.
    pub fn foot(&mut self) {
        self.footer = Some(self.rows.len());
    }

    fn widths(&self) -> Vec<usize> {
        let width = |i: usize| {
            let cells = self.rows.iter().map(|row| row[i].width());
            cells.chain([self.columns[i].0.width()]).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(width).collect()
    }

    /// Aligned text, one line per row, each ending in a newline.
    pub fn text(&self, paint: Paint) -> String {
        let widths = self.widths();
        let line = |cells: &[String]| {
            let padded: Vec<String> = cells
                .iter()
                .zip(&widths)
                .zip(&self.columns)
                .map(|((cell, width), column)| pad(cell, *width, column.1))
                .collect();
            padded.join("  ").trim_end().to_string()
        };
        let titles: Vec<String> = self.columns.iter().map(|c| c.0.clone()).collect();
        let mut text = paint.faint(&line(&titles)) + "\n";
        for (i, row) in self.rows.iter().enumerate() {
            let line = line(row);
            text += &if self.footer.is_some_and(|f| i >= f) { paint.strong(&line) } else { line };
            text.push('\n');
        }
        text
    }

    /// GitHub's table syntax.
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line(self.columns.iter().map(|c| c.0.clone()).collect());
        let rule = |c: &(String, Align)| if c.1 == Align::Right { "---:".to_string() } else { "---".to_string() };
        text += &line(self.columns.iter().map(rule).collect());
        for row in &self.rows {
            text += &line(row.iter().map(|cell| cell.replace('|', "\\|")).collect());
        }
        text
    }
}

fn pad(cell: &str, width: usize, align: Align) -> String {
    let space = " ".repeat(width.saturating_sub(cell.width()));
    match align {
        Align::Left => format!("{cell}{space}"),
        Align::Right => format!("{space}{cell}"),
    }
}

/// One line of CSV; cells with commas, quotes or line ends are quoted.
pub fn csv_line(cells: impl IntoIterator<Item = String>) -> String {
    let quote = |cell: String| {
        if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
    };
    cells.into_iter().map(quote).collect::<Vec<_>>().join(",")
}

/// A count for people: `22.7 M`.
pub fn count(n: f64) -> String {
    scaled(n, 1000.0, &["", " k", " M", " G", " T", " P"])
}

/// Bytes for people: `86.6 MiB`.
pub fn bytes(n: f64) -> String {
    scaled(n, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

fn scaled(n: f64, base: f64, units: &[&str]) -> String {
    let mut n = n;
    let mut unit = 0;
    // 999.95 would be shown as "1000.0": move on a little earlier.
    while n.abs() >= base * 0.99995 && unit + 1 < units.len() {
        n /= base;
        unit += 1;
    }
    if unit == 0 { format!("{n:.0}{}", units[0]) } else { format!("{n:.*}{}", digits(n), units[unit]) }
}

/// Seconds for people: `312 µs`, `4.18 ms`, `2.3 s`.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.*} ms", digits(s * 1e3), s * 1e3),
        s if s < 120.0 => format!("{:.*} s", digits(s), s),
        s => format!("{:.0} min {:02.0} s", (s / 60.0).floor(), s % 60.0),
    }
}

/// A share for people: `14.2%`.
pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1}%", share * 100.0) } else { "–".to_string() }
}

/// Three significant digits from one to a thousand.
fn digits(n: f64) -> usize {
    match n.abs() {
        n if n < 9.995 => 2,
        n if n < 99.95 => 1,
        _ => 0,
    }
}

/// `1 thread`, `2 threads`.
pub fn threads(number: usize) -> String {
    if number == 1 { "1 thread".into() } else { format!("{number} threads") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let mut table = Table::new(&[("part", Align::Left), ("time", Align::Right)]);
        table.row(["norms".to_string(), "1.2 ms".to_string()]);
        table.foot();
        table.row(["total".to_string(), "10.0 ms".to_string()]);
        table
    }

    #[test]
    fn text_is_aligned() {
        let plain = example().text(Paint::none());
        assert_eq!(plain, "part      time\nnorms   1.2 ms\ntotal  10.0 ms\n");
    }

    #[test]
    fn markdown_has_a_rule_and_escapes() {
        let mut table = example();
        table.row(["a|b".to_string()]);
        assert_eq!(table.markdown().lines().nth(1), Some("| --- | ---: |"));
        assert!(table.markdown().ends_with("| a\\|b |  |\n"));
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        assert_eq!(csv_line(["a,b".into(), "c".into(), "say \"x\"".into()]), "\"a,b\",c,\"say \"\"x\"\"\"");
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(count(22_713_986.0), "22.7 M");
        assert_eq!(count(999_960.0), "1.00 M");
        assert_eq!(count(12.0), "12");
        assert_eq!(bytes(90_855_944.0), "86.6 MiB");
        assert_eq!(seconds(0.000_31), "310 µs");
        assert_eq!(seconds(0.004_183), "4.18 ms");
        assert_eq!(seconds(754.0), "12 min 34 s");
        assert_eq!(percent(0.1416), "14.2%");
        assert_eq!(percent(f64::NAN), "–");
    }
}
