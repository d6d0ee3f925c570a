//! Models of one shape as one: the weighted mean of their numbers. Fine-tunings from the same start often lie in one
//! valley, and its middle is flatter than its sides (Wortsman et al. 2022, <https://arxiv.org/abs/2203.05482>).

use sparing_model::{Error, Model, OwnedTensor, Plan, write_directory};
use std::path::Path;

/// Writes the weighted mean of these models to `directory`, with the first one's other files and its plan. Weights are scaled
/// to add up to one, and become floats. All must have the same tensors of the same shapes, of the same heads.
pub fn average(models: &[(&Model, f64)], directory: &Path) -> Result<(), Error> {
    let Some(((first, _), others)) = models.split_first() else {
        return Err(Error::new("there are no models to average"));
    };
    let total: f64 = models.iter().map(|(_, weight)| weight).sum();
    if !total.is_finite() || total.abs() < 1e-9 {
        return Err(Error::new(format!("the models' weights add up to {total}; they must not cancel out")));
    }
    for (number, (model, _)) in others.iter().enumerate() {
        if let Some(name) = difference(first, model) {
            return Err(Error::new(format!("model {} and the first differ in tensor \"{name}\"", number + 2)));
        }
        if model.plan.elements != first.plan.elements {
            return Err(Error::new(format!("model {} and the first have other parts left", number + 2)));
        }
    }
    let mut tensors = Vec::new();
    for name in first.weights.names() {
        let shape = first.weights.tensor(name)?.shape.to_vec();
        let mut sum = vec![0f32; shape.iter().product()];
        let mut values = sum.clone();
        for (model, weight) in models {
            model.weights.tensor(name)?.read(0, &mut values);
            let weight = (weight / total) as f32;
            sum.iter_mut().zip(&values).for_each(|(sum, value)| *sum += weight * value);
        }
        tensors.push(OwnedTensor::f32(name, &shape, &sum));
    }
    let mut files = first.companions()?;
    let plan = Plan { quantization: None, ..first.plan.clone() }.to_file()?;
    files.extend(plan.map(|plan| ("sparing.json".to_string(), plan)));
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
    write_directory(directory, &files, &tensors)
}

/// A tensor that only one has, or that has another shape in the other.
fn difference(a: &Model, b: &Model) -> Option<String> {
    let shape = |model: &Model, name: &str| model.weights.tensor(name).ok().map(|t| t.shape.to_vec());
    let differs = |name: &&str| shape(a, name) != shape(b, name);
    a.weights.names().chain(b.weights.names()).find(differs).map(str::to_string)
}
