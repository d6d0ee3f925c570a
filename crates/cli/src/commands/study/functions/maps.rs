//! Matrices as pictures: attention of teacher and student, and weights of networks.

use crate::failure::Failure;
use sparing_markup::{Element, label, rect, standalone};
use sparing_model::Model;
use std::collections::BTreeSet;

/// Cells of a drawn matrix along each side, at most; larger ones are drawn in blocks.
const MOST_CELLS: usize = 32;
/// Pixels of a matrix.
const SIDE: f64 = 224.0;
const GAP: f64 = 36.0;
const TOP: f64 = 84.0;

/// A matrix with a title.
pub(super) struct Matrix {
    title: String,
    columns: usize,
    values: Vec<f32>,
}

/// The weights of the networks in softmax's place, each once: to the inner numbers and back.
pub(super) fn networks(model: &Model) -> Result<Vec<[Matrix; 2]>, Failure> {
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for (number, layer) in model.architecture.layers.iter().enumerate() {
        let Some(network) = &layer.attention.network else { continue };
        if !done.insert(network.hidden.weight.name()) {
            continue;
        }
        let [hidden, output] = [(&network.hidden, "in"), (&network.output, "out")].map(|(map, way)| {
            let title = format!("layer {}, {way}", number + 1);
            Ok::<_, Failure>(Matrix { title, columns: map.inputs, values: model.weights.matrix(map)? })
        });
        found.push([hidden?, output?]);
    }
    Ok(found)
}

/// Weights in rows of two networks.
pub(super) fn draw_networks(networks: &[[Matrix; 2]]) -> String {
    let matrices: Vec<&Matrix> = networks.iter().flatten().collect();
    let subtitle = "the strongest weight of every block: blue above zero, orange below, white none";
    picture("Networks in softmax's place", subtitle, &matrices, 4)
}

/// Rows of a layer's number, the teacher's shares and the student's, square each.
pub(super) fn draw_attention(text: &str, layers: &[(usize, &[f32], &[f32])]) -> String {
    let matrix = |layer: usize, who: &str, shares: &[f32]| Matrix {
        title: format!("layer {}, {who}", layer + 1),
        columns: shares.len().isqrt(),
        values: shares.to_vec(),
    };
    let pairs =
        layers.iter().map(|(layer, theirs, own)| [matrix(*layer, "teacher", theirs), matrix(*layer, "student", own)]);
    let matrices: Vec<Matrix> = pairs.flatten().collect();
    let title = format!("Attention to \u{201c}{text}\u{201d}");
    let subtitle = "shares, mean over heads; a row is a query: blue above zero, orange below";
    picture(&title, subtitle, &matrices.iter().collect::<Vec<_>>(), 2)
}

fn picture(title: &str, subtitle: &str, matrices: &[&Matrix], across: usize) -> String {
    let columns = across.min(matrices.len()).max(1);
    let width = (GAP + columns as f64 * (SIDE + GAP)).max(620.0);
    let height = TOP + matrices.len().div_ceil(columns) as f64 * (SIDE + GAP);
    let mut svg = standalone(width, height, title, subtitle);
    for (i, matrix) in matrices.iter().enumerate() {
        let x = GAP + (i % columns) as f64 * (SIDE + GAP);
        let y = TOP + (i / columns) as f64 * (SIDE + GAP);
        svg = svg.with(matrix.draw(x, y));
    }
    svg.to_string()
}

impl Matrix {
    fn draw(&self, x: f64, y: f64) -> Element {
        let rows = self.values.len() / self.columns.max(1);
        let (down, across) = (rows.min(MOST_CELLS), self.columns.min(MOST_CELLS));
        let mut strongest = vec![0f32; down * across];
        for (place, value) in self.values.iter().enumerate() {
            let (row, column) = (place / self.columns, place % self.columns);
            let cell = &mut strongest[row * down / rows * across + column * across / self.columns];
            if value.abs() > cell.abs() {
                *cell = *value;
            }
        }
        let most = strongest.iter().fold(0f32, |most, x| most.max(x.abs()));
        let (wide, high) = (SIDE / across.max(1) as f64, SIDE / down.max(1) as f64);
        let cell = |(place, value): (usize, &f32)| {
            let strength = f64::from(value.abs() / most);
            let at = ((place % across) as f64 * wide, (place / across) as f64 * high);
            // Whole pixels would leave gaps: a little more than a cell.
            let cell = rect(x + at.0, y + at.1, wide + 0.2, high + 0.2);
            let colour = if *value > 0.0 { "#0072b2" } else { "#d55e00" };
            (strength >= 0.05).then(|| cell.set("fill", colour).set("fill-opacity", (strength * 100.0).round() / 100.0))
        };
        Element::new("g")
            .with(label(x, y - 8.0, &self.title).set("fill", "#59636e"))
            .with(rect(x, y, SIDE, SIDE).set("fill", "none").set("stroke", "#d9dee3"))
            .extend(strongest.iter().enumerate().filter_map(cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_drawn_where_there_is_something() {
        let mut values = vec![0.0; 128 * 128];
        (values[5], values[127 * 128 + 127]) = (2.0, -1.0);
        let svg = Matrix { title: "a".to_string(), columns: 128, values }.draw(0.0, 0.0).to_string();
        // The frame and two blocks: the second of the first row, and the last.
        assert_eq!(svg.matches("<rect").count(), 3, "{svg}");
        assert!(svg.contains("x=\"7\" y=\"0\"") && svg.contains("#d55e00") && svg.contains("\"0.5\""), "{svg}");
        let none = Matrix { title: String::new(), columns: 3, values: vec![0.0; 9] }.draw(0.0, 0.0).to_string();
        assert_eq!(none.matches("<rect").count(), 1);
    }
}
