//! Matrices of integers with a scale per row or column, read as if they were floats.
//!
//! Tensor `NAME` holds the integers: I8 of the matrix's own shape for 8 bits, else U8 `[rows, bytes of a row]`, packed as
//! in `packing.rs`. Tensor `NAME.scale` holds the scales, F32. Which tensors are so is said in the file's metadata
//! under [`KEY`], so that a file is understood without anything beside it:
//! `{"encoder.layer.0.output.dense.weight": {"bits": 4, "shape": [384, 1536]}}`.

use super::file::{Place, one_line};
use super::packing::{largest, pack, row_bytes, unpack};
use super::{Dtype, OwnedTensor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The file's metadata says here which tensors are quantised.
pub(crate) const KEY: &str = "sparing.quantized";
/// Integers converted at a time: they stay in registers and the first-level cache.
const PIECE: usize = 256;

/// What a scale belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleAxis {
    /// A row: the first axis.
    #[default]
    Row,
    /// A column: the other axes, merged. For matrices stored `[inputs, outputs]`.
    Column,
}

/// What the metadata says of one tensor.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    bits: u32,
    shape: Vec<usize>,
    #[serde(default, skip_serializing_if = "is_row")]
    axis: ScaleAxis,
}

fn is_row(axis: &ScaleAxis) -> bool {
    *axis == ScaleAxis::Row
}

/// How the integers of a tensor become numbers.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    pub(crate) bits: u32,
    pub(crate) axis: ScaleAxis,
    /// Byte range of the scales in the file.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Rows and columns of a shape; `None` for what is no matrix, or has more elements than can be counted.
fn matrix(shape: &[usize]) -> Option<(usize, usize)> {
    let (rows, rest) = shape.split_first()?;
    let columns = rest.iter().try_fold(1usize, |product, n| product.checked_mul(*n))?;
    (!rest.is_empty() && rows.checked_mul(columns)? > 0).then_some((*rows, columns))
}

/// The shape that integers have in the file.
fn stored_shape(shape: &[usize], bits: u32) -> Option<Vec<usize>> {
    let (rows, columns) = matrix(shape)?;
    if bits == 8 { Some(shape.to_vec()) } else { Some(vec![rows, row_bytes(columns, bits)?]) }
}

/// Checks what the metadata says and gives the named tensors their own shape. Their scales are no tensors any more.
pub(crate) fn resolve(places: Vec<Place>, text: &str, bytes: &[u8]) -> Result<Vec<Place>, String> {
    let entries: BTreeMap<String, Entry> =
        serde_json::from_str(text).map_err(|e| format!("its metadata \"{KEY}\" ({})", one_line(&e.to_string())))?;
    let mut all: BTreeMap<String, Place> = places.into_iter().map(|p| (p.name.clone(), p)).collect();
    let mut found = Vec::new();
    for (name, entry) in entries {
        let bad = |why: String| format!("quantised tensor \"{}\" {why}", one_line(&name));
        if !(2..=8).contains(&entry.bits) {
            return Err(bad(format!("has {} bits; from 2 to 8 are possible", entry.bits)));
        }
        let Some((rows, columns)) = matrix(&entry.shape) else {
            return Err(bad(format!("has shape {:?}, which is no matrix", entry.shape)));
        };
        let mut place = all.remove(&name).ok_or_else(|| bad("is not there".to_string()))?;
        let dtype = if entry.bits == 8 { Dtype::I8 } else { Dtype::U8 };
        if place.dtype != dtype || stored_shape(&entry.shape, entry.bits).as_ref() != Some(&place.shape) {
            let (shape, bits) = (&entry.shape, entry.bits);
            return Err(bad(format!(
                "is {} {:?}, which cannot hold {shape:?} numbers of {bits} bits",
                place.dtype, place.shape
            )));
        }
        let scales = all.remove(&format!("{name}.scale")).ok_or_else(|| bad("has no tensor of scales".to_string()))?;
        let count = if entry.axis == ScaleAxis::Row { rows } else { columns };
        if scales.dtype != Dtype::F32 || scales.shape != [count] {
            return Err(bad(format!("has scales {} {:?} where F32 [{count}] is needed", scales.dtype, scales.shape)));
        }
        let numbers = &bytes[scales.start..scales.end];
        let sound = |bytes: &[u8; 4]| (0.0..f32::INFINITY).contains(&f32::from_le_bytes(*bytes));
        if let Some(place) = numbers.as_chunks::<4>().0.iter().position(|bytes| !sound(bytes)) {
            return Err(bad(format!("has a scale (number {place}) that is no number from 0 on")));
        }
        place.shape = entry.shape;
        place.grid = Some(Grid { bits: entry.bits, axis: entry.axis, start: scales.start, end: scales.end });
        found.push(place);
    }
    found.extend(all.into_values());
    Ok(found)
}

/// A quantised tensor as it is stored: element = integer x scale.
#[derive(Clone, Copy)]
pub struct Quantized<'a> {
    bits: u32,
    axis: ScaleAxis,
    columns: usize,
    /// Bytes of a row.
    stride: usize,
    bytes: &'a [u8],
    scales: &'a [[u8; 4]],
}

impl<'a> Quantized<'a> {
    /// A view of a checked place: `bytes` are the file's.
    pub(crate) fn new(grid: &Grid, place: &'a Place, bytes: &'a [u8]) -> Option<Self> {
        let (_, columns) = matrix(&place.shape)?;
        let scales = bytes[grid.start..grid.end].as_chunks::<4>().0;
        let stride = row_bytes(columns, grid.bits)?;
        Some(Quantized {
            bits: grid.bits,
            axis: grid.axis,
            columns,
            stride,
            bytes: &bytes[place.start..place.end],
            scales,
        })
    }

    /// Bits of an integer, 2 to 8.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// What a scale belongs to.
    pub fn axis(&self) -> ScaleAxis {
        self.axis
    }

    /// All scales.
    pub fn scales(&self) -> Vec<f32> {
        self.scales.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.stride * self.columns
    }

    /// The integers `start .. start + out.len()`, row-major.
    ///
    /// # Panics
    /// If the range does not lie inside the tensor.
    pub fn integers(&self, start: usize, out: &mut [i8]) {
        let mut at = 0;
        while at < out.len() {
            let (row, column) = ((start + at) / self.columns, (start + at) % self.columns);
            let count = (self.columns - column).min(out.len() - at);
            unpack(self.row(row), self.bits, column, &mut out[at..at + count]);
            at += count;
        }
    }

    /// The numbers `start .. start + out.len()`, row-major.
    pub(crate) fn read(&self, start: usize, out: &mut [f32]) {
        let mut piece = [0; PIECE];
        let mut at = 0;
        while at < out.len() {
            let (row, column) = ((start + at) / self.columns, (start + at) % self.columns);
            let count = (self.columns - column).min(out.len() - at).min(PIECE);
            let (out, integers) = (&mut out[at..at + count], &mut piece[..count]);
            unpack(self.row(row), self.bits, column, integers);
            match self.axis {
                ScaleAxis::Row => {
                    let scale = f32::from_le_bytes(self.scales[row]);
                    for (out, q) in out.iter_mut().zip(integers) {
                        *out = f32::from(*q) * scale;
                    }
                }
                ScaleAxis::Column => {
                    for ((out, q), scale) in out.iter_mut().zip(integers).zip(&self.scales[column..]) {
                        *out = f32::from(*q) * f32::from_le_bytes(*scale);
                    }
                }
            }
            at += count;
        }
    }

    fn row(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.stride..(row + 1) * self.stride]
    }
}

/// The scales of an [`OwnedTensor`] whose bytes are integers.
#[derive(Debug, Clone, PartialEq)]
pub struct Scales {
    /// Bits of an integer, 2 to 8.
    pub bits: u32,
    /// What a scale belongs to.
    pub axis: ScaleAxis,
    /// One per row or column.
    pub values: Vec<f32>,
}

impl OwnedTensor {
    /// A matrix of integers (row-major) of 2 to 8 bits; an element is integer x scale. `shape` has two axes at least.
    ///
    /// # Panics
    /// If the numbers of integers and scales do not fit the shape, or an integer does not fit the bits.
    pub fn quantized(name: impl Into<String>, shape: &[usize], integers: &[i8], scales: Scales) -> Self {
        let (rows, columns) = matrix(shape).expect("a quantised tensor is a matrix");
        let bits = scales.bits;
        assert!((2..=8).contains(&bits), "{bits} bits");
        assert_eq!(integers.len(), rows * columns, "integers of {shape:?}");
        assert_eq!(
            scales.values.len(),
            if scales.axis == ScaleAxis::Row { rows } else { columns },
            "scales of {shape:?}"
        );
        let most = largest(bits);
        assert!(integers.iter().all(|q| (-most - 1..=most).contains(q)), "integers of {bits} bits");
        let mut bytes = Vec::with_capacity(rows * row_bytes(columns, bits).unwrap_or(0));
        integers.chunks_exact(columns).for_each(|row| pack(row, bits, &mut bytes));
        let dtype = if bits == 8 { Dtype::I8 } else { Dtype::U8 };
        OwnedTensor { name: name.into(), dtype, shape: shape.to_vec(), bytes, quantized: Some(scales) }
    }
}

impl OwnedTensor {
    /// All integers of a quantised tensor, row-major.
    pub(crate) fn unpack(&self, out: &mut [i8]) {
        let Some((scales, (_, columns))) = self.quantized.as_ref().zip(matrix(&self.shape)) else { return };
        let stride = row_bytes(columns, scales.bits).unwrap_or(0);
        for (out, row) in out.chunks_exact_mut(columns).zip(self.bytes.chunks_exact(stride)) {
            unpack(row, scales.bits, 0, out);
        }
    }
}

/// The file's metadata entry for these tensors; `None` if none of them is quantised.
pub(crate) fn metadata(tensors: &[OwnedTensor]) -> Option<String> {
    let entry = |t: &OwnedTensor| {
        let Scales { bits, axis, .. } = *t.quantized.as_ref()?;
        Some((t.name.clone(), Entry { bits, shape: t.shape.clone(), axis }))
    };
    let entries: BTreeMap<String, Entry> = tensors.iter().filter_map(entry).collect();
    if entries.is_empty() { None } else { serde_json::to_string(&entries).ok() }
}

/// The shape in the file.
pub(crate) fn shape_in_file(tensor: &OwnedTensor) -> Vec<usize> {
    let packed = tensor.quantized.as_ref().and_then(|s| stored_shape(&tensor.shape, s.bits));
    packed.unwrap_or_else(|| tensor.shape.clone())
}
