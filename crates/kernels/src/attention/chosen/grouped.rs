//! Every query among keys of its own kind: the same column holds their largest number, or their smallest.

use super::{Space, over};
use crate::Rows;
use crate::attention::{Job, Workspace};
use crate::simd::Level;

/// Groups of keys and of queries, reused.
#[derive(Default)]
pub(super) struct Groups {
    /// Group, rank (small: large in absolute value) and number of each key, twice: by its largest and by its smallest.
    keys: Vec<(u32, u32, u32)>,
    /// Both groups and number of each query.
    queries: Vec<([u32; 2], u32)>,
    /// The queries of two groups.
    together: Vec<usize>,
}

/// Attention of every query over the keys of its two groups, `keep` of each at most, and the pinned ones.
///
/// # Safety
/// As for [`super::exact`].
pub(super) unsafe fn attend(
    level: Level,
    job: &Job,
    keep: usize,
    pinned: &[bool],
    own: &mut Space,
    space: &mut Workspace,
) {
    let mut groups = std::mem::take(&mut own.groups);
    let Groups { keys, queries, together } = &mut groups;
    keys.clear();
    each_row(job.k, &mut own.row, |key, row| {
        for group in extremes(row) {
            keys.push((group, !row[group as usize / 2].abs().to_bits(), key as u32));
        }
    });
    keys.sort_unstable();
    queries.clear();
    each_row(job.q, &mut own.row, |query, row| queries.push((extremes(row), query as u32)));
    queries.sort_unstable();
    let of = |group: u32| {
        let first = keys.partition_point(|key| key.0 < group);
        let members = keys[first..].iter().take_while(move |key| key.0 == group);
        members.take(keep).map(|key| key.2 as usize)
    };
    for alike in queries.chunk_by(|a, b| a.0 == b.0) {
        let [largest, smallest] = alike[0].0;
        own.kept.clear();
        own.kept.extend(of(largest).chain(of(smallest)));
        own.kept.extend(pinned.iter().enumerate().filter(|(_, pinned)| **pinned).map(|(key, _)| key));
        own.kept.sort_unstable();
        own.kept.dedup();
        together.clear();
        together.extend(alike.iter().map(|(_, query)| *query as usize));
        // SAFETY: the caller's promise.
        unsafe { over(level, job, Some(together), own, space) };
    }
    own.groups = groups;
}

fn each_row(rows: Rows, row: &mut Vec<f32>, mut work: impl FnMut(usize, &[f32])) {
    row.resize(rows.width(), 0.0);
    for number in 0..rows.count() {
        rows.read_row(number, row);
        work(number, row);
    }
}

/// Numbers of a row's groups: twice the column of its largest number, and one more than twice that of its smallest; the
/// first of equals.
fn extremes(row: &[f32]) -> [u32; 2] {
    let (mut largest, mut smallest) = (0, 0);
    for (i, x) in row.iter().enumerate() {
        if *x > row[largest] {
            largest = i;
        }
        if *x < row[smallest] {
            smallest = i;
        }
    }
    [2 * largest as u32, 2 * smallest as u32 + 1]
}
