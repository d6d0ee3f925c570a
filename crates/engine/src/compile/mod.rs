//! From architecture, plan and weights to programs.
//!
//! Matrices that are stored as integers are taken as they are for int8, at any width; nothing is rounded twice.
//!
//! What is stored how: attention and feed-forward maps and bottlenecks follow the precision, but for blocks of an int8
//! model that the plan has in bf16. The embedding
//! projection and the head's small maps stay f32: they cost nothing and answers are read from them. A
//! vocabulary decoder is as large as the embeddings, so it follows the precision, but int8 decoders stay
//! bf16: rounding logits of near-equal words would reorder them. With bf16 and int8, what goes between
//! attention and its projections and inside feed-forward blocks is bf16 where the machine multiplies bf16;
//! the residual stream is always f32.

mod code;
mod constants;
mod head;
mod layer;
mod network;

use crate::options::Economies;
use crate::program::{Full, Op, Part, Program, RowSet, Segment, View};
use crate::values::Economy;
use code::Code;
use constants::Collector;
pub(crate) use constants::{Constants, Packed};
use layer::Reach;
use sparing_kernels::{Activation, Element, Format, Team, isa};
use sparing_model::{
    Activations, Architecture, AttentionPlan, Blocks, Calibration, Error, HeadRows, Keys, Linear, Mca, Norm, NormKind,
    Precision, ProjectionPlace, Tokens, Weights,
};
use std::collections::BTreeMap;

/// What a program computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The last hidden state of all rows.
    Hidden,
    /// The head on every row, or on the pooled rows.
    Head,
    /// The head on selected rows, which are selected before the queries of the last attention.
    Early,
    /// The head on selected rows, which are selected after the last layer.
    Late,
}

/// Programs for every mode that the head allows, and the numbers they share.
pub(crate) struct Compiled {
    pub(crate) hidden: Program,
    /// For what the head reads by itself.
    pub(crate) head: Program,
    /// For rows the caller wants, where the head answers per token.
    pub(crate) rows: Option<Program>,
    /// What [`Compiled::head`] would be without economies.
    pub(crate) head_exact: Program,
    /// What [`Compiled::rows`] would be without economies.
    pub(crate) rows_exact: Option<Program>,
    /// The first three with economised values, tokens or keys, if the plan has any.
    pub(crate) economised: Option<Economised>,
    /// Element types of the local buffers.
    pub(crate) locals: Vec<Element>,
    pub(crate) constants: Constants,
}

/// Programs with economised values, tokens or keys.
pub(crate) struct Economised {
    pub(crate) hidden: Program,
    pub(crate) head: Program,
    pub(crate) rows: Option<Program>,
}

/// Element type of activations that follow the precision.
pub(crate) fn activation_element(precision: Precision) -> Element {
    let narrow = precision != Precision::F32 && isa::has_bf16(isa::active());
    if narrow { Element::Bf16 } else { Element::F32 }
}

/// How linear maps are multiplied.
#[derive(Clone, Copy)]
pub(crate) struct Precisions<'a> {
    pub(crate) all: Precision,
    /// Blocks that stay in bf16 where all is int8.
    pub(crate) bf16: &'a BTreeMap<usize, Blocks>,
}

impl Precisions<'_> {
    /// The format of a layer's attention.
    fn attention(&self, layer: usize) -> Format {
        self.format(layer, |blocks| blocks.attention)
    }

    /// The format of a layer's feed-forward blocks and bottlenecks.
    fn ffn(&self, layer: usize) -> Format {
        self.format(layer, |blocks| blocks.ffn)
    }

    fn format(&self, layer: usize, stays: impl Fn(&Blocks) -> bool) -> Format {
        match self.all {
            Precision::F32 => Format::F32,
            Precision::Int8 if !self.bf16.get(&layer).is_some_and(stays) => Format::Int8,
            Precision::Int8 | Precision::Bf16 => Format::Bf16,
        }
    }
}

/// Compiles everything.
pub(crate) fn compile(
    architecture: &Architecture,
    weights: &Weights,
    precisions: Precisions<'_>,
    activations: &Activations,
    economies: Economies,
    (attention, calibration): (&AttentionPlan, Option<&Calibration>),
    team: &Team,
) -> Result<Compiled, Error> {
    let mca = attention.mca.as_ref();
    let mut compiler = Compiler::new(architecture, weights, precisions, economies, attention);
    let select = if economies.head_rows { Mode::Early } else { Mode::Late };
    let (head, head_exact) = match architecture.head.rows {
        HeadRows::All | HeadRows::Mean | HeadRows::Max => (Mode::Head, Mode::Head),
        HeadRows::First | HeadRows::Last => (select, Mode::Late),
    };
    let per_token = architecture.head.rows == HeadRows::All;
    let rows = per_token.then(|| compiler.program(select)).transpose()?;
    let rows_exact = per_token.then(|| compiler.program(Mode::Late)).transpose()?;
    let head_mode = head;
    let (hidden, head) = (compiler.program(Mode::Hidden)?, compiler.program(head_mode)?);
    let head_exact = compiler.program(head_exact)?;
    let mut economised = None;
    if mca.is_some() || attention.tokens.is_some() || attention.keys.is_some() {
        compiler.economise = true;
        economised = Some(Economised {
            hidden: compiler.program(Mode::Hidden)?,
            head: compiler.program(head_mode)?,
            rows: per_token.then(|| compiler.program(select)).transpose()?,
        });
    }
    let locals = compiler.locals;
    let economies = std::mem::take(&mut compiler.collector.economies);
    let mut constants = compiler.collector.finish(activations, team)?;
    if let Some(mca) = mca {
        for (layer, matrix) in economies {
            let alpha = mca.alpha_of(layer).unwrap_or(mca.alpha);
            let value = (matrix, &constants.matrices[matrix]);
            let layer = (layer, &architecture.layers[layer]);
            let economy = Economy::new(layer, (mca, alpha), calibration, weights, value)?;
            constants.economies.push(economy);
        }
    }
    Ok(Compiled { hidden, head, rows, head_exact, rows_exact, economised, locals, constants })
}

/// State of a compilation.
struct Compiler<'a> {
    architecture: &'a Architecture,
    collector: Collector<'a>,
    precisions: Precisions<'a>,
    /// Format of a vocabulary decoder.
    decoder_format: Format,
    /// Element type of activations that follow the precision.
    element: Element,
    /// The last layer's queries may be computed for fewer rows than its keys and values.
    may_select: bool,
    /// Norms are folded into linear maps where they can be.
    fold: bool,
    /// Element types of the local buffers, the same for all programs.
    locals: Vec<Element>,
    /// How values are economised, if they are.
    mca: Option<&'a Mca>,
    /// Which tokens are economised, if any are.
    tokens: Option<&'a Tokens>,
    /// Which keys attention looks at, if not all.
    keys: Option<&'a Keys>,
    /// Whether the program at hand does so.
    economise: bool,
}

impl<'a> Compiler<'a> {
    fn new(
        architecture: &'a Architecture,
        weights: &'a Weights,
        precisions: Precisions<'a>,
        economies: Economies,
        attention: &'a AttentionPlan,
    ) -> Self {
        let decoder_format = if precisions.all == Precision::F32 { Format::F32 } else { Format::Bf16 };
        let may_select = economies.head_rows && !matches!(architecture.head.rows, HeadRows::Mean | HeadRows::Max);
        let element = activation_element(precisions.all);
        let (collector, locals) = (Collector::new(weights), Vec::new());
        Compiler {
            architecture,
            collector,
            precisions,
            decoder_format,
            element,
            may_select,
            fold: economies.fold,
            locals,
            mca: attention.mca.as_ref(),
            tokens: attention.tokens.as_ref(),
            keys: attention.keys.as_ref(),
            economise: false,
        }
    }

    fn program(&mut self, mode: Mode) -> Result<Program, Error> {
        let architecture = self.architecture;
        let mut code = Code::new(std::mem::take(&mut self.locals));
        self.embeddings(&mut code)?;
        // The last attention is the last to need all rows.
        let last = architecture.last_attention();
        let selected = mode == Mode::Early;
        if selected && last.is_none() {
            self.select(&mut code);
        }
        for (index, layer) in architecture.layers.iter().enumerate() {
            let reach = match selected {
                true if last == Some(index) => Reach::Early,
                true if last < Some(index) => Reach::Selected,
                _ => Reach::All,
            };
            self.layer(&mut code, index, layer, reach)?;
        }
        let (mut rows, mut x) = if selected {
            (RowSet::Selected, View::full(Full::XSelected, architecture.hidden))
        } else {
            (RowSet::All, View::full(Full::X, architecture.hidden))
        };
        if let Some(norm) = &architecture.final_norm {
            self.norm(&mut code, ("final norm", None, Part::Norms), norm, x, x)?;
        }
        if mode == Mode::Late {
            (rows, x) = (RowSet::Selected, self.select(&mut code));
        }
        let mut normalise = false;
        if mode != Mode::Hidden {
            (rows, x, normalise) = self.head(&mut code, rows, x)?;
        }
        code.next_rows(RowSet::All);
        self.locals = code.locals;
        let selects = code.segments.iter().any(|segment| match segment {
            Segment::Select(_) => true,
            Segment::Attend(attend) => attend.keys.is_some(),
            _ => false,
        });
        Ok(Program { segments: code.segments, output: x, output_rows: rows, normalise, selects })
    }

    /// Goes on with the rows that the head reads. Returns where they are.
    fn select(&self, code: &mut Code) -> View {
        let [from, to] = [Full::X, Full::XSelected].map(|full| View::full(full, self.architecture.hidden));
        code.segment(Segment::Gather { rows: RowSet::Selected, from, to });
        code.next_rows(RowSet::Selected);
        to
    }

    /// A linear step of one matrix.
    fn linear(
        &mut self,
        code: &mut Code,
        what: (&'static str, Option<usize>, Part),
        linear: &'a Linear,
        format: Format,
        activation: Activation,
        (input, residual, out): (View, Option<View>, View),
    ) -> Result<(), Error> {
        check_widths(what.0, linear, input, out)?;
        let matrix = self.collector.matrix(&[(linear, None)], format);
        code.step(what.0, what.1, what.2, Op::Linear { input, matrix, activation, residual, scale: None, out });
        Ok(())
    }

    /// Whether a norm can be part of the linear map before it.
    fn folds(&self, norm: &Norm) -> bool {
        self.fold && norm.kind != NormKind::Layer
    }

    /// `out = norm(W input + b + residual)` as one step, for a norm that [folds](Compiler::folds).
    fn folded(
        &mut self,
        code: &mut Code,
        what: (&'static str, Option<usize>, Part),
        (linear, norm): (&'a Linear, &Norm),
        format: Format,
        (input, residual, out): (View, Option<View>, View),
    ) -> Result<(), Error> {
        check_widths(what.0, linear, input, out)?;
        let (matrix, scale) = self.collector.folded(linear, norm, format)?;
        let (activation, scale) = (Activation::Identity, residual.map(|_| scale));
        code.step(what.0, what.1, what.2, Op::Linear { input, matrix, activation, residual, scale, out });
        Ok(())
    }

    /// Token ids to [`Full::X`].
    fn embeddings(&mut self, code: &mut Code) -> Result<(), Error> {
        let architecture = self.architecture;
        let e = &architecture.embeddings;
        let x = View::full(Full::X, architecture.hidden);
        let before = e.projection.as_ref().filter(|_| e.projection_place == ProjectionPlace::BeforeSum);
        let after = e.projection.as_ref().filter(|_| e.projection_place == ProjectionPlace::AfterNorm);
        let words = if e.trigram { 3 * e.width } else { e.width };
        // How many times rows still move to another buffer; the last move goes to the residual stream.
        let mut moves = 1 + before.is_some() as usize + e.norm.is_some() as usize + after.is_some() as usize;
        let mut next = |code: &mut Code, width: usize| {
            moves -= 1;
            if moves > 0 { code.local(width, Element::F32) } else { x }
        };
        let part = Part::Embeddings;
        let mut at = next(code, words);
        code.step("words", None, part, Op::Words { out: at });
        if let Some(projection) = before {
            let out = next(code, projection.outputs);
            let what = ("embedding projection", None, part);
            self.linear(code, what, projection, Format::F32, Activation::Identity, (at, None, out))?;
            code.free(at);
            at = out;
        }
        if e.positions.is_some() || e.token_types.is_some() {
            code.step("positions and types", None, part, Op::AddPlaces { out: at });
        }
        if let Some(norm) = &e.norm {
            let out = next(code, norm.width);
            self.norm(code, ("embedding norm", None, part), norm, at, out)?;
            code.free(at);
            at = out;
        }
        if let Some(projection) = after {
            let out = next(code, projection.outputs);
            let what = ("embedding projection", None, part);
            self.linear(code, what, projection, Format::F32, Activation::Identity, (at, None, out))?;
            code.free(at);
            at = out;
        }
        if at.width() != architecture.hidden {
            return Err(Error::new(format!(
                "embeddings are {} wide but the layers are {}",
                at.width(),
                architecture.hidden
            )));
        }
        Ok(())
    }
}

/// A map must fit what it reads and writes.
fn check_widths(name: &str, linear: &Linear, input: View, out: View) -> Result<(), Error> {
    if input.width() == linear.inputs && out.width() == linear.outputs {
        return Ok(());
    }
    let (outputs, inputs) = (linear.outputs, linear.inputs);
    let (from, to) = (input.width(), out.width());
    Err(Error::new(format!("{name}: {outputs} x {inputs} weights cannot map rows of {from} to rows of {to}")))
}

/// The kernels' name for an activation.
pub(crate) fn activation(activation: sparing_model::Activation) -> Activation {
    use sparing_model::Activation as A;
    match activation {
        A::Identity => Activation::Identity,
        A::Gelu => Activation::Gelu,
        A::GeluTanh => Activation::GeluTanh,
        A::Relu => Activation::Relu,
        A::Tanh => Activation::Tanh,
        A::Silu => Activation::Silu,
        A::Clip => Activation::Clip,
    }
}
