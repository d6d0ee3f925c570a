//! The order of examples in an epoch: shuffled, alike lengths together.

use crate::PaddedBatch;
use crate::random::Random;
use burn::tensor::Device;
use sparing_model::Sequence;

/// Lengths that batches are padded to on the CPU: close enough that little is wasted.
const FINE: [usize; 20] = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512];
/// And on a GPU, which compiles and tunes kernels by shape, and has arithmetic to spare: few.
const COARSE: [usize; 5] = [32, 64, 128, 256, 512];
/// Beyond the last of them, multiples of this.
const BEYOND: usize = 256;
/// Batches among which lengths are sorted: more waste less padding, fewer shuffle better.
const TOGETHER: usize = 32;

/// The length to pad sequences to on this device whose longest has `longest` tokens; never more than `limit`.
pub fn padded_length(longest: usize, limit: Option<usize>, device: &Device) -> usize {
    let on_cpu = device.clone().without_autodiff() == Device::flex();
    let lengths: &[usize] = if on_cpu { &FINE } else { &COARSE };
    let padded = lengths.iter().find(|b| **b >= longest).copied().unwrap_or_else(|| longest.next_multiple_of(BEYOND));
    limit.map_or(padded, |limit| padded.min(limit).max(longest))
}

impl PaddedBatch {
    /// Sequences as one batch, padded to a length that this device likes.
    pub(crate) fn fitting(sequences: &[Sequence], limit: Option<usize>, device: &Device) -> PaddedBatch {
        let longest = sequences.iter().map(|sequence| sequence.ids.len()).max().unwrap_or(1);
        PaddedBatch::new(sequences, padded_length(longest, limit, device), device)
    }
}

/// The batches of one epoch: every example once, each batch of `size` examples but the last, alike lengths together,
/// in an order that seed and epoch decide.
pub fn epoch_batches(lengths: &[usize], size: usize, seed: u64, epoch: u64) -> Vec<Vec<usize>> {
    let mut random = Random::at(seed, &[0x5u64, epoch]);
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    random.shuffle(&mut order);
    let mut batches: Vec<Vec<usize>> = Vec::with_capacity(lengths.len().div_ceil(size));
    for group in order.chunks_mut(size * TOGETHER) {
        group.sort_by_key(|&i| lengths[i]);
        batches.extend(group.chunks(size).map(<[usize]>::to_vec));
    }
    random.shuffle(&mut batches);
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_cpu(longest: usize, limit: Option<usize>) -> usize {
        padded_length(longest, limit, &Device::flex())
    }

    #[test]
    fn every_example_once_in_batches_of_alike_lengths() {
        let lengths: Vec<usize> = (0..1003).map(|i| 3 + (i * 37) % 90).collect();
        let batches = epoch_batches(&lengths, 16, 7, 2);
        assert_eq!(batches.len(), 1003usize.div_ceil(16));
        let mut seen: Vec<usize> = batches.iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..1003).collect::<Vec<_>>());
        let tokens: usize = lengths.iter().sum();
        let padded: usize =
            batches.iter().map(|b| b.len() * on_cpu(b.iter().map(|&i| lengths[i]).max().unwrap(), None)).sum();
        assert!((padded as f64) < 1.2 * tokens as f64, "{padded} for {tokens}");
    }

    #[test]
    fn seed_and_epoch_decide_the_order() {
        let lengths = vec![5; 100];
        let at = |seed, epoch| epoch_batches(&lengths, 8, seed, epoch);
        assert_eq!(at(1, 0), at(1, 0));
        assert_ne!(at(1, 0), at(1, 1));
        assert_ne!(at(1, 0), at(2, 0));
    }

    #[test]
    fn buckets_respect_the_limit() {
        assert_eq!(on_cpu(1, None), 8);
        assert_eq!(on_cpu(65, None), 80);
        assert_eq!(on_cpu(33, Some(40)), 40);
        assert_eq!(on_cpu(38, Some(39)), 39);
        assert_eq!(on_cpu(600, None), 768);
        assert_eq!(on_cpu(600, Some(700)), 700);
    }
}
