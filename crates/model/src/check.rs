//! Every tensor an architecture names must be there with the right shape, before anything runs.

use crate::weights::{is_float, misshapen};
use crate::{Architecture, AttentionPosition, Error, Layer, Linear, Matrix, Norm, NormKind, Weights};

impl Architecture {
    /// Checks the weights against the architecture. The error names the tensor, the shape found and the one expected.
    pub fn check(&self, weights: &Weights) -> Result<(), Error> {
        let check = Check(weights);
        let e = &self.embeddings;
        check.table(&e.word, e.vocabulary, e.width)?;
        // Positions and types join before or after the projection.
        let sum = match (&e.projection, e.projection_place) {
            (Some(projection), crate::ProjectionPlace::BeforeSum) => projection.outputs,
            _ => e.width,
        };
        if let Some(positions) = &e.positions {
            check.table(&positions.name, positions.rows, sum)?;
        }
        if let Some(types) = &e.token_types {
            check.table(&types.name, types.rows, sum)?;
        }
        e.norm.iter().try_for_each(|norm| check.norm(norm))?;
        e.projection.iter().try_for_each(|projection| check.linear(projection))?;
        self.layers.iter().try_for_each(|layer| check.layer(layer))?;
        self.final_norm.iter().try_for_each(|norm| check.norm(norm))?;
        for stage in &self.head.stages {
            stage.linear.iter().try_for_each(|linear| check.linear(linear))?;
            stage.norm.iter().try_for_each(|norm| check.norm(norm))?;
        }
        Ok(())
    }
}

impl Architecture {
    /// How many layers the weights hold beyond those that are named here: what a copied or edited configuration leaves out in silence.
    pub fn layers_left_out(&self, weights: &Weights) -> usize {
        let Some(last) = self.layers.last() else {
            // None is named: what has a number in its name is of a layer.
            let first = weights.names().find_map(|name| name.split_once(".0.").map(|(before, _)| before));
            let has = |number: &usize| {
                let begins = first.map(|first| format!("{first}.{number}."));
                begins.is_some_and(|begins| weights.names().any(|name| name.starts_with(&begins)))
            };
            return (0..).take_while(has).count();
        };
        let (name, count) = (last.attention.output.weight.name(), self.layers.len());
        // Layers that share their weights are not told apart by name.
        let Some((before, after)) = name.split_once(&format!(".{}.", count - 1)) else { return 0 };
        (count..).take_while(|number| weights.contains(&format!("{before}.{number}.{after}"))).count()
    }
}

struct Check<'a>(&'a Weights);

impl Check<'_> {
    fn shape(&self, name: &str, expected: &[usize]) -> Result<(), Error> {
        let tensor = self.0.tensor(name)?;
        if tensor.shape != expected {
            return Err(misshapen(name, expected, tensor.shape));
        }
        self.float(name)
    }

    fn float(&self, name: &str) -> Result<(), Error> {
        let tensor = self.0.tensor(name)?;
        let dtype = tensor.dtype();
        if is_float(dtype) || tensor.quantized().is_some() {
            return Ok(());
        }
        Err(Error::new(format!("tensor \"{name}\" has element type {dtype}; supported are F32, F16 and BF16")))
    }

    fn table(&self, name: &str, rows: usize, width: usize) -> Result<(), Error> {
        self.shape(name, &[rows, width])
    }

    fn norm(&self, norm: &Norm) -> Result<(), Error> {
        self.shape(&norm.weight, &[norm.width])?;
        self.shape(&norm.bias, &[norm.width])?;
        match norm.kind {
            NormKind::Power => self.shape(&norm.running_phi(), &[norm.width]),
            NormKind::Layer | NormKind::Affine => Ok(()),
        }
    }

    fn linear(&self, linear: &Linear) -> Result<(), Error> {
        if !linear.is_empty() {
            self.0.check_matrix(&linear.weight, linear.outputs, linear.inputs)?;
            self.floats(&linear.weight)?;
        }
        if let Some(bias) = linear.stored_bias() {
            self.0.check_bias(bias, linear.outputs)?;
            self.float(&bias.name)?;
        }
        Ok(())
    }

    fn floats(&self, matrix: &Matrix) -> Result<(), Error> {
        match matrix {
            Matrix::Tensor { name, .. } => self.float(name),
            Matrix::ConcatInputs(parts) => parts.iter().try_for_each(|(part, _)| self.floats(part)),
        }
    }

    fn layer(&self, layer: &Layer) -> Result<(), Error> {
        if let Some(b) = &layer.bottleneck {
            for part in [Some(&b.input), b.shared.as_ref(), Some(&b.output)].into_iter().flatten() {
                self.linear(&part.linear)?;
                self.norm(&part.norm)?;
            }
        }
        let a = &layer.attention;
        [&a.query, &a.key, &a.value, &a.output].into_iter().try_for_each(|linear| self.linear(linear))?;
        match &a.position {
            _ if a.heads == 0 => {}
            AttentionPosition::None => {}
            AttentionPosition::Buckets { table, columns, buckets, .. } => self.table(table, *buckets, *columns)?,
            AttentionPosition::Relative { projection, content_bias, position_bias, segment_bias, segments, .. } => {
                self.linear(projection)?;
                for name in [content_bias, position_bias, segment_bias] {
                    self.shape(name, &[a.heads, a.head_width])?;
                }
                self.shape(segments, &[2, a.heads, a.head_width])?;
            }
        }
        a.network.iter().flat_map(|network| network.maps()).try_for_each(|map| self.linear(map))?;
        if let Some(w) = &a.window {
            [&w.global_query, &w.global_key, &w.global_value].into_iter().try_for_each(|linear| self.linear(linear))?;
        }
        self.norm(&layer.attention_norm)?;
        for ffn in &layer.ffns {
            self.linear(&ffn.up)?;
            self.linear(&ffn.down)?;
            self.norm(&ffn.norm)?;
        }
        Ok(())
    }
}
