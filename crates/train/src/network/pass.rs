//! One forward pass: what it reads, and the steps that every part shares.

use super::mask::Masks;
use super::relative::Positions;
use super::{Encoded, LinearHook, Mode};
use crate::{PaddedBatch, Parameters};
use burn::tensor::module::layer_norm;
use burn::tensor::{Bool, DType, Device, Distribution, Tensor, activation};
use sparing_model::{Activation, Architecture, Error, Linear, Norm, NormKind};

/// A forward pass under way.
pub(super) struct Pass<'a> {
    pub(super) architecture: &'a Architecture,
    pub(super) parameters: &'a Parameters,
    pub(super) batch: &'a PaddedBatch,
    pub(super) mode: Mode,
    hook: Option<&'a dyn LinearHook>,
    /// `[batch * length, 1]`, false where padded; made only for a hook.
    real: Option<Tensor<2, Bool>>,
    /// Where constants go: outside of autodiff.
    pub(super) device: Device,
    pub(super) masks: Masks,
    pub(super) positions: Positions,
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        architecture: &'a Architecture,
        parameters: &'a Parameters,
        batch: &'a PaddedBatch,
        mode: Mode,
        hook: Option<&'a dyn LinearHook>,
    ) -> Self {
        let rows = batch.count() * batch.length;
        let real = hook.map(|_| batch.mask.clone().reshape([rows, 1]));
        let device = parameters.device().clone().without_autodiff();
        let (masks, positions) = (Masks::default(), Positions::default());
        Pass { architecture, parameters, batch, mode, hook, real, device, masks, positions }
    }

    /// Token ids to the last hidden state.
    pub(super) fn encode(&mut self) -> Result<Encoded, Error> {
        self.check()?;
        let (count, length, width) = (self.batch.count(), self.batch.length, self.architecture.hidden);
        let cube = |rows: Tensor<2>| rows.reshape([count, length, width]);
        let (mut hidden, mut attention) = (Vec::new(), Vec::new());
        let mut x = self.embeddings()?;
        let architecture = self.architecture;
        for layer in &architecture.layers {
            if self.mode.capture.hidden {
                hidden.push(cube(x.clone()));
            }
            x = self.layer(layer, x, &mut attention)?;
        }
        if self.mode.capture.hidden {
            hidden.push(cube(x.clone()));
        }
        if let Some(norm) = &architecture.final_norm {
            x = self.norm(norm, x)?;
        }
        Ok(Encoded { last: cube(x), hidden, attention })
    }

    /// What would make an index leave its table.
    fn check(&self) -> Result<(), Error> {
        let longest = self.batch.lengths.iter().copied().max().unwrap_or(0);
        if self.batch.lengths.contains(&0) || longest == 0 {
            return Err(Error::new("a batch needs one sequence at least, and a sequence one token"));
        }
        let e = &self.architecture.embeddings;
        let rows = e.positions.as_ref().map(|p| p.rows.saturating_sub(p.offset));
        let limit = [self.architecture.max_tokens, rows].into_iter().flatten().min();
        if let Some(limit) = limit.filter(|limit| longest > *limit) {
            return Err(Error::new(format!("a sequence has {longest} tokens; this model takes {limit} at most")));
        }
        if let Some(id) = self.batch.host.iter().flatten().find(|id| **id as usize >= e.vocabulary) {
            let words = e.vocabulary;
            return Err(Error::new(format!("token id {id} is outside the vocabulary of {words}")));
        }
        let kind = self.batch.most_type as usize;
        match &e.token_types {
            Some(table) if kind >= table.rows => {
                Err(Error::new(format!("token type {kind}, but this model knows {}", table.rows)))
            }
            _ => Ok(()),
        }
    }

    /// A tensor of the model.
    pub(super) fn get(&self, name: &str) -> Result<Tensor<2>, Error> {
        Ok(self.parameters.get(name)?.value.clone())
    }

    /// Rows of an embedding table as the network sees them.
    pub(super) fn looked_up(&self, name: &str, rows: Tensor<2>) -> Tensor<2> {
        match self.hook {
            None => rows,
            Some(hook) => hook.looked_up(name, rows),
        }
    }

    /// In the precision of matrix products.
    pub(super) fn narrow<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if self.mode.bf16 { x.cast(DType::BF16) } else { x }
    }

    /// In the precision of everything else.
    pub(super) fn wide<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if self.mode.bf16 { x.cast(DType::F32) } else { x }
    }

    /// Rows as the linear maps that read them see them; `linear` is the first of those. `all`: the rows are all tokens,
    /// so that some may be padding.
    pub(super) fn input(&self, linear: &Linear, rows: Tensor<2>, all: bool) -> Tensor<2> {
        let rows = match self.hook {
            None => rows,
            Some(hook) => hook.input(&linear.weight.name(), rows, self.real.as_ref().filter(|_| all)),
        };
        self.narrow(rows)
    }

    /// `rows Wᵀ + b`: every linear map of the network is computed here. `rows` come from [`Pass::input`].
    pub(super) fn product(&self, linear: &Linear, rows: Tensor<2>) -> Result<Tensor<2>, Error> {
        let (mut weight, bias) = self.parameters.linear(linear)?;
        if let Some(hook) = self.hook {
            weight = hook.weight(&linear.weight.name(), weight);
        }
        let product = rows.matmul(self.narrow(weight).transpose());
        Ok(match bias {
            Some(bias) => product + self.narrow(bias),
            None => product,
        })
    }

    /// A linear map of rows of all tokens, f32 to f32.
    pub(super) fn linear(&self, linear: &Linear, rows: Tensor<2>) -> Result<Tensor<2>, Error> {
        Ok(self.wide(self.product(linear, self.input(linear, rows, true))?))
    }

    /// A norm of f32 rows.
    pub(super) fn norm(&self, norm: &Norm, rows: Tensor<2>) -> Result<Tensor<2>, Error> {
        let (weight, bias) = (self.get(&norm.weight)?, self.get(&norm.bias)?);
        Ok(match norm.kind {
            NormKind::Layer => {
                let (weight, bias) = (weight.reshape([norm.width]), bias.reshape([norm.width]));
                layer_norm(rows, weight, Some(bias), f64::from(norm.eps))
            }
            NormKind::Affine => rows * weight.reshape([1, norm.width]) + bias.reshape([1, norm.width]),
        })
    }

    /// Drops elements at random and scales the others up.
    pub(super) fn dropout<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let dropped = self.mode.dropout;
        if dropped <= 0.0 {
            return x;
        }
        let keep = 1.0 - dropped;
        let kept = Tensor::random(x.shape(), Distribution::Bernoulli(keep), (&self.device, x.dtype()));
        // The scale goes to the mask, which has no gradient.
        x * (kept * (1.0 / keep))
    }
}

/// A non-linearity, element by element.
pub(super) fn activate(kind: Activation, x: Tensor<2>) -> Tensor<2> {
    match kind {
        Activation::Identity => x,
        Activation::Gelu => activation::gelu(x),
        Activation::GeluTanh => activation::gelu_approximate(x),
        Activation::Relu => activation::relu(x),
        Activation::Tanh => activation::tanh(x),
        Activation::Silu => activation::silu(x),
    }
}
