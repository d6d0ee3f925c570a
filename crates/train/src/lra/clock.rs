//! One attention block forward, without gradients, to be timed.

use crate::attention::{Fresh, Heads, Input, Kind, Layout, ONE_BY_ONE, Sizes, counted, unfolded};
use crate::random::Random;
use crate::{Parameters, layers};
use burn::tensor::{Device, Tensor, TensorData};
use sparing_model::Error;

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
        kind.check(&sizes)?;
        let mut parameters = Parameters::empty(device);
        kind.mechanism().tensors(&sizes).iter().for_each(|fresh| fresh.insert(&mut parameters, "block", 0));
        Fresh::map("output", sizes.width, sizes.attention_width).insert(&mut parameters, "block", 0);
        let mut random = Random::new(1);
        let count = batch * sizes.length * sizes.width;
        let values: Vec<f32> = (0..count).map(|_| 2.0 * random.uniform() as f32 - 1.0).collect();
        let x = Tensor::from_data(TensorData::new(values, [batch, sizes.length, sizes.width]), device);
        Ok(BlockClock { kind: kind.clone(), sizes, x, lengths: vec![sizes.length; batch], parameters })
    }

    fn input<'a>(&'a self, known: Option<&'a Heads>) -> Input<'a> {
        Input {
            x: self.x.clone(),
            lengths: &self.lengths,
            heads: self.sizes.heads,
            causal: false,
            layout: Layout::of(self.sizes.length),
            one_by_one: ONE_BY_ONE,
            seed: 0,
            parameters: &self.parameters,
            prefix: "block",
            known,
        }
    }

    /// Runs the block and waits for it; the operations counted in its attention.
    pub fn block(&self) -> Result<u64, Error> {
        let input = self.input(None);
        let (mixed, work) = counted(|| self.kind.attend(&input));
        wait(layers::linear(unfolded(mixed?, self.sizes.heads), input.tensor("output")?, None))?;
        Ok(work.operations)
    }

    /// The time of attention alone, queries, keys and values being there: what to call for it. Mechanisms with maps of their
    /// own still compute these.
    pub fn attention(&self) -> Result<impl Fn() -> Result<(), Error> + '_, Error> {
        let Sizes { width, attention_width, heads, .. } = self.sizes;
        let mut parameters = Parameters::empty(self.parameters.device());
        for name in ["query.weight", "key.weight", "value.weight"] {
            Fresh::map(name, attention_width, width).insert(&mut parameters, "block", 0);
        }
        let known = Input { parameters: &parameters, ..self.input(None) }.all()?;
        wait(unfolded(known.value.clone(), heads))?;
        Ok(move || wait(unfolded(self.kind.attend(&self.input(Some(&known)))?, heads)))
    }
}

/// Asks for one number, so that nothing is left to be computed.
fn wait(x: Tensor<2>) -> Result<(), Error> {
    let corner = x.slice([0..1, 0..1]).try_into_vec_as::<f32>();
    corner.map(|_| ()).map_err(|e| crate::device::unread("a result", e))
}
