//! Tables that screen readers can follow and phones can scroll.

use sparing_markup::Element;

/// A table: the first cell of every row names the row.
pub(super) struct Table {
    name: String,
    class: &'static str,
    head: Element,
    body: Element,
}

/// A cell: a number or words, perhaps with something smaller below.
pub(super) struct Cell {
    text: String,
    below: String,
    swatch: Option<usize>,
}

impl Cell {
    /// With something smaller below.
    pub(super) fn below(mut self, text: String) -> Cell {
        self.below = text;
        self
    }

    /// With the colour of a part before it.
    pub(super) fn swatch(mut self, part: usize) -> Cell {
        self.swatch = Some(part);
        self
    }

    fn into(self, cell: Element) -> Element {
        let cell = match self.swatch {
            Some(part) => cell.with(Element::new("span").set("class", format!("swatch part{part}"))),
            None => cell,
        };
        let cell = cell.text(&self.text);
        if self.below.is_empty() { cell } else { cell.with(Element::new("small").text(&self.below)) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), below: String::new(), swatch: None }
    }
}

impl Table {
    /// An empty table with its name for screen readers and its column headings.
    pub(super) fn new(name: &str, columns: &[&str]) -> Table {
        let headings = columns.iter().map(|column| Element::new("th").set("scope", "col").text(column));
        let head = Element::new("thead").with(Element::new("tr").extend(headings));
        Table { name: name.to_owned(), class: "fits", head, body: Element::new("tbody") }
    }

    /// Too wide for a phone: it scrolls there, and no cell but the first breaks its lines.
    pub(super) fn wide(mut self) -> Table {
        self.class = "wide";
        self
    }

    /// With one more row, perhaps of a class.
    pub(super) fn row(mut self, class: &'static str, cells: impl IntoIterator<Item = Cell>) -> Table {
        let row = if class.is_empty() { Element::new("tr") } else { Element::new("tr").set("class", class) };
        let cells = cells.into_iter().enumerate().map(|(i, cell)| {
            cell.into(if i == 0 { Element::new("th").set("scope", "row") } else { Element::new("td") })
        });
        self.body = self.body.with(row.extend(cells));
        self
    }

    /// The whole table, in a box that scrolls where it is too wide.
    pub(super) fn element(self) -> Element {
        Element::new("div")
            .set("class", "scroll")
            .set("role", "region")
            .set("aria-label", self.name)
            .set("tabindex", "0")
            .with(Element::new("table").set("class", self.class).with(self.head).with(self.body))
    }
}
