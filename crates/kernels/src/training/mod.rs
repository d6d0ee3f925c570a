//! What training needs besides products: dropout, norms, softmax and attention with their gradients.
//!
//! Work is cut into tasks by its size alone, and sums over tasks are added in order, so results do not depend on the
//! number of threads.

mod attention;
mod dropout;
mod norm;
mod softmax;
mod sums;

pub use attention::{AttentionSpace, attention, attention_gradient};
pub use dropout::Dropout;
pub use norm::{NormGradient, Normed, norm, norm_gradient};
pub use softmax::{log_sums, softmax, softmax_gradient};
pub use sums::column_sums;
