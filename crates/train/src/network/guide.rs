//! Layers that read what a teacher's layers read, or their own within bounds: their mistakes do not add up.
//!
//! Without norms that look at a row, and without softmax, a layer's result grows with the third power of what it reads: scores are
//! products of two rows, and weigh a third. One row that is somewhat too large is out of all bounds a few layers later.

use burn::tensor::Tensor;
use std::cell::RefCell;

/// How far beyond the teacher's largest number of a channel a layer may read.
pub(crate) const ROOM: f64 = 1.5;

/// What every layer reads.
#[derive(Clone, Copy)]
pub enum Guide<'a> {
    /// A mixture of the teacher's hidden states and its own network's, within what the teacher's span.
    Teacher {
        /// The teacher's, embeddings first, `[batch, length, hidden]` each.
        hidden: &'a [Tensor<3>],
        /// Share of its own, from 0 to 1.
        own: f64,
    },
    /// Its own network's, within bounds.
    Bounds {
        /// The largest size of every channel, `[1, hidden]` for every layer.
        most: &'a [Tensor<2>],
        /// Gets what lay beyond.
        beyond: &'a Beyond,
    },
}

/// What lay beyond bounds in a pass: a loss, since what is cut off has no slope of its own.
#[derive(Default)]
pub struct Beyond(RefCell<Vec<Tensor<1>>>);

impl Beyond {
    /// The sum over layers of the mean of squares of what lay beyond, in bounds; `None` without layers.
    pub fn sum(&self) -> Option<Tensor<1>> {
        self.0.take().into_iter().reduce(|a, b| a + b)
    }
}

impl Guide<'_> {
    /// What a layer reads, `[batch * length, hidden]`, where the layers before have computed `own`.
    pub(super) fn input(&self, layer: usize, own: Tensor<2>) -> Tensor<2> {
        // Constants beside what is learned.
        let beside = |x: Tensor<2>| {
            if own.device().is_autodiff() && !x.device().is_autodiff() { x.autodiff() } else { x }
        };
        let within = |own: Tensor<2>, most: Tensor<2>| own.min_pair(most.clone()).max_pair(most.neg());
        match *self {
            Guide::Teacher { hidden, own: share } => {
                let Some(theirs) = hidden.get(layer) else { return own };
                let theirs = theirs.clone().reshape(own.shape());
                let most = beside(theirs.clone().abs().max_dim(0).mul_scalar(ROOM).expand(own.shape()));
                let theirs = beside(theirs);
                if share <= 0.0 {
                    return theirs;
                }
                let own = within(own, most);
                if share >= 1.0 { own } else { theirs.mul_scalar(1.0 - share) + own.mul_scalar(share) }
            }
            Guide::Bounds { most, beyond } => {
                let Some(most) = most.get(layer) else { return own };
                let most = beside(most.clone().expand(own.shape()));
                let kept = within(own.clone(), most.clone());
                beyond.0.borrow_mut().push(((own - kept.clone()) / most).square().mean());
                kept
            }
        }
    }
}
