//! The engine: a compiled model.

use crate::arena::{Arena, Arenas};
use crate::batch;
use crate::compile::{Compiled, Economised, Precisions, activation_element, compile};
use crate::embed::Tables;
use crate::layout::Select;
use crate::options::{Options, RunOptions};
use crate::profile::{Clock, PartTime};
use crate::program::Program;
use crate::run::{Machine, Observer, rows};
use crate::values::{Spending, Sums};
use sparing_kernels::{Chunks, Element, Team, isa};
use sparing_model::{Architecture, AttentionPlan, Batch, Error, Executor, GlobalTokens, HeadRows, Model, Outputs};
use sparing_model::{Precision, Wanted};
use std::sync::{Arc, Mutex};

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
    attention: AttentionPlan,
    spending: Mutex<Spending>,
}

/// The programs of an engine.
pub(crate) struct Programs {
    pub(crate) hidden: Program,
    pub(crate) head: Program,
    pub(crate) rows: Option<Program>,
    pub(crate) head_exact: Program,
    pub(crate) rows_exact: Option<Program>,
    pub(crate) economised: Option<Economised>,
}

impl Engine {
    /// Compiles a model: packs its weights and writes the programs.
    pub fn compile(model: &Model, options: &Options) -> Result<Engine, Error> {
        isa::choose().map_err(Error::new)?;
        let precision = options.precision.or(model.plan.precision).unwrap_or(Precision::F32);
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let attention = options.attention.clone().or(model.plan.attention.clone()).unwrap_or_default();
        attention.check_for(&model.architecture)?;
        let sampler = attention.mca.as_ref().map(|mca| mca.sampler);
        let calibration = match (&options.calibration, sampler) {
            (Some(given), _) => Some(given.clone()),
            (None, Some(sampler)) if sampler.needs_calibration() => model.calibration()?.map(Arc::new),
            (None, _) => None,
        };
        let team = Team::new(if options.threads == 0 { cores() } else { options.threads });
        let architecture = model.architecture.clone();
        let tables = Tables::new(&architecture, model.weights.clone())?;
        model.plan.check()?;
        let activations = model.plan.quantization.as_ref().map(|q| q.activations.clone()).unwrap_or_default();
        let values = (&attention, calibration.as_deref());
        let precisions = Precisions { all: precision, bf16: &model.plan.bf16 };
        let compiled =
            compile(&architecture, &model.weights, precisions, &activations, options.economies, values, &team)?;
        let Compiled { hidden, head, rows, head_exact, rows_exact, economised, locals, constants } = compiled;
        let element = activation_element(precision);
        Ok(Engine {
            arenas: Arenas::new(team.threads(), element, locals),
            reads_types: batch::reads_types(&architecture),
            architecture,
            machine: Machine { team, constants, tables },
            programs: Programs { hidden, head, rows, head_exact, rows_exact, economised },
            precision,
            element,
            once: options.economies.once,
            attention,
            spending: Mutex::default(),
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
        let outputs = self.run_with(batch, &RunOptions::default(), &mut clock, None)?;
        Ok((outputs, clock.times()))
    }

    /// The run of a batch with choices of its own: the exact model although the plan economises values, another seed.
    pub fn run_as(&self, batch: &Batch, options: &RunOptions) -> Result<Outputs, Error> {
        self.run_with(batch, options, &mut Clock::stopped(), None)
    }

    /// How precisely attention's values are computed.
    pub fn attention(&self) -> &AttentionPlan {
        &self.attention
    }

    /// What was spent on economised values since the engine was made, or [`Engine::reset_spending`].
    pub fn spending(&self) -> Spending {
        *self.spending.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Begins to count anew.
    pub fn reset_spending(&self) {
        *self.spending.lock().unwrap_or_else(|e| e.into_inner()) = Spending::default();
    }

    /// The program for what a caller wants, with economised values if there is one.
    pub(crate) fn planned(&self, wanted: &Wanted) -> Option<&Program> {
        let economised = self.programs.economised.as_ref()?;
        Some(match wanted {
            Wanted::Head => &economised.head,
            Wanted::Hidden => &economised.hidden,
            Wanted::Rows(_) => economised.rows.as_ref().unwrap_or(&economised.head),
        })
    }

    /// The program for what a caller wants, exactly.
    pub(crate) fn program(&self, wanted: &Wanted) -> &Program {
        match wanted {
            Wanted::Head => &self.programs.head,
            Wanted::Hidden => &self.programs.hidden,
            Wanted::Rows(_) => self.programs.rows.as_ref().unwrap_or(&self.programs.head),
        }
    }

    /// Which rows of a sequence the program selects.
    pub(crate) fn select<'a>(&self, wanted: &'a Wanted, sequence: usize) -> Select<'a> {
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
        options: &RunOptions,
        clock: &mut Clock,
        mut observer: Option<&mut Observer<'_>>,
    ) -> Result<Outputs, Error> {
        batch.check(&self.architecture)?;
        let economised = self.planned(&batch.wanted).filter(|_| !options.exact);
        if !options.exact {
            self.attention.check_wanted(&batch.wanted)?;
        }
        let program = economised.unwrap_or_else(|| self.program(&batch.wanted));
        let seed = self.seed(options);
        let mut outputs = Outputs { width: program.output.width(), sequences: Vec::new() };
        outputs.sequences.resize_with(batch.sequences.len(), Vec::new);
        self.arenas.with(|arena| {
            // Moved out so that the arena can be lent to the run.
            let mut once = std::mem::take(&mut arena.once);
            once.fill(batch, self.once, self.reads_types);
            (arena.values.seed, arena.values.spent) = (seed, Spending::default());
            (arena.values.kept_for, arena.values.done) = (None, 0);
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
            if economised.is_some() {
                let done = economised.is_some_and(|program| program.selects).then_some(arena.values.done);
                self.book(&once.computed, batch, &arena.values.spent, done);
            }
            arena.once = once;
        });
        Ok(outputs)
    }

    /// Runs wave by wave like [`Engine::run_as`], exactly, with economised values beside it.
    pub(crate) fn run_examined(
        &self,
        batch: &Batch,
        options: &RunOptions,
        examined: &mut Vec<Sums>,
    ) -> Result<Outputs, Error> {
        batch.check(&self.architecture)?;
        if self.attention.tokens.is_some() || self.attention.keys.is_some() {
            return Err(Error::new("attention: only values can be examined; leave out drop, skip and keys"));
        }
        let program = self.planned(&batch.wanted).ok_or_else(|| {
            Error::new("attention is exact: there is nothing to examine; give --attention, such as mca:0.4")
        })?;
        let mut outputs = Outputs { width: program.output.width(), sequences: Vec::new() };
        self.arenas.with(|arena| {
            let all: Vec<usize> = (0..batch.sequences.len()).collect();
            let mut rest = &all[..];
            (arena.values.seed, arena.values.kept_for) = (self.seed(options), None);
            while !rest.is_empty() {
                let wave;
                (wave, rest) = rest.split_at(self.wave(batch, rest));
                let sequences = wave.iter().map(|i| (&batch.sequences[*i], self.select(&batch.wanted, *i)));
                arena.layout.fill(sequences, self.global_tokens(), 0);
                let mut layers = Vec::new();
                self.machine.run_examined(program, arena, &mut layers);
                outputs.sequences.extend((0..wave.len()).map(|place| result(program, arena, place)));
                if examined.is_empty() {
                    *examined = layers;
                } else {
                    examined.iter_mut().zip(layers).for_each(|(all, layer)| all.join(layer));
                }
            }
        });
        Ok(outputs)
    }

    /// Seed of a run's draws.
    fn seed(&self, options: &RunOptions) -> u64 {
        options.seed.or(self.attention.mca.as_ref().map(|mca| mca.seed)).unwrap_or(0)
    }

    /// Books what a run with economised values spent. `done`: operations on the tokens that were computed, with exact
    /// values, if some may not have been.
    fn book(&self, computed: &[usize], batch: &Batch, spent: &Spending, done: Option<u64>) {
        let lengths: Vec<usize> = computed.iter().map(|i| batch.sequences[*i].ids.len()).collect();
        let wanted = match &batch.wanted {
            Wanted::Rows(rows) => Wanted::Rows(computed.iter().map(|i| rows[*i].clone()).collect()),
            other => other.clone(),
        };
        let mut spent = *spent;
        (spent.model_exact, spent.mixing) = self.exact_flops(&lengths, &wanted);
        spent.skipped = done.map_or(0, |done| spent.model_exact.saturating_sub(done));
        self.spending.lock().unwrap_or_else(|e| e.into_inner()).join(&spent);
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
        self.run_as(batch, &RunOptions::default())
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
