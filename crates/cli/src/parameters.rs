//! Every tensor an architecture names, and the part of the network it belongs to.

use sparing_model::{
    Architecture, Attention, AttentionPosition, Bias, Bottleneck, Layer, Linear, Matrix, Norm, NormKind,
    ProjectionPlace,
};
use std::collections::{BTreeMap, HashSet};

/// The parts that parameters are divided among: those the engine books FLOPs and time under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Word, position and token-type tables, and the projection behind them.
    Embeddings,
    /// MobileBERT's maps in and out of a layer.
    Bottleneck,
    /// Query, key and value projections.
    Qkv,
    /// Positions inside attention (MPNet, XLNet).
    Positions,
    /// Queries times keys, softmax, weights times values: one kernel, no parameters.
    Attention,
    /// The projection behind attention.
    AttentionOutput,
    /// Feed-forward, to the inner width.
    FfnUp,
    /// Feed-forward, back.
    FfnDown,
    /// Norms.
    Norms,
    /// Everything after the last layer.
    Head,
}

impl Part {
    /// All parts, in the order of the network.
    pub const ALL: [Part; 10] = [
        Part::Embeddings,
        Part::Bottleneck,
        Part::Qkv,
        Part::Positions,
        Part::Attention,
        Part::AttentionOutput,
        Part::FfnUp,
        Part::FfnDown,
        Part::Norms,
        Part::Head,
    ];

    /// The engine's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Embeddings => "embeddings",
            Part::Bottleneck => "bottleneck",
            Part::Qkv => "qkv",
            Part::Positions => "positions",
            Part::Attention => "attention",
            Part::AttentionOutput => "attention output",
            Part::FfnUp => "ffn up",
            Part::FfnDown => "ffn down",
            Part::Norms => "norms and activations",
            Part::Head => "head",
        }
    }

    /// The part the engine calls this; its ledger tells scores and values apart, its clock does not.
    pub fn of(name: &str) -> Part {
        match name {
            "scores" | "values" => Part::Attention,
            _ => Part::ALL.into_iter().find(|part| part.name() == name).unwrap_or(Part::Head),
        }
    }

    /// The coarser part it belongs to.
    pub fn group(self) -> Group {
        match self {
            Part::Embeddings => Group::Embeddings,
            Part::Qkv | Part::Positions | Part::Attention | Part::AttentionOutput => Group::Attention,
            Part::FfnUp | Part::FfnDown => Group::FeedForward,
            Part::Norms => Group::Norms,
            Part::Bottleneck => Group::Bottleneck,
            Part::Head => Group::Head,
        }
    }
}

/// The parts of Figure 1 in "Optimizing Transformers with Approximate Computing for Faster, Smaller and more Accurate
/// NLP Models" (Nagarajan et al.), and MobileBERT's bottlenecks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Group {
    Embeddings,
    Attention,
    FeedForward,
    Norms,
    Bottleneck,
    Head,
}

impl Group {
    /// All groups, in the order of the picture.
    pub const ALL: [Group; 6] =
        [Group::Embeddings, Group::Attention, Group::FeedForward, Group::Norms, Group::Bottleneck, Group::Head];

    /// The name shown.
    pub fn name(self) -> &'static str {
        match self {
            Group::Embeddings => "embeddings",
            Group::Attention => "attention",
            Group::FeedForward => "feed-forward",
            Group::Norms => "norms",
            Group::Bottleneck => "bottleneck",
            Group::Head => "head",
        }
    }
}

/// What the numbers of a tensor do, which decides what stand-in values are healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A matrix with this many inputs.
    Matrix(usize),
    /// A table of vectors.
    Table,
    /// Multiplied by a normalised value.
    Scale,
    /// Added.
    Shift,
}

/// One reference of the architecture to a stored tensor.
#[derive(Debug, Clone)]
pub struct Reference {
    /// Where the tensor is used.
    pub part: Part,
    /// Full tensor name.
    pub name: String,
    /// Shape of the stored tensor, as far as this reference tells: sliced tensors are at least this long.
    pub shape: Vec<usize>,
    /// Numbers this reference uses.
    pub elements: usize,
    /// Only these outputs of the stored tensor.
    pub slice: Option<(usize, usize)>,
    /// What they do.
    pub role: Role,
}

/// All references, in the order of the network.
pub fn references(architecture: &Architecture) -> Vec<Reference> {
    let mut walk = Walk { found: Vec::new(), part: Part::Embeddings };
    let e = &architecture.embeddings;
    walk.tensor(&e.word, &[e.vocabulary, e.width], Role::Table);
    let sum = match (&e.projection, e.projection_place) {
        (Some(projection), ProjectionPlace::BeforeSum) => projection.outputs,
        _ => e.width,
    };
    if let Some(table) = &e.positions {
        walk.tensor(&table.name, &[table.rows, sum], Role::Table);
    }
    if let Some(table) = &e.token_types {
        walk.tensor(&table.name, &[table.rows, sum], Role::Table);
    }
    e.norm.iter().for_each(|norm| walk.norm(norm));
    e.projection.iter().for_each(|linear| walk.linear(linear));
    architecture.layers.iter().for_each(|layer| walk.layer(layer));
    walk.part = Part::Head;
    architecture.final_norm.iter().for_each(|norm| walk.norm(norm));
    for stage in &architecture.head.stages {
        stage.linear.iter().for_each(|linear| walk.linear(linear));
        stage.norm.iter().for_each(|norm| walk.norm(norm));
    }
    walk.found
}

/// Parameters by part, tensors that are used twice (ALBERT's layers, tied embeddings) counted where they come first.
pub fn count(references: &[Reference]) -> BTreeMap<Part, usize> {
    let mut seen = HashSet::new();
    let mut counts = BTreeMap::new();
    for reference in references {
        if seen.insert((&reference.name, reference.slice)) {
            *counts.entry(reference.part).or_default() += reference.elements;
        }
    }
    counts
}

struct Walk {
    found: Vec<Reference>,
    part: Part,
}

impl Walk {
    fn tensor(&mut self, name: &str, shape: &[usize], role: Role) {
        let elements = shape.iter().product();
        self.push(name, shape.to_vec(), elements, None, role);
    }

    fn push(&mut self, name: &str, shape: Vec<usize>, elements: usize, slice: Option<(usize, usize)>, role: Role) {
        self.found.push(Reference { part: self.part, name: name.to_string(), shape, elements, slice, role });
    }

    fn inside(&mut self, part: Part, body: impl FnOnce(&mut Walk)) {
        let outer = std::mem::replace(&mut self.part, part);
        body(self);
        self.part = outer;
    }

    fn norm(&mut self, norm: &Norm) {
        self.inside(Part::Norms, |walk| {
            walk.tensor(&norm.weight, &[norm.width], Role::Scale);
            walk.tensor(&norm.bias, &[norm.width], Role::Shift);
            if norm.kind == NormKind::Power {
                walk.tensor(&norm.running_phi(), &[norm.width], Role::Scale);
            }
        });
    }

    fn linear(&mut self, linear: &Linear) {
        if !linear.is_empty() {
            self.matrix(&linear.weight, linear.outputs, linear.inputs, linear.inputs);
        }
        if let Some(Bias { name, slice }) = linear.stored_bias() {
            let stored = slice.map_or(linear.outputs, |s| s.1);
            self.push(name, vec![stored], linear.outputs, *slice, Role::Shift);
        }
    }

    fn matrix(&mut self, matrix: &Matrix, outputs: usize, inputs: usize, fan_in: usize) {
        match matrix {
            Matrix::Tensor { name, in_out, slice } => {
                let stored = slice.map_or(outputs, |s| s.1);
                let shape = if *in_out { vec![inputs, stored] } else { vec![stored, inputs] };
                self.push(name, shape, outputs * inputs, *slice, Role::Matrix(fan_in));
            }
            Matrix::ConcatInputs(parts) => {
                parts.iter().for_each(|(part, width)| self.matrix(part, outputs, *width, fan_in));
            }
        }
    }

    fn layer(&mut self, layer: &Layer) {
        if let Some(Bottleneck { input, shared, output, .. }) = &layer.bottleneck {
            self.inside(Part::Bottleneck, |walk| {
                for part in [Some(input), shared.as_ref(), Some(output)].into_iter().flatten() {
                    walk.linear(&part.linear);
                    walk.norm(&part.norm);
                }
            });
        }
        self.attention(&layer.attention);
        self.norm(&layer.attention_norm);
        for ffn in &layer.ffns {
            self.inside(Part::FfnUp, |walk| walk.linear(&ffn.up));
            self.inside(Part::FfnDown, |walk| walk.linear(&ffn.down));
            self.norm(&ffn.norm);
        }
    }

    fn attention(&mut self, a: &Attention) {
        self.inside(Part::Qkv, |walk| {
            [&a.query, &a.key, &a.value].into_iter().for_each(|linear| walk.linear(linear));
            a.network.iter().flat_map(|network| network.maps()).for_each(|linear| walk.linear(linear));
            if let Some(w) = &a.window {
                [&w.global_query, &w.global_key, &w.global_value].into_iter().for_each(|linear| walk.linear(linear));
            }
        });
        self.inside(Part::Positions, |walk| match &a.position {
            _ if a.heads == 0 => {}
            AttentionPosition::None => {}
            AttentionPosition::Buckets { table, columns, buckets, .. } => {
                walk.tensor(table, &[*buckets, *columns], Role::Table);
            }
            AttentionPosition::Relative { projection, content_bias, position_bias, segment_bias, segments, .. } => {
                walk.linear(projection);
                for name in [content_bias, position_bias, segment_bias] {
                    walk.tensor(name, &[a.heads, a.head_width], Role::Shift);
                }
                walk.tensor(segments, &[2, a.heads, a.head_width], Role::Table);
            }
        });
        self.inside(Part::AttentionOutput, |walk| walk.linear(&a.output));
    }
}
