//! What the kernels call a plan's choice of keys.

use sparing_kernels::attention::By;
use sparing_model::{Keys, KeysBy};

/// What keys are chosen by.
pub fn keys_by(keys: &Keys) -> By {
    match keys.by {
        KeysBy::Sign => By::Sign,
        KeysBy::Norm => By::Norm,
        KeysBy::Value => By::Value(keys.threshold),
        KeysBy::Grouped => By::Grouped,
    }
}
