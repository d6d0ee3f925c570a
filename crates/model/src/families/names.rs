//! Tensor names: the base model's prefix, old spellings, and the parts every family is made of.

use crate::{Bias, Linear, Matrix, Norm, NormKind};

/// Answers whether the weights hold a tensor.
pub(crate) struct Names<'a> {
    has: &'a dyn Fn(&str) -> bool,
    /// What base-model tensors begin with in this file: "bert.", or nothing when the base model was saved alone.
    pub(crate) prefix: String,
}

impl<'a> Names<'a> {
    /// Finds out the prefix from where the word table `probe` (without prefix) lies.
    pub(crate) fn new(has: &'a dyn Fn(&str) -> bool, prefix: &str, probe: &str) -> Self {
        let bare = has(probe) && !has(&format!("{prefix}{probe}"));
        Names { has, prefix: if bare { String::new() } else { prefix.to_string() } }
    }

    /// Whether the file holds this tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        (self.has)(name)
    }

    /// The full name of a base-model part.
    pub(crate) fn base(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The first of these that the file holds, else the first.
    pub(crate) fn any(&self, names: &[&str]) -> String {
        names.iter().find(|n| self.has(n)).or(names.first()).map(|n| n.to_string()).unwrap_or_default()
    }

    /// `{name}.weight` and `{name}.bias`, or `gamma` and `beta` as TensorFlow conversions call them.
    pub(crate) fn norm(&self, name: &str, width: usize, eps: f32) -> Norm {
        let old = !self.has(&format!("{name}.weight")) && self.has(&format!("{name}.gamma"));
        let (weight, bias) = if old { ("gamma", "beta") } else { ("weight", "bias") };
        Norm { kind: NormKind::Layer, weight: format!("{name}.{weight}"), bias: format!("{name}.{bias}"), width, eps }
    }

    /// The output matrix of a language-model head: its own tensor, or, tied and left out of the file, the word table.
    pub(crate) fn decoder(&self, own: &str, word: &str, tied: bool) -> Matrix {
        tensor(if !self.has(own) && tied { word } else { own })
    }
}

/// A tensor stored `[outputs, inputs]`.
pub(crate) fn tensor(name: &str) -> Matrix {
    Matrix::Tensor { name: name.to_string(), in_out: false, slice: None }
}

/// A whole bias.
pub(crate) fn bias(name: &str) -> Option<Bias> {
    Some(Bias { name: name.to_string(), slice: None })
}

/// `{name}.weight` and `{name}.bias`, stored `[outputs, inputs]`.
pub(crate) fn linear(name: &str, inputs: usize, outputs: usize) -> Linear {
    Linear { weight: tensor(&format!("{name}.weight")), bias: bias(&format!("{name}.bias")), inputs, outputs }
}
