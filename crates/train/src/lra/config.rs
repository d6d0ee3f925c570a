//! What is trained and how, as data.

use crate::attention::Kind;
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
    /// Refuses what makes no sense.
    pub fn check(&self, kind: &Kind) -> Result<(), Error> {
        let e = &self.encoder;
        let sizes = [e.width, e.attention_width, e.mlp, e.heads, e.layers, self.length, self.batch];
        if sizes.contains(&0) || !e.attention_width.is_multiple_of(e.heads) {
            return Err(Error::new("a configuration of no width, or of one that the heads do not divide"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::new(format!("dropout {}: a number from 0 to 1 is expected", self.dropout)));
        }
        let mechanism = kind.mechanism();
        mechanism.check()?;
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
                }
            }
        }
        assert!(recipes("large", None).unwrap_err().to_string().contains("small and benchmark"));
    }
}
