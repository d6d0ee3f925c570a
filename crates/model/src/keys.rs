//! The part of a plan that says over how many keys attention looks, and which (sign matching, "Approximate computing for
//! Transformers", 2021, Appendix B, and its rivals).

use crate::{Architecture, AttentionPosition, Error, HeadRows};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Attention over a few keys of every head, chosen before any score is computed. Sequences with no more keys than are kept
/// are exact. The last attention stays exact too where the head reads one row of it: it has one query, which costs no more
/// than choosing would.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// What they are chosen by.
    #[serde(default)]
    pub by: KeysBy,
    /// How many are kept.
    pub keep: Keep,
    /// What [`KeysBy::Value`] counts absolute values above.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub threshold: f32,
    /// The first token, the last one and the last one of every part of a pair are kept before all others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends: bool,
    /// Layers that differ: another number, `"auto"` or `"exact"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layers: BTreeMap<usize, LayerKeys>,
}

/// What keys are chosen by, in each head on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeysBy {
    /// The keys whose signs agree best with the majority sign of all queries: the paper's.
    #[default]
    Sign,
    /// The longest keys.
    Norm,
    /// The keys with the most numbers beyond a threshold.
    Value,
    /// For every query the keys whose largest or smallest number stands in the same column as its own.
    Grouped,
}

impl KeysBy {
    /// The name in plans and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            KeysBy::Sign => "sign",
            KeysBy::Norm => "norm",
            KeysBy::Value => "value",
            KeysBy::Grouped => "grouped",
        }
    }

    pub(crate) fn named(name: &str) -> Option<KeysBy> {
        [KeysBy::Sign, KeysBy::Norm, KeysBy::Value, KeysBy::Grouped].into_iter().find(|by| by.name() == name)
    }
}

/// How many keys are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// So many.
    Count(usize),
    /// By the number of keys, as in Table 9 of the paper.
    Auto,
}

impl Keep {
    /// How many are kept of so many.
    pub fn of(self, keys: usize) -> usize {
        match (self, keys) {
            (Keep::Count(count), _) => count,
            (Keep::Auto, 0..=128) => 16,
            (Keep::Auto, 129..1024) => 64,
            (Keep::Auto, _) => 128,
        }
    }

    pub(crate) fn named(text: &str) -> Option<Keep> {
        if text == "auto" { Some(Keep::Auto) } else { text.parse().ok().map(Keep::Count) }
    }
}

/// A layer that differs from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKeys {
    /// All keys.
    Exact,
    /// Some of them.
    Keep(Keep),
}

impl LayerKeys {
    fn named(text: &str) -> Option<LayerKeys> {
        if text == "exact" { Some(LayerKeys::Exact) } else { Keep::named(text).map(LayerKeys::Keep) }
    }
}

impl std::fmt::Display for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Keep::Count(count) => count.fmt(f),
            Keep::Auto => f.write_str("auto"),
        }
    }
}

impl std::fmt::Display for LayerKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LayerKeys::Exact => f.write_str("exact"),
            LayerKeys::Keep(keep) => keep.fmt(f),
        }
    }
}

/// A number, or a word.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NumberOrWord {
    Number(usize),
    Word(String),
}

impl NumberOrWord {
    fn text(self) -> String {
        match self {
            NumberOrWord::Number(number) => number.to_string(),
            NumberOrWord::Word(word) => word,
        }
    }
}

impl Serialize for Keep {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Keep::Count(count) => NumberOrWord::Number(*count).serialize(serializer),
            Keep::Auto => serializer.serialize_str("auto"),
        }
    }
}

impl Serialize for LayerKeys {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            LayerKeys::Exact => serializer.serialize_str("exact"),
            LayerKeys::Keep(keep) => keep.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Keep {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = NumberOrWord::deserialize(deserializer).ok().and_then(|found| Keep::named(&found.text()));
        found.ok_or_else(|| serde::de::Error::custom("keep is a number of keys or \"auto\""))
    }
}

impl<'de> Deserialize<'de> for LayerKeys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = NumberOrWord::deserialize(deserializer).ok().and_then(|found| LayerKeys::named(&found.text()));
        found.ok_or_else(|| serde::de::Error::custom("a layer has a number of keys, \"auto\" or \"exact\""))
    }
}

fn one() -> f32 {
    1.0
}

fn is_one(x: &f32) -> bool {
    *x == 1.0
}

impl Keys {
    /// So many keys, the paper's way.
    pub fn new(keep: Keep) -> Keys {
        Keys { by: KeysBy::default(), keep, threshold: one(), ends: false, layers: BTreeMap::new() }
    }

    /// How many keys a layer keeps; `None`: the layer is exact.
    pub fn of(&self, layer: usize, architecture: &Architecture) -> Option<Keep> {
        let one_row = matches!(architecture.head.rows, HeadRows::First | HeadRows::Last);
        let last = one_row && architecture.last_attention() == Some(layer);
        if last || architecture.layers[layer].attention.heads == 0 {
            return None;
        }
        match self.layers.get(&layer) {
            None => Some(self.keep),
            Some(LayerKeys::Keep(keep)) => Some(*keep),
            Some(LayerKeys::Exact) => None,
        }
    }

    /// Reads a setting of the command line. `None`: it is not one of these.
    pub(crate) fn set(plan: &mut Option<Keys>, key: &str, value: &str) -> Option<Result<(), String>> {
        let number = key.strip_prefix("keys");
        if number.is_none() && !["by", "ends", "threshold"].contains(&key) {
            return None;
        }
        let keys = match plan {
            Some(keys) => keys,
            None if key == "keys" => plan.insert(Keys::new(Keep::Auto)),
            None => return Some(Err(format!("{key} says more about keys=COUNT, which must come before it"))),
        };
        Some(keys.set_one(key, number, value))
    }

    fn set_one(&mut self, key: &str, number: Option<&str>, value: &str) -> Result<(), String> {
        let count = || format!("{key} is \"{value}\"; a number of keys or auto is expected");
        match (key, number) {
            ("by", _) => {
                let by = KeysBy::named(value);
                self.by = by.ok_or_else(|| format!("by is sign, norm, value or grouped, not \"{value}\""))?;
            }
            ("ends", _) if value.is_empty() => self.ends = true,
            ("ends", _) => return Err(format!("ends takes no value, but \"{value}\" is given")),
            ("threshold", _) => {
                let number = value.parse().map_err(|_| format!("threshold is \"{value}\"; a number is expected"))?;
                self.threshold = number;
            }
            (_, Some("")) => self.keep = Keep::named(value).ok_or_else(count)?,
            (_, layer) => {
                let Some(Ok(layer)) = layer.map(str::parse) else {
                    return Err(format!("no setting is called \"{key}\"; use keys, or keysN for layer N"));
                };
                let keep = LayerKeys::named(value).ok_or_else(|| format!("{} (or exact)", count()))?;
                self.layers.insert(layer, keep);
            }
        }
        Ok(())
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let layers = self.layers.values().filter_map(|layer| match layer {
            LayerKeys::Keep(keep) => Some(*keep),
            LayerKeys::Exact => None,
        });
        if layers.chain([self.keep]).any(|keep| keep == Keep::Count(0)) {
            return Err(Error::new("attention: keys is 0; 1 at least is needed, such as 64, or auto"));
        }
        if !(self.threshold.is_finite() && self.threshold >= 0.0) {
            let threshold = self.threshold;
            return Err(Error::new(format!("attention: threshold is {threshold}; 0 or a number above it is needed")));
        }
        Ok(())
    }

    pub(crate) fn check_for(&self, architecture: &Architecture) -> Result<(), Error> {
        let layers = architecture.layers.len();
        if let Some(layer) = self.layers.keys().find(|layer| **layer >= layers) {
            return Err(Error::new(format!("attention: there is no layer {layer}; the model has {layers}, from 0 on")));
        }
        for layer in &architecture.layers {
            if layer.attention.window.is_some() {
                return Err(Error::new(
                    "attention: keys cannot be chosen where a query sees a window of them (Longformer); use --attention exact",
                ));
            }
            if matches!(layer.attention.position, AttentionPosition::Relative { .. }) {
                return Err(Error::new(
                    "attention: keys are not chosen where positions are scored for every pair of tokens (XLNet), which would \
                     save nothing; use --attention exact",
                ));
            }
        }
        Ok(())
    }
}

/// As [`crate::AttentionPlan`] reads it, from the comma on.
impl std::fmt::Display for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, ",keys={}", self.keep)?;
        if self.by != KeysBy::default() {
            write!(f, ",by={}", self.by.name())?;
        }
        if !is_one(&self.threshold) {
            write!(f, ",threshold={}", self.threshold)?;
        }
        if self.ends {
            f.write_str(",ends")?;
        }
        self.layers.iter().try_for_each(|(layer, keep)| write!(f, ",keys{layer}={keep}"))
    }
}
