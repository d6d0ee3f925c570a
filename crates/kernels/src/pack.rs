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

/// How int8 rounds the rows that a matrix is multiplied with: to numbers that are evenly spread over a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InputRounding {
    pub(crate) steps: u8,
    /// Of a given range; `None`: every row has its own.
    pub(crate) grid: Option<Grid>,
}

/// `x ≈ scale * q + least`, and how q is found: `x * inverse + shift`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grid {
    pub(crate) scale: f32,
    pub(crate) least: f32,
    pub(crate) inverse: f32,
    pub(crate) shift: f32,
}

impl Grid {
    /// So many steps from the least to the largest number.
    #[inline(always)]
    pub(crate) fn new(steps: u8, (least, most): (f32, f32)) -> Grid {
        let scale = ((most - least) / f32::from(steps)).max(1e-30);
        Grid { scale, least, inverse: 1.0 / scale, shift: -least / scale }
    }

    /// 255 steps without a division: the range is rounded up to one of four numbers between two powers of two. Their
    /// inverses are known, and a power's is a subtraction of exponents. Steps are at most a quarter longer for it.
    ///
    /// A range that is not finite, or so large that products are not, has a grid of what is not a number: bytes would hide it.
    #[inline(always)]
    pub(crate) fn undivided((least, most): (f32, f32)) -> Grid {
        const FINER: u32 = (1 << 21) - 1;
        let range = most - least;
        let sound = range < 1e30;
        // What is not a number becomes the lower end.
        let range = if range > 1e-30 { range.min(1e30) } else { 1e-30 };
        let bits = (range.to_bits() + FINER) & !FINER;
        let power = f32::from_bits((254 << 23) - (bits & (0xff << 23)));
        let (quarter, half) = (bits & (1 << 21) != 0, bits & (1 << 22) != 0);
        let per_quarter = if half { 255.0 / 1.75 } else { 255.0 / 1.25 };
        let inverse = power
            * if quarter {
                per_quarter
            } else if half {
                255.0 / 1.5
            } else {
                255.0
            };
        let spoilt = if sound { 0.0 } else { f32::NAN };
        let scale = f32::from_bits(bits) * (1.0 / 255.0) + spoilt;
        Grid { scale, least: least + spoilt, inverse, shift: -least * inverse }
    }

    /// The same for signed bytes, -127 to 127, of numbers up to `most` in size.
    #[inline(always)]
    pub(crate) fn undivided_signed(most: f32) -> Grid {
        Grid::undivided((0.0, most * (255.0 / 127.0)))
    }
}

impl InputRounding {
    /// `steps` between the least and the largest number; a byte has 255. `range`: least and largest number, whatever lies
    /// beyond is cut off; `None`: each row's own, which costs divisions.
    pub fn new(steps: u8, range: Option<(f32, f32)>) -> Self {
        InputRounding { steps, grid: range.map(|range| Grid::new(steps, range)) }
    }
}

impl Default for InputRounding {
    fn default() -> Self {
        InputRounding::new(255, None)
    }
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
    /// For int8: how input rows are rounded.
    pub(crate) input: InputRounding,
    /// For int8: per output its scale, then per output scale x sum of its bytes; each padded to whole panels.
    scales: Aligned<f32>,
}

impl PackedMatrix {
    /// Packs row-major `[outputs, inputs]` weights for the instruction set in use.
    pub fn pack(weights: &[f32], outputs: usize, inputs: usize, format: Format) -> Self {
        Self::pack_for(Level::active(), weights, outputs, inputs, format)
    }

    /// Packs row-major `[outputs, inputs]` integers as [`Format::Int8`]: `w = scale * q`, one scale per output.
    pub fn pack_integers(integers: &[i8], scales: &[f32], outputs: usize, inputs: usize) -> Self {
        Self::pack_integers_for(Level::active(), integers, scales, outputs, inputs)
    }

    /// Whether every row that it is multiplied with has a range of its own, which divides while it runs.
    pub fn divides(&self) -> bool {
        self.format == Format::Int8 && self.input.grid.is_none()
    }

    /// The same with another rounding of the rows it is multiplied with. Only [`Format::Int8`] rounds them.
    pub fn with_input(self, input: InputRounding) -> Self {
        PackedMatrix { input, ..self }
    }

    fn empty(level: Level, outputs: usize, inputs: usize, format: Format) -> Self {
        assert!(outputs > 0 && inputs > 0);
        let steps = steps(format, inputs);
        PackedMatrix {
            outputs,
            inputs,
            format,
            level,
            tile: Tile::of(level, format),
            steps,
            words: Aligned::zeroed(outputs.next_multiple_of(level.panel()) * steps + 16),
            input: InputRounding::default(),
            scales: Aligned::default(),
        }
    }

    pub(crate) fn pack_integers_for(
        level: Level,
        integers: &[i8],
        scales: &[f32],
        outputs: usize,
        inputs: usize,
    ) -> Self {
        assert_eq!(integers.len(), outputs * inputs, "{outputs} x {inputs} integers");
        assert_eq!(scales.len(), outputs, "scales");
        let mut matrix = Self::empty(level, outputs, inputs, Format::Int8);
        matrix.pack_bytes(|output, to| {
            let row = &integers[output * inputs..(output + 1) * inputs];
            // SAFETY: `pack_bytes` gives room for a row.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), to, inputs) };
            scales[output]
        });
        matrix
    }

    pub(crate) fn pack_for(level: Level, weights: &[f32], outputs: usize, inputs: usize, format: Format) -> Self {
        assert_eq!(weights.len(), outputs * inputs, "{outputs} x {inputs} weights");
        let mut matrix = Self::empty(level, outputs, inputs, format);
        let (panel, steps) = (level.panel(), matrix.steps);
        if format == Format::Int8 {
            matrix.pack_bytes(|output, to| {
                let row = &weights[output * inputs..(output + 1) * inputs];
                // SAFETY: `pack_bytes` gives room for the row rounded up to 16.
                unsafe { quantise_weights_at(level, row.as_ptr(), inputs, to) }
            });
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

    /// Lays out signed bytes and notes their scales. `fill` writes an output's bytes (what follows the row, up to a
    /// whole vector, must be zero or stay) and returns its scale.
    fn pack_bytes(&mut self, fill: impl Fn(usize, *mut i8) -> f32) {
        let (panel, steps, inputs) = (self.level.panel(), self.steps, self.inputs);
        let padded = self.outputs.next_multiple_of(panel);
        self.scales.ensure(2 * padded);
        // Sixteen words of slack: quantising writes whole vectors.
        let step = steps + 16;
        let mut staging = vec![0u32; panel * step];
        for first in (0..self.outputs).step_by(panel) {
            let count = panel.min(self.outputs - first);
            for i in 0..count {
                // SAFETY: `staging` has `step` words for this row, more than the row's bytes rounded up to 16.
                let to = unsafe { staging.as_mut_ptr().add(i * step).cast::<i8>() };
                let scale = fill(first + i, to);
                // SAFETY: as above; `fill` wrote the row.
                let bytes = unsafe { std::slice::from_raw_parts(to, inputs) };
                let sum = bytes.iter().map(|q| *q as i32).sum::<i32>();
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

    /// Some of the outputs on their own: products with them are the same to the bit.
    pub fn part(&self, outputs: std::ops::Range<usize>) -> PackedMatrix {
        assert!(outputs.start < outputs.end && outputs.end <= self.outputs, "outputs {outputs:?} of {}", self.outputs);
        let (panel, steps) = (self.level.panel(), self.steps);
        let padded = outputs.len().next_multiple_of(panel);
        let at = |output: usize| output / panel * panel * steps + output % panel;
        let mut words = Aligned::zeroed(padded * steps + 16);
        for (i, output) in outputs.clone().enumerate() {
            let (from, to) = (at(output), at(i));
            for step in 0..steps {
                words.as_mut_slice()[to + step * panel] = self.words.as_slice()[from + step * panel];
            }
        }
        let mut scales = Aligned::default();
        if !self.scales.is_empty() {
            let half = self.scales.len() / 2;
            scales = Aligned::zeroed(2 * padded);
            for (i, output) in outputs.clone().enumerate() {
                scales.as_mut_slice()[i] = self.scales.as_slice()[output];
                scales.as_mut_slice()[padded + i] = self.scales.as_slice()[half + output];
            }
        }
        PackedMatrix { outputs: outputs.len(), words, scales, ..*self }
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
