//! What is economised where. The empty plan is the exact model.

use serde::{Deserialize, Serialize};

/// How weights are stored and multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floats: the exact model.
    F32,
    /// bfloat16 weights and activations, f32 sums.
    Bf16,
    /// 8-bit integers: a scale per weight row and per token.
    Int8,
}

/// What is economised where; saved as `sparing.json` beside `config.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Precision of all linear maps, unless the caller asks for another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
}
