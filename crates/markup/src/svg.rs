//! The shapes of a drawing.

use crate::Element;

/// A drawing within a page, which gives it fonts, colours and its size on the screen. Its parts may have names of their own.
pub fn drawing(width: f64, height: f64, title: &str, description: &str) -> Element {
    Element::new("svg")
        .set("viewBox", format!("0 0 {width} {height}"))
        .set("role", "group")
        .set("aria-label", title)
        .with(Element::new("desc").text(description))
}

/// A drawing that is a file of its own: SVG 1.1 with a light background, so that it reads the same in a browser, a
/// README and a paper. Title and subtitle take the uppermost 60 pixels.
pub fn standalone(width: f64, height: f64, title: &str, subtitle: &str) -> Element {
    let below = (!subtitle.is_empty()).then(|| label(20.0, 54.0, subtitle).set("fill", "#59636e"));
    Element::new("svg")
        .set("xmlns", "http://www.w3.org/2000/svg")
        .set("width", width)
        .set("height", height)
        .set("viewBox", format!("0 0 {width} {height}"))
        .set("font-family", "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif")
        .set("font-size", 12.0)
        .set("role", "img")
        .tip(title)
        .with(rect(0.0, 0.0, width, height).set("fill", "#ffffff"))
        .with(label(20.0, 32.0, title).set("font-size", 18.0).set("font-weight", 600.0).set("fill", "#1f2328"))
        .extend(below)
}

/// A rectangle by its upper left corner.
pub fn rect(x: f64, y: f64, width: f64, height: f64) -> Element {
    Element::new("rect").set("x", x).set("y", y).set("width", width.max(0.0)).set("height", height.max(0.0))
}

/// A circle by its centre.
pub fn circle(x: f64, y: f64, radius: f64) -> Element {
    Element::new("circle").set("cx", x).set("cy", y).set("r", radius)
}

/// A line between two points.
pub fn line(from: (f64, f64), to: (f64, f64)) -> Element {
    Element::new("line").set("x1", from.0).set("y1", from.1).set("x2", to.0).set("y2", to.1)
}

/// Text that begins (or as `text-anchor` says) at a point on its base line.
pub fn label(x: f64, y: f64, text: &str) -> Element {
    Element::new("text").set("x", x).set("y", y).text(text)
}

/// Lines from point to point, without a filling. Points that are not numbers are left out.
pub fn polyline(points: impl IntoIterator<Item = (f64, f64)>) -> Element {
    let points: Vec<String> = points
        .into_iter()
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    Element::new("polyline").set("fill", "none").set("points", points.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_has_a_name_and_its_shapes() {
        let picture =
            standalone(10.0, 20.0, "a < b", "").with(polyline([(0.0, 1.0), (f64::NAN, 2.0), (3.0, 4.0)])).to_string();
        assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"10\" height=\"20\""));
        assert!(picture.contains("<title>a &lt; b</title>") && picture.contains("points=\"0.0,1.0 3.0,4.0\""));
        assert!(picture.ends_with("</svg>\n"));
        assert!(drawing(1.0, 1.0, "t", "d").to_string().contains("aria-label=\"t\"><desc>d</desc>"));
    }
}
