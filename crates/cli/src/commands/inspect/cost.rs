//! FLOPs and time of some work, by part and by layer.

use super::chosen::Chosen;
use super::economies::Economies;
use crate::commands::bench::{Output, batch_of};
use crate::failure::Failure;
use crate::interrupt;
use crate::parameters::Part;
use crate::stats::Sample;
use serde::Serialize;
use sparing_engine::Engine;
use sparing_model::{Architecture, Batch, Executor, Sequence, Wanted};
use std::collections::BTreeMap;
use std::time::Instant;

/// Batches to be run.
pub struct Work {
    /// What to call it: `1 x 128 tokens`.
    pub name: String,
    /// The batches.
    pub batches: Vec<Batch>,
}

/// Batches timed of a long file: enough for a sound mean.
const MOST_BATCHES: usize = 64;

impl Work {
    /// One batch of different sequences of one length.
    pub fn uniform(architecture: &Architecture, batch: usize, length: usize) -> Work {
        let name = format!("{batch} x {length} tokens");
        Work { name, batches: vec![batch_of(architecture, batch, length, Output::Head)] }
    }

    /// Texts as they come, `batch` at a time.
    pub fn from_texts(sequences: &[Sequence], batch: usize) -> Work {
        let tokens: usize = sequences.iter().map(|s| s.ids.len()).sum();
        let mean = tokens as f64 / sequences.len().max(1) as f64;
        let name = format!("{} texts of {mean:.1} tokens, {batch} at a time", sequences.len());
        let batches = sequences.chunks(batch).map(|part| Batch { sequences: part.to_vec(), wanted: Wanted::Head });
        Work { name, batches: batches.collect() }
    }

    /// The batches that are timed.
    pub fn timed(&self) -> &[Batch] {
        &self.batches[..self.batches.len().min(MOST_BATCHES)]
    }
}

/// Amounts by part.
pub type ByPart = BTreeMap<Part, f64>;

/// What some work costs.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// What the work is.
    pub name: String,
    /// Sequences run.
    pub sequences: usize,
    /// Tokens run.
    pub tokens: usize,
    /// Operations by part, as run.
    #[serde(serialize_with = "by_name")]
    pub flops: ByPart,
    /// Seconds by part.
    #[serde(serialize_with = "by_name")]
    pub seconds: ByPart,
    /// Seconds by layer and part.
    pub layers: Vec<LayerCost>,
    /// What was saved.
    pub economies: Economies,
    /// What an economy of attention saves, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Chosen>,
}

/// One layer's share.
#[derive(Debug, Serialize)]
pub struct LayerCost {
    /// From 0.
    pub layer: usize,
    /// Operations in matrix products and attention.
    pub flops: f64,
    /// Seconds by part.
    #[serde(serialize_with = "by_name")]
    pub seconds: ByPart,
}

fn by_name<S: serde::Serializer>(parts: &ByPart, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(parts.iter().map(|(part, amount)| (part.name(), amount)))
}

impl Cost {
    /// Counts the operations of all batches; times them (of a long file the first ones), `repeats` times each.
    pub fn measure(engine: &Engine, work: &Work, repeats: usize) -> Result<Cost, Failure> {
        let mut flops = ByPart::new();
        for batch in &work.batches {
            let lengths: Vec<usize> = batch.sequences.iter().map(|s| s.ids.len()).collect();
            for part in engine.ledger(&lengths, &batch.wanted).parts {
                *flops.entry(Part::of(part.name)).or_default() += part.flops as f64;
            }
        }
        let timed = work.timed();
        let mut seconds = ByPart::new();
        let mut layers: BTreeMap<usize, ByPart> = BTreeMap::new();
        // Scaled up where only a part of the batches is timed.
        let scale = tokens(&work.batches) as f64 / tokens(timed).max(1) as f64;
        for batch in timed {
            interrupt::check()?;
            for (layer, part, time) in profile(engine, batch, repeats)? {
                *seconds.entry(part).or_default() += time * scale;
                if let Some(layer) = layer {
                    *layers.entry(layer).or_default().entry(part).or_default() += time * scale;
                }
            }
        }
        let by_layer = layer_flops(engine, &work.batches);
        let layers = layers.into_iter().map(|(layer, seconds)| LayerCost {
            layer,
            flops: by_layer.get(layer).copied().unwrap_or(0.0),
            seconds,
        });
        Ok(Cost {
            name: work.name.clone(),
            sequences: work.batches.iter().map(|b| b.sequences.len()).sum(),
            tokens: tokens(&work.batches),
            layers: layers.collect(),
            economies: Economies::count(engine, &work.batches, time_all_rows(engine, timed, repeats)?),
            flops,
            seconds,
            chosen: None,
        })
    }
}

fn tokens(batches: &[Batch]) -> usize {
    batches.iter().flat_map(|b| &b.sequences).map(|s| s.ids.len()).sum()
}

/// The profile of the run with the median time: parts of one run add up, medians of parts would not.
fn profile(engine: &Engine, batch: &Batch, repeats: usize) -> Result<Vec<(Option<usize>, Part, f64)>, Failure> {
    engine.run(batch)?;
    let mut runs = Vec::new();
    for _ in 0..repeats {
        let (_, times) = engine.profile(batch)?;
        let total: f64 = times.iter().map(|t| t.seconds).sum();
        runs.push((total, times));
    }
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (_, times) = runs.swap_remove(runs.len() / 2);
    Ok(times.into_iter().map(|t| (t.layer, Part::of(t.part), t.seconds)).collect())
}

/// Median seconds of the work as it is run, and with every row of the last layer computed.
fn time_all_rows(engine: &Engine, batches: &[Batch], repeats: usize) -> Result<(f64, f64), Failure> {
    let mut all = (0.0, 0.0);
    for batch in batches {
        interrupt::check()?;
        let hidden = Batch { sequences: batch.sequences.clone(), wanted: Wanted::Hidden };
        let (mut run, mut rows) = (Vec::new(), Vec::new());
        for _ in 0..repeats {
            for (batch, times) in [(batch, &mut run), (&hidden, &mut rows)] {
                let start = Instant::now();
                engine.run(batch)?;
                times.push(start.elapsed().as_secs_f64());
            }
        }
        all.0 += Sample::new(run).median();
        all.1 += Sample::new(rows).median();
    }
    Ok(all)
}

/// Operations of each layer.
fn layer_flops(engine: &Engine, batches: &[Batch]) -> Vec<f64> {
    let mut flops = vec![0.0; engine.architecture().layers.len()];
    for batch in batches {
        let lengths: Vec<usize> = batch.sequences.iter().map(|s| s.ids.len()).collect();
        let of_batch = engine.layer_flops(&lengths, &batch.wanted);
        flops.iter_mut().zip(of_batch).for_each(|(sum, n)| *sum += n as f64);
    }
    flops
}
