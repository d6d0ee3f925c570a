//! The compiled form of a model: segments of steps over buffers.

use sparing_kernels::Activation;
use sparing_kernels::attention::By;
use sparing_model::{Keep, LayerTokens};

/// Which rows a segment works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowSet {
    /// Every token.
    All,
    /// The tokens the head reads.
    Selected,
    /// The tokens that attend globally (windowed models).
    Globals,
    /// The tokens the head reads that also attend globally.
    SelectedGlobals,
    /// The tokens that do not skip the layer's feed-forward blocks.
    Busy,
    /// One row per sequence (after pooling).
    Sequences,
}

/// The buffers that hold all rows of a set, because attention or a later segment reads them.
/// Everything else lives in chunk-sized local buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The residual stream, f32.
    X,
    /// Queries, keys and values side by side.
    Qkv,
    /// What attention returns.
    Context,
    /// The residual stream inside a bottlenecked layer, f32.
    Narrow,
    /// Keys and values that global queries see.
    GlobalKv,
    /// The residual stream of the selected rows, f32.
    XSelected,
    /// Queries of the selected rows.
    QSelected,
    /// What attention returns for the selected rows.
    ContextSelected,
    /// [`Full::Narrow`] of the selected rows.
    NarrowSelected,
    /// The residual stream of the global rows, f32.
    XGlobal,
    /// Queries of the global rows.
    QGlobal,
    /// What attention returns for the global rows.
    ContextGlobal,
    /// One pooled row per sequence, f32.
    Pooled,
    /// The normed residual stream, where norms come first and values are computed after the scores.
    Normed,
    /// The residual stream of the busy rows, f32.
    XBusy,
    /// What the head returns, f32.
    Out,
}

impl Full {
    /// How many there are.
    pub(crate) const COUNT: usize = Full::Out as usize + 1;

    /// All, in order.
    pub(crate) const EVERY: [Full; Full::COUNT] = [
        Full::X,
        Full::Qkv,
        Full::Context,
        Full::Narrow,
        Full::GlobalKv,
        Full::XSelected,
        Full::QSelected,
        Full::ContextSelected,
        Full::NarrowSelected,
        Full::XGlobal,
        Full::QGlobal,
        Full::ContextGlobal,
        Full::Pooled,
        Full::Normed,
        Full::XBusy,
        Full::Out,
    ];

    /// Whether the elements follow the precision (bf16 where that pays), rather than being f32 always.
    pub(crate) fn follows_precision(self) -> bool {
        use Full::*;
        matches!(self, Normed | Qkv | Context | GlobalKv | QSelected | ContextSelected | QGlobal | ContextGlobal)
    }
}

/// Where a view's buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// All rows.
    Full(Full),
    /// A chunk's rows, in the worker's own buffer of this number.
    Local(usize),
}

/// Some columns of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) place: Place,
    /// Elements in one row of the buffer.
    pub(crate) stride: usize,
    /// First column.
    pub(crate) start: usize,
    /// One past the last column.
    pub(crate) end: usize,
}

impl View {
    /// All columns of a full buffer.
    pub(crate) fn full(full: Full, width: usize) -> Self {
        View { place: Place::Full(full), stride: width, start: 0, end: width }
    }

    /// Some of the columns.
    pub(crate) fn columns(self, start: usize, end: usize) -> Self {
        debug_assert!(self.start + end <= self.end);
        View { start: self.start + start, end: self.start + end, ..self }
    }

    /// Columns seen.
    pub(crate) fn width(self) -> usize {
        self.end - self.start
    }
}

/// What a step's time and arithmetic are booked under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Embeddings,
    Bottleneck,
    Qkv,
    Positions,
    Scores,
    Importance,
    Values,
    AttentionOutput,
    FfnUp,
    FfnDown,
    Norms,
    Head,
}

impl Part {
    /// All, in the order they are reported.
    pub(crate) const EVERY: [Part; 12] = [
        Part::Embeddings,
        Part::Bottleneck,
        Part::Qkv,
        Part::Positions,
        Part::Scores,
        Part::Importance,
        Part::Values,
        Part::AttentionOutput,
        Part::FfnUp,
        Part::FfnDown,
        Part::Norms,
        Part::Head,
    ];

    /// The name users see.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Embeddings => "embeddings",
            Part::Bottleneck => "bottleneck",
            Part::Qkv => "qkv",
            Part::Positions => "positions",
            Part::Scores => "scores",
            Part::Importance => "importance",
            Part::Values => "values",
            Part::AttentionOutput => "attention output",
            Part::FfnUp => "ffn up",
            Part::FfnDown => "ffn down",
            Part::Norms => "norms and activations",
            Part::Head => "head",
        }
    }
}

/// One step of a row-local segment. No input is the output, except of a norm in place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) name: &'static str,
    pub(crate) layer: Option<usize>,
    pub(crate) part: Part,
    /// Runs only if this row set has rows.
    pub(crate) only_if: Option<RowSet>,
}

/// What a [`Step`] does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Op {
    /// `out = word[id]`, or the trigram.
    Words { out: View },
    /// `out += position[p] + type[t]`.
    AddPlaces { out: View },
    /// `out = activation(W input + b) + residual · scale`; `matrix` and `scale` are numbers in [`crate::compile::Constants`].
    Linear {
        input: View,
        matrix: usize,
        activation: Activation,
        residual: Option<View>,
        scale: Option<usize>,
        out: View,
    },
    /// `out = norm(input)`; may be in place.
    Norm { input: View, norm: usize, out: View },
    /// `out = input + constant`, whose number in [`crate::compile::Constants`] it is: what is left of a removed block.
    Shift { input: View, constant: usize, out: View },
    /// `out = activation(input)`; for activations that follow no linear map.
    Copy { input: View, activation: Activation, out: View },
}

impl Op {
    /// What is read.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = View> {
        let (a, b) = match self {
            Op::Words { .. } => (None, None),
            Op::AddPlaces { out } => (Some(*out), None),
            Op::Linear { input, residual, .. } => (Some(*input), *residual),
            Op::Norm { input, .. } | Op::Shift { input, .. } | Op::Copy { input, .. } => (Some(*input), None),
        };
        a.into_iter().chain(b)
    }

    /// What is written.
    pub(crate) fn output(&self) -> View {
        match self {
            Op::Words { out } | Op::AddPlaces { out } => *out,
            Op::Linear { out, .. } | Op::Norm { out, .. } | Op::Shift { out, .. } | Op::Copy { out, .. } => *out,
        }
    }
}

/// A full buffer that a row-local segment touches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Use {
    pub(crate) full: Full,
    pub(crate) stride: usize,
    pub(crate) write: bool,
}

/// Consecutive steps in which a row's result depends only on that row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowLocal {
    pub(crate) rows: RowSet,
    pub(crate) steps: Vec<Step>,
    pub(crate) uses: Vec<Use>,
}

impl RowLocal {
    /// Finds out which full buffers the steps touch.
    pub(crate) fn new(rows: RowSet, steps: Vec<Step>) -> Self {
        let mut uses: Vec<Use> = Vec::new();
        let mut note = |view: View, write: bool| {
            if let Place::Full(full) = view.place {
                match uses.iter_mut().find(|u| u.full == full) {
                    Some(known) => {
                        debug_assert_eq!(known.stride, view.stride);
                        known.write |= write;
                    }
                    None => uses.push(Use { full, stride: view.stride, write }),
                }
            }
        };
        for step in &steps {
            step.op.inputs().for_each(|view| note(view, false));
            note(step.op.output(), true);
        }
        RowLocal { rows, steps, uses }
    }
}

/// One attention: `out = softmax(q kᵀ scale + bias) v` for the queries of a row set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attend {
    pub(crate) layer: usize,
    pub(crate) heads: usize,
    pub(crate) head_width: usize,
    pub(crate) scale: f32,
    pub(crate) causal: bool,
    pub(crate) window: Option<usize>,
    /// Number of the position table in [`crate::compile::Constants`].
    pub(crate) positions: Positions,
    pub(crate) queries: RowSet,
    pub(crate) q: View,
    pub(crate) k: View,
    pub(crate) v: View,
    pub(crate) out: View,
    /// Over which keys; `None`: over all.
    pub(crate) keys: Option<ChosenKeys>,
    /// Number of the network in softmax's place in [`crate::compile::Constants`].
    pub(crate) network: Option<usize>,
}

/// The keys of an attention that looks at some only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ChosenKeys {
    pub(crate) by: By,
    pub(crate) keep: Keep,
    /// The ends of a sequence and of its parts are kept before all others.
    pub(crate) ends: bool,
}

/// Values of all tokens, as precise as an attention needs them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Values {
    /// The attention that will read them.
    pub(crate) attend: Attend,
    /// The rows they are computed from.
    pub(crate) input: View,
    /// Number of the economy in [`crate::compile::Constants`].
    pub(crate) economy: usize,
}

/// Decides which tokens leave or are merged into others, and which ones stay busy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Select {
    /// The attention that comes next.
    pub(crate) attend: Attend,
    /// By what.
    pub(crate) tokens: LayerTokens,
}

/// Position information inside the scores; the numbers index [`crate::compile::Constants`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Positions {
    None,
    Buckets(usize),
    Relative(usize),
}

/// How rows of a sequence become one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum PoolKind {
    Mean,
    Max,
}

/// One part of a program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Segment {
    /// Rows on their own.
    RowLocal(RowLocal),
    /// Values within budgets, before the attention that reads them.
    Values(Values),
    /// Rows mixed.
    Attend(Attend),
    /// Tokens chosen by the attention that comes next.
    Select(Select),
    /// The tokens that were chosen to leave do, and are merged into others if they are to be: those close ranks in these
    /// buffers.
    Drop([View; 2]),
    /// `to[i] = from[row i of the set]`.
    Gather { rows: RowSet, from: View, to: View },
    /// `to[row i of the set] = from[i]`; the set's places in `to`'s own row set.
    Scatter { rows: RowSet, from: View, to: View },
    /// One row per sequence.
    Pool { kind: PoolKind, from: View, to: View },
}

/// A whole program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Program {
    pub(crate) segments: Vec<Segment>,
    /// Where the result is.
    pub(crate) output: View,
    /// Whose rows the result holds.
    pub(crate) output_rows: RowSet,
    /// Result rows are scaled to unit length.
    pub(crate) normalise: bool,
    /// Whether tokens leave or skip something, or keys are chosen: what is done is counted while it is.
    pub(crate) selects: bool,
}
