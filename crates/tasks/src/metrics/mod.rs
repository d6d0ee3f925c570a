//! Metrics as the reference libraries define them (scikit-learn, SciPy, the official SQuAD scripts, seqeval).
//!
//! Every function takes what is right first and what was predicted second. All results are fractions, not per cent.
//! Nothing to measure gives NaN.

mod answers;
mod classes;
mod correlation;
mod entities;
mod labels;

pub use answers::{answer_exact, answer_f1, normalise_answer};
pub use classes::{accuracy, f1_binary, f1_macro, f1_micro, matthews};
pub use correlation::{mean_squared_error, pearson, ranks, spearman};
pub use entities::{Entity, entities, entity_f1};
pub use labels::{labels_f1_macro, labels_f1_micro, subset_accuracy};

/// `2 tp / (2 tp + fp + fn)`, and 0 where that is 0/0 (scikit-learn's `zero_division=0`).
fn f1(hits: usize, false_positives: usize, false_negatives: usize) -> f64 {
    let whole = 2 * hits + false_positives + false_negatives;
    if whole == 0 {
        return 0.0;
    }
    2.0 * hits as f64 / whole as f64
}
