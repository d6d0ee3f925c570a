//! Tensors in memory: for tests, for converters, and for writing.

use super::file::Bytes;
use super::{Dtype, Weights};
use crate::Error;
use safetensors::tensor::TensorView;

/// A tensor that owns its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnedTensor {
    /// Full tensor name.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Shape, outermost axis first.
    pub shape: Vec<usize>,
    /// Little-endian elements.
    pub bytes: Vec<u8>,
}

impl OwnedTensor {
    /// An f32 tensor.
    pub fn f32(name: impl Into<String>, shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        OwnedTensor { name: name.into(), dtype: Dtype::F32, shape: shape.to_vec(), bytes }
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
        OwnedTensor {
            name: name.into(),
            dtype: Dtype::BF16,
            shape: shape.to_vec(),
            bytes: values.iter().flat_map(round).collect(),
        }
    }
}

/// The bytes of a safetensors file with these tensors.
pub(crate) fn serialise(tensors: &[OwnedTensor]) -> Result<Vec<u8>, Error> {
    let mut views = Vec::with_capacity(tensors.len());
    let mut names = std::collections::HashSet::new();
    for t in tensors {
        if !names.insert(&t.name) {
            return Err(Error::new(format!("tensor \"{}\" is given twice", t.name)));
        }
        let view = TensorView::new(t.dtype, t.shape.clone(), &t.bytes).map_err(|_| {
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
    safetensors::serialize(views, Some(metadata)).map_err(|e| Error::new(format!("weights cannot be serialised: {e}")))
}

impl Weights {
    /// Weights in memory from tensors.
    pub fn from_tensors(tensors: &[OwnedTensor]) -> Result<Weights, Error> {
        Weights::from_bytes(serialise(tensors)?)
    }

    /// Weights in memory from the bytes of a safetensors file.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Weights, Error> {
        let mut weights = Weights::default();
        weights.add("model.safetensors".into(), "model.safetensors", Bytes::Owned(bytes), "")?;
        Ok(weights)
    }
}
