//! What this machine can do at most: the floor that every speed claim is measured against.

use crate::simd::Level;
use crate::tile::Tile;
use crate::{Aligned, Format, Team};
use std::time::Instant;

/// Multiply-adds per second (counted as two operations each) of one thread when nothing but the multipliers works:
/// one tile over and over on data in the first-level cache. The best of several tries.
pub fn operations_per_second(format: Format) -> f64 {
    let level = Level::active();
    let tile = Tile::of(level, format);
    let steps = 64;
    let a_words = if tile.wide { 2 } else { 1 };
    let a = Aligned::<u32>::zeroed(a_words * steps * tile.rows + 16);
    let b = Aligned::<u32>::zeroed(steps * level.panel() + 16);
    let mut c = Aligned::<u32>::zeroed(tile.rows * level.panel());
    let per_step = match format {
        Format::F32 => 1,
        Format::Bf16 => 2,
        Format::Int8 => 4,
    };
    let operations = 2 * tile.rows * level.panel() * steps * per_step;
    let mut best = 0f64;
    for _ in 0..40 {
        let repeats = 1000;
        let start = Instant::now();
        for _ in 0..repeats {
            // SAFETY: a, b and c hold one tile each.
            unsafe {
                let (a, b) = (a.as_slice().as_ptr(), b.as_slice().as_ptr());
                (tile.run)(tile.rows, steps, a, tile.rows, b, c.as_mut_slice().as_mut_ptr(), level.panel(), false);
            }
        }
        best = best.max((operations * repeats) as f64 / start.elapsed().as_secs_f64());
    }
    best
}

/// Bytes per second that a team reads from memory, far beyond any cache. The best of several tries.
pub fn bytes_per_second(threads: usize) -> f64 {
    let team = Team::new(threads);
    let words = vec![1u64; 32 << 20];
    let chunk = words.len() / (threads * 8);
    let mut best = 0f64;
    for _ in 0..5 {
        let start = Instant::now();
        team.run(threads * 8, &|task, _| {
            let sum = words[task * chunk..(task + 1) * chunk].iter().fold(0u64, |sum, w| sum.wrapping_add(*w));
            std::hint::black_box(sum);
        });
        best = best.max((chunk * threads * 8 * 8) as f64 / start.elapsed().as_secs_f64());
    }
    best
}
