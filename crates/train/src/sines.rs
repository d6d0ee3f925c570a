//! Positions and distances as waves.

/// Sines, then cosines of a place; wave lengths from 2π to 10000 · 2π (Vaswani et al. 2017).
pub(crate) fn sines(place: f64, width: usize) -> Vec<f32> {
    let half = width.div_ceil(2);
    let value = |column: usize| {
        let angle = place / 10_000f64.powf((column % half) as f64 / half as f64);
        (if column < half { angle.sin() } else { angle.cos() }) as f32
    };
    (0..width).map(value).collect()
}
