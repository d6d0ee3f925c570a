//! A network as an [`Executor`], so that whatever scores the engine scores Burn, on any of its devices.

use crate::batches::padded_length;
use crate::{LinearHook, Mode, Network, PaddedBatch, Parameters};
use burn::tensor::{Device, Int, Tensor, TensorData};
use sparing_model::{
    Architecture, AttentionPlan, Batch, Calibration, Error, Executor, HeadRows, Model, Outputs, Sequence, Wanted,
};
use std::sync::Arc;

/// Padded tokens to run together.
const TOKENS: usize = 8192;

/// Runs batches on the device where its parameters are.
pub struct BurnExecutor {
    network: Network,
    parameters: Parameters,
    hook: Option<Box<dyn LinearHook + Send + Sync>>,
    mode: Mode,
}

impl BurnExecutor {
    /// An executor of these parameters as they are now. Copies no numbers and records no gradients.
    pub fn new(architecture: &Architecture, parameters: &Parameters) -> BurnExecutor {
        BurnExecutor {
            network: Network::new(architecture),
            parameters: parameters.without_autodiff(),
            hook: None,
            mode: Mode::default(),
        }
    }

    /// An executor of a model's weights on a device.
    pub fn from_model(model: &Model, device: &Device) -> Result<BurnExecutor, Error> {
        Ok(BurnExecutor::new(&model.architecture, &Parameters::from_weights(&model.weights, device)?))
    }

    /// Shows every linear map to a hook (fake quantization).
    pub fn with_hook(mut self, hook: Box<dyn LinearHook + Send + Sync>) -> BurnExecutor {
        self.hook = Some(hook);
        self
    }

    /// Economises attention as a plan says, see [`Network::with_attention`].
    pub fn with_attention(
        mut self,
        plan: &AttentionPlan,
        calibration: Option<Arc<Calibration>>,
    ) -> Result<BurnExecutor, Error> {
        self.network = self.network.with_attention(plan, calibration)?;
        Ok(self)
    }

    /// Matrix products in bf16.
    pub fn with_bf16(mut self, bf16: bool) -> BurnExecutor {
        self.mode.bf16 = bf16;
        self
    }

    /// Width of one output row.
    fn width(&self, wanted: &Wanted) -> usize {
        let architecture = self.network.architecture();
        let head = architecture.head.stages.iter().rev().find_map(|stage| stage.linear.as_ref());
        match (wanted, head) {
            (Wanted::Hidden, _) | (_, None) => architecture.hidden,
            (_, Some(linear)) => linear.outputs,
        }
    }

    /// Numbers of sequences of about the same length, to be padded and run together.
    fn groups(&self, sequences: &[Sequence]) -> Vec<Vec<usize>> {
        let length = |number: usize| sequences[number].ids.len();
        let limit = self.network.architecture().max_tokens;
        let padded = |number: usize| padded_length(length(number), limit, self.parameters.device());
        let mut order: Vec<usize> = (0..sequences.len()).collect();
        order.sort_by_key(|number| std::cmp::Reverse(length(*number)));
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for number in order {
            let joins = groups.last().is_some_and(|group| {
                (group.len() + 1) * padded(group[0]) <= TOKENS && padded(group[0]) == padded(number)
            });
            match groups.last_mut() {
                Some(group) if joins => group.push(number),
                _ => groups.push(vec![number]),
            }
        }
        groups
    }

    /// Runs one group and hands every sequence's rows over.
    fn run_group(&self, batch: &Batch, group: &[usize], out: &mut [Vec<f32>]) -> Result<(), Error> {
        let sequences: Vec<Sequence> = group.iter().map(|number| batch.sequences[*number].clone()).collect();
        let device = self.parameters.device();
        let padded = PaddedBatch::fitting(&sequences, self.network.architecture().max_tokens, device);
        let hook: Option<&dyn LinearHook> = self.hook.as_ref().map(|hook| &**hook as &dyn LinearHook);
        let (parameters, mode) = (&self.parameters, self.mode);
        // Rows to hand over and rows there are, per sequence: padding comes after what is real.
        let per_token = || padded.lengths.iter().map(|real| (*real, padded.length)).collect();
        let (rows, counts): (_, Vec<(usize, usize)>) = match &batch.wanted {
            Wanted::Hidden => {
                let last = self.network.encode(parameters, &padded, mode, hook)?.last;
                (flat(last), per_token())
            }
            Wanted::Head => {
                let output = self.network.forward_with(parameters, &padded, mode, hook)?.output;
                let once = self.network.architecture().head.rows != HeadRows::All;
                (flat(output), if once { vec![(1, 1); group.len()] } else { per_token() })
            }
            Wanted::Rows(wanted) => {
                let of = |number: usize| wanted[group[number]].iter().map(move |row| (number, *row));
                let at = (0..group.len()).flat_map(of).map(|(number, row)| padded.row(number, row) as i32);
                let at: Vec<i32> = at.collect();
                if at.is_empty() {
                    return Ok(());
                }
                let count = at.len();
                let at: Tensor<1, Int> = Tensor::from_data(TensorData::new(at, [count]), device);
                let asked = group.iter().map(|number| wanted[*number].clone()).collect();
                let last = self.network.encode_rows(parameters, &padded, asked, mode, hook)?.last;
                let rows = flat(last).select(0, at);
                let rows = self.network.head(parameters, rows, &padded, mode, hook)?;
                (rows, group.iter().map(|number| (wanted[*number].len(), wanted[*number].len())).collect())
            }
        };
        let width = rows.dims()[1];
        let values = rows.try_into_vec_as::<f32>();
        let values = values.map_err(|e| crate::device::unread("answers", e))?;
        let mut from = 0;
        for (number, (real, count)) in group.iter().zip(counts) {
            out[*number] = values[from * width..(from + real) * width].to_vec();
            from += count;
        }
        Ok(())
    }
}

/// `[batch, rows, width]` to `[batch * rows, width]`.
fn flat(cube: Tensor<3>) -> Tensor<2> {
    let [count, rows, width] = cube.dims();
    cube.reshape([count * rows, width])
}

impl Executor for BurnExecutor {
    fn run(&self, batch: &Batch) -> Result<Outputs, Error> {
        batch.check(self.network.architecture())?;
        self.network.attention().check_wanted(&batch.wanted)?;
        let mut sequences = vec![Vec::new(); batch.sequences.len()];
        for group in self.groups(&batch.sequences) {
            self.run_group(batch, &group, &mut sequences)?;
        }
        Ok(Outputs { width: self.width(&batch.wanted), sequences })
    }
}
