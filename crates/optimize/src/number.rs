//! Numbers in JSON, which has neither NaN nor infinity: those are words, so that they come back as what they were.

use serde::{Deserialize, Deserializer, Serializer};

/// A number, or a number in words.
#[derive(Deserialize)]
#[serde(untagged)]
enum Said {
    Number(f64),
    Word(String),
    /// As earlier versions wrote what is no number.
    Nothing(()),
}

pub(crate) fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    if number.is_finite() { to.serialize_f64(*number) } else { to.collect_str(number) }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    match Said::deserialize(from)? {
        Said::Number(number) => Ok(number),
        Said::Word(word) => word.parse().map_err(serde::de::Error::custom),
        Said::Nothing(()) => Ok(f64::NAN),
    }
}
