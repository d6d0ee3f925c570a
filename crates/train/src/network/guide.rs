//! Layers that read what a teacher's layers read: their own mistakes do not add up.
//!
//! Without norms that look at a row, and without softmax, a layer's result grows with the third power of what it reads: scores are
//! products of two rows, and weigh a third. One row that is somewhat too large is out of all bounds a few layers later.

use burn::tensor::Tensor;

/// How far beyond the teacher's largest number of a channel a layer may read.
const ROOM: f64 = 1.5;

/// What every layer reads: a mixture of the teacher's hidden states and its own network's, within what the teacher's span.
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
        let limit = theirs.clone().abs().max_dim(0).mul_scalar(ROOM).expand(own.shape());
        let within = own.device().is_autodiff() && !theirs.device().is_autodiff();
        let [theirs, limit] = [theirs, limit].map(|x| if within { x.autodiff() } else { x });
        if self.own <= 0.0 {
            return theirs;
        }
        let own = own.min_pair(limit.clone()).max_pair(limit.neg());
        if self.own >= 1.0 { own } else { theirs.mul_scalar(1.0 - self.own) + own.mul_scalar(self.own) }
    }
}
