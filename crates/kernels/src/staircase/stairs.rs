//! Weights of one head, laid out for the staircase.

use crate::simd::Level;
use crate::{Aligned, f32_to_bf16};

/// Tile heights are multiples of this: few kernels, little padding.
pub(super) const GRAIN: usize = 4;

/// Most rows of a tile: with the panel's vector and its conditions, all sums stay in registers.
pub(super) fn most_rows(level: Level) -> usize {
    match level.panel() {
        32 => 24,
        _ if level == Level::Portable => 4,
        _ => 12,
    }
}

/// A matrix of `outputs` x `steps` as tiles of a few outputs: `[tile][steps][rows of the tile]`, padded with zeros. With
/// pairs a word holds two steps in bf16.
pub(super) struct Stairs {
    pub(super) outputs: usize,
    pub(super) steps: usize,
    pub(super) pairs: bool,
    /// Words of an output: steps, or half as many.
    words: usize,
    /// First output and rows (padded) of each tile.
    pub(super) tiles: Vec<(usize, usize)>,
    numbers: Aligned<u32>,
}

impl Stairs {
    /// Packs `at(output, step)`.
    fn pack(level: Level, outputs: usize, steps: usize, pairs: bool, at: impl Fn(usize, usize) -> f32) -> Stairs {
        let words = if pairs { steps.div_ceil(2) } else { steps };
        let word = |output: usize, word: usize| {
            if !pairs {
                return at(output, word).to_bits();
            }
            let half = |step: usize| if step < steps { f32_to_bf16(at(output, step)) as u32 } else { 0 };
            half(2 * word) | half(2 * word + 1) << 16
        };
        let grains = outputs.div_ceil(GRAIN);
        let count = grains.div_ceil(most_rows(level) / GRAIN);
        let tiles: Vec<(usize, usize)> = (0..count)
            .map(|i| (i * grains / count * GRAIN, (i + 1) * grains / count * GRAIN))
            .map(|(first, end)| (first, end - first))
            .collect();
        let mut numbers = Aligned::zeroed(grains * GRAIN * words);
        let all = numbers.as_mut_slice();
        for (first, rows) in &tiles {
            for step in 0..words {
                let from = first * words + step * rows;
                for (i, number) in all[from..from + rows].iter_mut().enumerate() {
                    if first + i < outputs {
                        *number = word(first + i, step);
                    }
                }
            }
        }
        Stairs { outputs, steps, pairs, words, tiles, numbers }
    }

    /// The numbers of a tile.
    pub(super) fn tile(&self, first: usize) -> *const u32 {
        self.numbers.as_slice()[first * self.words..].as_ptr()
    }

    fn bytes(&self) -> usize {
        self.numbers.bytes()
    }
}

/// A head's drawn inputs with the weights that belong to them.
///
/// A token with budget `r` and factor `t` gets `Σ (k < r) max(floor[k], t) · (x[index[k]] - mean[index[k]]) · W[index[k]] · scale[k]`.
/// With `floor = 0`, `t = 1/r` and `scale = 1/p` this is the mean of `r` independent draws (equation 5 of the paper); with
/// `floor = w`, `scale = 1/w` and inclusion probabilities `min(1, w/t)` it is the Horvitz-Thompson sum of draws without
/// replacement.
pub struct Drawn {
    pub(super) inputs: usize,
    pub(super) index: Vec<u32>,
    pub(super) floor: Vec<f32>,
    pub(super) mean: Option<Vec<f32>>,
    pub(super) weights: Stairs,
}

impl Drawn {
    /// Gathers, scales and packs. `weights` is `[outputs, inputs]`; `index`, `scale` and `floor` have one entry per draw;
    /// `mean` is subtracted from every row first. `narrow`: products in bf16, where the machine has them.
    pub fn pack(
        weights: &[f32],
        outputs: usize,
        inputs: usize,
        index: &[u32],
        scale: &[f32],
        floor: &[f32],
        mean: Option<&[f32]>,
        narrow: bool,
    ) -> Drawn {
        let level = Level::active();
        let narrow = narrow && level.multiplies_bf16();
        Self::pack_for(level, weights, outputs, inputs, index, scale, floor, mean, narrow)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn pack_for(
        level: Level,
        weights: &[f32],
        outputs: usize,
        inputs: usize,
        index: &[u32],
        scale: &[f32],
        floor: &[f32],
        mean: Option<&[f32]>,
        pairs: bool,
    ) -> Drawn {
        assert_eq!(weights.len(), outputs * inputs, "{outputs} x {inputs} weights");
        assert!(index.len() == scale.len() && index.len() == floor.len(), "one scale and one floor per draw");
        assert!(index.iter().all(|i| (*i as usize) < inputs), "drawn inputs are inputs");
        assert!(mean.is_none_or(|mean| mean.len() == inputs), "one mean per input");
        let at = |output: usize, step: usize| weights[output * inputs + index[step] as usize] * scale[step];
        Drawn {
            inputs,
            index: index.to_vec(),
            floor: floor.to_vec(),
            mean: mean.map(<[f32]>::to_vec),
            weights: Stairs::pack(level, outputs, index.len(), pairs, at),
        }
    }

    /// Draws there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.weights.bytes() + 8 * self.index.len() + self.mean.as_ref().map_or(0, |mean| 4 * mean.len())
    }
}

/// A head's weights in a basis of its outputs, most important directions first.
///
/// A token with budget `q` gets `Σ (i < q) (D[i] · (x - mean)) V[.., i]` with `D = Vᵀ W`.
pub struct Graded {
    /// `[directions, inputs]`: the basis applied to the weights.
    pub(super) directions: Stairs,
    /// The mean row in every direction.
    pub(super) middle: Vec<f32>,
    /// `[outputs, directions]`: from directions to outputs.
    pub(super) back: Stairs,
}

impl Graded {
    /// Packs. `weights` is `[outputs, inputs]`, `basis` is `[outputs, outputs]` with a direction in every *column*.
    /// `narrow`: products in bf16, where the machine has them.
    pub fn pack(weights: &[f32], outputs: usize, inputs: usize, basis: &[f32], mean: &[f32], narrow: bool) -> Graded {
        let level = Level::active();
        Self::pack_for(level, weights, outputs, inputs, basis, mean, narrow && level.multiplies_bf16())
    }

    pub(super) fn pack_for(
        level: Level,
        weights: &[f32],
        outputs: usize,
        inputs: usize,
        basis: &[f32],
        mean: &[f32],
        pairs: bool,
    ) -> Graded {
        assert_eq!(weights.len(), outputs * inputs, "{outputs} x {inputs} weights");
        assert_eq!((basis.len(), mean.len()), (outputs * outputs, inputs), "basis and mean");
        let mut directions = vec![0f64; outputs * inputs];
        for (o, row) in weights.chunks_exact(inputs).enumerate() {
            for (q, direction) in directions.chunks_exact_mut(inputs).enumerate() {
                let v = basis[o * outputs + q] as f64;
                direction.iter_mut().zip(row).for_each(|(d, w)| *d += v * *w as f64);
            }
        }
        let middle = directions.chunks_exact(inputs);
        let middle = middle.map(|d| d.iter().zip(mean).map(|(d, m)| d * *m as f64).sum::<f64>() as f32).collect();
        Graded {
            directions: Stairs::pack(level, outputs, inputs, pairs, |q, i| directions[q * inputs + i] as f32),
            middle,
            back: Stairs::pack(level, outputs, outputs, false, |o, q| basis[o * outputs + q]),
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.directions.bytes() + self.back.bytes() + 4 * self.middle.len()
    }
}
