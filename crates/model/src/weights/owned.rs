//! Tensors in memory: for tests, for converters, and for writing.

use super::element::f32_to_f16;
use super::file::Bytes;
use super::quantized::{self, Scales};
use super::{Dtype, Weights};
use crate::Error;
use safetensors::tensor::TensorView;
use std::collections::BTreeSet;

/// A tensor that owns its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedTensor {
    /// Full tensor name.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Shape, outermost axis first.
    pub shape: Vec<usize>,
    /// Little-endian elements; of quantised tensors the packed integers.
    pub bytes: Vec<u8>,
    /// For integers that stand for other numbers; see [`OwnedTensor::quantized`].
    pub quantized: Option<Scales>,
}

impl OwnedTensor {
    /// An f32 tensor.
    pub fn f32(name: impl Into<String>, shape: &[usize], values: &[f32]) -> Self {
        OwnedTensor::raw(name, Dtype::F32, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// An f16 tensor, rounded to nearest even.
    pub fn f16(name: impl Into<String>, shape: &[usize], values: &[f32]) -> Self {
        OwnedTensor::raw(name, Dtype::F16, shape, values.iter().flat_map(|v| f32_to_f16(*v).to_le_bytes()).collect())
    }

    /// A tensor of any element type from its little-endian elements.
    pub fn raw(name: impl Into<String>, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Self {
        OwnedTensor { name: name.into(), dtype, shape: shape.to_vec(), bytes, quantized: None }
    }

    /// A bf16 tensor, rounded to nearest even.
    pub fn bf16(name: impl Into<String>, shape: &[usize], values: &[f32]) -> Self {
        let round = |v: &f32| {
            let bits = v.to_bits();
            // A NaN must not be rounded up into an infinity.
            let rounded =
                if v.is_nan() { (bits >> 16) | 0x40 } else { bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16 };
            (rounded as u16).to_le_bytes()
        };
        OwnedTensor::raw(name, Dtype::BF16, shape, values.iter().flat_map(round).collect())
    }
}

/// The bytes of a safetensors file with these tensors.
pub(crate) fn serialise(tensors: &[OwnedTensor]) -> Result<Vec<u8>, Error> {
    let scales = |t: &OwnedTensor| {
        let scales = t.quantized.as_ref()?;
        Some(OwnedTensor::f32(format!("{}.scale", t.name), &[scales.values.len()], &scales.values))
    };
    let scales: Vec<OwnedTensor> = tensors.iter().filter_map(scales).collect();
    let mut views = Vec::with_capacity(tensors.len() + scales.len());
    let mut names = std::collections::HashSet::new();
    for t in tensors.iter().chain(&scales) {
        if !names.insert(&t.name) {
            return Err(Error::new(format!("tensor \"{}\" is given twice", t.name)));
        }
        let view = TensorView::new(t.dtype, quantized::shape_in_file(t), &t.bytes).map_err(|_| {
            Error::new(format!(
                "tensor \"{}\": {} bytes do not fit shape {:?} of {}",
                t.name,
                t.bytes.len(),
                t.shape,
                t.dtype
            ))
        })?;
        views.push((t.name.as_str(), view));
    }
    // "format": Python's reader refuses files without it.
    let metadata = std::collections::HashMap::from([("format".to_string(), "pt".to_string())]);
    let file = safetensors::serialize(views, Some(metadata))
        .map_err(|e| Error::new(format!("weights cannot be serialised: {e}")))?;
    match quantized::metadata(tensors) {
        None => Ok(file),
        Some(text) => with_metadata(file, &text),
    }
}

/// Adds what the file says of its quantised tensors. By hand: the library writes several entries in an order of its own,
/// and the same tensors must give the same file.
fn with_metadata(file: Vec<u8>, text: &str) -> Result<Vec<u8>, Error> {
    let failed = || Error::new("weights cannot be serialised: no metadata in the header");
    let (length, rest) = file.split_first_chunk::<8>().ok_or_else(failed)?;
    let (header, data) = rest.split_at_checked(u64::from_le_bytes(*length) as usize).ok_or_else(failed)?;
    const BEGIN: &[u8] = br#"{"__metadata__":{"format":"pt""#;
    let after = header.trim_ascii_end().strip_prefix(BEGIN).ok_or_else(failed)?;
    let text = serde_json::to_string(text).map_err(|_| failed())?;
    let entry = format!(",\"{}\":{text}", quantized::KEY);
    let mut header = [BEGIN, entry.as_bytes(), after].concat();
    // Tensors begin at multiples of eight.
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok([&(header.len() as u64).to_le_bytes(), header.as_slice(), data].concat())
}

impl Weights {
    /// Weights in memory from tensors.
    pub fn from_tensors(tensors: &[OwnedTensor]) -> Result<Weights, Error> {
        Weights::from_bytes(serialise(tensors)?)
    }

    /// Weights in memory from the bytes of a safetensors file.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Weights, Error> {
        let mut weights = Weights::default();
        weights.add("model.safetensors".into(), "model.safetensors", Bytes::Held(bytes.into()), "")?;
        Ok(weights)
    }

    /// A tensor by name as it is stored, bit for bit.
    pub fn owned(&self, name: &str) -> Result<OwnedTensor, Error> {
        let tensor = self.tensor(name)?;
        let quantized = tensor.quantized().map(|q| Scales { bits: q.bits(), axis: q.axis(), values: q.scales() });
        let raw = OwnedTensor::raw(name, tensor.dtype(), tensor.shape, tensor.bytes().to_vec());
        Ok(OwnedTensor { quantized, ..raw })
    }

    /// The same weights with some tensors replaced, by name; the others are shared, not copied.
    pub fn replace(&self, changed: Vec<OwnedTensor>) -> Result<Weights, Error> {
        self.edit(changed, &BTreeSet::new())
    }
}
