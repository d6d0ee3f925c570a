//! The time of one attention block forward, without gradients.

use crate::attention::{Fresh, Input, Kind, Sizes, counted, unfolded};
use crate::random::Random;
use crate::{Parameters, layers};
use burn::tensor::{Device, Tensor, TensorData};
use sparing_model::Error;
use std::time::Instant;

/// One block on random rows: maps to queries, keys and values, attention, the output map.
pub struct BlockClock {
    kind: Kind,
    sizes: Sizes,
    x: Tensor<3>,
    lengths: Vec<usize>,
    parameters: Parameters,
}

impl BlockClock {
    /// Makes the block and `batch` sequences of `sizes.length` tokens.
    pub fn new(kind: &Kind, sizes: Sizes, batch: usize, device: &Device) -> Result<BlockClock, Error> {
        kind.mechanism().check()?;
        let mut parameters = Parameters::empty(device);
        kind.mechanism().tensors(&sizes).iter().for_each(|fresh| fresh.insert(&mut parameters, "block", 0));
        Fresh::map("output", sizes.width, sizes.attention_width).insert(&mut parameters, "block", 0);
        let mut random = Random::new(1);
        let count = batch * sizes.length * sizes.width;
        let values: Vec<f32> = (0..count).map(|_| 2.0 * random.uniform() as f32 - 1.0).collect();
        let x = Tensor::from_data(TensorData::new(values, [batch, sizes.length, sizes.width]), device);
        Ok(BlockClock { kind: kind.clone(), sizes, x, lengths: vec![sizes.length; batch], parameters })
    }

    /// Seconds of one run, waited for, and the operations counted in its attention.
    pub fn run(&self) -> Result<(f64, u64), Error> {
        let start = Instant::now();
        let input = Input {
            x: self.x.clone(),
            lengths: &self.lengths,
            heads: self.sizes.heads,
            causal: false,
            seed: 0,
            parameters: &self.parameters,
            prefix: "block",
        };
        let (mixed, operations) = counted(|| self.kind.attend(&input));
        let out = layers::linear(unfolded(mixed?, self.sizes.heads), input.tensor("output")?, None);
        // One number, so that nothing is left to be computed.
        let corner = out.slice([0..1, 0..1]).try_into_vec_as::<f32>();
        corner.map_err(|e| Error::new(format!("the device gave no result: {e:?}")))?;
        Ok((start.elapsed().as_secs_f64(), operations))
    }
}
