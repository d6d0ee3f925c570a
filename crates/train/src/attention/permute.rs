//! Rows in another order, and their gradients back in the first: no sums, so that nothing waits.
//!
//! Orders are found on the host: Burn has no sort for GPUs (it fetches the numbers, sorts and sends them back), and a counting
//! sort needs one pass.

use super::work::moved;
use crate::gpu::permuted_rows;
use burn::tensor::{Device, Int, Tensor, TensorData};
use sparing_model::Error;

/// An order of each group's tokens.
pub(super) struct Order {
    /// The token at each place, `[groups, length]`.
    there: Tensor<2, Int>,
    /// The place of each token, `[groups, length]`.
    back: Tensor<2, Int>,
    /// A number of each token, `[groups, length, 1]`, 2 or more: the same for those of one bucket and one chunk of places, one
    /// more in the next chunk of the same bucket, two more at least in another bucket. Small enough to be exact.
    pub(super) seats: Tensor<3>,
}

impl Order {
    /// Tokens by their bucket `[groups, length]`, those of one bucket as they stood; beyond a group's real length, last. Places
    /// are in chunks of so many.
    pub(super) fn by_bucket(
        bucket: Tensor<2, Int>,
        buckets: usize,
        chunk: usize,
        lengths: &[usize],
    ) -> Result<Order, Error> {
        let ([groups, length], device) = (bucket.dims(), bucket.device());
        moved(groups * length);
        let bucket = bucket.try_into_vec_as::<i32>().map_err(|e| unread(&e))?;
        let (mut there, mut back) = (vec![0i32; groups * length], vec![0i32; groups * length]);
        let mut seats = vec![0f32; groups * length];
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
            let (mut seat, mut last) = (0u32, None);
            for place in 0..length {
                let token = there[group * length + place] as usize;
                seat += match last {
                    Some(last) if last != of(token) => 2,
                    Some(_) => u32::from(place.is_multiple_of(chunk)),
                    None => 2,
                };
                last = Some(of(token));
                seats[group * length + token] = seat as f32;
            }
        }
        let tensor = |values| indices(values, [groups, length], &device);
        let seats = Tensor::from_data(TensorData::new(seats, [groups, length, 1]), &device);
        Ok(Order { there: tensor(there), back: tensor(back), seats })
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
    moved(groups * length * width);
    let flat = |order: &Tensor<2, Int>| {
        let first =
            Tensor::<1, Int>::arange(0..groups as i64, (&order.device(), order.dtype())).mul_scalar(length as i64);
        (order.clone() + first.reshape([groups, 1])).reshape([groups * length])
    };
    let rows = permuted_rows(x.reshape([groups * length, width]), flat(order), flat(back));
    rows.reshape([groups, length, width])
}

/// Places on a device.
pub(super) fn indices<const D: usize>(values: Vec<i32>, shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Why numbers to sort by could not be had.
pub(super) fn unread(e: &dyn std::fmt::Debug) -> Error {
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
            let (groups, chunk, lengths) = (3, 4, [length, length - length / 3, 1]);
            let bucket: Vec<i32> = (0..groups * length).map(|_| (random.bits() % buckets) as i32).collect();
            let tensor = indices(bucket.clone(), [groups, length], &Device::flex());
            let order = Order::by_bucket(tensor, buckets as usize, chunk, &lengths).unwrap();
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
            // Seats are next to each other where a token and its bucket's chunk before are.
            let (back, seats) = (order.back.clone().try_into_vec_as::<i32>().unwrap(), order.seats.clone());
            let seats = seats.try_into_vec_as::<f32>().unwrap();
            for (group, real) in lengths.iter().enumerate() {
                let at = |token: usize| group * length + token;
                for (i, j) in (0..length).flat_map(|i| (0..length).map(move |j| (i, j))) {
                    let bucket = |token: usize| match token < *real {
                        true => bucket[at(token)],
                        false => i32::MAX,
                    };
                    let chunks = back[at(i)] / chunk as i32 - back[at(j)] / chunk as i32;
                    let shown = bucket(i) == bucket(j) && [0, 1].contains(&chunks);
                    assert_eq!([0.0, 1.0].contains(&(seats[at(i)] - seats[at(j)])), shown, "{i} {j}");
                }
            }
            assert!(seats.iter().all(|seat| *seat >= 2.0));
            let count = groups * length * 2;
            let rows: Vec<f32> = (0..count).map(|_| random.uniform() as f32).collect();
            let rows = Tensor::from_data(TensorData::new(rows, [groups, length, 2]), &Device::flex());
            let again = order.undo(order.apply(rows.clone()));
            assert_eq!(again.to_data(), rows.to_data());
        }
    }
}
