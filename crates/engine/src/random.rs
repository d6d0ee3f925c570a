//! A small seeded generator, so that the same seed gives the same answer on every machine.

/// SplitMix64 (Steele, Lea and Flood 2014): one word of state, good enough to draw words and inputs.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// One of many generators of a seed, by number.
    pub(crate) fn stream(seed: u64, stream: u64) -> Random {
        let mut first = Random(seed);
        let start = first.next() ^ stream.wrapping_mul(0xd129_0d3d_9a2b_8b4d);
        let mut random = Random(start);
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// At least 0, below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// At least 0, below 1, from fewer bits.
    pub(crate) fn unit_f32(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}
