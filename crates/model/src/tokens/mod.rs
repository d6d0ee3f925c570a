//! The part of a plan that says which tokens are computed no further, because they bring little to others.

mod by_layer;
mod way;

use crate::{Architecture, AttentionPosition, Error, HeadRows};
pub use by_layer::ByLayer;
use serde::{Deserialize, Serialize};
use way::Way;

/// Tokens that bring little to others cost less. A layer's measure of a token is the attention it gets times the length of
/// its value, mean over heads and queries, beside that of the sequence's tokens on average: 1 is an even share. The first
/// token, the last one and the last one of every part of a pair always stay as they are.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// Tokens below this measure leave: the rest of the layer and all later ones go on without them. 0 means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<ByLayer>,
    /// So many of an input's tokens stay, those of the highest measures (Goyal et al. 2020, "PoWER-BERT"): a share of them
    /// up to 1, which is all, or above it a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<ByLayer>,
    /// This share of the tokens that are there is merged into others that are like them (Bolya et al. 2023, "Token
    /// Merging"). 0 means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<ByLayer>,
    /// Tokens below this measure stay, but pass by the feed-forward blocks of the layer. 0 means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<ByLayer>,
}

/// What happens to the tokens of one layer; see [`Tokens`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerTokens {
    /// Below this measure a token leaves.
    pub drop: f32,
    /// As many stay, see [`LayerTokens::staying`].
    pub keep: f32,
    /// This share is merged, see [`LayerTokens::merging`].
    pub merge: f32,
    /// Below this measure a token skips feed-forward blocks.
    pub skip: f32,
}

impl Default for LayerTokens {
    fn default() -> Self {
        Tokens::default().of(0)
    }
}

impl LayerTokens {
    /// Whether tokens may be fewer afterwards.
    pub fn leaves_fewer(&self) -> bool {
        self.drop > 0.0 || self.keeps_some() || self.merge > 0.0
    }

    /// Whether the number of tokens that stay is limited.
    pub fn keeps_some(&self) -> bool {
        self.keep != 1.0
    }

    /// Whether somebody has to know how much every token brings to others.
    pub fn measures(&self) -> bool {
        self.drop > 0.0 || self.keeps_some() || self.skip > 0.0
    }

    /// How many tokens of an input of so many stay at most, the ends among them.
    pub fn staying(&self, input: usize) -> usize {
        // A float that is too large for an integer becomes the largest one.
        if self.keep <= 1.0 { (self.keep * input as f32).round() as usize } else { self.keep as usize }
    }

    /// How many of so many tokens are merged into others at most.
    pub fn merging(&self, tokens: usize) -> usize {
        (self.merge * tokens as f32).round() as usize
    }
}

impl Tokens {
    /// What happens to the tokens of a layer.
    pub fn of(&self, layer: usize) -> LayerTokens {
        let of = |way: Way| way.of(self).map_or(way.nothing(), |numbers| numbers.of(layer));
        LayerTokens { drop: of(Way::Drop), keep: of(Way::Keep), merge: of(Way::Merge), skip: of(Way::Skip) }
    }

    /// Whether some layer lets tokens go.
    pub fn leaves_fewer(&self) -> bool {
        self.first_to_leave_fewer().is_some()
    }

    fn first_to_leave_fewer(&self) -> Option<Way> {
        let fewer = |way: Way, numbers: &ByLayer| way.leaves_fewer() && numbers.numbers().any(|n| n != way.nothing());
        self.named().find(|(way, numbers)| fewer(*way, numbers)).map(|(way, _)| way)
    }

    /// Whether some layer merges tokens.
    pub fn merges(&self) -> bool {
        self.merge.iter().flat_map(ByLayer::numbers).any(|share| share > 0.0)
    }

    /// The first setting by which a layer goes by what tokens bring to others, and its number that stops that.
    pub(crate) fn measured_in(&self, layer: usize) -> Option<(&'static str, f32)> {
        let measures = |way: Way, numbers: &ByLayer| way != Way::Merge && numbers.of(layer) != way.nothing();
        let (way, _) = self.named().find(|(way, numbers)| measures(*way, numbers))?;
        Some((way.name(), way.nothing()))
    }

    fn named(&self) -> impl Iterator<Item = (Way, &ByLayer)> {
        Way::EVERY.into_iter().filter_map(|way| Some((way, way.of(self)?)))
    }

    /// Reads a setting, `drop=0.5`, or `drop3=0.2` for a layer. `None`: there is no such setting.
    pub(crate) fn set(&mut self, key: &str, value: f32) -> Option<()> {
        let number = key.find(|c: char| c.is_ascii_digit()).unwrap_or(key.len());
        let way = Way::EVERY.into_iter().find(|way| way.name() == &key[..number])?;
        match &key[number..] {
            "" => way.of_mut(self).all = value,
            layer => {
                let layer = layer.parse().ok()?;
                way.of_mut(self).layers.insert(layer, value);
            }
        }
        Some(())
    }

    /// Whether a setting's name begins as one of these does.
    pub(crate) fn claims(key: &str) -> bool {
        Way::EVERY.iter().any(|way| key.starts_with(way.name()))
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        for (way, numbers) in self.named() {
            if let Some(number) = numbers.numbers().find(|number| !way.allows(*number)) {
                return Err(Error::new(format!("attention: {} is {number}; {}", way.name(), way.needs())));
            }
        }
        Ok(())
    }

    pub(crate) fn check_for(&self, architecture: &Architecture) -> Result<(), Error> {
        let layers = architecture.layers.len();
        let mut named = self.named().flat_map(|(_, numbers)| numbers.layers.keys());
        if let Some(layer) = named.find(|layer| **layer >= layers) {
            return Err(Error::new(format!("attention: there is no layer {layer}; the model has {layers}, from 0 on")));
        }
        let refuse = |what: &str| Err(Error::new(format!("attention: {what}; use --attention exact")));
        for layer in &architecture.layers {
            if layer.bottleneck.is_some() {
                return refuse("tokens of layers with a bottleneck (MobileBERT) cannot leave or skip");
            }
            if layer.attention.causal {
                return refuse(
                    "tokens of a model that reads from left to right cannot leave or skip: later ones may need them",
                );
            }
            if layer.attention.window.is_some() || layer.attention.position != AttentionPosition::None {
                return refuse(
                    "tokens cannot leave or skip where attention goes by distance (windows, relative positions)",
                );
            }
        }
        let reads_all = !matches!(architecture.head.rows, HeadRows::First | HeadRows::Last);
        if let Some(way) = self.first_to_leave_fewer().filter(|_| reads_all) {
            return Err(Error::new(format!(
                "attention: tokens cannot leave, the head reads all of them; use skip instead of {}",
                way.name()
            )));
        }
        Ok(())
    }
}

/// As [`crate::AttentionPlan`] reads it, from the comma on.
impl std::fmt::Display for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (way, numbers) in self.named() {
            let name = way.name();
            write!(f, ",{name}={}", numbers.all)?;
            numbers.layers.iter().try_for_each(|(layer, number)| write!(f, ",{name}{layer}={number}"))?;
        }
        Ok(())
    }
}
