//! Timing of every combination, interleaved.

use super::{BenchArgs, Output, batch_of};
use crate::attention::read_calibration;
use crate::failure::Failure;
use crate::machine::Stopwatch;
use crate::stats::{Random, Sample};
use crate::{interrupt, peak, progress};
use serde::Serialize;
use sparing_engine::{Engine, Options};
use sparing_model::{Architecture, Executor, Model};

/// Runs of each combination before the timed ones: the first fills buffers, the second is for the clock to settle.
const WARM_UP: usize = 2;

/// Compiled engines and what is to be timed on them.
pub struct Sweep {
    engines: Vec<Engine>,
    architecture: Architecture,
    output: Output,
    cells: Vec<Cell>,
}

/// One combination.
struct Cell {
    engine: usize,
    batch: usize,
    length: usize,
}

/// One line of the result.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Precision of the weights.
    pub precision: &'static str,
    /// How values are computed.
    pub attention: String,
    /// Threads used.
    pub threads: usize,
    /// Sequences per run.
    pub batch: usize,
    /// Tokens per sequence.
    pub length: usize,
    /// Timed runs.
    pub runs: usize,
    /// Median milliseconds of a run.
    pub median_ms: f64,
    /// A tenth of the runs is faster.
    pub p10_ms: f64,
    /// A tenth of the runs is slower.
    pub p90_ms: f64,
    /// Median CPU milliseconds of a run, all threads together.
    pub cpu_ms: f64,
    /// Sequences per second at the median.
    pub sequences_per_second: f64,
    /// Tokens per second at the median.
    pub tokens_per_second: f64,
    /// Arithmetic of the exact model done per second at the median, in GFLOP/s.
    pub gflops: f64,
    /// Share of what so many cores can do at most with this precision, each measured alone.
    pub peak_share: f64,
}

impl Sweep {
    /// Compiles one engine per precision and number of threads.
    pub fn compile(args: &BenchArgs, lengths: &[usize], model: &Model) -> Result<Sweep, Failure> {
        let calibration = read_calibration(&args.calibration, model)?;
        let mut engines = Vec::new();
        let mut cells = Vec::new();
        for precision in args.precisions() {
            for attention in args.attentions() {
                for &threads in &args.threads {
                    interrupt::check()?;
                    let (attention, calibration) = (attention.clone(), calibration.clone());
                    let options = args.machine(precision, threads).options();
                    engines.push(Engine::compile(model, &Options { attention, calibration, ..options })?);
                    for &batch in &args.batch {
                        cells.extend(lengths.iter().map(|&length| Cell { engine: engines.len() - 1, batch, length }));
                    }
                }
            }
        }
        Ok(Sweep { engines, architecture: model.architecture.clone(), output: args.output, cells })
    }

    /// Times everything `repeats` times. After Ctrl-C: the combinations that were timed at least once.
    pub fn measure(&self, repeats: usize, seed: u64) -> Result<Vec<Row>, Failure> {
        let mut laps = vec![Vec::new(); self.cells.len()];
        let mut order: Vec<usize> = (0..self.cells.len()).collect();
        let mut random = Random::new(seed);
        let bar = progress::bar((self.cells.len() * (WARM_UP + repeats)) as u64, "runs");
        'rounds: for round in 0..WARM_UP + repeats {
            random.shuffle(&mut order);
            for &i in &order {
                if interrupt::asked() {
                    break 'rounds;
                }
                let lap = self.time(&self.cells[i])?;
                if round >= WARM_UP {
                    laps[i].push(lap);
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let timed = self.cells.iter().zip(laps).filter(|(_, laps)| !laps.is_empty());
        Ok(timed.map(|(cell, laps)| self.row(cell, &laps)).collect())
    }

    /// Wall and CPU milliseconds of one run.
    fn time(&self, cell: &Cell) -> Result<(f64, f64), Failure> {
        let batch = batch_of(&self.architecture, cell.batch, cell.length, self.output);
        let watch = Stopwatch::start();
        let outputs = self.engines[cell.engine].run(&batch)?;
        let lap = watch.lap();
        std::hint::black_box(outputs);
        Ok((lap.wall.as_secs_f64() * 1e3, lap.cpu.as_secs_f64() * 1e3))
    }

    fn row(&self, cell: &Cell, laps: &[(f64, f64)]) -> Row {
        let engine = &self.engines[cell.engine];
        let wall = Sample::new(laps.iter().map(|lap| lap.0).collect());
        let cpu = Sample::new(laps.iter().map(|lap| lap.1).collect());
        let seconds = wall.median() / 1e3;
        let wanted = batch_of(&self.architecture, cell.batch, cell.length, self.output).wanted;
        let ledger = engine.ledger(&vec![cell.length; cell.batch], &wanted);
        let flops: f64 = ledger.parts.iter().map(|part| part.flops as f64).sum();
        let gflops = flops / seconds / 1e9;
        let peak = peak::gflops(engine.precision()) * engine.threads() as f64;
        Row {
            precision: engine.precision().name(),
            attention: engine.attention().to_string(),
            threads: engine.threads(),
            batch: cell.batch,
            length: cell.length,
            runs: laps.len(),
            median_ms: wall.median(),
            p10_ms: wall.quantile(0.1),
            p90_ms: wall.quantile(0.9),
            cpu_ms: cpu.median(),
            sequences_per_second: cell.batch as f64 / seconds,
            tokens_per_second: (cell.batch * cell.length) as f64 / seconds,
            gflops,
            peak_share: gflops / peak,
        }
    }
}
