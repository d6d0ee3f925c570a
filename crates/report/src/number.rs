//! Numbers in JSON, which has neither NaN nor infinity: `serde_json` writes them as `null`.

use serde::{Deserialize, Deserializer};

/// A number, NaN where the file has `null`: a report must be readable whatever was measured.
pub(crate) fn or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}
