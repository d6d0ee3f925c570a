//! The engine: a compiled model.

use crate::arena::{Arena, Arenas};
use crate::batch;
use crate::compile::{Compiled, activation_element, compile};
use crate::embed::Tables;
use crate::layout::Select;
use crate::options::Options;
use crate::profile::{Clock, PartTime};
use crate::program::Program;
use crate::run::{Machine, Observer, rows};
use sparing_kernels::{Chunks, Element, Team, isa};
use sparing_model::{Architecture, Batch, Error, Executor, GlobalTokens, HeadRows, Model, Outputs, Precision, Wanted};

/// Tokens that go through the program together. More would not be faster, and buffers grow with them.
const WAVE_TOKENS: usize = 4096;

/// A model compiled for this machine. Any number of threads may run it at the same time.
pub struct Engine {
    pub(crate) architecture: Architecture,
    pub(crate) machine: Machine,
    pub(crate) programs: Programs,
    pub(crate) arenas: Arenas,
    pub(crate) precision: Precision,
    pub(crate) element: Element,
    once: bool,
    reads_types: bool,
}

/// The programs of an engine.
pub(crate) struct Programs {
    pub(crate) hidden: Program,
    pub(crate) head: Program,
    pub(crate) rows: Option<Program>,
    pub(crate) head_exact: Program,
    pub(crate) rows_exact: Option<Program>,
}

impl Engine {
    /// Compiles a model: packs its weights and writes the programs.
    pub fn compile(model: &Model, options: &Options) -> Result<Engine, Error> {
        isa::choose().map_err(Error::new)?;
        let precision = options.precision.or(model.plan.precision).unwrap_or(Precision::F32);
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let team = Team::new(if options.threads == 0 { cores() } else { options.threads });
        let architecture = model.architecture.clone();
        let tables = Tables::new(&architecture, model.weights.clone())?;
        model.plan.check()?;
        let activations = model.plan.quantization.as_ref().map(|q| q.activations.clone()).unwrap_or_default();
        let head_rows = options.economies.head_rows;
        let compiled = compile(&architecture, &model.weights, precision, &activations, head_rows, &team)?;
        let Compiled { hidden, head, rows, head_exact, rows_exact, locals, constants } = compiled;
        let element = activation_element(precision);
        Ok(Engine {
            arenas: Arenas::new(team.threads(), element, locals),
            reads_types: batch::reads_types(&architecture),
            architecture,
            machine: Machine { team, constants, tables },
            programs: Programs { hidden, head, rows, head_exact, rows_exact },
            precision,
            element,
            once: options.economies.once,
        })
    }

    /// The network.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// How weights are stored and multiplied.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.machine.team.threads()
    }

    /// Bytes of the packed weights and of the tables that runs read.
    pub fn weight_bytes(&self) -> usize {
        self.machine.constants.bytes() + self.machine.tables.bytes()
    }

    /// The same run, with the seconds that each part of each layer took.
    pub fn profile(&self, batch: &Batch) -> Result<(Outputs, Vec<PartTime>), Error> {
        let mut clock = Clock::running();
        let outputs = self.run_with(batch, &mut clock, None)?;
        Ok((outputs, clock.times()))
    }

    /// The program for what a caller wants.
    pub(crate) fn program(&self, wanted: &Wanted) -> &Program {
        match wanted {
            Wanted::Head => &self.programs.head,
            Wanted::Hidden => &self.programs.hidden,
            Wanted::Rows(_) => self.programs.rows.as_ref().unwrap_or(&self.programs.head),
        }
    }

    /// Which rows of a sequence the program selects.
    fn select<'a>(&self, wanted: &'a Wanted, sequence: usize) -> Select<'a> {
        match (wanted, self.architecture.head.rows) {
            (Wanted::Hidden, _) => Select::Nothing,
            (Wanted::Rows(rows), _) => Select::Rows(&rows[sequence]),
            (Wanted::Head, HeadRows::First) => Select::First,
            (Wanted::Head, HeadRows::Last) => Select::Last,
            (Wanted::Head, _) => Select::Nothing,
        }
    }

    pub(crate) fn run_with(
        &self,
        batch: &Batch,
        clock: &mut Clock,
        mut observer: Option<&mut Observer<'_>>,
    ) -> Result<Outputs, Error> {
        batch.check(&self.architecture)?;
        let program = self.program(&batch.wanted);
        let mut outputs = Outputs { width: program.output.width(), sequences: Vec::new() };
        outputs.sequences.resize_with(batch.sequences.len(), Vec::new);
        self.arenas.with(|arena| {
            // Moved out so that the arena can be lent to the run.
            let mut once = std::mem::take(&mut arena.once);
            once.fill(batch, self.once, self.reads_types);
            let mut rest = once.computed.as_slice();
            while !rest.is_empty() {
                let wave;
                (wave, rest) = rest.split_at(self.wave(batch, rest));
                let sequences = wave.iter().map(|i| (&batch.sequences[*i], self.select(&batch.wanted, *i)));
                arena.layout.fill(sequences, self.global_tokens(), 0);
                self.machine.run_observed(program, arena, None, clock, observer.as_deref_mut());
                for (place, number) in wave.iter().enumerate() {
                    outputs.sequences[*number] = result(program, arena, place);
                }
            }
            for (number, like) in once.like.iter().enumerate().filter(|(number, like)| number != *like) {
                outputs.sequences[number] = outputs.sequences[*like].clone();
            }
            arena.once = once;
        });
        Ok(outputs)
    }

    /// How many of the sequences go through together.
    fn wave(&self, batch: &Batch, sequences: &[usize]) -> usize {
        let most = WAVE_TOKENS.max(256 * self.threads());
        let mut tokens = 0;
        let fits = |i: &&usize| {
            tokens += batch.sequences[**i].ids.len();
            tokens <= most
        };
        sequences.iter().take(Chunks::MOST).take_while(fits).count().max(1)
    }

    /// Which tokens attend globally.
    pub(crate) fn global_tokens(&self) -> GlobalTokens {
        self.architecture.head.global_tokens
    }
}

impl Executor for Engine {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        self.run_with(batch, &mut Clock::stopped(), None)
    }
}

/// The result rows of the layout's sequence number `sequence`.
pub(crate) fn result(program: &Program, arena: &Arena, sequence: usize) -> Vec<f32> {
    let range = arena.layout.result_rows(program.output_rows, sequence);
    let all = rows(&arena.full, program.output, arena.layout.count(program.output_rows));
    let mut out = Vec::with_capacity(range.len() * all.width());
    for row in range {
        let from = out.len();
        out.extend_from_slice(all.row_f32(row));
        if program.normalise {
            // As the reference does it: no division by zero for a row of zeros.
            let length = out[from..].iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-12);
            out[from..].iter_mut().for_each(|x| *x /= length);
        }
    }
    out
}
