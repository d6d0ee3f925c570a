//! Every tensor an architecture names, in the order of the network, and how deep it lies.

use sparing_model::{Architecture, AttentionPosition, Layer, Linear, Matrix, Norm, NormKind};
use std::collections::BTreeMap;

/// One tensor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// Full name.
    pub(crate) name: String,
    /// 0 for embeddings, then the number of the layer from 1, one more for the head. Shared layers: the last.
    pub(crate) depth: usize,
}

/// All tensors in the order of the network, each once.
pub(crate) fn inventory(architecture: &Architecture) -> Vec<Entry> {
    let mut walk = Walk::default();
    let e = &architecture.embeddings;
    walk.put(&e.word);
    if let Some(table) = &e.positions {
        walk.put(&table.name);
    }
    if let Some(table) = &e.token_types {
        walk.put(&table.name);
    }
    e.norm.iter().for_each(|norm| walk.norm(norm));
    e.projection.iter().for_each(|linear| walk.linear(linear));
    for layer in &architecture.layers {
        walk.depth += 1;
        walk.layer(layer);
    }
    walk.depth += 1;
    architecture.final_norm.iter().for_each(|norm| walk.norm(norm));
    for stage in &architecture.head.stages {
        stage.linear.iter().for_each(|linear| walk.linear(linear));
        stage.norm.iter().for_each(|norm| walk.norm(norm));
    }
    walk.entries
}

/// The tensors of one layer, in a fixed order.
pub(crate) fn layer_inventory(layer: &Layer) -> Vec<Entry> {
    let mut walk = Walk::default();
    walk.layer(layer);
    walk.entries
}

#[derive(Default)]
struct Walk {
    entries: Vec<Entry>,
    places: BTreeMap<String, usize>,
    depth: usize,
}

impl Walk {
    fn put(&mut self, name: &str) {
        match self.places.get(name) {
            Some(&place) => {
                let entry = &mut self.entries[place];
                // A head that is the word table once more does not lift the table to the head's depth.
                if entry.depth > 0 {
                    entry.depth = self.depth;
                }
            }
            None => {
                self.places.insert(name.to_string(), self.entries.len());
                self.entries.push(Entry { name: name.to_string(), depth: self.depth });
            }
        }
    }

    fn norm(&mut self, norm: &Norm) {
        self.put(&norm.weight);
        self.put(&norm.bias);
        if norm.kind == NormKind::Power {
            self.put(&norm.running_phi());
        }
    }

    fn linear(&mut self, linear: &Linear) {
        self.matrix(&linear.weight);
        if let Some(bias) = &linear.bias {
            self.put(&bias.name);
        }
    }

    fn matrix(&mut self, matrix: &Matrix) {
        match matrix {
            Matrix::Tensor { name, .. } => self.put(name),
            Matrix::ConcatInputs(parts) => parts.iter().for_each(|(part, _)| self.matrix(part)),
        }
    }

    fn layer(&mut self, layer: &Layer) {
        if let Some(b) = &layer.bottleneck {
            for part in [Some(&b.input), b.shared.as_ref(), Some(&b.output)].into_iter().flatten() {
                self.linear(&part.linear);
                self.norm(&part.norm);
            }
        }
        let a = &layer.attention;
        [&a.query, &a.key, &a.value, &a.output].into_iter().for_each(|linear| self.linear(linear));
        a.network.iter().flat_map(|network| network.maps()).for_each(|linear| self.linear(linear));
        if let Some(w) = &a.window {
            [&w.global_query, &w.global_key, &w.global_value].into_iter().for_each(|linear| self.linear(linear));
        }
        match &a.position {
            AttentionPosition::None => {}
            AttentionPosition::Buckets { table, .. } => self.put(table),
            AttentionPosition::Relative { projection, content_bias, position_bias, segment_bias, segments, .. } => {
                self.linear(projection);
                for name in [content_bias, position_bias, segment_bias] {
                    self.put(name);
                }
                self.put(segments);
            }
        }
        self.norm(&layer.attention_norm);
        for ffn in &layer.ffns {
            self.linear(&ffn.up);
            self.linear(&ffn.down);
            self.norm(&ffn.norm);
        }
    }
}
