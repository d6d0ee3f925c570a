//! One forward pass: what it reads, and the steps that every part shares.

use super::guide::Guide;
use super::mask::Masks;
use super::packed::Packed;
use super::power::Running;
use super::relative::Positions;
use super::tokens::Presence;
use super::values::Asked;
use super::{Capture, Encoded, Forward, LinearHook, Means, Mode, Network};
use crate::gpu::Seed;
use crate::random::Random;
use crate::rows::by_rows;
use crate::{PaddedBatch, Parameters};
use crate::{gpu, ops};
use burn::tensor::module::layer_norm;
use burn::tensor::{Bool, DType, Device, Distribution, Tensor, activation};
use sparing_kernels::Format;
use sparing_kernels::training::Dropout;
use sparing_model::{Activation, Architecture, AttentionPlan, Calibration, Error, Linear, Norm, NormKind};
use std::cell::{Cell, OnceCell};
use std::sync::Arc;

/// A forward pass under way.
pub(super) struct Pass<'a> {
    network: &'a Network,
    pub(super) architecture: &'a Architecture,
    /// What attention economises.
    pub(super) plan: &'a AttentionPlan,
    pub(super) calibration: Option<&'a Calibration>,
    /// Whose attention counts in the last layer.
    pub(super) asked: Asked,
    pub(super) parameters: &'a Parameters,
    pub(super) batch: &'a PaddedBatch,
    pub(super) mode: Mode,
    /// What layers read instead of what the layers before have computed.
    guide: Option<Guide<'a>>,
    /// Where changed statistics go.
    pub(super) running: &'a Running,
    hook: Option<&'a dyn LinearHook>,
    /// Where constants go: outside of autodiff.
    pub(super) device: Device,
    /// The numbers are in the host's memory: our own operations apply.
    pub(super) host: bool,
    /// They are elsewhere: those for GPUs apply.
    pub(super) gpu: bool,
    /// Where rows are, if there is no padding between them.
    pub(super) packed: Option<Arc<Packed>>,
    /// Seed of the last dropout on the host.
    seed: Cell<Option<u64>>,
    /// On a GPU, what all dropouts of this pass draw from.
    draws: OnceCell<Seed>,
    pub(super) presence: Presence,
    pub(super) masks: Masks,
    pub(super) positions: Positions,
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        network: &'a Network,
        parameters: &'a Parameters,
        batch: &'a PaddedBatch,
        mode: Mode,
        hook: Option<&'a dyn LinearHook>,
    ) -> Self {
        let Network { architecture, attention: plan, calibration, means, running } = network;
        let (calibration, asked) = (calibration.as_deref(), Asked::All);
        let device = parameters.device().clone().without_autodiff();
        let host = *means == Means::Own && ops::on_host(&device);
        let gpu = !host && *means != Means::Burn;
        let inside = hook.is_some_and(|hook| hook.looks_inside());
        let whole = !mode.capture.attention && !inside && plan.is_exact() && Packed::fits(architecture);
        let packed = (host && whole).then(|| Arc::new(Packed::new(batch)));
        let (seed, draws) = (Cell::new(None), OnceCell::new());
        let (masks, positions, presence) = (Masks::default(), Positions::default(), Presence::new(batch));
        Pass {
            network,
            architecture,
            plan,
            calibration,
            asked,
            parameters,
            batch,
            mode,
            guide: None,
            running,
            hook,
            device,
            host,
            gpu,
            packed,
            seed,
            draws,
            presence,
            masks,
            positions,
        }
    }

    /// The same with layers that read what a teacher's read.
    pub(super) fn guided(mut self, guide: Option<Guide<'a>>) -> Self {
        // Rows without padding have no place among the teacher's.
        if guide.is_some() {
            self.packed = None;
        }
        self.guide = guide;
        self
    }

    /// Token ids to the head's result.
    pub(super) fn forward(&mut self) -> Result<Forward, Error> {
        self.asked = Asked::Head;
        if let Some(packed) = self.packed.clone() {
            self.network.check(&self.batch.host)?;
            return self.forward_packed(&packed);
        }
        let Encoded { last, hidden, attention, present } = self.encode()?;
        Ok(Forward { output: self.head(last)?, hidden, attention, present })
    }

    /// Token ids to the last hidden state.
    pub(super) fn encode(&mut self) -> Result<Encoded, Error> {
        self.network.check(&self.batch.host)?;
        if let Some(packed) = self.packed.clone() {
            let mut hidden = Vec::new();
            let rows = self.encode_packed(&packed, false, &mut hidden)?;
            let last = self.padded(&packed, rows);
            let present = vec![self.presence.present.clone(); hidden.len()];
            return Ok(Encoded { last, hidden, attention: vec![], present });
        }
        let (count, length, width) = (self.batch.count(), self.batch.length, self.architecture.hidden);
        let cube = |rows: Tensor<2>| rows.reshape([count, length, width]);
        let (mut hidden, mut attention, mut present) = (Vec::new(), Vec::new(), Vec::new());
        let captures = self.mode.capture != Capture::default();
        let mut x = self.embeddings()?;
        let architecture = self.architecture;
        for (number, layer) in architecture.layers.iter().enumerate() {
            if self.mode.capture.hidden {
                hidden.push(cube(x.clone()));
            }
            present.extend(captures.then(|| self.presence.present.clone()));
            if let Some(guide) = &self.guide {
                x = guide.input(number, x);
            }
            x = self.layer((number, layer), x, None, &mut attention)?;
        }
        if self.mode.capture.hidden {
            hidden.push(cube(x.clone()));
        }
        present.extend(captures.then(|| self.presence.present.clone()));
        if let Some(norm) = &architecture.final_norm {
            x = self.norm(norm, x)?;
        }
        Ok(Encoded { last: cube(x), hidden, attention, present })
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

    /// In the precision of matrix products. Our own on the host round for themselves.
    pub(super) fn narrow<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if self.mode.bf16 && !self.host { x.cast(DType::BF16) } else { x }
    }

    /// In the precision of everything else.
    pub(super) fn wide<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if self.mode.bf16 && !self.host { x.cast(DType::F32) } else { x }
    }

    /// What linear maps on the host round to.
    pub(super) fn format(&self) -> Format {
        if self.mode.bf16 { Format::Bf16 } else { Format::F32 }
    }

    /// Rows as the linear maps that read them see them; `linear` is the first of those. `all`: the rows are all tokens,
    /// so that some may be padding.
    pub(super) fn input(&self, linear: &Linear, rows: Tensor<2>, all: bool) -> Tensor<2> {
        let rows = match self.hook {
            None => rows,
            Some(hook) => hook.input(&linear.weight.name(), rows, self.real().filter(|_| all).as_ref()),
        };
        self.narrow(rows)
    }

    /// `[batch * length, 1]`, false where a token is padding or has left; `None`: there is no padding.
    pub(super) fn real(&self) -> Option<Tensor<2, Bool>> {
        let rows = self.batch.count() * self.batch.length;
        self.packed.is_none().then(|| self.presence.present.clone().reshape([rows, 1]))
    }

    /// `rows Wᵀ + b`: every linear map of the network is computed here. `rows` come from [`Pass::input`].
    pub(super) fn product(&self, linear: &Linear, rows: Tensor<2>) -> Result<Tensor<2>, Error> {
        let (weight, bias) = self.weights(linear)?;
        Ok(self.multiply(rows, weight, bias))
    }

    /// `rows Wᵀ + b` in the precision of the rows; weight `[outputs, inputs]`, bias `[1, outputs]`.
    pub(super) fn multiply(&self, rows: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<2>>) -> Tensor<2> {
        if self.host {
            return ops::linear(self.format(), rows, weight, bias);
        }
        if self.mode.int8
            && let Some(found) = gpu::fused::byte_linear(&rows, &weight, bias.as_ref())
        {
            return found;
        }
        if self.gpu {
            return gpu::linear(rows, weight, bias);
        }
        let product = rows.matmul(self.narrow(weight).transpose());
        match bias {
            Some(bias) => product + self.narrow(bias),
            None => product,
        }
    }

    /// The matrix `[outputs, inputs]` that a map multiplies with, and its bias.
    pub(super) fn weights(&self, linear: &Linear) -> Result<(Tensor<2>, Option<Tensor<2>>), Error> {
        let (weight, bias) = self.parameters.linear(linear)?;
        Ok(match self.hook {
            Some(hook) => (hook.weight(&linear.weight.name(), weight), bias),
            None => (weight, bias),
        })
    }

    /// Who looks at norms and shares, if anybody does.
    pub(super) fn inside(&self) -> Option<&'a dyn LinearHook> {
        self.hook.filter(|hook| hook.looks_inside())
    }

    /// Whether somebody looks at every linear map.
    pub(super) fn hooked(&self) -> bool {
        self.hook.is_some()
    }

    /// A linear map of rows of all tokens, f32 to f32.
    pub(super) fn linear(&self, linear: &Linear, rows: Tensor<2>) -> Result<Tensor<2>, Error> {
        Ok(self.wide(self.product(linear, self.input(linear, rows, true))?))
    }

    /// A norm of f32 rows.
    pub(super) fn norm(&self, norm: &Norm, rows: Tensor<2>) -> Result<Tensor<2>, Error> {
        let hook = self.inside();
        let before = hook.map(|_| rows.clone());
        let behind = self.norm_of(norm, rows)?;
        if let (Some(hook), Some(before)) = (hook, before) {
            hook.normed(norm, &before, &behind, self.real().as_ref());
        }
        Ok(behind)
    }

    fn norm_of(&self, norm: &Norm, rows: Tensor<2>) -> Result<Tensor<2>, Error> {
        let (weight, bias) = (self.get(&norm.weight)?, self.get(&norm.bias)?);
        Ok(match norm.kind {
            NormKind::Power => self.power_norm(norm, rows, weight, bias)?,
            NormKind::Layer if self.host => ops::norm(rows, None, None, weight, bias, norm.eps),
            NormKind::Layer if self.gpu => gpu::norm(rows, weight, bias, norm.eps),
            NormKind::Affine if self.gpu => gpu::scale_and_shift(rows, weight, bias),
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
        if let Some(dropout) = self.next_dropout() {
            return by_rows(x, |rows| ops::drop(rows, dropout));
        }
        if self.gpu {
            let seed = self.draws.get_or_init(|| Seed::new(&self.device, self.mode.draws.unwrap_or(0)));
            return gpu::dropout(x, dropped, seed, self.next_seed(|| 0) as u32);
        }
        let keep = 1.0 - dropped;
        let kept = Tensor::random(x.shape(), Distribution::Bernoulli(keep), (&self.device, x.dtype()));
        // The scale goes to the mask, which has no gradient.
        x * (kept * (1.0 / keep))
    }

    /// What the next dropout of this pass drops, where our own operations apply; `None` without dropout.
    pub(super) fn next_dropout(&self) -> Option<Dropout> {
        if !self.host || self.mode.dropout <= 0.0 {
            return None;
        }
        // Seeded by the device's generator, as dropout is elsewhere: whoever seeds the device gets the same again.
        let seed = self.next_seed(|| self.drawn_seed());
        Some(Dropout::new(Random::new(seed).bits(), self.mode.dropout))
    }

    /// A seed that this pass has not used; `first` is asked where they begin.
    fn next_seed(&self, first: impl FnOnce() -> u64) -> u64 {
        let seed = self.seed.get().unwrap_or_else(first).wrapping_add(1);
        self.seed.set(Some(seed));
        seed
    }

    /// A number from the device's generator.
    fn drawn_seed(&self) -> u64 {
        let parts = Tensor::<1>::random([4], Distribution::Uniform(0.0, 65536.0), &self.device);
        let parts = parts.try_into_vec_as::<f32>().unwrap_or_default();
        parts.iter().fold(0, |seed, part| (seed << 16) | (*part as u64 & 0xffff))
    }

    /// Shares of scores along the last axis.
    pub(super) fn softmax(&self, scores: Tensor<4>) -> Tensor<4> {
        if self.gpu { gpu::softmax(scores) } else { activation::softmax(scores, 3) }
    }

    /// `rows + row`.
    pub(super) fn add_row(&self, rows: Tensor<2>, row: Tensor<2>) -> Tensor<2> {
        if self.gpu { gpu::add_row(rows, row) } else { rows + row }
    }

    /// A non-linearity, element by element.
    pub(super) fn activate(&self, kind: Activation, x: Tensor<2>) -> Tensor<2> {
        match kind {
            Activation::Identity => x,
            _ if self.host => ops::activate(x, kernel(kind)),
            Activation::Gelu if self.gpu => gpu::gelu(x),
            Activation::Gelu => activation::gelu(x),
            Activation::GeluTanh => activation::gelu_approximate(x),
            Activation::Relu => activation::relu(x),
            Activation::Tanh => activation::tanh(x),
            Activation::Silu => activation::silu(x),
            Activation::Clip => x.clamp(-1.0, 1.0),
        }
    }
}

/// The kernels' name of a non-linearity.
pub(super) fn kernel(kind: Activation) -> sparing_kernels::Activation {
    use sparing_kernels::Activation as Kernel;
    match kind {
        Activation::Identity => Kernel::Identity,
        Activation::Gelu => Kernel::Gelu,
        Activation::GeluTanh => Kernel::GeluTanh,
        Activation::Relu => Kernel::Relu,
        Activation::Tanh => Kernel::Tanh,
        Activation::Silu => Kernel::Silu,
        Activation::Clip => Kernel::Clip,
    }
}
