//! Memory-mapped weights, addressed by tensor name.

mod edit;
mod element;
mod file;
mod matrix;
mod owned;
mod packing;
mod quantized;
mod shards;
mod sparse;

use crate::{Bias, Error};
pub(crate) use edit::Cut;
pub(crate) use element::is_float;
pub(crate) use file::one_line;
use file::{Bytes, Place};
pub use matrix::Integers;
pub(crate) use matrix::misshapen;
pub use matrix::not_finite;
pub use owned::OwnedTensor;
pub(crate) use owned::serialise;
pub use quantized::{Quantized, ScaleAxis, Scales};
pub use safetensors::Dtype;
pub(crate) use shards::{INDEX, SINGLE, is_plain_name, shards as shard_names};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All tensors of a model: one or several mapped safetensors files, or tensors in memory.
///
/// A clone shares the mapping: it costs an index, not the numbers.
#[derive(Default, Clone)]
pub struct Weights {
    files: Vec<Arc<Source>>,
    /// By name: the file and the place in it.
    index: BTreeMap<String, (usize, Place)>,
    /// Whether that is not what the files hold any more.
    edited: bool,
}

/// One file (or buffer) of tensors.
pub(crate) struct Source {
    /// Path relative to the model directory, forward slashes.
    pub(crate) path: String,
    /// What its tensors' names begin with here, and not in the file.
    prefix: String,
    bytes: Bytes,
    /// Bytes on disk, which are fewer where tensors are stored sparsely.
    stored: usize,
}

impl Source {
    /// The whole file, header included.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}

/// One tensor, still in the file's element type.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    /// Shape, outermost axis first.
    pub shape: &'a [usize],
    dtype: Dtype,
    bytes: &'a [u8],
    quantized: Option<Quantized<'a>>,
}

impl<'a> Tensor<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.quantized {
            Some(quantized) => quantized.len(),
            None => element::width(self.dtype).map_or(0, |width| self.bytes.len() / width),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The file's element type; of quantised tensors that of the integers.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Whether the elements are real numbers, however they are stored.
    pub fn is_real(&self) -> bool {
        self.quantized.is_some() || is_float(self.dtype) || self.dtype == Dtype::F64
    }

    /// Integers and scales, if the file says that the elements are stored so.
    pub fn quantized(&self) -> Option<Quantized<'a>> {
        self.quantized
    }

    /// The raw little-endian elements, at any alignment; of quantised tensors the packed integers.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Converts elements `start .. start + out.len()` to f32.
    ///
    /// # Panics
    /// If the range does not lie inside the tensor: compare with [`Tensor::len`] first.
    pub fn read(&self, start: usize, out: &mut [f32]) {
        if let Some(quantized) = &self.quantized {
            return quantized.read(start, out);
        }
        let width = element::width(self.dtype).unwrap_or(0);
        let bytes = &self.bytes[start * width..(start + out.len()) * width];
        element::to_f32(self.dtype, bytes, out);
    }
}

impl Weights {
    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    /// Bytes of all tensors together.
    pub fn size_in_bytes(&self) -> usize {
        let scales = |place: &Place| place.grid.as_ref().map_or(0, |grid| grid.end - grid.start);
        self.index.values().map(|(_, place)| place.end - place.start + scales(place)).sum()
    }

    /// Bytes of the files, headers included; of tensors that replace some of theirs, without.
    pub fn file_bytes(&self) -> usize {
        self.files.iter().map(|file| file.stored).sum()
    }

    /// The tensor of this name. The error names it and the files searched.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, Error> {
        let (file, place) = self.index.get(name).ok_or_else(|| self.missing(name))?;
        if element::width(place.dtype).is_none() {
            return Err(Error::new(format!(
                "tensor \"{name}\" has element type {}, which is not supported; convert it to F32, F16 or BF16",
                place.dtype
            )));
        }
        let file = self.files[*file].bytes();
        let quantized = place.grid.as_ref().and_then(|grid| Quantized::new(grid, place, file));
        Ok(Tensor { shape: &place.shape, dtype: place.dtype, bytes: &file[place.start..place.end], quantized })
    }

    /// An error if a tensor has an infinity or something that is not a number in it. Reads everything.
    pub fn check_finite(&self) -> Result<(), Error> {
        let mut piece = vec![0f32; 1 << 14];
        let damaged = self.names().find(|name| {
            let Some(tensor) = self.tensor(name).ok().filter(Tensor::is_real) else { return false };
            (0..tensor.len()).step_by(piece.len()).any(|start| {
                let piece = &mut piece[..(1 << 14).min(tensor.len() - start)];
                tensor.read(start, piece);
                piece.iter().any(|number| !number.is_finite())
            })
        });
        damaged.map_or(Ok(()), |name| Err(not_finite(name)))
    }

    /// A vector of this length in f32; an error if the tensor has another number of elements.
    pub fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, Error> {
        let tensor = self.tensor(name)?;
        if tensor.len() != length {
            return Err(misshapen(name, &[length], tensor.shape));
        }
        let mut out = vec![0.0; length];
        tensor.read(0, &mut out);
        Ok(out)
    }

    /// The bias of a linear map in f32.
    pub fn bias(&self, bias: &Bias, length: usize) -> Result<Vec<f32>, Error> {
        self.check_bias(bias, length)?;
        let mut out = vec![0.0; length];
        self.tensor(&bias.name)?.read(bias.slice.map_or(0, |s| s.0), &mut out);
        Ok(out)
    }

    /// Checks that the bias exists and has `length` numbers.
    pub(crate) fn check_bias(&self, bias: &Bias, length: usize) -> Result<(), Error> {
        let tensor = self.tensor(&bias.name)?;
        let fits = match bias.slice {
            None => tensor.len() == length,
            Some((start, end)) => start < end && end <= tensor.len() && end - start == length,
        };
        if fits { Ok(()) } else { Err(misshapen(&bias.name, &[bias.slice.map_or(length, |s| s.1)], tensor.shape)) }
    }

    /// Tells the operating system that this tensor's pages will not be read again soon, so that a packed
    /// copy and the mapping do not both stay resident.
    pub fn release(&self, name: &str) {
        if let Some((file, place)) = self.index.get(name) {
            self.files[*file].bytes.release(place.start, place.end);
        }
    }

    /// Takes in one file; its tensors are called `prefix` + their name.
    fn add(&mut self, path: String, what: &str, mut bytes: Bytes, prefix: &str) -> Result<(), Error> {
        let stored = bytes.as_slice().len();
        let mut places = file::places(bytes.as_slice(), what)?;
        if sparse::is_sparse(&places) {
            bytes = Bytes::Held(sparse::expand(bytes.as_slice(), what)?.into());
            places = file::places(bytes.as_slice(), what)?;
        }
        let file = self.files.len();
        for mut place in places {
            place.name.insert_str(0, prefix);
            if let Some((other, _)) = self.index.get(&place.name) {
                let other = &self.files[*other].path;
                return Err(Error::new(format!(
                    "tensor \"{}\" is both in {other} and in {path}; remove one of them",
                    one_line(&place.name)
                )));
            }
            self.index.insert(place.name.clone(), (file, place));
        }
        self.files.push(Arc::new(Source { path, prefix: prefix.to_string(), bytes, stored }));
        Ok(())
    }

    fn missing(&self, name: &str) -> Error {
        let files: Vec<&str> = self.files.iter().map(|f| f.path.as_str()).collect();
        Error::new(format!(
            "tensor \"{name}\" is missing from {}; config.json and the weights do not belong together",
            if files.is_empty() { "the (empty) weights".to_string() } else { files.join(", ") }
        ))
    }
}
