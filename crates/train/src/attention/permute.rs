//! Rows in another order, and their gradients back in the first: no sums, so that nothing waits.
//!
//! Orders are found on the host. Burn has no sort for GPUs (it fetches the numbers, sorts and sends them back) and keeps the
//! largest of a row in registers, of which there are too few for hundreds; a counting sort and a selection need one pass.

use super::input::plain;
use crate::gpu::permuted_rows;
use burn::tensor::{Device, Int, Tensor, TensorData};
use sparing_model::Error;

/// An order of each group's tokens and the one that undoes it, `[groups, length]` each.
pub(super) struct Order {
    pub(super) there: Tensor<2, Int>,
    pub(super) back: Tensor<2, Int>,
}

impl Order {
    /// Tokens by their bucket `[groups, length]`, those of one bucket as they stood; beyond a group's real length, last.
    pub(super) fn by_bucket(bucket: Tensor<2, Int>, buckets: usize, lengths: &[usize]) -> Result<Order, Error> {
        let ([groups, length], device) = (bucket.dims(), bucket.device());
        let bucket = bucket.try_into_vec_as::<i32>().map_err(|e| unread(&e))?;
        let (mut there, mut back) = (vec![0i32; groups * length], vec![0i32; groups * length]);
        for (group, real) in lengths.iter().enumerate().take(groups) {
            let of = |token: usize| match token < *real {
                true => bucket[group * length + token] as usize,
                false => buckets,
            };
            let mut next = vec![0; buckets + 2];
            (0..length).for_each(|token| next[of(token) + 1] += 1);
            (0..=buckets).for_each(|at| next[at + 1] += next[at]);
            for token in 0..length {
                let place = next[of(token)];
                next[of(token)] += 1;
                there[group * length + place] = token as i32;
                back[group * length + token] = place as i32;
            }
        }
        let tensor = |values| indices(values, [groups, length], &device);
        Ok(Order { there: tensor(there), back: tensor(back) })
    }

    /// Rows `[groups, length, width]` in this order.
    pub(super) fn apply(&self, x: Tensor<3>) -> Tensor<3> {
        permuted(x, &self.there, &self.back)
    }

    /// Rows that are in this order as they stood before.
    pub(super) fn undo(&self, x: Tensor<3>) -> Tensor<3> {
        permuted(x, &self.back, &self.there)
    }
}

fn permuted(x: Tensor<3>, order: &Tensor<2, Int>, back: &Tensor<2, Int>) -> Tensor<3> {
    let [groups, length, width] = x.dims();
    let flat = |order: &Tensor<2, Int>| {
        let first =
            Tensor::<1, Int>::arange(0..groups as i64, (&order.device(), order.dtype())).mul_scalar(length as i64);
        (order.clone() + first.reshape([groups, 1])).reshape([groups * length])
    };
    let rows = permuted_rows(x.reshape([groups * length, width]), flat(order), flat(back));
    rows.reshape([groups, length, width])
}

/// The places of the `count` largest numbers of each row, of equal ones the first, in no particular order: `[groups, rows, count]`.
pub(super) fn largest(x: Tensor<3>, count: usize) -> Result<Tensor<3, Int>, Error> {
    let ([groups, rows, length], device) = (x.dims(), x.device().without_autodiff());
    let count = count.min(length);
    let numbers = plain(x).try_into_vec_as::<f32>().map_err(|e| unread(&e))?;
    let mut all = Vec::with_capacity(groups * rows * count);
    let mut places: Vec<u32> = Vec::with_capacity(length);
    for row in numbers.chunks_exact(length.max(1)) {
        places.clear();
        places.extend(0..length as u32);
        let before = |a: &u32, b: &u32| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b));
        if count < length {
            places.select_nth_unstable_by(count, before);
        }
        all.extend(places[..count].iter().map(|place| *place as i32));
    }
    Ok(indices(all, [groups, rows, count], &device))
}

fn indices<const D: usize>(values: Vec<i32>, shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn unread(e: &dyn std::fmt::Debug) -> Error {
    crate::device::unread("numbers to sort by", e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn orders_are_those_of_a_stable_sort() {
        let mut random = Random::new(3);
        for (length, buckets) in [(1, 2), (7, 2), (50, 6)] {
            let (groups, lengths) = (3, [length, length - length / 3, 1]);
            let bucket: Vec<i32> = (0..groups * length).map(|_| (random.bits() % buckets) as i32).collect();
            let tensor = indices(bucket.clone(), [groups, length], &Device::flex());
            let order = Order::by_bucket(tensor, buckets as usize, &lengths).unwrap();
            let there = order.there.clone().try_into_vec_as::<i32>().unwrap();
            for group in 0..groups {
                let key = |token: &i32| match (*token as usize) < lengths[group] {
                    true => bucket[group * length + *token as usize],
                    false => i32::MAX,
                };
                let mut expected: Vec<i32> = (0..length as i32).collect();
                expected.sort_by_key(key);
                assert_eq!(there[group * length..(group + 1) * length], expected, "{length} {buckets}");
            }
            let count = groups * length * 2;
            let rows: Vec<f32> = (0..count).map(|_| random.uniform() as f32).collect();
            let rows = Tensor::from_data(TensorData::new(rows, [groups, length, 2]), &Device::flex());
            let again = order.undo(order.apply(rows.clone()));
            assert_eq!(again.to_data(), rows.to_data());
        }
    }

    #[test]
    fn the_largest_are_those_of_a_sort() {
        let mut random = Random::new(4);
        for (length, count) in [(1, 1), (9, 4), (40, 39), (40, 60)] {
            // Few different numbers, so that some are equal.
            let numbers: Vec<f32> = (0..6 * length).map(|_| (random.bits() % 5) as f32 - 2.0).collect();
            let x = Tensor::from_data(TensorData::new(numbers.clone(), [2, 3, length]), &Device::flex());
            let found = largest(x, count).unwrap().try_into_vec_as::<i32>().unwrap();
            let count = count.min(length);
            for (row, found) in numbers.chunks(length).zip(found.chunks(count)) {
                let mut expected: Vec<i32> = (0..length as i32).collect();
                expected.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]));
                expected.truncate(count);
                let mut found = found.to_vec();
                expected.sort_unstable();
                found.sort_unstable();
                assert_eq!(found, expected);
            }
        }
    }
}
