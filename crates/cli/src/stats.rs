//! Order statistics of repeated measurements.

/// Sorted measurements.
#[derive(Debug, Clone)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Takes the measurements in any order.
    pub fn new(mut values: Vec<f64>) -> Sample {
        values.sort_by(f64::total_cmp);
        Sample(values)
    }

    /// The value below which this share of the measurements lies, interpolated between neighbours.
    pub fn quantile(&self, share: f64) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else { return f64::NAN };
        let place = share.clamp(0.0, 1.0) * last as f64;
        let below = self.0[place.floor() as usize];
        let above = self.0[place.ceil() as usize];
        below + (above - below) * place.fract()
    }

    /// Half of the measurements are below.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// A small generator (splitmix64) for orders and stand-in weights; not for secrets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random order of the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = (self.bits() % (i as u64 + 1)) as usize;
            items.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let sample = Sample::new(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!(sample.median(), 2.5);
        assert_eq!(sample.quantile(0.0), 1.0);
        assert_eq!(sample.quantile(1.0), 4.0);
        assert!((sample.quantile(0.1) - 1.3).abs() < 1e-12);
        assert!(Sample::new(vec![]).median().is_nan());
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<usize> = (0..50).collect();
        Random::new(7).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
