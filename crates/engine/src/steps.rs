//! What a compiled program consists of, for people and tests to look at.

use crate::Engine;
use crate::program::{Op, Part, PoolKind, Program, Segment};
use sparing_kernels::{Activation, Format};
use sparing_model::{NormKind, Wanted};
use std::collections::HashSet;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// Reads embedding tables.
    Lookup,
    /// Multiplies by a packed matrix.
    Linear,
    /// Normalises rows.
    Norm,
    /// Attention: the only arithmetic that mixes rows.
    Attention,
    /// Adds a constant: what is left of a removed block.
    Shift,
    /// Moves rows.
    Move,
    /// Makes one row of a sequence's rows.
    Pool,
}

/// One step of a compiled program.
#[derive(Debug, Clone, PartialEq)]
pub struct StepInfo {
    /// For people: "layer 3 ffn up".
    pub name: String,
    /// The layer, if it belongs to one.
    pub layer: Option<usize>,
    /// The part that a ledger books it under.
    pub part: &'static str,
    /// What it does.
    pub kind: StepKind,
    /// Linear: outputs and inputs. Attention: heads and head width. Else: width and 1.
    pub shape: (usize, usize),
    /// Numbers it reads from the weights, biases included.
    pub parameters: usize,
    /// Whether an earlier step reads the same weights.
    pub shared: bool,
    /// What it computes beside sums, products and comparisons.
    pub functions: &'static [Function],
    /// Whether its products are of bytes: a linear map in int8, a network in softmax's place where texts are not short.
    pub bytes: bool,
}

/// What is neither a sum, nor a product, nor a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `exp`, and what is made of it: tanh, the logistic function.
    Exponential,
    /// `erf`.
    ErrorFunction,
    /// `sqrt`.
    SquareRoot,
    /// A division by a number that is not known beforehand.
    Division,
}

const SOFTMAX: &[Function] = &[Function::Exponential, Function::Division];
const NORM: &[Function] = &[Function::SquareRoot, Function::Division];

/// What an activation computes.
fn of_activation(activation: Activation) -> &'static [Function] {
    match activation {
        Activation::Identity | Activation::Relu | Activation::Clip => &[],
        Activation::Gelu => &[Function::ErrorFunction, Function::Division],
        Activation::GeluTanh | Activation::Tanh | Activation::Silu => &[Function::Exponential, Function::Division],
    }
}

impl Engine {
    /// The steps of the program that runs when a caller wants what the head reads, in order.
    pub fn steps(&self) -> impl Iterator<Item = StepInfo> {
        self.steps_for(&Wanted::Head)
    }

    /// The steps of the program that runs when a caller wants this, in order. With rows chosen all that counts is that they are.
    pub fn steps_for(&self, wanted: &Wanted) -> impl Iterator<Item = StepInfo> {
        self.describe(self.program(wanted)).into_iter()
    }

    fn describe(&self, program: &Program) -> Vec<StepInfo> {
        let e = &self.architecture.embeddings;
        let mut steps = Vec::new();
        let mut seen = HashSet::new();
        // The last: what it computes beside sums, products and comparisons, and whether its products are of bytes.
        type Arithmetic = (&'static [Function], bool);
        let mut add =
            |name: &str, layer: Option<usize>, part: Part, kind, shape, parameters, shared, how: Arithmetic| {
                let name = layer.map_or(name.to_string(), |layer| format!("layer {layer} {name}"));
                let (part, (functions, bytes)) = (part.name(), how);
                steps.push(StepInfo { name, layer, part, kind, shape, parameters, shared, functions, bytes });
            };
        for segment in &program.segments {
            match segment {
                Segment::RowLocal(local) => {
                    for step in &local.steps {
                        let width = step.op.output().width();
                        let bytes = matches!(step.op, Op::Linear { matrix, .. } if self.in_bytes(matrix));
                        let (kind, shape, parameters, shared) = match step.op {
                            Op::Words { .. } => (StepKind::Lookup, (width, 1), e.vocabulary * e.width, false),
                            Op::AddPlaces { .. } => {
                                let positions = e.positions.as_ref().map_or(0, |p| p.rows);
                                let types = e.token_types.as_ref().map_or(0, |t| t.rows);
                                (StepKind::Lookup, (width, 1), (positions + types) * width, false)
                            }
                            Op::Linear { matrix, .. } => {
                                let packed = &self.machine.constants.matrices[matrix];
                                let shape = (packed.matrix.outputs(), packed.matrix.inputs());
                                (StepKind::Linear, shape, packed.parameters(), !seen.insert((0, matrix)))
                            }
                            Op::Norm { norm, .. } => (StepKind::Norm, (width, 1), 2 * width, !seen.insert((1, norm))),
                            Op::Shift { constant, .. } => {
                                (StepKind::Shift, (width, 1), width, !seen.insert((2, constant)))
                            }
                            Op::Copy { .. } => (StepKind::Move, (width, 1), 0, false),
                        };
                        add(
                            step.name,
                            step.layer,
                            step.part,
                            kind,
                            shape,
                            parameters,
                            shared,
                            (self.functions(&step.op), bytes),
                        );
                    }
                }
                Segment::Values(values) => {
                    let matrix = self.machine.constants.economies[values.economy].matrix;
                    let packed = &self.machine.constants.matrices[matrix];
                    let shape = (packed.matrix.outputs(), packed.matrix.inputs());
                    let shared = !seen.insert((0, matrix));
                    let layer = Some(values.attend.layer);
                    add(
                        "value",
                        layer,
                        Part::Qkv,
                        StepKind::Linear,
                        shape,
                        packed.parameters(),
                        shared,
                        (SOFTMAX, self.in_bytes(matrix)),
                    );
                }
                Segment::Attend(a) => {
                    let shape = (a.heads, a.head_width);
                    let network = a.network.map(|number| &self.machine.constants.networks[number]);
                    let parameters = network.map_or(0, |network| network.parameters());
                    // A network's ranges are found, and inverted, without a division.
                    let how: Arithmetic = network.map_or((SOFTMAX, false), |network| (&[], network.in_bytes()));
                    let shared = a.network.is_some_and(|number| !seen.insert((3, number)));
                    let part = Part::Scores;
                    add("attention", Some(a.layer), part, StepKind::Attention, shape, parameters, shared, how);
                }
                Segment::Select(select) => {
                    let shape = (select.attend.heads, 1);
                    add(
                        "choice of tokens",
                        Some(select.attend.layer),
                        Part::Importance,
                        StepKind::Move,
                        shape,
                        0,
                        false,
                        (SOFTMAX, false),
                    );
                }
                Segment::Drop([x, _]) => {
                    add("drop rows", None, Part::Importance, StepKind::Move, (x.width(), 1), 0, false, (&[], false));
                }
                Segment::Gather { to, .. } => {
                    add("gather rows", None, Part::Head, StepKind::Move, (to.width(), 1), 0, false, (&[], false));
                }
                Segment::Scatter { to, .. } => {
                    add("scatter rows", None, Part::Head, StepKind::Move, (to.width(), 1), 0, false, (&[], false));
                }
                Segment::Pool { kind, to, .. } => {
                    let functions: &[Function] = if *kind == PoolKind::Mean { &[Function::Division] } else { &[] };
                    add("pool", None, Part::Head, StepKind::Pool, (to.width(), 1), 0, false, (functions, false));
                }
            }
        }
        if program.normalise {
            let width = program.output.width();
            add("unit length", None, Part::Head, StepKind::Norm, (width, 1), 0, false, (NORM, false));
        }
        steps
    }

    /// Whether a linear map multiplies bytes.
    fn in_bytes(&self, matrix: usize) -> bool {
        self.machine.constants.matrices[matrix].matrix.format() == Format::Int8
    }

    /// What a row-local step computes beside sums, products and comparisons.
    fn functions(&self, op: &Op) -> &'static [Function] {
        match op {
            Op::Words { .. } | Op::AddPlaces { .. } | Op::Shift { .. } => &[],
            Op::Linear { matrix, activation, .. } => match of_activation(*activation) {
                [] if self.machine.constants.matrices[*matrix].matrix.divides() => &[Function::Division],
                functions => functions,
            },
            Op::Norm { norm, .. } if self.machine.constants.norms[*norm].kind == NormKind::Layer => NORM,
            Op::Norm { .. } => &[],
            Op::Copy { activation, .. } => of_activation(*activation),
        }
    }
}
