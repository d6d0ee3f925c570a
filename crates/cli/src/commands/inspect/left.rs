//! What is left of the layers of a pruned model.

use crate::table::{Align, Table};
use serde::Serialize;
use sparing_model::{Architecture, Layer};

/// What is left of one layer.
#[derive(Debug, Serialize)]
pub struct Left {
    layer: usize,
    /// By the numbers they were published with.
    heads: Vec<usize>,
    /// Inner width of each feed-forward block.
    widths: Vec<usize>,
}

impl Left {
    /// Of every layer.
    pub fn of(architecture: &Architecture) -> Vec<Left> {
        let left = |(layer, l): (usize, &Layer)| {
            let widths = l.ffns.iter().map(|ffn| ffn.up.outputs).collect();
            Left { layer, heads: l.attention.numbers(), widths }
        };
        architecture.layers.iter().enumerate().map(left).collect()
    }
}

/// A row per layer.
pub fn table(left: &[Left]) -> Table {
    let mut table = Table::new(&[
        ("layer", Align::Right),
        ("heads", Align::Right),
        ("feed-forward", Align::Right),
        ("heads that are left", Align::Left),
    ]);
    for Left { layer, heads, widths } in left {
        let number = |n: &usize| if *n == 0 { "–".to_string() } else { n.to_string() };
        let widths: Vec<String> = widths.iter().map(number).collect();
        let names: Vec<String> = heads.iter().map(usize::to_string).collect();
        table.row([layer.to_string(), number(&heads.len()), widths.join(" "), names.join(" ")]);
    }
    table
}
