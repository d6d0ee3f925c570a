//! Tensors cut down, and laid over the ones of a file in memory.

use super::element::{self, is_float};
use super::file::{Bytes, Place};
use super::quantized::{Grid, Scales};
use super::{Dtype, OwnedTensor, SINGLE, ScaleAxis, Source, Weights, serialise};
use crate::Error;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A file's path in the directory and its content.
type NamedFile<'a> = (String, Cow<'a, [u8]>);

/// What is left of a tensor seen as a matrix: rows are its first axis, columns all others.
#[derive(Clone, Copy)]
pub(crate) enum Cut<'a> {
    /// These rows.
    Rows(&'a [usize]),
    /// These columns.
    Columns(&'a [usize]),
}

impl Cut<'_> {
    /// Whether nothing is left.
    pub(crate) fn is_empty(self) -> bool {
        let (Cut::Rows(left) | Cut::Columns(left)) = self;
        left.is_empty()
    }
}

impl OwnedTensor {
    /// What a cut leaves, stored as before: integers stay the integers they are, with their scales.
    pub(crate) fn cut(&self, cut: Cut) -> OwnedTensor {
        let (rows, columns) = (self.shape.first().copied().unwrap_or(1), self.shape.iter().skip(1).product::<usize>());
        let mut shape = self.shape.clone();
        match cut {
            Cut::Rows(left) => shape[0] = left.len(),
            // XLNet's `[hidden, heads, head width]` keeps its axes.
            Cut::Columns(left) => match self.shape.iter().skip(2).product::<usize>() {
                inner if self.shape.len() > 2 && inner > 0 && left.len().is_multiple_of(inner) => {
                    shape[1] = left.len() / inner
                }
                _ => shape = vec![rows, left.len()],
            },
        }
        if let Some(Scales { bits, axis, values }) = &self.quantized {
            let mut integers = vec![0; rows * columns];
            self.unpack(&mut integers);
            let chosen = |by: ScaleAxis, left: &[usize]| match *axis == by {
                true => left.iter().map(|i| values[*i]).collect(),
                false => values.clone(),
            };
            let values = match cut {
                Cut::Rows(left) => chosen(ScaleAxis::Row, left),
                Cut::Columns(left) => chosen(ScaleAxis::Column, left),
            };
            let scales = Scales { bits: *bits, axis: *axis, values };
            return OwnedTensor::quantized(&self.name, &shape, &pick(&integers, columns, 1, cut), scales);
        }
        let width = element::width(self.dtype).unwrap_or(0);
        OwnedTensor::raw(&self.name, self.dtype, &shape, pick(&self.bytes, columns, width, cut))
    }

    /// The same tensor with other numbers, as many; integers become f32.
    pub(crate) fn with_values(&self, values: &[f32]) -> OwnedTensor {
        match self.dtype {
            Dtype::F16 => OwnedTensor::f16(&self.name, &self.shape, values),
            Dtype::BF16 => OwnedTensor::bf16(&self.name, &self.shape, values),
            dtype => {
                debug_assert!(is_float(dtype) || self.quantized.is_some());
                OwnedTensor::f32(&self.name, &self.shape, values)
            }
        }
    }
}

/// Rows or columns of a matrix whose elements are `width` long.
fn pick<T: Copy>(all: &[T], columns: usize, width: usize, cut: Cut) -> Vec<T> {
    let stride = columns * width;
    match cut {
        Cut::Rows(left) => left.iter().flat_map(|row| &all[row * stride..(row + 1) * stride]).copied().collect(),
        Cut::Columns(left) => {
            // Neighbours are copied together: a head is many columns wide.
            let runs: Vec<(usize, usize)> =
                left.chunk_by(|a, b| a + 1 == *b).map(|run| (run[0] * width, (run[0] + run.len()) * width)).collect();
            let rows = all.chunks_exact(stride.max(1));
            rows.flat_map(|row| runs.iter().flat_map(|(start, end)| &row[*start..*end])).copied().collect()
        }
    }
}

impl Weights {
    /// The same weights with some tensors replaced and some left out. All others are shared, not copied.
    pub(crate) fn edit(
        &self,
        changed: impl IntoIterator<Item = OwnedTensor>,
        removed: &BTreeSet<String>,
    ) -> Result<Weights, Error> {
        let mut weights = Weights { edited: true, ..self.clone() };
        for tensor in changed {
            let Some((file, place)) = weights.index.get_mut(&tensor.name) else {
                return Err(self.missing(&tensor.name));
            };
            let old = &weights.files[*file];
            let mut bytes = tensor.bytes;
            let end = bytes.len();
            let grid = tensor.quantized.map(|scales| {
                scales.values.iter().for_each(|scale| bytes.extend_from_slice(&scale.to_le_bytes()));
                Grid { bits: scales.bits, axis: scales.axis, start: end, end: bytes.len() }
            });
            let (path, prefix, stored) = (old.path.clone(), old.prefix.clone(), bytes.len());
            let source = Source { path, prefix, bytes: Bytes::Held(bytes.into()), stored };
            *file = weights.files.len();
            *place = Place { name: tensor.name, dtype: tensor.dtype, shape: tensor.shape, start: 0, end, grid };
            weights.files.push(Arc::new(source));
        }
        weights.index.retain(|name, _| !removed.contains(name));
        weights.forget_unused();
        Ok(weights)
    }

    /// Lets go of files of which no tensor is left.
    fn forget_unused(&mut self) {
        let used: BTreeSet<usize> = self.index.values().map(|(file, _)| *file).collect();
        let mut next = 0;
        let numbers: Vec<usize> = (0..self.files.len())
            .map(|file| {
                next += used.contains(&file) as usize;
                next.saturating_sub(1)
            })
            .collect();
        let mut file = 0;
        self.files.retain(|_| {
            file += 1;
            used.contains(&(file - 1))
        });
        self.index.values_mut().for_each(|(file, _)| *file = numbers[*file]);
    }

    /// The files to write: path in the directory, content. As they were read, byte for byte; once edited, one file of all
    /// the network's tensors instead of its shards.
    pub(crate) fn to_files(&self) -> Result<Vec<NamedFile<'_>>, Error> {
        if !self.edited {
            return Ok(self.files.iter().map(|file| (file.path.clone(), Cow::Borrowed(file.bytes()))).collect());
        }
        let mut files = Vec::new();
        let prefixes: BTreeSet<&str> = self.files.iter().map(|file| file.prefix.as_str()).collect();
        for prefix in prefixes {
            let mut tensors = Vec::new();
            let mut path = None;
            for (name, (file, _)) in self.index.iter().filter(|(_, (file, _))| self.files[*file].prefix == prefix) {
                let mut tensor = self.owned(name)?;
                tensor.name.drain(..prefix.len());
                tensors.push(tensor);
                path = Some(self.files[*file].path.clone());
            }
            let path = path.filter(|_| !prefix.is_empty()).unwrap_or_else(|| SINGLE.to_string());
            files.push((path, Cow::Owned(serialise(&tensors)?)));
        }
        Ok(files)
    }
}
