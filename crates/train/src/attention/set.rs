//! Set Transformer's induced attention (Lee et al. 2018, <https://arxiv.org/abs/1810.00825>).

use super::fresh::{Begin, Fresh, Sizes};
use super::full::dense;
use super::input::Input;
use super::{Attention, projections, some_tokens};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Learned points look at all tokens, then all tokens look at the points. Time and memory O(n · points).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// Points of each head.
    pub points: usize,
}

impl Attention for Set {
    fn check(&self) -> Result<(), Error> {
        some_tokens("points", self.points)
    }

    fn tensors(&self, sizes: &Sizes) -> Vec<Fresh> {
        let (heads, width) = (sizes.heads, sizes.head_width());
        let scale = 1.0 / (width as f64).sqrt();
        let square = |name| Fresh::new(name, &[heads, width * width], Begin::Normal(scale));
        let points = Fresh::new("points", &[heads, self.points * width], Begin::Normal(1.0));
        [projections(sizes), vec![points, square("points.key"), square("points.value")]].concat()
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let points = input.tensor("points")?;
        let (key, value) = (input.tensor("points.key")?, input.tensor("points.value")?);
        input.by_head(|heads| {
            let [_, length, width] = heads.dims();
            let scale = 1.0 / (width as f64).sqrt();
            let asked = heads.own(points.clone(), self.points).mul_scalar(scale);
            let padding = heads.padding(length);
            let found = dense(asked, heads.key.clone(), heads.value.clone(), [padding, None]);
            let of = |map: &Tensor<2>| super::work::product(found.clone(), heads.own(map.clone(), width));
            Ok(dense(heads.scaled_query(), of(&key), of(&value), [None, None]))
        })
    }
}
