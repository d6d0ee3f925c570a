//! One hue from next to nothing to strong, in steps that look equal: lightness is linear in OKLab
//! (<https://bottosson.github.io/posts/oklab/>).

/// Steps of the scale, 0% and 100% included.
pub(super) const STEPS: usize = 11;

/// The step of a share in 0..=1.
pub(super) fn step(share: f32) -> usize {
    (share.clamp(0.0, 1.0) * (STEPS - 1) as f32).round() as usize
}

/// Fill and ink of a step on a light page.
pub(super) fn light(step: usize) -> (String, &'static str) {
    let t = position(step);
    shade(0.965 - 0.575 * t, 0.010 + 0.135 * t)
}

/// Fill and ink of a step on a dark page: what costs more shines more.
pub(super) fn dark(step: usize) -> (String, &'static str) {
    let t = position(step);
    shade(0.27 + 0.58 * t, 0.025 + 0.25 * t * (1.0 - t) + 0.06 * t)
}

fn position(step: usize) -> f64 {
    step as f64 / (STEPS - 1) as f64
}

/// A blue, and what can be read on it.
fn shade(lightness: f64, chroma: f64) -> (String, &'static str) {
    let [r, g, b] = srgb(lightness, chroma, 255f64.to_radians());
    (format!("#{r:02x}{g:02x}{b:02x}"), if lightness > 0.62 { "#10243d" } else { "#ffffff" })
}

fn srgb(lightness: f64, chroma: f64, hue: f64) -> [u8; 3] {
    let (a, b) = (chroma * hue.cos(), chroma * hue.sin());
    let l = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let m = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let s = (lightness - 0.089_484_177_5 * a - 1.291_485_548 * b).powi(3);
    let linear = [
        4.076_741_662_1 * l - 3.307_711_591_3 * m + 0.230_969_929_2 * s,
        -1.268_438_004_6 * l + 2.609_757_401_1 * m - 0.341_319_396_5 * s,
        -0.004_196_086_3 * l - 0.703_418_614_7 * m + 1.707_614_701 * s,
    ];
    linear.map(|x| {
        let x = x.clamp(0.0, 1.0);
        let curved = if x <= 0.003_130_8 { 12.92 * x } else { 1.055 * x.powf(1.0 / 2.4) - 0.055 };
        (255.0 * curved).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_oklab_are_black_and_white() {
        assert_eq!(srgb(0.0, 0.0, 0.0), [0, 0, 0]);
        assert_eq!(srgb(1.0, 0.0, 0.0), [255, 255, 255]);
        // Red, as the page cited has it.
        assert_eq!(srgb(0.627_96, 0.257_68, 29.234f64.to_radians()), [255, 0, 0]);
    }

    #[test]
    fn shares_find_their_step() {
        assert_eq!([-1.0, 0.0, 0.04, 0.06, 0.5, 1.0, 2.0].map(step), [0, 0, 0, 1, 5, 10, 10]);
        assert_ne!(light(0), light(STEPS - 1));
    }
}
