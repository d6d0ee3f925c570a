//! Round numbers for the marks of an axis.

/// The least of 1, 2, 5 and 10 times a power of ten that is `rough` (above zero) or more.
pub fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough).unwrap_or(rough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_large_enough() {
        for (rough, step) in [(1.0, 1.0), (1.1, 2.0), (0.021, 0.05), (6.5, 10.0), (99.0, 100.0), (3e-9, 5e-9)] {
            assert!((round_step(rough) - step).abs() < step * 1e-12, "{rough}");
        }
    }
}
