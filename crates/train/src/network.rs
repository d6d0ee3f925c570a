//! The parametric architecture, computed with Burn tensors.
//!
//! Position-wise steps see rows `[batch * length, width]`; only attention knows where sequences begin. Padding is
//! computed along and never looked at. The steps are operations of our own, on the CPU those of [`crate::ops`], elsewhere
//! those of [`crate::gpu`]; on the CPU, where nothing forbids it, there is no padding (`packed.rs`).

mod attention;
mod embeddings;
mod guide;
mod head;
mod keys;
mod layer;
mod mask;
mod merge;
mod packed;
mod pass;
mod power;
mod relative;
mod shares;
mod tokens;
mod values;

use crate::batch::HostBatch;
use crate::{PaddedBatch, Parameters};
use burn::tensor::{Bool, Tensor};
pub(crate) use guide::ROOM;
pub use guide::{Beyond, Guide};
use pass::Pass;
use power::Running;
pub use power::Statistics;
use sparing_model::{Architecture, AttentionPlan, Calibration, Error, GlobalTokens, Norm};
use std::sync::Arc;
use values::Asked;

/// A network: the architecture to walk. Holds no numbers.
pub struct Network {
    architecture: Architecture,
    attention: AttentionPlan,
    calibration: Option<Arc<Calibration>>,
    means: Means,
    running: Running,
}

/// Whose operations compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// Those that suit the device.
    Own,
    /// Those for GPUs.
    #[cfg(test)]
    Gpu,
    /// Burn's.
    Burn,
}

/// How a forward pass runs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Mode {
    /// Dropout of hidden states (after embeddings, attention output, FFN) and of attention probabilities; 0 for evaluation.
    pub dropout: f64,
    /// Seed of draws where values are sampled; `None`: the plan's.
    pub draws: Option<u64>,
    /// What to keep besides the result.
    pub capture: Capture,
    /// What PowerNorm divides by.
    pub statistics: Statistics,
    /// Matrix products in bf16 (weights stay f32 and are rounded on the way in; norms, softmax and the head's result
    /// are f32). For GPUs with tensor cores and processors that multiply bf16: there linear maps alone, and attention is f32; on
    /// processors that cannot, everything is.
    pub bf16: bool,
    /// Linear maps and the networks in softmax's place of bytes, both sides rounded on the way in, where the device can and the sides
    /// fit. Nothing can be learnt so.
    pub int8: bool,
}

/// Looks at every linear map and every embedding table of a forward pass, to replace its weight or input by an
/// approximation that gradients pass through (fake quantization). Give it to [`Network::forward_with`].
///
/// Names are those of the weight's tensor in the file; a part of a fused tensor is named `c_attn.weight[0..768]`. The
/// embeddings' projection and the head's maps come by too, which the engine keeps in f32 (a vocabulary decoder in bf16):
/// pass those on as they are.
pub trait LinearHook {
    /// The matrix `[outputs, inputs]` to multiply with.
    fn weight(&self, name: &str, weight: Tensor<2>) -> Tensor<2> {
        let _ = name;
        weight
    }

    /// Rows `[rows, width]` that were looked up in an embedding table, each a whole row of it.
    fn looked_up(&self, name: &str, rows: Tensor<2>) -> Tensor<2> {
        let _ = name;
        rows
    }

    /// The rows `[rows, inputs]` to multiply. Where several maps read the same rows (query, key, value) this is called
    /// once, with the first map's name. `real` is `[rows, 1]`, false where a row is padding; `None`: all rows are real.
    fn input(&self, name: &str, input: Tensor<2>, real: Option<&Tensor<2, Bool>>) -> Tensor<2> {
        let _ = (name, real);
        input
    }

    /// Whether [`LinearHook::normed`] and [`LinearHook::shares`] are wanted.
    fn looks_inside(&self) -> bool {
        false
    }

    /// Sees a norm's rows before and behind it.
    fn normed(&self, norm: &Norm, before: &Tensor<2>, behind: &Tensor<2>, real: Option<&Tensor<2, Bool>>) {
        let _ = (norm, before, behind, real);
    }

    /// Sees a layer's scores and their softmax, `[batch, heads, length, length]`.
    fn shares(&self, layer: usize, scores: &Tensor<4>, shares: &Tensor<4>) {
        let _ = (layer, scores, shares);
    }

    /// What is remembered from step to step, for a checkpoint.
    fn memory(&self) -> Result<serde_json::Value, Error> {
        Ok(serde_json::Value::Null)
    }

    /// Goes back to what a checkpoint remembers; null: to the beginning.
    fn recall(&self, memory: &serde_json::Value) -> Result<(), Error> {
        let _ = memory;
        Ok(())
    }
}

/// What a forward pass keeps for distillation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Capture {
    /// Embedding output and every layer's output.
    pub hidden: bool,
    /// Attention probabilities of every layer.
    pub attention: bool,
}

/// What a forward pass returns.
pub struct Forward {
    /// What the head computes, before any softmax: sequence heads `[batch, 1, outputs]`, token heads `[batch, length, outputs]`.
    pub output: Tensor<3>,
    /// With [`Capture::hidden`]: embedding output, then each layer's, `[batch, length, hidden]`.
    pub hidden: Vec<Tensor<3>>,
    /// With [`Capture::attention`]: `[batch, heads, length, length]` per layer; `None` for layers without attention.
    pub attention: Vec<Option<Tensor<4>>>,
    /// With any [`Capture`]: true where there is a token that no layer has dropped, `[batch, length]`, before each layer and
    /// behind the last. Rows of others hold nothing.
    pub present: Vec<Tensor<2, Bool>>,
}

/// What a forward pass without a head returns.
pub struct Encoded {
    /// The last hidden state `[batch, length, hidden]`, after the final norm.
    pub last: Tensor<3>,
    /// As [`Forward::hidden`].
    pub hidden: Vec<Tensor<3>>,
    /// As [`Forward::attention`].
    pub attention: Vec<Option<Tensor<4>>>,
    /// As [`Forward::present`].
    pub present: Vec<Tensor<2, Bool>>,
}

impl Network {
    /// A network for this architecture.
    pub fn new(architecture: &Architecture) -> Network {
        let attention = AttentionPlan::default();
        Network {
            architecture: architecture.clone(),
            attention,
            calibration: None,
            means: Means::Own,
            running: Running::default(),
        }
    }

    /// The same with attention economised as a plan says and as the engine does, with what samplers other than the paper's
    /// need to know. No gradient passes through a choice.
    pub fn with_attention(self, plan: &AttentionPlan, calibration: Option<Arc<Calibration>>) -> Result<Network, Error> {
        plan.check_for(&self.architecture)?;
        Ok(Network { attention: plan.clone(), calibration, ..self })
    }

    /// The same, computed with Burn's own operations on every device: slow on the CPU, and what the fast ones are compared
    /// with.
    pub fn reference(architecture: &Architecture) -> Network {
        Network { means: Means::Burn, ..Network::new(architecture) }
    }

    /// The same, computed on every device as it is on a GPU.
    #[cfg(test)]
    pub(crate) fn as_on_gpu(architecture: &Architecture) -> Network {
        Network { means: Means::Gpu, ..Network::new(architecture) }
    }

    /// Running statistics that have changed since this was asked last, by name: to be put into the parameters.
    pub fn changed(&self) -> Vec<(String, Tensor<2>)> {
        self.running.take()
    }

    /// What would make an index leave its table.
    pub(crate) fn check(&self, batch: &HostBatch) -> Result<(), Error> {
        let longest = batch.ids.iter().map(Vec::len).max().unwrap_or(0);
        if batch.ids.iter().any(Vec::is_empty) || longest == 0 {
            return Err(Error::new("a batch needs one sequence at least, and a sequence one token"));
        }
        let e = &self.architecture.embeddings;
        let rows = e.positions.as_ref().map(|p| p.rows.saturating_sub(p.offset));
        let limit = [self.architecture.max_tokens, rows].into_iter().flatten().min();
        if let Some(limit) = limit.filter(|limit| longest > *limit) {
            return Err(Error::new(format!("a sequence has {longest} tokens; this model takes {limit} at most")));
        }
        if let Some(id) = batch.ids.iter().flatten().find(|id| **id as usize >= e.vocabulary) {
            let words = e.vocabulary;
            return Err(Error::new(format!("token id {id} is outside the vocabulary of {words}")));
        }
        let kind = batch.most_type() as usize;
        match &e.token_types {
            Some(table) if kind >= table.rows => {
                Err(Error::new(format!("token type {kind}, but this model knows {}", table.rows)))
            }
            _ => Ok(()),
        }
    }

    /// Whether passes over batches of one form are the same operations on tensors of the same shapes: nothing is chosen by what is
    /// computed, or by which tokens there are.
    pub(crate) fn is_recordable(&self) -> bool {
        let near = self.architecture.layers.iter().any(|layer| layer.attention.window.is_some());
        let plain = self.means == Means::Own && self.attention.is_exact();
        plain && !near && self.architecture.head.global_tokens == GlobalTokens::None
    }

    /// What attention economises.
    pub fn attention(&self) -> &AttentionPlan {
        &self.attention
    }

    /// The architecture.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Runs a batch. Tracked by autodiff when the parameters are on an autodiff device.
    pub fn forward(&self, parameters: &Parameters, batch: &PaddedBatch, mode: Mode) -> Result<Forward, Error> {
        self.forward_with(parameters, batch, mode, None)
    }

    /// Runs a batch with a hook that sees every linear map.
    pub fn forward_with(
        &self,
        parameters: &Parameters,
        batch: &PaddedBatch,
        mode: Mode,
        hook: Option<&dyn LinearHook>,
    ) -> Result<Forward, Error> {
        self.forward_guided(parameters, batch, mode, hook, None)
    }

    /// Runs a batch up to the last hidden state, for those who want the head on some rows only ([`Network::head`]).
    pub fn encode(
        &self,
        parameters: &Parameters,
        batch: &PaddedBatch,
        mode: Mode,
        hook: Option<&dyn LinearHook>,
    ) -> Result<Encoded, Error> {
        self.encode_guided(parameters, batch, mode, hook, None)
    }

    /// The same for those who want these rows of every sequence only: where values are sampled, the last layer's attention
    /// counts only from there.
    pub(crate) fn encode_rows(
        &self,
        parameters: &Parameters,
        batch: &PaddedBatch,
        rows: Vec<Vec<usize>>,
        mode: Mode,
        hook: Option<&dyn LinearHook>,
    ) -> Result<Encoded, Error> {
        let mut pass = self.pass(parameters, batch, mode, hook);
        pass.asked = Asked::Rows(rows);
        pass.encode()
    }

    /// As [`Network::forward_with`], with layers that read what a teacher's read.
    pub fn forward_guided(
        &self,
        parameters: &Parameters,
        batch: &PaddedBatch,
        mode: Mode,
        hook: Option<&dyn LinearHook>,
        guide: Option<Guide>,
    ) -> Result<Forward, Error> {
        self.pass(parameters, batch, mode, hook).guided(guide).forward()
    }

    /// As [`Network::encode`], with layers that read what a teacher's read.
    pub fn encode_guided(
        &self,
        parameters: &Parameters,
        batch: &PaddedBatch,
        mode: Mode,
        hook: Option<&dyn LinearHook>,
        guide: Option<Guide>,
    ) -> Result<Encoded, Error> {
        self.pass(parameters, batch, mode, hook).guided(guide).encode()
    }

    fn pass<'a>(
        &'a self,
        parameters: &'a Parameters,
        batch: &'a PaddedBatch,
        mode: Mode,
        hook: Option<&'a dyn LinearHook>,
    ) -> Pass<'a> {
        Pass::new(self, parameters, batch, mode, hook)
    }

    /// The head's stages on chosen rows of the last hidden state: `[rows, hidden]` to `[rows, outputs]`. For heads that
    /// answer per token; a language model's decoder is the dearest part of a step, and only masked tokens need it.
    /// [`PaddedBatch::row`] says where rows are.
    pub fn head(
        &self,
        parameters: &Parameters,
        rows: Tensor<2>,
        batch: &PaddedBatch,
        mode: Mode,
        hook: Option<&dyn LinearHook>,
    ) -> Result<Tensor<2>, Error> {
        self.pass(parameters, batch, mode, hook).stages(rows, false)
    }
}
