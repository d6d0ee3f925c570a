//! Layers that read what a teacher's layers read: their own mistakes do not add up.

use burn::tensor::Tensor;

/// What every layer reads: a mixture of the teacher's hidden states and its own network's.
#[derive(Clone, Copy)]
pub struct Guide<'a> {
    /// The teacher's, embeddings first, `[batch, length, hidden]` each.
    pub hidden: &'a [Tensor<3>],
    /// Share of its own, from 0 to 1.
    pub own: f64,
}

impl Guide<'_> {
    /// What a layer reads, `[batch * length, hidden]`, where the layers before have computed `own`.
    pub(super) fn input(&self, layer: usize, own: Tensor<2>) -> Tensor<2> {
        let Some(theirs) = self.hidden.get(layer) else { return own };
        let theirs = theirs.clone().reshape(own.shape());
        let theirs =
            if own.device().is_autodiff() && !theirs.device().is_autodiff() { theirs.autodiff() } else { theirs };
        match self.own {
            none if none <= 0.0 => theirs,
            all if all >= 1.0 => own,
            part => theirs.mul_scalar(1.0 - part) + own.mul_scalar(part),
        }
    }
}
