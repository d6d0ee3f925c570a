//! Fresh numbers: for heads that a checkpoint has not, and for whole models trained from scratch.
//!
//! Made on the host from a seed and the tensor's name, so that they are the same on every device and whatever else is
//! made beside them.

use super::Parameters;
use burn::tensor::Device;
use sparing_model::{Architecture, AttentionPosition, Error, HeadStage, Linear, Matrix, Norm, NormKind};
use std::collections::BTreeMap;

/// Standard deviation of fresh weights, as BERT's published configuration has it.
const DEVIATION: f64 = 0.02;

/// What a tensor begins as.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fresh {
    Normal,
    Zero,
    One,
}

/// The tensors that an architecture names: shape and beginning.
#[derive(Default)]
struct Named(BTreeMap<String, (Vec<usize>, Fresh)>);

impl Parameters {
    /// Makes the head's tensors that are missing or have another shape (another number of labels): weights normal with
    /// deviation 0.02, biases zero, norms one. Returns their names. The same seed gives the same numbers on any device.
    pub fn init_head(&mut self, architecture: &Architecture, seed: u64) -> Result<Vec<String>, Error> {
        let mut named = Named::default();
        named.head(&architecture.head.stages);
        // Tied to the embeddings (a decoder): those decide.
        named.0.remove(&architecture.embeddings.word);
        Ok(self.fill(named, seed))
    }

    /// All tensors of an architecture, fresh, to train from scratch.
    pub fn random(architecture: &Architecture, seed: u64, device: &Device) -> Parameters {
        let mut parameters = Parameters::empty(device);
        parameters.fill(Named::of(architecture), seed);
        parameters
    }

    /// Makes what is missing or has another number of elements.
    fn fill(&mut self, named: Named, seed: u64) -> Vec<String> {
        let mut made = Vec::new();
        for (name, (shape, fresh)) in named.0 {
            let count: usize = shape.iter().product();
            let known = self.get(&name).is_ok_and(|p| p.shape.iter().product::<usize>() == count);
            if known {
                continue;
            }
            let values = match fresh {
                Fresh::Zero => vec![0.0; count],
                Fresh::One => vec![1.0; count],
                Fresh::Normal => normal(&name, seed, count),
            };
            self.insert_values(&name, values, shape);
            made.push(name);
        }
        made
    }
}

impl Named {
    /// Everything.
    fn of(architecture: &Architecture) -> Named {
        let mut named = Named::default();
        let e = &architecture.embeddings;
        let sum = match (&e.projection, e.projection_place) {
            (Some(projection), sparing_model::ProjectionPlace::BeforeSum) => projection.outputs,
            _ => e.width,
        };
        named.add(&e.word, vec![e.vocabulary, e.width], Fresh::Normal);
        if let Some(p) = &e.positions {
            named.add(&p.name, vec![p.rows, sum], Fresh::Normal);
        }
        if let Some(t) = &e.token_types {
            named.add(&t.name, vec![t.rows, sum], Fresh::Normal);
        }
        e.norm.iter().for_each(|norm| named.norm(norm));
        e.projection.iter().for_each(|projection| named.linear(projection, None));
        for layer in &architecture.layers {
            let a = &layer.attention;
            // Transformer-XL's maps keep the heads as an axis of their own.
            let mut heads = None;
            match &a.position {
                _ if a.heads == 0 => {}
                AttentionPosition::None => {}
                AttentionPosition::Buckets { table, columns, buckets, .. } => {
                    named.add(table, vec![*buckets, *columns], Fresh::Normal);
                }
                AttentionPosition::Relative {
                    projection, content_bias, position_bias, segment_bias, segments, ..
                } => {
                    heads = Some((a.heads, a.head_width));
                    named.linear(projection, heads);
                    for name in [content_bias, position_bias, segment_bias] {
                        named.add(name, vec![a.heads, a.head_width], Fresh::Normal);
                    }
                    named.add(segments, vec![2, a.heads, a.head_width], Fresh::Normal);
                }
            }
            [&a.query, &a.key, &a.value, &a.output].into_iter().for_each(|linear| named.linear(linear, heads));
            a.network.iter().flat_map(|network| network.maps()).for_each(|linear| named.linear(linear, None));
            if let Some(w) = &a.window {
                [&w.global_query, &w.global_key, &w.global_value].into_iter().for_each(|l| named.linear(l, None));
            }
            named.norm(&layer.attention_norm);
            if let Some(b) = &layer.bottleneck {
                for part in [Some(&b.input), b.shared.as_ref(), Some(&b.output)].into_iter().flatten() {
                    named.linear(&part.linear, None);
                    named.norm(&part.norm);
                }
            }
            for ffn in &layer.ffns {
                named.linear(&ffn.up, None);
                named.linear(&ffn.down, None);
                named.norm(&ffn.norm);
            }
        }
        architecture.final_norm.iter().for_each(|norm| named.norm(norm));
        named.head(&architecture.head.stages);
        named
    }

    fn head(&mut self, stages: &[HeadStage]) {
        for stage in stages {
            stage.linear.iter().for_each(|linear| self.linear(linear, None));
            stage.norm.iter().for_each(|norm| self.norm(norm));
        }
    }

    /// The first to name a tensor decides (a decoder tied to the embeddings comes after them), but parts of a fused
    /// tensor make it as large as the last part needs.
    fn add(&mut self, name: &str, shape: Vec<usize>, fresh: Fresh) {
        let known = self.0.entry(name.to_string()).or_insert_with(|| (shape.clone(), fresh));
        if known.0.len() == shape.len() {
            known.0.iter_mut().zip(&shape).for_each(|(known, new)| *known = (*known).max(*new));
        }
    }

    fn norm(&mut self, norm: &Norm) {
        self.add(&norm.weight, vec![norm.width], Fresh::One);
        self.add(&norm.bias, vec![norm.width], Fresh::Zero);
        if norm.kind == NormKind::Power {
            self.add(&norm.running_phi(), vec![norm.width], Fresh::One);
        }
    }

    fn linear(&mut self, linear: &Linear, heads: Option<(usize, usize)>) {
        if !linear.is_empty() {
            self.matrix(&linear.weight, linear.outputs, linear.inputs, heads);
        }
        if let Some(bias) = linear.stored_bias() {
            self.add(&bias.name, vec![bias.slice.map_or(linear.outputs, |s| s.1)], Fresh::Zero);
        }
    }

    fn matrix(&mut self, matrix: &Matrix, outputs: usize, inputs: usize, heads: Option<(usize, usize)>) {
        match matrix {
            Matrix::Tensor { name, in_out, slice } => {
                let outputs = slice.map_or(outputs, |s| s.1);
                let (first, rest) = if *in_out { (inputs, outputs) } else { (outputs, inputs) };
                let shape = match heads {
                    Some((heads, width)) if heads * width == rest => vec![first, heads, width],
                    _ => vec![first, rest],
                };
                self.add(name, shape, Fresh::Normal);
            }
            Matrix::ConcatInputs(parts) => {
                for (part, width) in parts {
                    self.matrix(part, outputs, *width, heads);
                }
            }
        }
    }
}

/// Normal numbers (Box and Muller's method on SplitMix64), determined by name and seed alone.
fn normal(name: &str, seed: u64, count: usize) -> Vec<f32> {
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // In (0, 1]: its logarithm is finite.
        ((z >> 11) + 1) as f64 / (1u64 << 53) as f64
    };
    let mut values = Vec::with_capacity(count + 1);
    while values.len() < count {
        let (radius, angle) = ((-2.0 * next().ln()).sqrt(), std::f64::consts::TAU * next());
        values.push((DEVIATION * radius * angle.cos()) as f32);
        values.push((DEVIATION * radius * angle.sin()) as f32);
    }
    values.truncate(count);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_numbers_have_the_deviation_and_depend_on_name_and_seed() {
        let values = normal("classifier.weight", 7, 20_001);
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / 20_001.0;
        let variance = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / 20_001.0;
        assert!(mean.abs() < 0.001 && (variance.sqrt() - DEVIATION).abs() < 0.001, "{mean} {variance}");
        assert_eq!(values, normal("classifier.weight", 7, 20_001));
        assert_ne!(values, normal("classifier.weight", 8, 20_001));
        assert_ne!(values, normal("classifier.bias", 7, 20_001));
    }
}
