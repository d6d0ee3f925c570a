//! Sums over rows.

use crate::simd::{Level, Simd, kernel};
use crate::{Chunks, Rows, RowsMut, Team};

/// Rows whose sum one task makes.
const ROWS: usize = 64;

#[inline(always)]
unsafe fn add_rows<S: Simd>(rows: &[f32], sum: &mut [f32]) {
    let width = sum.len();
    let mut at = 0;
    while at < width {
        let n = S::LANES.min(width - at);
        // SAFETY: every row has `width` elements; a column of vectors stays in a register.
        unsafe {
            let mut total = S::splat(0.0);
            for row in rows.chunks_exact(width) {
                total = S::add(total, S::load_n(row.as_ptr().add(at), n));
            }
            S::store_n(sum.as_mut_ptr().add(at), total, n);
        }
        at += n;
    }
}
kernel!(add_rows_at = add_rows(rows: &[f32], sum: &mut [f32]));

/// The sum of all rows of `data` `[rows, out.len()]`.
pub fn column_sums(team: &Team, data: &[f32], out: &mut [f32]) {
    let width = out.len();
    assert!(data.len().is_multiple_of(width), "whole rows");
    let rows = data.len() / width;
    let each = ROWS.max(rows.div_ceil(Chunks::MOST));
    let tasks = rows.div_ceil(each);
    let mut sums = vec![0f32; tasks * width];
    let chunks = Chunks::new(RowsMut::f32(&mut sums, width), 1);
    team.run(tasks, &|task, _| {
        let part = &data[task * each * width..data.len().min((task + 1) * each * width)];
        let mut sum = chunks.take(task);
        // SAFETY: the active level is available; whole rows.
        unsafe { add_rows_at(Level::active(), part, sum.row_f32(0)) };
    });
    add_in_order(Rows::f32(&sums, width), out);
}

/// The sum of few rows.
pub(super) fn add_in_order(rows: Rows, out: &mut [f32]) {
    out.fill(0.0);
    for row in 0..rows.count() {
        for (out, x) in out.iter_mut().zip(rows.row_f32(row)) {
            *out += x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::numbers;

    #[test]
    fn sums_of_every_column() {
        for (rows, width) in [(1, 1), (5, 3), (if cfg!(miri) { 3 } else { 200 }, 37)] {
            let data = numbers(3, rows * width, 1.0);
            let want: Vec<f32> = (0..width).map(|c| (0..rows).map(|r| data[r * width + c]).sum()).collect();
            let mut got = vec![f32::NAN; width];
            column_sums(&Team::new(2), &data, &mut got);
            assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-4), "{got:?} for {want:?}");
            for level in Level::all_available() {
                // SAFETY: available level; whole rows.
                unsafe { add_rows_at(level, &data, &mut got) };
                assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-4), "{level:?} {got:?} for {want:?}");
            }
        }
    }
}
