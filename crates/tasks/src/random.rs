//! A small seeded generator, so that the same seed gives the same answer on every machine.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait)] // there is always a next one
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..n` by multiply and shift; the bias is below `n / 2^64`.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.next() as u128 * n as u128) >> 64) as usize
    }

    /// `k` different numbers of `0..n`, ascending (all of them when `k >= n`).
    pub fn choose(&mut self, n: usize, k: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        if k >= n {
            return all;
        }
        for i in 0..k {
            let j = i + self.below(n - i);
            all.swap(i, j);
        }
        all.truncate(k);
        all.sort_unstable();
        all
    }

    /// Puts things into a random order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for i in (1..things.len()).rev() {
            things.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence() {
        // First outputs of SplitMix64 with seed 1234567, as in the reference C program.
        let mut random = Random::new(1234567);
        assert_eq!(random.next(), 6457827717110365317);
        assert_eq!(random.next(), 3203168211198807973);
        assert_eq!(random.next(), 9817491932198370423);
    }

    #[test]
    fn every_order_is_as_likely() {
        let mut random = Random::new(3);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            let mut three = [0, 1, 2];
            random.shuffle(&mut three);
            *counts.entry(three).or_insert(0) += 1;
        }
        // 1000 each; six standard deviations are 173.
        assert!(counts.len() == 6 && counts.values().all(|n| (827..1173).contains(n)), "{counts:?}");
    }

    #[test]
    fn chooses_without_repeats() {
        let chosen = Random::new(7).choose(100, 30);
        assert_eq!(chosen.len(), 30);
        assert!(chosen.windows(2).all(|w| w[0] < w[1]));
        assert_eq!(chosen, Random::new(7).choose(100, 30));
        assert_eq!(Random::new(7).choose(3, 9), [0, 1, 2]);
    }
}
