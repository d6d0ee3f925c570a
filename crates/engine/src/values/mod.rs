//! Values computed as precisely as attention needs them (Monte-Carlo Attention, Kim and Ko 2022, and its heirs).
//!
//! An economised layer computes queries and keys, then how much attention every token gets, then a budget per head and
//! token, then the values within the budgets, then attention as usual. `docs/methods/values.md` derives the estimators.

#[cfg(test)]
mod bounds;
mod budget;
mod calibrate;
mod draw;
mod eigen;
mod examine;
mod recipe;
mod rule;
mod spending;

pub(crate) use budget::{HeadPicks, Space};
pub use calibrate::Calibrator;
pub use examine::LayerExamined;
pub(crate) use examine::Sums;
pub use recipe::Recipe;
pub(crate) use rule::Rule;
pub use spending::Spending;

use crate::compile::Packed;
pub(crate) use draw::Draws;
use draw::{Spread, orders};
use sparing_kernels::staircase::Graded;
use sparing_kernels::{Format, PackedMatrix};
use sparing_model::{Attention, Calibration, Error, Layer, LayerCalibration, Linear, Mca, Sampler, Weights};
use std::sync::{Arc, Mutex};

/// Draws of so many seeds are kept.
const KEPT_SEEDS: usize = 2;

/// How one layer's values are economised.
pub(crate) struct Economy {
    pub(crate) rule: Rule,
    /// Cheap products are in bf16, where the machine has them: also with int8, whose one scale per output cannot hold rows
    /// that are scaled by the inverse of their probability.
    pub(crate) narrow: bool,
    /// The value matrix in [`crate::compile::Constants`].
    pub(crate) matrix: usize,
    /// The same, head by head.
    pub(crate) full: Vec<PackedMatrix>,
    /// Added to exact values, and to draws that are not centred.
    pub(crate) bias: Vec<f32>,
    /// The values of the mean row: added to what is centred.
    pub(crate) settled: Vec<f32>,
    /// `||W_h||_F`, mean over the heads.
    pub(crate) mean_frobenius: f64,
    pub(crate) ways: Ways,
}

/// What a sampler needs.
pub(crate) enum Ways {
    Drawn(Box<Drawing>),
    Graded(Vec<Graded>),
    Mean,
    Int8(Vec<PackedMatrix>),
}

/// Draws by seed, made when they are first asked for.
pub(crate) struct Drawing {
    weights: Weights,
    value: Linear,
    /// Per head the weights that inputs are drawn by.
    spreads: Vec<Spread>,
    mean: Option<Vec<f32>>,
    kept: Mutex<Vec<(u64, Arc<Draws>)>>,
}

impl Economy {
    /// Prepares a layer. `packed` is its value matrix, number `matrix`.
    pub(crate) fn new(
        (number, layer): (usize, &Layer),
        (mca, alpha): (&Mca, f32),
        calibration: Option<&Calibration>,
        weights: &Weights,
        (matrix, packed): (usize, &Packed),
    ) -> Result<Economy, Error> {
        let attention = &layer.attention;
        let (heads, width, inputs) = (attention.heads, attention.head_width, attention.value.inputs);
        let values = weights.matrix(&attention.value)?;
        let narrow = packed.matrix.format() != Format::F32;
        let head = |h: usize| &values[h * width * inputs..(h + 1) * width * inputs];
        let bias = packed.bias.clone().unwrap_or_else(|| vec![0.0; heads * width]);
        let known: Option<&LayerCalibration> = calibration.map(|c| &c.layers[number]);
        let needed = || known.ok_or_else(|| missing(mca.sampler));
        let settled = match known {
            Some(known) => add_product(&bias, &values, &known.mean),
            None => bias.clone(),
        };
        let parts = |matrix: &PackedMatrix| -> Vec<PackedMatrix> {
            (0..heads).map(|h| matrix.part(h * width..(h + 1) * width)).collect()
        };
        let drawing = |spreads: Vec<Spread>, mean: Option<&Vec<f32>>| {
            let kept = Mutex::new(Vec::new());
            Ways::Drawn(Box::new(Drawing {
                weights: weights.clone(),
                value: attention.value.clone(),
                spreads,
                mean: mean.cloned(),
                kept,
            }))
        };
        let ways = match mca.sampler {
            Sampler::Paper => drawing(spreads(&values, attention, None), None),
            Sampler::Calibrated | Sampler::Systematic => {
                let known = needed()?;
                drawing(spreads(&values, attention, Some(known)), Some(&known.mean))
            }
            Sampler::Graded => {
                let known = needed()?;
                let basis = |h: usize| &known.basis[h * width * width..(h + 1) * width * width];
                Ways::Graded(
                    (0..heads).map(|h| Graded::pack(head(h), width, inputs, basis(h), &known.mean, narrow)).collect(),
                )
            }
            Sampler::Mean => needed().map(|_| Ways::Mean)?,
            Sampler::Int8 => Ways::Int8(parts(&PackedMatrix::pack(&values, heads * width, inputs, Format::Int8))),
        };
        Ok(Economy {
            rule: Rule::new((number, attention), (mca, alpha), slower(packed.matrix.format())),
            narrow,
            matrix,
            full: parts(&packed.matrix),
            bias,
            settled,
            mean_frobenius: (0..heads).map(|h| frobenius(head(h))).sum::<f64>() / heads as f64,
            ways,
        })
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let matrices = |all: &[PackedMatrix]| all.iter().map(PackedMatrix::bytes).sum::<usize>();
        let ways = match &self.ways {
            Ways::Drawn(drawing) => drawing.bytes(),
            Ways::Graded(heads) => heads.iter().map(Graded::bytes).sum(),
            Ways::Mean => 0,
            Ways::Int8(heads) => matrices(heads),
        };
        matrices(&self.full) + 4 * (self.bias.len() + self.settled.len()) + ways
    }

    /// The draws of a seed, if anything is drawn.
    pub(crate) fn draws(&self, seed: u64) -> Option<Arc<Draws>> {
        let Ways::Drawn(drawing) = &self.ways else { return None };
        let mut kept = drawing.kept.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, draws)) = kept.iter().find(|(known, _)| *known == seed) {
            return Some(draws.clone());
        }
        let rule = &self.rule;
        // The matrix was read when the economy was prepared, so it can be read now.
        let values = drawing.weights.matrix(&drawing.value).unwrap_or_default();
        let mean = drawing.mean.as_deref();
        let orders = orders(&drawing.spreads, rule.sampler == Sampler::Systematic, (seed, rule.layer));
        let draws = Arc::new(Draws::new(&values, (rule.width, rule.inputs), orders, mean, self.narrow));
        if kept.len() == KEPT_SEEDS {
            kept.remove(0);
        }
        kept.push((seed, draws.clone()));
        Some(draws)
    }

    /// What is added to values that are not exact.
    pub(crate) fn offset(&self) -> &[f32] {
        if matches!(self.rule.sampler, Sampler::Paper | Sampler::Int8) { &self.bias } else { &self.settled }
    }
}

impl Drawing {
    fn bytes(&self) -> usize {
        let kept = self.kept.lock().unwrap_or_else(|e| e.into_inner());
        kept.iter().map(|(_, draws)| draws.bytes()).sum::<usize>()
            + self.spreads.iter().map(Spread::bytes).sum::<usize>()
    }
}

/// By what the inputs of every head are drawn: norms of the weights `[heads * width, inputs]`, and spread where it is known.
fn spreads(values: &[f32], attention: &Attention, known: Option<&LayerCalibration>) -> Vec<Spread> {
    let (width, inputs) = (attention.head_width, attention.value.inputs);
    let heads = values.chunks_exact(width * inputs);
    heads
        .map(|head| match known {
            Some(known) => Spread::calibrated(head, width, inputs, &known.std),
            None => Spread::norms(head, width, inputs),
        })
        .collect()
}

/// How much longer a cheap operation takes than one of the dense product in this format (`--example staircase` of the
/// kernels): products are f32 beside f32, bf16 beside bf16 with more around them, and bf16 beside int8, which does twice as
/// many. Machines without bf16 products compute in f32 either way.
fn slower(format: Format) -> f64 {
    let bf16 = sparing_kernels::isa::has_bf16(sparing_kernels::isa::active());
    match format {
        Format::F32 => 1.0,
        Format::Bf16 if bf16 => 1.7,
        Format::Bf16 => 1.0,
        Format::Int8 if bf16 => 3.4,
        Format::Int8 => 4.0,
    }
}

/// `||W||_F`.
fn frobenius(weights: &[f32]) -> f64 {
    weights.iter().map(|w| (*w as f64).powi(2)).sum::<f64>().sqrt()
}

/// `bias + W x`.
fn add_product(bias: &[f32], weights: &[f32], x: &[f32]) -> Vec<f32> {
    let rows = weights.chunks_exact(x.len()).zip(bias);
    rows.map(|(row, bias)| (*bias as f64 + row.iter().zip(x).map(|(w, x)| *w as f64 * *x as f64).sum::<f64>()) as f32)
        .collect()
}

/// What to say when a calibration is needed and not there.
fn missing(sampler: Sampler) -> Error {
    let name = sampler.name();
    Error::new(format!(
        "attention: {name} needs a calibration; make one with `sparing calibrate MODEL`, or use --calibration FILE"
    ))
}
