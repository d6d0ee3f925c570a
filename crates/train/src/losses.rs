//! What training makes small. Every loss is a mean, `[1]`.

use crate::gpu::{self, Counted};
use burn::tensor::activation::{log_sigmoid, log_softmax, softmax};
use burn::tensor::{Bool, Int, Tensor};

/// Cross-entropy of `logits` `[rows, classes]` with the right classes `[rows]`.
pub fn cross_entropy(logits: Tensor<2>, classes: Tensor<1, Int>) -> Tensor<1> {
    let rows = logits.dims()[0];
    log_softmax(logits, 1).gather(1, classes.reshape([rows, 1])).mean().neg()
}

/// Binary cross-entropy of `logits` `[rows, labels]` with `targets` of 0 and 1.
pub fn binary_cross_entropy(logits: Tensor<2>, targets: Tensor<2>) -> Tensor<1> {
    let right = targets.clone() * log_sigmoid(logits.clone());
    let wrong = targets.neg().add_scalar(1.0) * log_sigmoid(logits.neg());
    (right + wrong).mean().neg()
}

/// Mean of squared differences.
pub fn mean_squared<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<1> {
    let difference = a - b;
    (difference.clone() * difference).mean()
}

/// Soft targets (Hinton et al. 2015, <https://arxiv.org/abs/1503.02531>): `t² · CE(softmax(teacher / t), softmax(student / t))`,
/// both `[rows, classes]`. The factor keeps the gradients' size the same at every temperature.
pub fn soft_cross_entropy(student: Tensor<2>, teacher: Tensor<2>, temperature: f64) -> Tensor<1> {
    let target = softmax(teacher.div_scalar(temperature), 1);
    let found = log_softmax(student.div_scalar(temperature), 1);
    (target * found).sum_dim(1).mean().mul_scalar(-temperature * temperature)
}

/// The same as divergence: `t² · KL(teacher || student)`, zero when they agree.
pub fn soft_divergence(student: Tensor<2>, teacher: Tensor<2>, temperature: f64) -> Tensor<1> {
    let teacher = log_softmax(teacher.div_scalar(temperature), 1);
    let found = log_softmax(student.div_scalar(temperature), 1);
    (teacher.clone().exp() * (teacher - found)).sum_dim(1).mean().mul_scalar(temperature * temperature)
}

/// Mean of squared differences of `[batch, length, width]` over real tokens; `mask` `[batch, length]`.
pub fn masked_mean_squared(a: Tensor<3>, b: Tensor<3>, mask: Tensor<2, Bool>) -> Tensor<1> {
    let [batch, length, width] = a.dims();
    let [a, b] = [a, b].map(|x| x.reshape([batch * length, width]));
    gpu::mean_square(a, b, mask.float(), Counted::Rows).reshape([1])
}

/// Mean of squared differences of attention probabilities `[batch, heads, length, length]` over pairs of real tokens.
pub fn attention_mean_squared(a: Tensor<4>, b: Tensor<4>, mask: Tensor<2, Bool>) -> Tensor<1> {
    let [batch, heads, queries, keys] = a.dims();
    let [a, b] = [a, b].map(|x| x.reshape([batch * heads * queries, keys]));
    gpu::mean_square(a, b, mask.float(), Counted::Pairs { heads }).reshape([1])
}

/// Divergence of the student's attention from the teacher's (MobileBERT's attention transfer), mean over heads and real
/// queries.
pub fn attention_divergence(student: Tensor<4>, teacher: Tensor<4>, mask: Tensor<2, Bool>) -> Tensor<1> {
    const TINY: f64 = 1e-9;
    let [batch, heads, length, _] = student.dims();
    let queries = mask.clone().float().reshape([batch, 1, length, 1]);
    let count = queries.clone().sum().mul_scalar(heads as f64);
    let log = |p: Tensor<4>| p.clamp_min(TINY).log();
    let each = teacher.clone() * (log(teacher) - log(student)) * pairs(mask);
    each.sum() / count
}

/// 1 where query and key are both real, `[batch, 1, length, length]`.
fn pairs(mask: Tensor<2, Bool>) -> Tensor<4> {
    let [batch, length] = mask.dims();
    let mask = mask.float();
    mask.clone().reshape([batch, 1, length, 1]) * mask.reshape([batch, 1, 1, length])
}
