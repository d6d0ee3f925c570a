//! The largest of a row, found on the host: Burn keeps them in a GPU's registers, of which there are too few for hundreds; a
//! selection needs one pass.

use super::input::plain;
use super::permute::{indices, unread};
use super::work::moved;
use burn::tensor::{Int, Tensor};
use sparing_model::Error;

/// The places of the `count` largest numbers of each row, of equal ones the first, in no particular order: `[groups, rows, count]`.
pub(super) fn largest(x: Tensor<3>, count: usize) -> Result<Tensor<3, Int>, Error> {
    let ([groups, rows, length], device) = (x.dims(), x.device().without_autodiff());
    let count = count.min(length);
    moved(groups * rows * length);
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

/// Rows `[groups, length, width]` at places `[groups, count]`: `[groups, count, width]`.
pub(super) fn picked(x: Tensor<3>, places: &Tensor<2, Int>) -> Tensor<3> {
    let ([groups, count], width) = (places.dims(), x.dims()[2]);
    moved(groups * count * width);
    x.gather(1, places.clone().reshape([groups, count, 1]).expand([groups, count, width]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use burn::tensor::{Device, TensorData};

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
