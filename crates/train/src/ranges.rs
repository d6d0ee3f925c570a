//! Moving averages of what linear maps read. They stay on the device: a GPU waits for nobody.

use burn::tensor::{Bool, DType, Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use sparing_model::Error;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// More than any activation: what padding is filled with before the least and the largest are looked for.
const BEYOND: f32 = 3e38;

/// A range as a checkpoint holds it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Range {
    pub(crate) least: f32,
    pub(crate) most: f32,
    /// Updates it is the average of.
    updates: u64,
}

/// Corrected averages of the least and the largest number, `[1, 1]` each.
#[derive(Clone)]
struct Average {
    least: Tensor<2>,
    most: Tensor<2>,
    updates: u64,
}

/// A moving average per map.
pub(crate) struct Ranges {
    decay: f64,
    device: Device,
    frozen: bool,
    known: Mutex<BTreeMap<String, Average>>,
}

impl Ranges {
    pub(crate) fn new(decay: f64, device: &Device) -> Ranges {
        let device = device.clone().without_autodiff();
        Ranges { decay, device, frozen: false, known: Mutex::default() }
    }

    /// The same averages, which stay as they are.
    pub(crate) fn frozen(&self) -> Ranges {
        let known = Mutex::new(self.lock().clone());
        Ranges { decay: self.decay, device: self.device.clone(), frozen: true, known }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Average>> {
        self.known.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes in the least and largest number of every row `[rows, 1]`, and gives the average `[1, 1]`; `None` if there is
    /// none and none may be begun.
    pub(crate) fn see(
        &self,
        name: &str,
        least: &Tensor<2>,
        most: &Tensor<2>,
        real: Option<&Tensor<2, Bool>>,
    ) -> Option<(Tensor<2>, Tensor<2>)> {
        let mut known = self.lock();
        if self.frozen {
            return known.get(name).map(|average| (average.least.clone(), average.most.clone()));
        }
        let filled = |x: &Tensor<2>, with: f32| match real {
            Some(real) => x.clone().mask_fill(real.clone().bool_not(), with),
            None => x.clone(),
        };
        let (least, most) = (filled(least, BEYOND).min_dim(0), filled(most, -BEYOND).max_dim(0));
        let average = match known.remove(name) {
            None => Average { least, most, updates: 1 },
            Some(Average { least: a, most: b, updates }) => {
                // Weight of the new one in an average whose weights add up to one (Adam's bias correction).
                let updates = updates + 1;
                let share = (1.0 - self.decay) / (1.0 - self.decay.powi(updates.min(1 << 30) as i32));
                let mix = |old: Tensor<2>, new: Tensor<2>| old.mul_scalar(1.0 - share) + new.mul_scalar(share);
                Average { least: mix(a, least), most: mix(b, most), updates }
            }
        };
        let range = (average.least.clone(), average.most.clone());
        known.insert(name.to_string(), average);
        Some(range)
    }

    /// All averages as numbers.
    pub(crate) fn read(&self) -> Result<BTreeMap<String, Range>, Error> {
        let number = |tensor: &Tensor<2>| {
            let values = tensor.clone().try_into_vec_as::<f32>();
            values.map(|v| v[0]).map_err(|e| crate::device::unread("a range of activations", e))
        };
        let read = |(name, a): (&String, &Average)| {
            Ok((name.clone(), Range { least: number(&a.least)?, most: number(&a.most)?, updates: a.updates }))
        };
        self.lock().iter().map(read).collect()
    }

    /// Puts these in place of all.
    pub(crate) fn set(&self, ranges: BTreeMap<String, Range>) {
        let tensor = |x: f32| Tensor::from_data(TensorData::new(vec![x], [1, 1]), (&self.device, DType::F32));
        let average = |r: Range| Average { least: tensor(r.least), most: tensor(r.most), updates: r.updates };
        *self.lock() = ranges.into_iter().map(|(name, range)| (name, average(range))).collect();
    }
}
