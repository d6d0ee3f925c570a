//! What is trained and how, as data.

use crate::attention::{Kind, Sizes, knob};
use crate::{AdamOptions, Schedule};
use serde::{Deserialize, Serialize};
use sparing_model::Error;
use sparing_tasks::lra::Task;
use std::collections::BTreeMap;

/// The encoder, without its attention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncoderConfig {
    /// Width of hidden states.
    pub width: usize,
    /// Width of queries, keys and values of all heads together.
    pub attention_width: usize,
    /// Width within feed-forward blocks, and of the classifier's hidden layer.
    pub mlp: usize,
    /// Heads.
    pub heads: usize,
    /// Layers.
    pub layers: usize,
    /// What a sequence is summed up by.
    pub pool: Pool,
    /// Where positions come from.
    pub positions: Positions,
    /// No token sees a later one.
    #[serde(default)]
    pub causal: bool,
}

/// What a sequence is summed up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pool {
    /// A token of its own before the first.
    Cls,
    /// The mean of all tokens.
    Mean,
}

/// Where positions come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Positions {
    /// A table that is learned.
    Learned,
    /// Sines and cosines (Vaswani et al. 2017).
    Sine,
    /// Nowhere: for mechanisms that know distances themselves (ETC, Transformer-XL, the Compressive Transformer).
    None,
}

/// How a task is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// The encoder.
    pub encoder: EncoderConfig,
    /// Sequences are cut to this many tokens.
    pub length: usize,
    /// Updates.
    pub steps: u64,
    /// Examples per update.
    pub batch: usize,
    /// The rate.
    pub schedule: Schedule,
    /// The optimizer.
    pub adam: AdamOptions,
    /// Dropout of hidden states.
    pub dropout: f64,
}

/// More than any encoder that can be trained has.
const MOST_WIDTH: usize = 1 << 16;
const MOST_LAYERS: usize = 1 << 10;
const MOST_TOKENS: usize = 1 << 20;

impl EncoderConfig {
    /// Sizes of a layer for sequences of up to `length` tokens.
    pub(super) fn sizes(&self, length: usize) -> Sizes {
        Sizes { length, width: self.width, attention_width: self.attention_width, heads: self.heads }
    }
}

/// A training of every task.
pub type Recipes = BTreeMap<String, Training>;

const SMALL: &str = include_str!("../../configs/lra/small.json");
const BENCHMARK: &str = include_str!("../../configs/lra/benchmark.json");

/// Names of the configurations that come with the program.
pub const CONFIGURATIONS: [&str; 2] = ["small", "benchmark"];

/// A configuration by its name, or of the text of a file.
pub fn recipes(name: &str, text: Option<&str>) -> Result<Recipes, Error> {
    let text = match (text, name) {
        (Some(text), _) => text,
        (None, "small") => SMALL,
        (None, "benchmark") => BENCHMARK,
        (None, other) => {
            let names = CONFIGURATIONS.join(" and ");
            return Err(Error::new(format!(
                "no configuration is called {other:?}; there are {names}, and your own file"
            )));
        }
    };
    serde_json::from_str(text).map_err(|e| Error::new(format!("{name}: not a configuration ({e})")))
}

impl Training {
    /// Refuses what makes no sense, or more than any machine holds.
    pub fn check(&self, kind: &Kind) -> Result<(), Error> {
        let e = &self.encoder;
        let widths = [("width", e.width), ("attention_width", e.attention_width), ("mlp", e.mlp)];
        for (field, value) in widths {
            knob("configuration", field, value, 1..=MOST_WIDTH)?;
        }
        knob("configuration", "heads", e.heads, 1..=e.attention_width)?;
        knob("configuration", "layers", e.layers, 1..=MOST_LAYERS)?;
        for (field, value) in [("length", self.length), ("batch", self.batch)] {
            knob("configuration", field, value, 1..=MOST_TOKENS)?;
        }
        if !e.attention_width.is_multiple_of(e.heads) {
            return Err(Error::new(format!(
                "configuration: attention_width {} is not a multiple of {} heads",
                e.attention_width, e.heads
            )));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::new(format!("dropout {}: a number from 0 to 1 is expected", self.dropout)));
        }
        let mechanism = kind.mechanism();
        kind.check(&e.sizes(self.length))?;
        if e.causal && !mechanism.causal() {
            return Err(Error::new("this attention has no causal form; take another, or leave causal out"));
        }
        Ok(())
    }

    /// The training of a task.
    pub fn of(recipes: &Recipes, task: Task) -> Result<&Training, Error> {
        let missing = || Error::new(format!("the configuration has nothing for {}", task.name()));
        recipes.get(task.name()).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::catalogue;

    /// Every mechanism fits every task of both configurations.
    #[test]
    fn all_configurations_are_sound() {
        for name in CONFIGURATIONS {
            let recipes = recipes(name, None).unwrap();
            for task in Task::ALL {
                let training = Training::of(&recipes, task).unwrap();
                assert_eq!(training.length, task.length(), "{name} {}", task.name());
                for (_, kind) in catalogue().unwrap() {
                    training.check(&kind).unwrap();
                    kind.mechanism().fits(task.side()).unwrap();
                }
            }
        }
        assert!(recipes("large", None).unwrap_err().to_string().contains("small and benchmark"));
    }

    /// What no machine holds, or heads cannot share, is refused by name.
    #[test]
    fn absurd_sizes_are_refused() {
        let recipes = recipes("small", None).unwrap();
        let full: Kind = serde_json::from_str(r#"{"kind":"full"}"#).unwrap();
        let good = Training::of(&recipes, Task::Image).unwrap();
        type Change = fn(&mut Training, usize);
        let fields: [(&str, Change); 7] = [
            ("width", |t, value| t.encoder.width = value),
            ("attention_width", |t, value| t.encoder.attention_width = value),
            ("mlp", |t, value| t.encoder.mlp = value),
            ("heads", |t, value| t.encoder.heads = value),
            ("layers", |t, value| t.encoder.layers = value),
            ("length", |t, value| t.length = value),
            ("batch", |t, value| t.batch = value),
        ];
        for (field, change) in fields {
            for absurd in [0, 99_999_999_999, usize::MAX] {
                let mut bad = good.clone();
                change(&mut bad, absurd);
                let error = bad.check(&full).unwrap_err().to_string();
                assert!(error.contains(field) && error.contains(&absurd.to_string()), "{error}");
            }
        }
    }
}
