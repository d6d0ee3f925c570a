//! What a batch is trained on.

use crate::data::{Example, Target};
use crate::losses::{binary_cross_entropy, cross_entropy, mean_squared};
use crate::{Capture, Holes, LinearHook, Mode, Network, PaddedBatch, Parameters, Statistics};
use burn::tensor::{Device, Int, Tensor, TensorData};
use sparing_model::{Error, Sequence};

/// Something to make small.
pub trait Objective {
    /// Tokens of each example, so that alike lengths can be batched.
    fn lengths(&self) -> &[usize];

    /// The mean loss of these examples, tracked by autodiff.
    fn loss(&self, parameters: &Parameters, examples: &[usize], pass: &Pass) -> Result<Loss, Error>;

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
        Mode { dropout: self.dropout, draws: Some(self.seed), capture, statistics, bf16: self.bf16 }
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
        let batch = pad(self.network, &chosen, parameters.device());
        let forward = self.network.forward_with(parameters, &batch, pass.mode(Capture::default()), self.hook)?;
        Ok(Loss { value: head_loss(forward.output, &batch, &chosen)?, tokens: batch.lengths.iter().sum() })
    }
}

/// Tokens of each example.
pub(crate) fn lengths(examples: &[Example]) -> Vec<usize> {
    examples.iter().map(|e| e.sequence.ids.len()).collect()
}

/// The examples' sequences, padded.
pub(crate) fn pad(network: &Network, examples: &[&Example], device: &Device) -> PaddedBatch {
    let sequences: Vec<Sequence> = examples.iter().map(|e| e.sequence.clone()).collect();
    PaddedBatch::fitting(&sequences, network.architecture().max_tokens, device)
}

/// The loss that fits the targets, which all have one kind.
pub(crate) fn head_loss(output: Tensor<3>, batch: &PaddedBatch, examples: &[&Example]) -> Result<Tensor<1>, Error> {
    let [count, rows, width] = output.dims();
    let device = output.device();
    let indices = |values: Vec<i32>| -> Tensor<1, Int> {
        let length = values.len();
        Tensor::from_data(TensorData::new(values, [length]), &device)
    };
    let mixed = || Error::new("examples of different kinds cannot be trained together");
    let inside =
        |class: usize| if class < width { Ok(class as i32) } else { Err(Error::new("a label beyond the head")) };
    match examples.first().map(|e| &e.target) {
        None => Err(Error::new("an empty batch cannot be trained on")),
        Some(Target::Class(_)) => {
            let class = |e: &&Example| if let Target::Class(c) = e.target { inside(c) } else { Err(mixed()) };
            let classes = examples.iter().map(class).collect::<Result<Vec<_>, _>>()?;
            Ok(cross_entropy(output.reshape([count, width]), indices(classes)))
        }
        Some(Target::Labels(_)) => {
            let mut wanted = vec![0f32; count * width];
            for (i, example) in examples.iter().enumerate() {
                let Target::Labels(labels) = &example.target else { return Err(mixed()) };
                for &label in labels {
                    wanted[i * width + inside(label)? as usize] = 1.0;
                }
            }
            let wanted = Tensor::from_data(TensorData::new(wanted, [count, width]), &device);
            Ok(binary_cross_entropy(output.reshape([count, width]), wanted))
        }
        Some(Target::Score(_)) => {
            let score = |e: &&Example| if let Target::Score(s) = e.target { Ok(s) } else { Err(mixed()) };
            let scores = examples.iter().map(score).collect::<Result<Vec<f32>, _>>()?;
            let scores = Tensor::from_data(TensorData::new(scores, [count, 1]), &device);
            Ok(mean_squared(output.reshape([count, width]).narrow(1, 0, 1), scores))
        }
        Some(Target::Rows(_)) => {
            let (mut places, mut classes) = (Vec::new(), Vec::new());
            for (i, example) in examples.iter().enumerate() {
                let Target::Rows(wanted) = &example.target else { return Err(mixed()) };
                for &(row, class) in wanted {
                    places.push((i * rows + row) as i32);
                    classes.push(inside(class as usize)?);
                }
            }
            let chosen = output.reshape([count * rows, width]).select(0, indices(places));
            Ok(cross_entropy(chosen, indices(classes)))
        }
        Some(Target::Span(..)) => {
            let (mut starts, mut ends) = (Vec::new(), Vec::new());
            for example in examples {
                let Target::Span(start, end) = example.target else { return Err(mixed()) };
                starts.push(start as i32);
                ends.push(end as i32);
            }
            let padding = batch.mask.clone().bool_not();
            let column =
                |i: usize| output.clone().narrow(2, i, 1).reshape([count, rows]).mask_fill(padding.clone(), -1e9);
            let sum = cross_entropy(column(0), indices(starts)) + cross_entropy(column(1), indices(ends));
            Ok(sum.div_scalar(2.0))
        }
    }
}
