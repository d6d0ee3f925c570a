//! Weights laid out for the kernels.

use crate::Aligned;
use crate::rows::Rows;
use crate::simd::Level;
use crate::tile::Tile;
use crate::words::{lay_out, quantise_weights_at, side_by_side_at, steps};

/// How weights are stored and multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// 32-bit floats.
    F32,
    /// bfloat16 weights; products of bf16 activations where the machine has the instructions, else of f32 ones.
    Bf16,
    /// Signed bytes with a scale per output; activations become unsigned bytes with a scale and a least value per row.
    Int8,
}

/// A matrix of `outputs` x `inputs`, packed for multiplication from the right: `y = x Wᵀ`.
///
/// Outputs are grouped into panels of two vectors; a panel is `[steps][columns]` 32-bit words, so the tile kernel
/// reads it from front to back.
pub struct PackedMatrix {
    outputs: usize,
    inputs: usize,
    format: Format,
    pub(crate) level: Level,
    pub(crate) tile: Tile,
    /// Steps of the tile kernel: words per column.
    pub(crate) steps: usize,
    words: Aligned<u32>,
    /// For int8: per output its scale, then per output scale x sum of its bytes; each padded to whole panels.
    scales: Aligned<f32>,
}

impl PackedMatrix {
    /// Packs row-major `[outputs, inputs]` weights for the instruction set in use.
    pub fn pack(weights: &[f32], outputs: usize, inputs: usize, format: Format) -> Self {
        Self::pack_for(Level::active(), weights, outputs, inputs, format)
    }

    pub(crate) fn pack_for(level: Level, weights: &[f32], outputs: usize, inputs: usize, format: Format) -> Self {
        assert_eq!(weights.len(), outputs * inputs, "{outputs} x {inputs} weights");
        assert!(outputs > 0 && inputs > 0);
        let (panel, steps) = (level.panel(), steps(format, inputs));
        let padded = outputs.next_multiple_of(panel);
        let mut matrix = PackedMatrix {
            outputs,
            inputs,
            format,
            level,
            tile: Tile::of(level, format),
            steps,
            words: Aligned::zeroed(padded * steps + 16),
            scales: Aligned::default(),
        };
        if format == Format::Int8 {
            matrix.pack_int8(weights, padded);
            return matrix;
        }
        let rows = Rows::f32(weights, inputs);
        let mut staging = Aligned::default();
        for first in (0..outputs).step_by(panel) {
            let count = panel.min(outputs - first);
            // SAFETY: the panel has `steps * panel` words, and whatever a short panel leaves is zero; the slack of
            // 16 words is the next panel's start, written later, or the end of `words`.
            unsafe {
                let to = matrix.words.as_mut_slice().as_mut_ptr().add(first * steps);
                lay_out(level, format, false, rows, first, count, to, panel, &mut staging, None);
            }
        }
        matrix
    }

    /// Symmetric per output: `w ≈ scale * q`, q in -127..=127.
    fn pack_int8(&mut self, weights: &[f32], padded: usize) {
        self.scales.ensure(2 * padded);
        let (panel, steps, inputs) = (self.level.panel(), self.steps, self.inputs);
        // Sixteen words of slack: quantising writes whole vectors.
        let step = steps + 16;
        let mut staging = vec![0u32; panel * step];
        for first in (0..self.outputs).step_by(panel) {
            let count = panel.min(self.outputs - first);
            for i in 0..count {
                let row = &weights[(first + i) * inputs..(first + i + 1) * inputs];
                // SAFETY: `staging` has `step` words for this row, more than the row's bytes rounded up to 16.
                let (scale, sum) = unsafe {
                    let to = staging.as_mut_ptr().add(i * step).cast::<i8>();
                    let scale = quantise_weights_at(self.level, row.as_ptr(), inputs, to);
                    let bytes = std::slice::from_raw_parts(to, inputs);
                    (scale, bytes.iter().map(|q| *q as i32).sum::<i32>())
                };
                let scales = self.scales.as_mut_slice();
                scales[first + i] = scale;
                scales[padded + first + i] = scale * sum as f32;
            }
            // SAFETY: as in `pack_for`.
            unsafe {
                let to = self.words.as_mut_slice().as_mut_ptr().add(first * steps);
                side_by_side_at(self.level, staging.as_ptr(), step, count, steps, to, panel);
            }
        }
    }

    /// Width of a result row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Width of an input row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// How the weights are stored.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.words.bytes() + self.scales.bytes()
    }

    /// Number of panels.
    pub(crate) fn panels(&self) -> usize {
        self.outputs.div_ceil(self.level.panel())
    }

    /// The words of a panel from step `first` on.
    pub(crate) fn panel(&self, index: usize, first: usize) -> *const u32 {
        let at = (index * self.steps + first) * self.level.panel();
        self.words.as_slice()[at..].as_ptr()
    }

    /// For int8, the scales of a panel's columns and the same times the sum of their bytes; else null.
    pub(crate) fn column_scales(&self, panel: usize) -> (*const f32, *const f32) {
        if self.format != Format::Int8 {
            return (std::ptr::null(), std::ptr::null());
        }
        let (scales, at) = (self.scales.as_slice(), panel * self.level.panel());
        (scales[at..].as_ptr(), scales[scales.len() / 2 + at..].as_ptr())
    }
}
