//! Rows times packed weights, with what follows fused in.
//!
//! The loops around the tile kernel: a block of rows is laid out once (it then lives in the second-level cache), and
//! each panel of weights passes by all its tiles. Weights are thus read once per block, from front to back.

use crate::epilogue::{Epilogue, Finish, TileResult, finish_at};
use crate::words::{lay_out, row_words};
use crate::{Aligned, Format, PackedMatrix, PerWorker, Rows, RowsMut, Team};
use std::ops::Range;

/// Most rows laid out at a time.
const BLOCK: usize = 84;

/// Most steps of the tile kernel between returns to memory: longer sums are done in parts, so that a panel part and
/// the block of rows stay in the second-level cache together.
const STEPS: usize = 1024;

/// Working memory of one thread, grown on first use and reused.
#[derive(Default)]
pub struct Scratch {
    input: LaidOut,
    sums: Aligned<u32>,
    pub(crate) attention: crate::attention::Workspace,
    pub(crate) staircase: crate::staircase::Workspace,
}

/// A block of rows as tiles, one after the other.
#[derive(Default)]
struct LaidOut {
    words: Aligned<u32>,
    /// Int8: scale and least value per row.
    quantised: Aligned<f32>,
    staging: Aligned<u32>,
}

impl LaidOut {
    fn fill(&mut self, rows: Rows, weights: &PackedMatrix) {
        let words = row_words(&weights.tile, weights.format(), rows.width());
        self.words.ensure(rows.count() * words + 16);
        self.quantised.ensure(2 * rows.count());
        for (first, count) in weights.tile.cuts(rows.count()) {
            let quantised = &mut self.quantised.as_mut_slice()[2 * first..2 * (first + count)];
            let quantised = (weights.format() == Format::Int8).then_some((quantised, weights.input));
            // SAFETY: `ensure` made room for all rows and the slack; tiles are laid out in ascending order.
            unsafe {
                let to = self.words.as_mut_slice().as_mut_ptr().add(first * words);
                let (level, format, wide) = (weights.level, weights.format(), weights.tile.wide);
                lay_out(level, format, wide, rows, first, count, to, count, &mut self.staging, quantised);
            }
        }
    }
}

/// Multiplies laid-out rows with some panels; `row` is where they stand in the result.
///
/// # Safety
/// `finish` is valid for these rows and columns, and nobody else touches them.
unsafe fn multiply(
    input: &LaidOut,
    row: usize,
    rows: usize,
    weights: &PackedMatrix,
    panels: Range<usize>,
    finish: &Finish,
    sums: &mut Aligned<u32>,
) {
    let (tile, panel, steps) = (weights.tile, weights.level.panel(), weights.steps);
    let a_words = if tile.wide { 2 } else { 1 };
    let parts = steps.div_ceil(STEPS);
    let part = steps.div_ceil(parts);
    // With one part a tile's sums live in a small buffer; with several, the whole block's do.
    let (width, height) = if parts == 1 { (panel, tile.rows) } else { (panels.len() * panel, rows) };
    sums.ensure(width * height);
    let sums = sums.as_mut_slice().as_mut_ptr();
    for first in (0..steps).step_by(part) {
        let count = part.min(steps - first);
        for index in panels.clone() {
            let b = weights.panel(index, first);
            for (start, height) in tile.cuts(rows) {
                // SAFETY: tiles were laid out by `LaidOut::fill` for these weights; `sums` has room (see above); the
                // rest is the caller's promise.
                unsafe {
                    let a_step = height;
                    let a = input.words.as_slice().as_ptr().add(a_words * (start * steps + first * a_step));
                    let c = if parts == 1 { sums } else { sums.add(start * width + (index - panels.start) * panel) };
                    (tile.run)(height, count, a, a_step, b, c, width, first > 0);
                    if first + count == steps {
                        let column = index * panel;
                        let result = TileResult {
                            sums: c,
                            step: width,
                            row: row + start,
                            column,
                            rows: height,
                            columns: panel.min(weights.outputs() - column),
                            column_scales: weights.column_scales(index),
                            row_scales: input.quantised.as_slice().as_ptr().add(2 * start),
                        };
                        finish_at(weights.level, finish, &result);
                    }
                }
            }
        }
    }
}

fn check(a: &Rows, weights: &PackedMatrix, epilogue: &Epilogue, out: &RowsMut) {
    assert_eq!(a.width(), weights.inputs(), "input width");
    assert_eq!(out.width(), weights.outputs(), "output width");
    assert_eq!(a.count(), out.count(), "rows");
    if let Some(bias) = epilogue.bias {
        assert_eq!(bias.len(), weights.outputs(), "bias");
    }
    if let Some(residual) = &epilogue.residual {
        assert_eq!((residual.count(), residual.width()), (out.count(), out.width()), "residual");
    }
    if let Some(scale) = epilogue.residual_scale {
        assert_eq!(scale.len(), weights.outputs(), "residual scale");
    }
}

/// `out = epilogue(a · Wᵀ)` on the calling thread.
pub fn gemm(a: Rows, weights: &PackedMatrix, epilogue: &Epilogue, mut out: RowsMut, scratch: &mut Scratch) {
    check(&a, weights, epilogue, &out);
    let finish = Finish::new(epilogue, &mut out);
    let blocks = a.count().div_ceil(BLOCK);
    for block in 0..blocks {
        let (start, end) = (block * a.count() / blocks, (block + 1) * a.count() / blocks);
        scratch.input.fill(a.range(start..end), weights);
        // SAFETY: `check` made sure that `finish` covers these rows and all columns; `out` is borrowed exclusively.
        unsafe {
            multiply(&scratch.input, start, end - start, weights, 0..weights.panels(), &finish, &mut scratch.sums);
        }
    }
}

/// [`gemm`] shared by a team along the outputs: for few rows and many outputs, where rows cannot be shared out.
pub fn gemm_columns(
    team: &Team,
    a: Rows,
    weights: &PackedMatrix,
    epilogue: &Epilogue,
    mut out: RowsMut,
    scratch: &PerWorker<Scratch>,
) {
    check(&a, weights, epilogue, &out);
    let panels = weights.panels();
    // Some more tasks than threads, so that a thread that is held up does not hold up all.
    let tasks = panels.min(4 * team.threads());
    if team.threads() == 1 || tasks < 2 {
        return gemm(a, weights, epilogue, out, &mut scratch.get(0));
    }
    let finish = Finish::new(epilogue, &mut out);
    let blocks = a.count().div_ceil(BLOCK);
    for block in 0..blocks {
        let (start, end) = (block * a.count() / blocks, (block + 1) * a.count() / blocks);
        let mut input = std::mem::take(&mut scratch.get(0).input);
        input.fill(a.range(start..end), weights);
        team.run(tasks, &|task, worker| {
            let panels = task * panels / tasks..(task + 1) * panels / tasks;
            // SAFETY: as in `gemm`; tasks have different panels, so different columns.
            unsafe {
                multiply(&input, start, end - start, weights, panels, &finish, &mut scratch.get(worker).sums);
            }
        });
        scratch.get(0).input = input;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::numbers;
    use crate::simd::Level;
    use crate::{Activation, bf16_to_f32, f32_to_bf16, reference};
    use proptest::prelude::*;

    /// What the weights are after packing, as f32.
    fn as_packed(weights: &[f32], inputs: usize, format: Format) -> Vec<f32> {
        match format {
            Format::F32 => weights.to_vec(),
            Format::Bf16 => weights.iter().map(|w| bf16_to_f32(f32_to_bf16(*w))).collect(),
            Format::Int8 => weights
                .chunks(inputs)
                .flat_map(|row| {
                    let scale = (row.iter().fold(0f32, |m, w| m.max(w.abs())) / 127.0).max(1e-30);
                    row.iter().map(move |w| (w / scale).round_ties_even() * scale)
                })
                .collect(),
        }
    }

    /// Compares every level with the reference, to a tolerance that fits the format.
    fn compare(rows: usize, inputs: usize, outputs: usize, format: Format, seed: u64, activation: Activation) {
        let x = numbers(seed, rows * inputs, 1.0);
        let w = numbers(seed + 1, outputs * inputs, 0.3);
        let bias = numbers(seed + 2, outputs, 1.0);
        let residual = numbers(seed + 3, rows * outputs, 1.0);
        let scale = numbers(seed + 4, outputs, 2.0);
        let epilogue = Epilogue {
            bias: seed.is_multiple_of(3).then_some(&bias[..]),
            activation,
            residual: seed.is_multiple_of(2).then(|| Rows::f32(&residual, outputs)),
            residual_scale: seed.is_multiple_of(4).then_some(&scale[..]),
        };
        let mut want = vec![0f32; rows * outputs];
        let w_packed = as_packed(&w, inputs, format);
        reference::gemm(Rows::f32(&x, inputs), &w_packed, outputs, &epilogue, RowsMut::f32(&mut want, outputs));
        // Per sum of n products of numbers up to 1 and 0.3: f32 rounding; a bf16 activation's half ulp (2^-9) averaging
        // out; a byte's half step (1/255).
        let tolerance = match format {
            Format::F32 => 2e-6 * (inputs as f32).sqrt() + 1e-6,
            Format::Bf16 => 2e-3 * (inputs as f32).sqrt() + 1e-6,
            Format::Int8 => 4e-3 * (inputs as f32).sqrt() + 1e-5,
        } * 1.5;
        let team = Team::new(2);
        let scratch = PerWorker::new(2, Scratch::default);
        for level in Level::all_available() {
            let packed = PackedMatrix::pack_for(level, &w, outputs, inputs, format);
            let mut got = vec![f32::NAN; rows * outputs];
            let out = RowsMut::f32(&mut got, outputs);
            gemm(Rows::f32(&x, inputs), &packed, &epilogue, out, &mut scratch.get(0));
            for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                assert!(
                    (g - w).abs() <= tolerance,
                    "{level:?} {format:?} {rows}x{inputs}x{outputs} at {i}: {g} for {w}"
                );
            }
            let mut columns = vec![f32::NAN; rows * outputs];
            let out = RowsMut::f32(&mut columns, outputs);
            gemm_columns(&team, Rows::f32(&x, inputs), &packed, &epilogue, out, &scratch);
            // Long sums are cut in parts the same way in both, so the results are equal to the bit.
            assert_eq!(got, columns, "{level:?} {format:?} by columns");
            // bf16 in and out: the same, to bf16's accuracy.
            let x16: Vec<u16> = x.iter().map(|x| f32_to_bf16(*x)).collect();
            let mut got16 = vec![0u16; rows * outputs];
            let out = RowsMut::bf16(&mut got16, outputs);
            gemm(Rows::bf16(&x16, inputs), &packed, &epilogue, out, &mut scratch.get(0));
            for (g, w) in got16.iter().zip(&want) {
                let most = tolerance + 4e-3 * (inputs as f32).sqrt() + w.abs() / 128.0;
                assert!((bf16_to_f32(*g) - w).abs() <= most, "{level:?} {format:?} bf16: {} for {w}", bf16_to_f32(*g));
            }
        }
    }

    /// Integers are taken as they are, and rows rounded as they are told to be.
    #[test]
    fn integers_and_fixed_ranges() {
        let (rows, inputs, outputs) = (5, 37, 19);
        let x = numbers(3, rows * inputs, 1.0);
        let integers: Vec<i8> = numbers(4, outputs * inputs, 127.0).iter().map(|w| *w as i8).collect();
        let scales: Vec<f32> = (0..outputs).map(|i| 0.01 * (i + 1) as f32).collect();
        let weights: Vec<f32> = integers.iter().enumerate().map(|(i, q)| f32::from(*q) * scales[i / inputs]).collect();
        for (steps, range) in [(255, None), (255, Some((-0.5, 0.75))), (15, None), (15, Some((-1.0, 1.0)))] {
            let rounded: Vec<f32> = x
                .chunks(inputs)
                .flat_map(|row| {
                    let own =
                        (row.iter().copied().fold(f32::MAX, f32::min), row.iter().copied().fold(f32::MIN, f32::max));
                    let (least, most) = range.unwrap_or(own);
                    let step = (most - least) / f32::from(steps);
                    row.iter().map(move |x| {
                        ((x - least) / step).round_ties_even().clamp(0.0, f32::from(steps)) * step + least
                    })
                })
                .collect();
            let mut want = vec![0f32; rows * outputs];
            let epilogue = Epilogue::default();
            reference::gemm(
                Rows::f32(&rounded, inputs),
                &weights,
                outputs,
                &epilogue,
                RowsMut::f32(&mut want, outputs),
            );
            for level in Level::all_available() {
                let packed = PackedMatrix::pack_integers_for(level, &integers, &scales, outputs, inputs);
                let packed = packed.with_input(crate::InputRounding::new(steps, range));
                let mut got = vec![f32::NAN; rows * outputs];
                let mut scratch = Scratch::default();
                gemm(Rows::f32(&x, inputs), &packed, &epilogue, RowsMut::f32(&mut got, outputs), &mut scratch);
                for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                    // An element in the middle between two steps may go either way: one step of one weight.
                    let most = 1e-4 + scales[i % outputs] * 127.0 * 2.5 / f32::from(steps);
                    assert!((g - w).abs() <= most, "{level:?} {steps} steps {range:?} at {i}: {g} for {w}");
                }
            }
        }
    }

    const FORMATS: [Format; 3] = [Format::F32, Format::Bf16, Format::Int8];

    #[test]
    fn one_element() {
        for format in FORMATS {
            compare(1, 1, 1, format, 6, Activation::Identity);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn sums_longer_than_a_part() {
        for format in FORMATS {
            compare(17, 4 * STEPS + 5, 35, format, 12, Activation::Relu);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn more_rows_than_a_block() {
        for format in FORMATS {
            compare(2 * BLOCK + 3, 40, 33, format, 7, Activation::Gelu);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 96 }, failure_persistence: None, ..Default::default() })]
        #[test]
        fn any_shape_matches_the_reference(
            rows in 1usize..if cfg!(miri) { 6 } else { 40 },
            inputs in 1usize..if cfg!(miri) { 9 } else { 150 },
            outputs in 1usize..if cfg!(miri) { 20 } else { 100 },
            seed in 0u64..1000,
            format in prop::sample::select(FORMATS.to_vec()),
            activation in prop::sample::select(vec![Activation::Identity, Activation::Gelu, Activation::Relu, Activation::Tanh]),
        ) {
            compare(rows, inputs, outputs, format, seed, activation);
        }
    }
}
