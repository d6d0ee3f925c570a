//! Which tensors may be quantised, what part they belong to, and who reads them.

use sparing_model::{
    Architecture, Attention, Bias, Bits, Blocks, HeadKind, Layer, LayerBits, Linear, Matrix, NormedLinear, ScaleAxis,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// A part with a number of bits of its own; see [`Bits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Part {
    Embeddings,
    Attention,
    Ffn,
    Head,
}

impl Part {
    /// All parts, in the order of the network.
    pub const ALL: [Part; 4] = [Part::Embeddings, Part::Attention, Part::Ffn, Part::Head];

    /// The name users see.
    pub fn name(self) -> &'static str {
        match self {
            Part::Embeddings => "embeddings",
            Part::Attention => "attention",
            Part::Ffn => "ffn",
            Part::Head => "head",
        }
    }
}

/// The bits of a part.
pub fn bits_of(bits: &Bits, part: Part) -> Option<u32> {
    match part {
        Part::Embeddings => bits.embeddings,
        Part::Attention => bits.attention,
        Part::Ffn => bits.ffn,
        Part::Head => bits.head,
    }
}

/// The fewest bits of tables of positions and token types.
pub const SMALL_TABLES: u32 = 8;

impl Target {
    /// Its bits by a plan. Every token has a position and a type: these tables are small, and what they lose everybody
    /// loses, so that they keep [`SMALL_TABLES`] at least.
    pub fn bits(&self, bits: &Bits, layers: &BTreeMap<usize, LayerBits>) -> Option<u32> {
        let own = self.layer.and_then(|layer| layers.get(&layer)).and_then(|layer| match self.part {
            Part::Attention => layer.attention,
            Part::Ffn => layer.ffn,
            Part::Embeddings | Part::Head => None,
        });
        let bits = own.or_else(|| bits_of(bits, self.part));
        if self.small { bits.map(|bits| bits.max(SMALL_TABLES)) } else { bits }
    }

    /// Whether it is of one of these blocks, by layer.
    pub fn is_of(&self, blocks: &BTreeMap<usize, Blocks>) -> bool {
        self.layer.and_then(|layer| blocks.get(&layer)).is_some_and(|blocks| match self.part {
            Part::Attention => blocks.attention,
            Part::Ffn => blocks.ffn,
            Part::Embeddings | Part::Head => false,
        })
    }
}

/// A tensor that may be quantised: a table or the matrix of linear maps.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// The part it belongs to; a tensor that is used twice, to that where it comes first.
    pub part: Part,
    /// The layer it belongs to, likewise.
    pub layer: Option<usize>,
    /// A table that all tokens read from.
    pub small: bool,
    /// What gets a scale: a row of a table, an output of a map.
    pub axis: ScaleAxis,
    /// Maps that multiply with it; none for a table.
    pub uses: Vec<Use>,
}

/// A linear map that multiplies with (a part of) a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Use {
    /// What the map is called ([`Matrix::name`]).
    pub map: String,
    /// The map's inputs that this tensor is multiplied with.
    pub inputs: Range<usize>,
    /// The tensor's outputs that this map computes.
    pub outputs: Range<usize>,
    /// The map's bias.
    pub bias: Option<Bias>,
    /// Whether int8 runs the map on integers; else the weights are floats again and inputs are not rounded.
    pub integer: bool,
}

/// All tensors that may be quantised, in the order of the network. Norms, biases and positions inside scores may not.
pub fn targets(architecture: &Architecture) -> Vec<Target> {
    let mut walk = Walk::default();
    let e = &architecture.embeddings;
    walk.target(&e.word, Part::Embeddings, ScaleAxis::Row);
    let small = [e.positions.as_ref().map(|p| &p.name), e.token_types.as_ref().map(|t| &t.name)];
    for name in small.into_iter().flatten() {
        walk.target(name, Part::Embeddings, ScaleAxis::Row);
        walk.targets[walk.places[name]].small = *name != e.word;
    }
    e.projection.iter().for_each(|linear| walk.linear(linear, Part::Embeddings, false));
    for (number, layer) in architecture.layers.iter().enumerate() {
        walk.layer = Some(number);
        walk.layer(layer);
    }
    walk.layer = None;
    // A bare encoder has no head to speak of.
    if architecture.head.kind != HeadKind::Hidden {
        let linears = architecture.head.stages.iter().filter_map(|stage| stage.linear.as_ref());
        linears.for_each(|linear| walk.linear(linear, Part::Head, false));
    }
    walk.targets
}

#[derive(Default)]
struct Walk {
    targets: Vec<Target>,
    places: BTreeMap<String, usize>,
    /// The layer it is in.
    layer: Option<usize>,
}

impl Walk {
    fn target(&mut self, name: &str, part: Part, axis: ScaleAxis) {
        if !self.places.contains_key(name) {
            self.places.insert(name.to_string(), self.targets.len());
            self.targets.push(Target {
                name: name.to_string(),
                part,
                layer: self.layer,
                small: false,
                axis,
                uses: Vec::new(),
            });
        }
    }

    fn linear(&mut self, linear: &Linear, part: Part, integer: bool) {
        if !linear.is_empty() {
            self.matrix(&linear.weight, linear, part, integer, 0..linear.inputs);
        }
    }

    fn matrix(&mut self, matrix: &Matrix, linear: &Linear, part: Part, integer: bool, inputs: Range<usize>) {
        match matrix {
            Matrix::Tensor { name, in_out, slice } => {
                let axis = if *in_out { ScaleAxis::Column } else { ScaleAxis::Row };
                self.target(name, part, axis);
                let target = &mut self.targets[self.places[name]];
                let (start, end) = slice.unwrap_or((0, linear.outputs));
                let map = linear.weight.name();
                let used = Use { map, inputs, outputs: start..end, bias: linear.bias.clone(), integer };
                // Layers that share weights are one map.
                if target.axis == axis && !target.uses.contains(&used) {
                    target.uses.push(used);
                }
            }
            Matrix::ConcatInputs(parts) => {
                let mut from = inputs.start;
                for (matrix, width) in parts {
                    self.matrix(matrix, linear, part, integer, from..from + width);
                    from += width;
                }
            }
        }
    }

    fn layer(&mut self, layer: &Layer) {
        if let Some(b) = &layer.bottleneck {
            let maps = [Some(&b.input), b.shared.as_ref(), Some(&b.output)].into_iter().flatten();
            maps.for_each(|NormedLinear { linear, .. }| self.linear(linear, Part::Ffn, true));
        }
        self.attention(&layer.attention);
        for ffn in &layer.ffns {
            self.linear(&ffn.up, Part::Ffn, true);
            self.linear(&ffn.down, Part::Ffn, true);
        }
    }

    fn attention(&mut self, a: &Attention) {
        for linear in [&a.query, &a.key, &a.value, &a.output] {
            self.linear(linear, Part::Attention, true);
        }
        // They are mixed into each other when compiled, and what they read is rounded by ranges of its own.
        for linear in a.network.iter().flat_map(|network| network.maps()) {
            self.linear(linear, Part::Attention, false);
        }
        if let Some(w) = &a.window {
            for linear in [&w.global_query, &w.global_key, &w.global_value] {
                self.linear(linear, Part::Attention, true);
            }
        }
    }
}
