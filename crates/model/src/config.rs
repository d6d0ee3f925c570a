//! `config.json`, read with suspicion: every number has a cap, every error names the field.

use crate::weights::one_line;
use crate::{Activation, Error};
use serde_json::{Map, Value};

/// The widest row accepted: a sum of so many products of a byte and a signed one still fits 32 bits.
pub(crate) const MAX_WIDTH: usize = 1 << 16;
/// The most layers accepted.
pub(crate) const MAX_LAYERS: usize = 1 << 10;
/// The most heads accepted.
pub(crate) const MAX_HEADS: usize = 1 << 10;
/// The most table rows (vocabulary, positions) accepted.
pub(crate) const MAX_ROWS: usize = 1 << 24;

/// The fields of one configuration file.
pub(crate) struct Config {
    file: String,
    fields: Map<String, Value>,
}

impl Config {
    /// Parses a JSON object; `file` names it in errors.
    pub(crate) fn parse(file: &str, text: &[u8]) -> Result<Config, Error> {
        let bad = |why: String| Error::new(format!("{file}: {why}"));
        match serde_json::from_slice(text).map_err(|e| bad(format!("not valid JSON ({})", one_line(&e.to_string()))))? {
            Value::Object(fields) => Ok(Config { file: file.into(), fields }),
            _ => Err(bad("not a JSON object".into())),
        }
    }

    /// An error about one field: its name, its value, and what is wrong with it.
    pub(crate) fn refuse(&self, field: &str, why: &str) -> Error {
        let value = self.get(field).map_or("absent".to_string(), |v| one_line(&v.to_string()));
        Error::new(format!("{}: \"{field}\" is {value}; {why}", self.file))
    }

    /// The raw field; null counts as absent, as in Python.
    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|v| !v.is_null())
    }

    /// The first of these names that is there (a setting and its alias), else the first.
    pub(crate) fn pick<'a>(&self, fields: [&'a str; 2]) -> &'a str {
        if self.get(fields[0]).is_none() && self.get(fields[1]).is_some() { fields[1] } else { fields[0] }
    }

    /// Whether the field is there and null.
    pub(crate) fn is_null(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(Value::is_null)
    }

    /// A whole number from 1 to `most`.
    pub(crate) fn size(&self, field: &str, default: usize, most: usize) -> Result<usize, Error> {
        let n = self.count(field, default, most)?;
        if n == 0 { Err(self.refuse(field, "it must be at least 1")) } else { Ok(n) }
    }

    /// A whole number from 0 to `most`.
    pub(crate) fn count(&self, field: &str, default: usize, most: usize) -> Result<usize, Error> {
        let Some(value) = self.get(field) else { return Ok(default) };
        value
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n <= most)
            .ok_or_else(|| self.refuse(field, &format!("a whole number of at most {most} is expected")))
    }

    /// A finite number.
    pub(crate) fn number(&self, field: &str, default: f64) -> Result<f64, Error> {
        let Some(value) = self.get(field) else { return Ok(default) };
        value.as_f64().filter(|n| n.is_finite()).ok_or_else(|| self.refuse(field, "a number is expected"))
    }

    /// The epsilon of a norm.
    pub(crate) fn epsilon(&self, field: &str, default: f64) -> Result<f32, Error> {
        let eps = self.number(field, default)?;
        if (0.0..=1.0).contains(&eps) {
            Ok(eps as f32)
        } else {
            Err(self.refuse(field, "a number from 0 to 1 is expected"))
        }
    }

    /// True or false.
    pub(crate) fn flag(&self, field: &str, default: bool) -> Result<bool, Error> {
        let Some(value) = self.get(field) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.refuse(field, "true or false is expected"))
    }

    /// A string.
    pub(crate) fn text<'a>(&'a self, field: &str, default: &'a str) -> Result<&'a str, Error> {
        let Some(value) = self.get(field) else { return Ok(default) };
        value.as_str().ok_or_else(|| self.refuse(field, "a string is expected"))
    }

    /// A non-linearity by the name Python gives it.
    pub(crate) fn activation(&self, field: &str, default: &str) -> Result<Activation, Error> {
        Ok(match self.text(field, default)? {
            "gelu" | "gelu_python" => Activation::Gelu,
            "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Activation::GeluTanh,
            "relu" => Activation::Relu,
            "tanh" => Activation::Tanh,
            "silu" | "swish" => Activation::Silu,
            "linear" | "identity" => Activation::Identity,
            _ => return Err(self.refuse(field, "supported are gelu, gelu_new, gelu_fast, relu, tanh, silu and linear")),
        })
    }

    /// Width and number of heads, the one dividing the other.
    pub(crate) fn heads(&self, field: &str, default: usize, width: usize) -> Result<usize, Error> {
        let heads = self.size(field, default, MAX_HEADS)?;
        if !width.is_multiple_of(heads) {
            return Err(self.refuse(field, &format!("it must divide the attention's width of {width}")));
        }
        Ok(heads)
    }

    /// Fails if the flag is set.
    pub(crate) fn must_be_false(&self, field: &str, why: &str) -> Result<(), Error> {
        if self.flag(field, false)? { Err(self.refuse(field, why)) } else { Ok(()) }
    }

    /// The names of the outputs: `id2label` in the order of its keys; without it `num_labels`, else 2, unnamed ones.
    pub(crate) fn labels(&self) -> Result<Vec<String>, Error> {
        const MOST: usize = 1 << 20;
        let Some(value) = self.get("id2label") else {
            let count = self.size("num_labels", 2, MOST)?;
            return Ok((0..count).map(|i| format!("LABEL_{i}")).collect());
        };
        let why = "an object of \"0\", \"1\", … to names is expected";
        let map = value.as_object().filter(|m| !m.is_empty()).ok_or_else(|| self.refuse("id2label", why))?;
        let mut labels = vec![None; map.len()];
        for (key, name) in map {
            let place = key
                .parse::<usize>()
                .ok()
                .and_then(|i| labels.get_mut(i))
                .ok_or_else(|| self.refuse("id2label", why))?;
            *place = Some(match name {
                Value::String(name) => name.clone(),
                other => one_line(&other.to_string()),
            });
        }
        labels.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| self.refuse("id2label", why))
    }
}
