//! Layers that read what a teacher's layers read, or their own within bounds: their mistakes do not add up.
//!
//! Without norms that look at a row, and without softmax, a layer's result grows with the third power of what it reads: scores are
//! products of two rows, and weigh a third. One row that is somewhat too large is out of all bounds a few layers later.

use crate::{feed, gpu};
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

/// What is left to the teacher, and a share of their own.
fn of(own: f32) -> Vec<f32> {
    vec![1.0 - own, own]
}

impl Guide<'_> {
    /// What a layer reads, `[batch * length, hidden]`, where the layers before have computed `own`.
    pub(super) fn input(&self, layer: usize, own: Tensor<2>) -> Tensor<2> {
        // Constants beside what is learned.
        let device = own.device();
        let beside = |x: Tensor<2>| {
            if device.is_autodiff() && !x.device().is_autodiff() { x.autodiff() } else { x }
        };
        match *self {
            Guide::Teacher { hidden, own: share } => {
                let Some(theirs) = hidden.get(layer) else { return own };
                let theirs = theirs.clone().reshape(own.shape());
                let most = gpu::column_most(theirs.clone()).mul_scalar(ROOM);
                let theirs = beside(theirs);
                if share <= 0.0 {
                    return theirs;
                }
                let own = gpu::within(own, most);
                if share >= 1.0 {
                    return own;
                }
                let shares =
                    feed::floats(&device.clone().without_autodiff(), of(share as f32), |moment| Ok(of(moment.own)));
                let [theirs_share, own_share] = [0, 1].map(|i| beside(shares.clone().narrow(0, i, 1).reshape([1, 1])));
                theirs * theirs_share + own * own_share
            }
            Guide::Bounds { most, beyond } => {
                let Some(most) = most.get(layer) else { return own };
                let (bounds, most) = (most.clone(), beside(most.clone().expand(own.shape())));
                let kept = gpu::within(own.clone(), bounds);
                beyond.0.borrow_mut().push(((own - kept.clone()) / most).square().mean());
                kept
            }
        }
    }
}
