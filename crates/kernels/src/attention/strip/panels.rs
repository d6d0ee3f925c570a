//! Values as the second product reads them, and results from lanes back to rows.

use super::super::{Job, Workspace};
use crate::rows::{Element, Rows};
use crate::simd::{Simd, kernel};

#[inline(always)]
unsafe fn lay_out_values<S: Simd>(v: Rows, to: *mut u32) {
    let (keys, width) = (v.count(), v.width());
    match v.element() {
        Element::F32 => {
            for key in 0..keys {
                // SAFETY: `to` has room for `keys * width` words.
                unsafe {
                    std::ptr::copy_nonoverlapping(v.row_f32(key).as_ptr(), to.add(key * width).cast(), width);
                }
            }
        }
        Element::Bf16 => unsafe {
            let crate::Elements::Bf16(data) = v.data() else { unreachable!("bf16 rows") };
            for pair in 0..keys.div_ceil(2) {
                let low = data.as_ptr().add(2 * pair * v.stride());
                let high = low.wrapping_add(v.stride());
                let both = 2 * pair + 1 < keys;
                let mut at = 0;
                while at < width {
                    let to = to.add(pair * width + at);
                    if both && at + S::LANES <= width {
                        S::store_bf16_pairs(to, S::load_bf16(low.add(at)), S::load_bf16(high.add(at)));
                        at += S::LANES;
                    } else {
                        let upper = if both { *high.add(at) as u32 } else { 0 };
                        *to = *low.add(at) as u32 | upper << 16;
                        at += 1;
                    }
                }
            }
        },
    }
}
kernel!(pub(crate) lay_out_values_at = lay_out_values(v: Rows, to: *mut u32));

/// Writes the panel's rows to their places.
#[inline(always)]
unsafe fn write_result<S: Simd>(job: &Job, first: usize, count: usize, space: &mut Workspace) {
    let panel = 2 * S::LANES;
    let width = job.k.width();
    let padded = width.next_multiple_of(S::LANES);
    // SAFETY: `result` and `rows` were grown for `padded` rows; a query's place is its own.
    unsafe {
        let result = space.result.as_mut_slice().as_mut_ptr().add(4 * panel);
        let rows = space.rows.as_mut_slice().as_mut_ptr();
        for half in 0..2 {
            let lane = half * S::LANES;
            if lane >= count {
                break;
            }
            for row in (0..padded).step_by(S::LANES) {
                let from = result.add(row * panel + lane).cast();
                S::transpose(from, panel, S::LANES.min(width - row), rows.add(lane * padded + row).cast(), padded);
            }
        }
        for query in 0..count {
            let (row, column) = job.place(first + query);
            let mut at = 0;
            while at < width {
                let n = S::LANES.min(width - at);
                let y = S::load(rows.add(query * padded + at));
                let p = job.out.at(row, column + at);
                match (job.out.element, n == S::LANES) {
                    (Element::F32, true) => S::store(p.cast(), y),
                    (Element::F32, false) => S::store_n(p.cast(), y, n),
                    (Element::Bf16, true) => S::store_bf16(p.cast(), y),
                    (Element::Bf16, false) => S::store_bf16_n(p.cast(), y, n),
                }
                at += n;
            }
        }
    }
}
kernel!(pub(super) write_result_at = write_result(job: &Job, first: usize, count: usize, space: &mut Workspace));
