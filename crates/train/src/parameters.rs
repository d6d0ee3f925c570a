//! Every trainable number under its Hugging Face name.

mod init;

use burn::tensor::{DType, Device, Tensor, TensorData};
use sparing_model::{Error, Linear, Matrix, OwnedTensor, Weights};
use std::collections::BTreeMap;

/// All tensors of a model on a device. Each is held as a matrix: a vector of n is `[1, n]`, and trailing axes of tensors
/// with more than two are merged; the shape in the file is kept beside it. Always f32.
///
/// A clone shares the numbers, and on a GPU training changes them where they are: who wants to keep them copies them.
#[derive(Clone)]
pub struct Parameters {
    tensors: BTreeMap<String, Parameter>,
    device: Device,
}

/// One tensor.
#[derive(Clone)]
pub struct Parameter {
    /// `[first axis, the rest]`, or `[1, n]` for a vector.
    pub value: Tensor<2>,
    /// Shape in the file.
    pub shape: Vec<usize>,
    /// Whether training changes it.
    pub trainable: bool,
}

impl Parameter {
    /// Puts new numbers in place of the old: a leaf that requires gradients if it is trainable and on an autodiff device.
    pub fn replace(&mut self, value: Tensor<2>) {
        let autodiff = self.value.device().is_autodiff();
        self.value = leaf(value, self.trainable, autodiff);
    }
}

/// The numbers of a tensor as the beginning of a gradient graph, or of none.
fn leaf(value: Tensor<2>, trainable: bool, autodiff: bool) -> Tensor<2> {
    let value = value.without_autodiff();
    match (autodiff, trainable) {
        (true, true) => value.autodiff().require_grad(),
        (true, false) => value.autodiff(),
        (false, _) => value,
    }
}

impl Parameters {
    /// No tensors yet.
    pub fn empty(device: &Device) -> Parameters {
        Parameters { tensors: BTreeMap::new(), device: device.clone() }
    }

    /// Copies all floating-point tensors to the device, converted to f32; others (`position_ids`) are left out. On an
    /// autodiff device they require gradients.
    pub fn from_weights(weights: &Weights, device: &Device) -> Result<Parameters, Error> {
        let mut parameters = Parameters::empty(device);
        for name in weights.names() {
            // Types that cannot be converted at all are not numbers to train either.
            let Ok(tensor) = weights.tensor(name) else { continue };
            if !tensor.is_real() {
                continue;
            }
            let mut values = vec![0.0; tensor.len()];
            tensor.read(0, &mut values);
            parameters.insert_values(name, values, tensor.shape.to_vec());
        }
        Ok(parameters)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Result<&Parameter, Error> {
        self.tensors.get(name).ok_or_else(|| Error::new(format!("no tensor \"{name}\" to train")))
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// All of them by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.tensors.iter().map(|(name, parameter)| (name.as_str(), parameter))
    }

    /// All of them by name, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Parameter)> {
        self.tensors.iter_mut().map(|(name, parameter)| (name.as_str(), parameter))
    }

    /// Adds or replaces a tensor (new heads, learned projections). It becomes a trainable leaf.
    pub fn insert(&mut self, name: &str, value: Tensor<2>, shape: Vec<usize>) {
        let value = leaf(value, true, self.device.is_autodiff());
        self.tensors.insert(name.to_string(), Parameter { value, shape, trainable: true });
    }

    /// Adds or replaces a tensor that training does not change by gradients: a running statistic.
    pub fn put(&mut self, name: &str, value: Tensor<2>) {
        let shape = vec![value.dims()[1]];
        let value = leaf(value, false, self.device.is_autodiff());
        self.tensors.insert(name.to_string(), Parameter { value, shape, trainable: false });
    }

    /// Adds or replaces a tensor by numbers of the host, row-major.
    pub fn insert_values(&mut self, name: &str, values: Vec<f32>, shape: Vec<usize>) {
        let (rows, columns) = match shape.len() {
            0 | 1 => (1, values.len()),
            _ => (shape[0], shape[1..].iter().product()),
        };
        let device = self.device.clone().without_autodiff();
        // f32 whatever the device's preference: what is read must be what is written.
        let value = Tensor::from_data(TensorData::new(values, [rows, columns]), (&device, DType::F32));
        self.insert(name, value, shape);
    }

    /// Removes a tensor (the head that another one replaces).
    pub fn remove(&mut self, name: &str) -> Option<Parameter> {
        self.tensors.remove(name)
    }

    /// How many numbers are trained.
    pub fn trained(&self) -> usize {
        self.iter().filter(|(_, p)| p.trainable).map(|(_, p)| p.shape.iter().product::<usize>()).sum()
    }

    /// Says which tensors training changes; the others require no gradients from now on.
    pub fn set_trainable(&mut self, trainable: impl Fn(&str) -> bool) {
        for (name, parameter) in &mut self.tensors {
            parameter.trainable = trainable(name);
            parameter.replace(parameter.value.clone());
        }
    }

    /// The same numbers outside of autodiff, for evaluation. Copies nothing.
    pub fn without_autodiff(&self) -> Parameters {
        let device = self.device.clone().without_autodiff();
        let tensors = self.tensors.iter().map(|(name, p)| {
            let value = p.value.clone().without_autodiff();
            (name.clone(), Parameter { value, shape: p.shape.clone(), trainable: p.trainable })
        });
        Parameters { tensors: tensors.collect(), device }
    }

    /// The same numbers on another device (a copy).
    pub fn to_device(&self, device: &Device) -> Parameters {
        let mut parameters = Parameters::empty(device);
        let place = device.clone().without_autodiff();
        for (name, p) in &self.tensors {
            let value = p.value.clone().without_autodiff().to_device(&place);
            let value = leaf(value, p.trainable, device.is_autodiff());
            let parameter = Parameter { value, shape: p.shape.clone(), trainable: p.trainable };
            parameters.tensors.insert(name.clone(), parameter);
        }
        parameters
    }

    /// Back to tensors in memory, f32, for [`sparing_model::write_directory`]. Bit for bit what the device holds.
    pub fn to_tensors(&self) -> Result<Vec<OwnedTensor>, Error> {
        self.iter()
            .map(|(name, p)| {
                let values = p.value.clone().without_autodiff().try_into_vec_as::<f32>();
                let values = values.map_err(|e| crate::device::unread(&format!("tensor \"{name}\""), e))?;
                Ok(OwnedTensor::f32(name, &p.shape, &values))
            })
            .collect()
    }

    /// The weight `[outputs, inputs]` of a linear map, however it is stored, and its bias `[1, outputs]`.
    pub fn linear(&self, linear: &Linear) -> Result<(Tensor<2>, Option<Tensor<2>>), Error> {
        let weight = self.matrix(&linear.weight)?;
        let found = weight.dims();
        if found != [linear.outputs, linear.inputs] {
            let name = linear.weight.name();
            let wanted = [linear.outputs, linear.inputs];
            return Err(Error::new(format!("tensor \"{name}\" gives a matrix {found:?} where {wanted:?} is needed")));
        }
        Ok((weight, self.bias(linear)?))
    }

    /// The bias `[1, outputs]` of a linear map.
    pub fn bias(&self, linear: &Linear) -> Result<Option<Tensor<2>>, Error> {
        let Some(bias) = linear.stored_bias() else { return Ok(None) };
        let value = self.get(&bias.name)?.value.clone();
        Ok(Some(match bias.slice {
            None => value.reshape([1, linear.outputs]),
            Some((start, end)) => value.slice([0..1, start..end]),
        }))
    }

    /// A stored matrix as `[outputs, inputs]`.
    fn matrix(&self, matrix: &Matrix) -> Result<Tensor<2>, Error> {
        match matrix {
            Matrix::Tensor { name, in_out, slice } => {
                let value = self.get(name)?.value.clone();
                let value = if *in_out { value.transpose() } else { value };
                let [outputs, inputs] = value.dims();
                match slice {
                    None => Ok(value),
                    Some((start, end)) if start < end && *end <= outputs => Ok(value.slice([*start..*end, 0..inputs])),
                    Some((start, end)) => {
                        Err(Error::new(format!("tensor \"{name}\" has {outputs} outputs, not {start}..{end}")))
                    }
                }
            }
            Matrix::ConcatInputs(parts) => {
                let parts: Result<Vec<_>, Error> = parts.iter().map(|(part, _)| self.matrix(part)).collect();
                Ok(Tensor::cat(parts?, 1))
            }
        }
    }
}
