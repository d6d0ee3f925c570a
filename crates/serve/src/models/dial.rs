//! The accuracy dial of a request.

use crate::error::Refusal;
use crate::models::shown;
use serde::Deserialize;
use sparing_engine::auto_precision;
use sparing_model::{AttentionPlan, Precision};

/// What a request may choose, beside the served plan: `"sparing": {"precision": "int8", "attention": "graded:0.4"}`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dial {
    /// f32, bf16, int8 or auto.
    pub(crate) precision: Option<String>,
    /// As `--attention` has it.
    pub(crate) attention: Option<String>,
}

/// A way to compute a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) precision: Precision,
    pub(crate) attention: AttentionPlan,
}

impl Dial {
    /// The way that is meant, where what is not said is as served.
    pub(crate) fn choice(&self, served: &Choice) -> Result<Choice, Refusal> {
        let precision = match self.precision.as_deref() {
            None => served.precision,
            Some("f32") => Precision::F32,
            Some("bf16") => Precision::Bf16,
            Some("int8") => Precision::Int8,
            Some("auto") => auto_precision(),
            Some(other) => {
                let other = shown(other);
                return Err(Refusal::validation(format!(
                    "`sparing.precision` is f32, bf16, int8 or auto, not \"{other}\""
                )));
            }
        };
        let attention = match self.attention.as_deref() {
            None => served.attention.clone(),
            Some(text) if text.len() > 200 => {
                return Err(Refusal::validation("`sparing.attention` is longer than any plan"));
            }
            Some(text) => text.parse().map_err(|e: sparing_model::Error| {
                Refusal::validation(e.to_string().replace("--attention", "`sparing.attention`"))
            })?,
        };
        Ok(Choice { precision, attention })
    }
}
