//! Memory that is used again. A step needs hundreds of megabytes for numbers that live until the way back; asking the system
//! for them anew in every step, which hands out pages one by one and clears them, took some 7% of the time.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Fewer numbers than this are not worth keeping.
const LEAST: usize = 1 << 14;
/// Most numbers to keep in all: a gigabyte.
const MOST: usize = 1 << 28;

/// What is free and how many are lent, by capacity.
struct Pool {
    free: BTreeMap<usize, Vec<Vec<f32>>>,
    lent: BTreeMap<usize, usize>,
    held: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { free: BTreeMap::new(), lent: BTreeMap::new(), held: 0 });

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A capacity for so many numbers: few different ones, an eighth too large at most.
fn capacity(len: usize) -> usize {
    len.next_multiple_of((len.next_power_of_two() / 16).max(1))
}

/// So many numbers, whatever they are: to be overwritten.
pub(super) fn take(len: usize) -> Vec<f32> {
    if len < LEAST {
        return vec![0.0; len];
    }
    let size = capacity(len);
    let mut pool = pool();
    *pool.lent.entry(size).or_default() += 1;
    let Some(mut found) = pool.free.get_mut(&size).and_then(Vec::pop) else {
        std::mem::drop(pool);
        // Cleared by the system as it is touched, not here.
        let mut fresh = vec![0.0; size];
        fresh.truncate(len);
        return fresh;
    };
    pool.held -= size;
    std::mem::drop(pool);
    found.resize(len, 0.0);
    found
}

/// Gives numbers back that [`take`] gave out. Others are let go: more of a size than were lent would only lie here.
pub(super) fn give(numbers: Vec<f32>) {
    let size = numbers.capacity();
    if numbers.len() < LEAST || size != capacity(numbers.len()) {
        return;
    }
    let mut pool = pool();
    let lent = pool.lent.entry(size).or_default();
    if *lent == 0 {
        return;
    }
    *lent -= 1;
    if pool.held + size <= MOST {
        pool.held += size;
        pool.free.entry(size).or_default().push(numbers);
    }
}

/// Numbers that are given back when nobody needs them any more.
pub(super) struct Kept(pub(super) Vec<f32>);

impl Kept {
    pub(super) fn new(len: usize) -> Kept {
        Kept(take(len))
    }
}

impl Deref for Kept {
    type Target = Vec<f32>;

    fn deref(&self) -> &Vec<f32> {
        &self.0
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut Vec<f32> {
        &mut self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        give(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_few_and_fit() {
        for len in [1, 7, 100, LEAST, LEAST + 1, 123_457, 5_000_000] {
            let size = capacity(len);
            assert!(size >= len && size <= len + len / 8 + 1, "{len}: {size}");
            assert_eq!(take(len).len(), len);
        }
        // Given back and taken again, whatever the length within a capacity.
        give(take(LEAST + 3));
        assert_eq!(take(LEAST + 5).len(), LEAST + 5);
        // What nobody has lent is not kept; this size is no other test's.
        let size = capacity(777_777);
        (0..3).for_each(|_| give(vec![0.0; size]));
        assert!(!pool().free.contains_key(&size));
        give(take(size));
        assert_eq!(pool().free.get(&size).map(Vec::len), Some(1));
    }
}
