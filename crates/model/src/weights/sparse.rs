//! Matrices most of whose numbers are zero, stored as those that are not.
//!
//! Three tensors stand for `NAME`: `NAME.sparse.bitmap` (U8, a bit per number in row-major order, lowest bits first, set
//! where it is stored), `NAME.sparse.values` (F32, the stored numbers in order) and `NAME.sparse.shape` (I64). Smaller on
//! disk only: a file is made dense when it is read, and everything behind that sees plain tensors.

use super::file::{Place, one_line};
use super::owned::serialise;
use super::{Dtype, OwnedTensor, quantized};
use crate::Error;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use std::collections::BTreeMap;

const BITMAP: &str = ".sparse.bitmap";
const VALUES: &str = ".sparse.values";
const SHAPE: &str = ".sparse.shape";

impl OwnedTensor {
    /// The tensors that stand for an f32 tensor of which only some numbers are stored; the others are zero. `kept` says
    /// for every number whether it is.
    ///
    /// # Panics
    /// If the numbers of values and of what is kept differ, or do not fit the shape.
    pub fn sparse(name: &str, shape: &[usize], values: &[f32], kept: &[bool]) -> [OwnedTensor; 3] {
        assert_eq!(
            (values.len(), kept.len()),
            (shape.iter().product(), shape.iter().product()),
            "numbers of {shape:?}"
        );
        let byte = |bits: &[bool]| bits.iter().rev().fold(0u8, |byte, bit| byte << 1 | u8::from(*bit));
        let bitmap: Vec<u8> = kept.chunks(8).map(byte).collect();
        let stored: Vec<f32> = values.iter().zip(kept).filter(|(_, kept)| **kept).map(|(value, _)| *value).collect();
        let axes = shape.iter().flat_map(|axis| (*axis as i64).to_le_bytes()).collect();
        [
            OwnedTensor::raw(format!("{name}{BITMAP}"), Dtype::U8, &[bitmap.len()], bitmap),
            OwnedTensor::f32(format!("{name}{VALUES}"), &[stored.len()], &stored),
            OwnedTensor::raw(format!("{name}{SHAPE}"), Dtype::I64, &[shape.len()], axes),
        ]
    }
}

/// Whether some of these tensors stand for sparse ones.
pub(crate) fn is_sparse(places: &[Place]) -> bool {
    places.iter().any(|place| place.name.ends_with(BITMAP))
}

/// A sound file with its sparse tensors made dense. `what` names it in errors.
pub(crate) fn expand(bytes: &[u8], what: &str) -> Result<Vec<u8>, Error> {
    let bad = |why: String| Error::new(format!("{what}: {why}; fetch or export it again"));
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| bad(one_line(&e.to_string())))?;
    if metadata.metadata().as_ref().is_some_and(|m| m.contains_key(quantized::KEY)) {
        return Err(bad("its tensors are both sparse and quantised, which this version cannot read".to_string()));
    }
    let file = SafeTensors::deserialize(bytes).map_err(|e| bad(one_line(&e.to_string())))?;
    let mut all: BTreeMap<String, TensorView> = file.tensors().into_iter().collect();
    let names: Vec<String> = all.keys().filter_map(|name| name.strip_suffix(BITMAP)).map(str::to_string).collect();
    let mut dense = Vec::with_capacity(all.len());
    for name in names {
        let wrong = |why: &str| bad(format!("sparse tensor \"{}\" {why}", one_line(&name)));
        let mut part = |suffix: &str, dtype: Dtype| {
            let found = all.remove(&format!("{name}{suffix}")).filter(|view| view.dtype() == dtype);
            found.ok_or_else(|| wrong(&format!("has no {dtype} tensor \"{suffix}\"")))
        };
        let (bitmap, values) = (part(BITMAP, Dtype::U8)?, part(VALUES, Dtype::F32)?);
        let shape = part(SHAPE, Dtype::I64)?;
        let shape = axes(shape.data()).ok_or_else(|| wrong("has a shape that no tensor has"))?;
        let numbers = fill(&shape, bitmap.data(), values.data());
        let numbers = numbers.ok_or_else(|| wrong("has a bitmap that does not fit its shape and values"))?;
        dense.push(OwnedTensor::raw(name.clone(), Dtype::F32, &shape, numbers));
    }
    for (name, view) in all {
        dense.push(OwnedTensor::raw(name, view.dtype(), view.shape(), view.data().to_vec()));
    }
    serialise(&dense)
}

/// A shape from its bytes.
fn axes(bytes: &[u8]) -> Option<Vec<usize>> {
    bytes.as_chunks::<8>().0.iter().map(|axis| usize::try_from(i64::from_le_bytes(*axis)).ok()).collect()
}

/// All numbers, little-endian; `None` if bits and values are not as many as the shape and the bits say.
fn fill(shape: &[usize], bitmap: &[u8], values: &[u8]) -> Option<Vec<u8>> {
    let count = shape.iter().try_fold(1usize, |product, axis| product.checked_mul(*axis))?;
    let set: usize = bitmap.iter().map(|byte| byte.count_ones() as usize).sum();
    let mut stored = values.as_chunks::<4>().0.iter();
    if bitmap.len() != count.div_ceil(8) || set != stored.len() {
        return None;
    }
    let mut out = vec![0; count.checked_mul(4)?];
    for (at, number) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        if bitmap[at / 8] >> (at % 8) & 1 == 1 {
            *number = *stored.next()?;
        }
    }
    // A bit beyond the last number.
    stored.next().is_none().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Weights;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_stored_sparsely_comes_back_dense(
            rows in 1usize..7,
            columns in 1usize..20,
            numbers in prop::collection::vec((any::<i16>(), any::<bool>()), 140),
        ) {
            let count = rows * columns;
            let values: Vec<f32> = numbers[..count].iter().map(|(value, _)| f32::from(*value)).collect();
            let kept: Vec<bool> = numbers[..count].iter().map(|(_, kept)| *kept).collect();
            let mut tensors = OwnedTensor::sparse("layer.weight", &[rows, columns], &values, &kept).to_vec();
            tensors.push(OwnedTensor::f32("layer.bias", &[2], &[1.0, 2.0]));
            let weights = Weights::from_tensors(&tensors).unwrap();
            prop_assert_eq!(weights.names().collect::<Vec<_>>(), ["layer.bias", "layer.weight"]);
            let tensor = weights.tensor("layer.weight").unwrap();
            prop_assert_eq!(tensor.shape, &[rows, columns]);
            let mut found = vec![f32::NAN; count];
            tensor.read(0, &mut found);
            let want: Vec<f32> = values.iter().zip(&kept).map(|(value, kept)| if *kept { *value } else { 0.0 }).collect();
            prop_assert_eq!(found, want);
            prop_assert_eq!(weights.vector("layer.bias", 2).unwrap(), [1.0, 2.0]);
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let good = OwnedTensor::sparse("w", &[2, 5], &[1.0; 10], &[true; 10]).to_vec();
        let mut cases: Vec<(Vec<OwnedTensor>, &str)> = Vec::new();
        let mut change = |which: usize, tensor: OwnedTensor, part| {
            let mut tensors = good.clone();
            tensors[which] = tensor;
            cases.push((tensors, part));
        };
        change(0, OwnedTensor::raw("w.sparse.bitmap", Dtype::U8, &[1], vec![255]), "does not fit");
        change(0, OwnedTensor::raw("w.sparse.bitmap", Dtype::U8, &[2], vec![255, 1]), "does not fit");
        // As many bits as values, but one of them beyond the end.
        change(0, OwnedTensor::raw("w.sparse.bitmap", Dtype::U8, &[2], vec![255, 5]), "does not fit");
        change(0, OwnedTensor::raw("w.sparse.bitmap", Dtype::I8, &[2], vec![255, 3]), "no U8 tensor");
        change(1, OwnedTensor::f16("w.sparse.values", &[10], &[1.0; 10]), "no F32 tensor");
        change(1, OwnedTensor::f32("other", &[10], &[1.0; 10]), "no F32 tensor");
        let axes = |axes: [i64; 2]| axes.iter().flat_map(|axis| axis.to_le_bytes()).collect::<Vec<u8>>();
        change(2, OwnedTensor::raw("w.sparse.shape", Dtype::I64, &[2], axes([-1, 5])), "a shape that no tensor has");
        change(2, OwnedTensor::raw("w.sparse.shape", Dtype::I64, &[2], axes([i64::MAX, 9])), "does not fit");
        for (tensors, part) in cases {
            let message = Weights::from_tensors(&tensors).err().expect("refused").to_string();
            assert!(message.contains(part) && message.contains("\"w\"") && !message.contains('\n'), "{message}");
        }
        let integers = crate::Scales { bits: 8, axis: crate::ScaleAxis::Row, values: vec![1.0] };
        let both = [good, vec![OwnedTensor::quantized("q", &[1, 2], &[1, 2], integers)]].concat();
        assert!(Weights::from_tensors(&both).err().expect("refused").to_string().contains("both sparse and quantised"));
    }
}
