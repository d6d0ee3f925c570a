//! What a batch is trained on.

use crate::batch::HostBatch;
use crate::batches::padded_length;
use crate::data::{Example, Target};
use crate::feed::{self, Form, Moment};
use crate::losses::{binary_cross_entropy, cross_entropy, mean_squared};
use crate::{Capture, Holes, LinearHook, Mode, Network, PaddedBatch, Parameters, Statistics};
use burn::tensor::{Device, Int, Tensor, TensorData};
use sparing_model::{Error, Sequence};
use std::sync::Arc;

/// Something to make small.
pub trait Objective {
    /// Tokens of each example, so that alike lengths can be batched.
    fn lengths(&self) -> &[usize];

    /// The mean loss of these examples, tracked by autodiff.
    fn loss(&self, parameters: &Parameters, examples: &[usize], pass: &Pass) -> Result<Loss, Error>;

    /// What is told to the device in a pass over these examples, if that is all that differs between passes of the same form: such a pass
    /// can be recorded and repeated.
    fn recordable(&self, examples: &[usize], pass: &Pass, device: &Device) -> Result<Option<(Form, Moment)>, Error> {
        let _ = (examples, pass, device);
        Ok(None)
    }

    /// Weights that stay zero.
    fn holes(&self) -> Option<&Holes> {
        None
    }

    /// Running statistics that the last pass and its way back have changed, by name.
    fn changed(&self) -> Vec<(String, Tensor<2>)> {
        Vec::new()
    }

    /// Who sees the linear maps; what it remembers belongs to a checkpoint.
    fn hook(&self) -> Option<&dyn LinearHook> {
        None
    }
}

/// One pass over a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pass {
    /// Decides everything random about this batch.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// Updates done.
    pub step: u64,
    /// Dropout of the network.
    pub dropout: f64,
    /// Matrix products in bf16.
    pub bf16: bool,
}

impl Pass {
    /// How the network runs.
    pub fn mode(&self, capture: Capture) -> Mode {
        let statistics = Statistics::Fixed;
        Mode { dropout: self.dropout, draws: Some(self.seed), capture, statistics, bf16: self.bf16, int8: false }
    }
}

/// A loss and what it is made of.
pub struct Loss {
    /// What is made small, `[1]`.
    pub value: Tensor<1>,
    /// Real tokens in the batch.
    pub tokens: usize,
}

/// The head's own loss on labelled examples: cross-entropy, binary cross-entropy or squared error, as the head asks.
pub struct Supervised<'a> {
    network: &'a Network,
    examples: &'a [Example],
    lengths: Vec<usize>,
    hook: Option<&'a dyn LinearHook>,
    holes: Option<&'a Holes>,
}

impl<'a> Supervised<'a> {
    /// Trains this network on these examples, every linear map seen by the hook.
    pub fn new(network: &'a Network, examples: &'a [Example], hook: Option<&'a dyn LinearHook>) -> Self {
        Supervised { network, examples, lengths: lengths(examples), hook, holes: None }
    }

    fn limit(&self) -> Option<usize> {
        self.network.architecture().longest_input()
    }

    /// The same with weights that stay zero.
    pub fn with_holes(self, holes: &'a Holes) -> Self {
        Supervised { holes: Some(holes), ..self }
    }
}

impl Objective for Supervised<'_> {
    fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    fn hook(&self) -> Option<&dyn LinearHook> {
        self.hook
    }

    fn holes(&self) -> Option<&Holes> {
        self.holes
    }

    fn changed(&self) -> Vec<(String, Tensor<2>)> {
        self.network.changed()
    }

    fn loss(&self, parameters: &Parameters, examples: &[usize], pass: &Pass) -> Result<Loss, Error> {
        let chosen: Vec<&Example> = examples.iter().map(|&i| &self.examples[i]).collect();
        let batch = pad(self.limit(), &chosen, parameters.device());
        let forward = self.network.forward_with(parameters, &batch, pass.mode(Capture::default()), self.hook)?;
        Ok(Loss { value: head_loss(forward.output, &batch)?, tokens: batch.lengths.iter().sum() })
    }

    fn recordable(&self, examples: &[usize], pass: &Pass, device: &Device) -> Result<Option<(Form, Moment)>, Error> {
        if self.hook.is_some() || self.holes.is_some() || !self.network.is_recordable() {
            return Ok(None);
        }
        let chosen: Vec<&Example> = examples.iter().map(|&i| &self.examples[i]).collect();
        let batch = host_batch(self.limit(), &chosen, device);
        if batch.is_of_rows() {
            return Ok(None);
        }
        self.network.check(&batch)?;
        let form = Form::of(&batch, 0);
        Ok(Some((form, Moment { batch: Arc::new(batch), seed: pass.seed, own: 1.0, step: None })))
    }
}

/// Tokens of each example.
pub(crate) fn lengths(examples: &[Example]) -> Vec<usize> {
    examples.iter().map(|e| e.sequence.ids.len()).collect()
}

/// The examples' sequences, padded; never to more than `limit` tokens, the most that all who read the batch take.
pub(crate) fn pad(limit: Option<usize>, examples: &[&Example], device: &Device) -> PaddedBatch {
    PaddedBatch::of(host_batch(limit, examples, device), device)
}

/// The same before it is on a device.
pub(crate) fn host_batch(limit: Option<usize>, examples: &[&Example], device: &Device) -> HostBatch {
    let sequences: Vec<Sequence> = examples.iter().map(|e| e.sequence.clone()).collect();
    let longest = sequences.iter().map(|sequence| sequence.ids.len()).max().unwrap_or(1);
    let targets = examples.iter().map(|e| e.target.clone()).collect();
    HostBatch::new(&sequences, targets, padded_length(longest, limit, device))
}

/// The loss that fits the targets, which all have one kind.
pub(crate) fn head_loss(output: Tensor<3>, batch: &PaddedBatch) -> Result<Tensor<1>, Error> {
    let [count, rows, width] = output.dims();
    let device = output.device().without_autodiff();
    // What the targets say, now and of other batches.
    let ints = |of: fn(&HostBatch, usize) -> Result<Vec<i32>, Error>| -> Result<Tensor<1, Int>, Error> {
        Ok(feed::ints(&device, of(&batch.host, width)?, move |moment| of(&moment.batch, width)))
    };
    let floats = |of: fn(&HostBatch, usize) -> Result<Vec<f32>, Error>| -> Result<Tensor<1>, Error> {
        Ok(feed::floats(&device, of(&batch.host, width)?, move |moment| of(&moment.batch, width)))
    };
    match batch.host.targets.first() {
        None => Err(Error::new("an empty batch cannot be trained on")),
        Some(Target::Class(_)) => {
            let classes = ints(|host, width| {
                let class = |t: &Target| if let Target::Class(c) = t { inside(*c, width) } else { Err(mixed()) };
                host.targets.iter().map(class).collect()
            })?;
            Ok(cross_entropy(output.reshape([count, width]), classes))
        }
        Some(Target::Labels(_)) => {
            let wanted = floats(|host, width| {
                let mut wanted = vec![0f32; host.targets.len() * width];
                for (i, target) in host.targets.iter().enumerate() {
                    let Target::Labels(labels) = target else { return Err(mixed()) };
                    for &label in labels {
                        wanted[i * width + inside(label, width)? as usize] = 1.0;
                    }
                }
                Ok(wanted)
            })?;
            Ok(binary_cross_entropy(output.reshape([count, width]), wanted.reshape([count, width])))
        }
        Some(Target::Score(_)) => {
            let scores = floats(|host, _| {
                let score = |t: &Target| if let Target::Score(s) = t { Ok(*s) } else { Err(mixed()) };
                host.targets.iter().map(score).collect()
            })?;
            Ok(mean_squared(output.reshape([count, width]).narrow(1, 0, 1), scores.reshape([count, 1])))
        }
        Some(Target::Rows(_)) => {
            let (mut places, mut classes) = (Vec::new(), Vec::new());
            for (i, target) in batch.host.targets.iter().enumerate() {
                let Target::Rows(wanted) = target else { return Err(mixed()) };
                for &(row, class) in wanted {
                    places.push((i * rows + row) as i32);
                    classes.push(inside(class as usize, width)?);
                }
            }
            // How many there are differs from batch to batch.
            let [places, classes] = [places, classes].map(|values: Vec<i32>| {
                let length = values.len();
                Tensor::<1, Int>::from_data(TensorData::new(values, [length]), &device)
            });
            Ok(cross_entropy(output.reshape([count * rows, width]).select(0, places), classes))
        }
        Some(Target::Span(..)) => {
            let starts =
                ints(|host, _| spans(host).map(|spans| spans.iter().map(|(start, _)| *start as i32).collect()))?;
            let ends = ints(|host, _| spans(host).map(|spans| spans.iter().map(|(_, end)| *end as i32).collect()))?;
            let padding = batch.mask.clone().bool_not();
            let column =
                |i: usize| output.clone().narrow(2, i, 1).reshape([count, rows]).mask_fill(padding.clone(), -1e9);
            let sum = cross_entropy(column(0), starts) + cross_entropy(column(1), ends);
            Ok(sum.div_scalar(2.0))
        }
    }
}

fn mixed() -> Error {
    Error::new("examples of different kinds cannot be trained together")
}

fn inside(class: usize, width: usize) -> Result<i32, Error> {
    if class < width { Ok(class as i32) } else { Err(Error::new("a label beyond the head")) }
}

/// Where answers begin and end.
fn spans(host: &HostBatch) -> Result<Vec<(usize, usize)>, Error> {
    let span = |t: &Target| if let Target::Span(start, end) = t { Ok((*start, *end)) } else { Err(mixed()) };
    host.targets.iter().map(span).collect()
}
