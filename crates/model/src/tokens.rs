//! The part of a plan that says which tokens are computed no further, because they bring little to others.

use crate::{Architecture, AttentionPosition, Error, HeadRows};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Tokens that bring little to others cost less. A layer's measure of a token is the attention it gets times the length of
/// its value, mean over heads and queries, beside that of the sequence's tokens on average: 1 is an even share. The first
/// token, the last one and the last one of every part of a pair always stay.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// Tokens below this leave: the rest of the layer and all later ones go on without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<Cut>,
    /// Tokens below this stay, but pass by the feed-forward blocks of the layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<Cut>,
}

/// A measure below which a token is economised; 0 means never.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// In all layers but those named.
    pub cut: f32,
    /// Layers that differ.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layers: BTreeMap<usize, f32>,
}

impl Cut {
    /// A layer's cut.
    pub fn of(&self, layer: usize) -> f32 {
        self.layers.get(&layer).copied().unwrap_or(self.cut)
    }
}

impl Tokens {
    /// Below which measures a layer drops tokens and lets them skip its feed-forward blocks; 0 means never.
    pub fn cuts(&self, layer: usize) -> (f32, f32) {
        let of = |cut: &Option<Cut>| cut.as_ref().map_or(0.0, |cut| cut.of(layer));
        (of(&self.drop), of(&self.skip))
    }

    /// Whether some layer drops tokens.
    pub fn drops(&self) -> bool {
        self.drop.as_ref().is_some_and(|cut| cut.cut > 0.0 || cut.layers.values().any(|cut| *cut > 0.0))
    }

    /// Reads a setting, `drop=0.5`, or `drop3=0.2` for a layer. `None`: it is not one of these.
    pub(crate) fn set(&mut self, key: &str, value: f32) -> Option<()> {
        let number = key.find(|c: char| c.is_ascii_digit()).unwrap_or(key.len());
        let cut = match &key[..number] {
            "drop" => &mut self.drop,
            "skip" => &mut self.skip,
            _ => return None,
        };
        let cut = cut.get_or_insert_default();
        match &key[number..] {
            "" => cut.cut = value,
            layer => _ = cut.layers.insert(layer.parse().ok()?, value),
        }
        Some(())
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        for (name, cut) in [("drop", &self.drop), ("skip", &self.skip)] {
            let all = cut.iter().flat_map(|cut| cut.layers.values().chain([&cut.cut]));
            if let Some(cut) = all.copied().find(|cut| !(cut.is_finite() && *cut >= 0.0)) {
                return Err(Error::new(format!(
                    "attention: {name} is {cut}; 0 or a number above it is needed, such as 0.5 (of an even share)"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn check_for(&self, architecture: &Architecture) -> Result<(), Error> {
        let layers = architecture.layers.len();
        let named = [&self.drop, &self.skip].into_iter().flatten().flat_map(|cut| cut.layers.keys());
        if let Some(layer) = named.copied().find(|layer| *layer >= layers) {
            return Err(Error::new(format!("attention: there is no layer {layer}; the model has {layers}, from 0 on")));
        }
        let refuse = |what: &str| Err(Error::new(format!("attention: {what}; use --attention exact")));
        for layer in &architecture.layers {
            if layer.bottleneck.is_some() {
                return refuse("tokens of layers with a bottleneck (MobileBERT) cannot be dropped or skip");
            }
            if layer.attention.causal {
                return refuse(
                    "tokens of a model that reads from left to right cannot be dropped or skip: later ones may need them",
                );
            }
            if layer.attention.window.is_some() || layer.attention.position != AttentionPosition::None {
                return refuse(
                    "tokens cannot be dropped or skip where attention goes by distance (windows, relative positions)",
                );
            }
        }
        if self.drops() && !matches!(architecture.head.rows, HeadRows::First | HeadRows::Last) {
            return Err(Error::new(
                "attention: tokens cannot be dropped, the head reads all of them; use skip instead of drop",
            ));
        }
        Ok(())
    }
}

/// As [`crate::AttentionPlan`] reads it, from the comma on.
impl std::fmt::Display for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, cut) in [("drop", &self.drop), ("skip", &self.skip)] {
            let Some(cut) = cut else { continue };
            write!(f, ",{name}={}", cut.cut)?;
            cut.layers.iter().try_for_each(|(layer, cut)| write!(f, ",{name}{layer}={cut}"))?;
        }
        Ok(())
    }
}
