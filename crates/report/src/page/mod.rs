//! `report.html`: one file that needs nothing else, on a phone, on paper, in the dark.

mod axis;
mod candidates;
mod gains;
mod map;
mod parts;
mod scatter;
mod setting;
mod summary;
mod table;

use crate::{Model, Report, Task};
use sparing_markup::Element;

impl Report {
    /// The text of `report.html`.
    pub fn html(&self) -> String {
        let title = format!("{} · Sparing report", subject(&self.model, &self.task));
        let head = Element::new("head")
            .with(Element::new("meta").set("charset", "utf-8"))
            .with(Element::new("meta").set("name", "viewport").set("content", "width=device-width, initial-scale=1"))
            .with(Element::new("meta").set("name", "color-scheme").set("content", "light dark"))
            // Whatever a name in the report tries: nothing is ever asked of a network.
            .with(
                Element::new("meta")
                    .set("http-equiv", "Content-Security-Policy")
                    .set("content", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"),
            )
            .with(Element::new("title").text(&title))
            .with(Element::new("style").code(include_str!("style.css")));
        let sections = [
            summary::before_and_after(self),
            summary::notes(self),
            scatter::section(self),
            gains::section(self),
            parts::section(self),
            map::section(self),
            candidates::section(self),
            Some(setting::section(self)),
        ];
        let body = Element::new("body")
            .with(summary::header(self))
            .with(Element::new("main").extend(sections.into_iter().flatten()))
            .with(setting::footer(self))
            .with(Element::new("script").code(include_str!("comfort.js")));
        format!("<!DOCTYPE html>\n{}", Element::new("html").set("lang", "en").with(head).with(body))
    }
}

/// What the report is about: "bert-base-uncased on sst2".
fn subject(model: &Model, task: &Task) -> String {
    match (model.name.as_str(), task.name.as_str()) {
        ("", "") => "Model".to_owned(),
        (model, "") => model.to_owned(),
        ("", task) => task.to_owned(),
        (model, task) => format!("{model} on {task}"),
    }
}

/// A section with its heading and one sentence on how to read it.
fn titled(heading: &str, lead: &str) -> Element {
    let section = Element::new("section").with(Element::new("h2").text(heading));
    if lead.is_empty() { section } else { section.with(Element::new("p").set("class", "lead").text(lead)) }
}

/// Parts side by side where there is room.
fn columns(parts: impl IntoIterator<Item = Element>) -> Element {
    Element::new("div").set("class", "columns").extend(parts)
}

/// A drawing with its caption above it.
fn figure(caption: &str, drawing: Element) -> Element {
    Element::new("figure").with(Element::new("figcaption").text(caption)).with(drawing)
}

/// What is shown when it is asked for.
fn details(summary: &str, content: Element) -> Element {
    Element::new("details").with(Element::new("summary").text(summary)).with(content)
}
