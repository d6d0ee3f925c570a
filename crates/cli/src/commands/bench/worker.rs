//! A worker for the comparison with peers in `bench/`, which drives every engine over the same protocol.
//!
//! Says `READY <load seconds>`, then answers lines:
//! - `<batch> <length> <runs>`: `<wall ms>:<cpu ms> ... | <resident KiB> <highest KiB>`
//! - `ids <id> ...`: the outputs for one sequence, `<number> ... | <resident KiB> <highest KiB>`
//! - `dump <path> <batch> <length>`: writes the outputs as little-endian f32, sequences end to end, and says
//!   `| <resident KiB> <highest KiB>`
//!
//! A line that cannot be answered ends the worker with an error; an empty line or the end of input without.

use super::{BenchArgs, batch_of, check_length};
use crate::args::positive;
use crate::failure::Failure;
use crate::machine::{Stopwatch, memory};
use sparing_engine::Engine;
use sparing_model::{Architecture, Batch, Executor, Sequence, Wanted};
use std::io::{BufRead, Write};
use std::time::Instant;

struct Worker {
    engine: Engine,
    architecture: Architecture,
    output: super::Output,
}

/// Serves until the input ends.
pub fn serve(args: &BenchArgs) -> Result<(), Failure> {
    let start = Instant::now();
    let model = args.model.open()?;
    let precision = args.precision.first().copied();
    let threads = args.threads.first().copied().unwrap_or(0);
    let engine = Engine::compile(&model, &args.machine(precision, threads).options())?;
    let worker = Worker { engine, architecture: model.architecture.clone(), output: args.output };
    // The engine has its own copy of the weights; peers are not charged for two either.
    drop(model);
    let mut out = std::io::stdout().lock();
    writeln!(out, "READY {:.3}", start.elapsed().as_secs_f64())?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            [] | ["q"] => return Ok(()),
            ["ids", ..] => worker.outputs(&words[1..])?,
            ["dump", path, batch, length] => worker.dump(path, batch, length)?,
            [batch, length, runs] => worker.time(batch, length, runs)?,
            _ => return Err(Failure::new("a line is `batch length runs`, `ids id ...` or `dump path batch length`")),
        };
        let (resident, highest) = memory();
        writeln!(out, "{answer}| {resident} {highest}")?;
        out.flush()?;
    }
    Ok(())
}

impl Worker {
    fn batch(&self, batch: &str, length: &str) -> Result<Batch, Failure> {
        let batch = positive(batch).map_err(Failure::new)?;
        let length = positive(length).map_err(Failure::new)?;
        check_length(&self.architecture, length)?;
        Ok(batch_of(&self.architecture, batch, length, self.output))
    }

    fn time(&self, batch: &str, length: &str, runs: &str) -> Result<String, Failure> {
        let batch = self.batch(batch, length)?;
        let mut answer = String::new();
        for _ in 0..positive(runs).map_err(Failure::new)? {
            let watch = Stopwatch::start();
            let outputs = self.engine.run(&batch)?;
            let lap = watch.lap();
            std::hint::black_box(outputs);
            answer += &format!("{:.4}:{:.4} ", lap.wall.as_secs_f64() * 1e3, lap.cpu.as_secs_f64() * 1e3);
        }
        Ok(answer)
    }

    fn outputs(&self, ids: &[&str]) -> Result<String, Failure> {
        let ids = ids.iter().map(|id| id.parse()).collect::<Result<Vec<u32>, _>>();
        let ids = ids.map_err(|_| Failure::new("ids are whole numbers"))?;
        check_length(&self.architecture, ids.len())?;
        let wanted = if self.output == super::Output::Hidden { Wanted::Hidden } else { Wanted::Head };
        let outputs = self.engine.run(&Batch { sequences: vec![Sequence { ids, types: Vec::new() }], wanted })?;
        Ok(outputs.sequences.iter().flatten().map(|x| format!("{x} ")).collect())
    }

    fn dump(&self, path: &str, batch: &str, length: &str) -> Result<String, Failure> {
        let outputs = self.engine.run(&self.batch(batch, length)?)?;
        let bytes: Vec<u8> = outputs.sequences.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
        std::fs::write(path, bytes).map_err(|e| Failure::new(format!("{path}: cannot be written ({e})")))?;
        Ok(String::new())
    }
}
