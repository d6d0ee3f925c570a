//! What is trained and how, as data.

use crate::attention::{Kind, Sizes, catalogue, knob};
use crate::{AdamOptions, Schedule, Warmup};
use serde::{Deserialize, Serialize};
use sparing_model::Error;
use sparing_tasks::lra::Task;
use std::collections::BTreeMap;
use std::mem::discriminant;

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
    /// Mechanisms by name whose knobs are not those of the catalogue here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attention: BTreeMap<String, Kind>,
}

/// More than any encoder that can be trained has.
const MOST_WIDTH: usize = 1 << 16;
const MOST_LAYERS: usize = 1 << 10;
const MOST_TOKENS: usize = 1 << 20;
const MOST_RATE: f64 = 100.0;

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
    let recipes: Recipes =
        serde_json::from_str(text).map_err(|e| Error::new(format!("{name}: not a configuration ({e})")))?;
    recipes.iter().try_for_each(|(task, training)| training.known(&format!("{name}: {task}")))?;
    Ok(recipes)
}

impl Training {
    /// Refuses knobs of mechanisms that the catalogue does not have, or has as another kind: nobody would ever ask for them.
    fn known(&self, place: &str) -> Result<(), Error> {
        let known = catalogue()?;
        for (name, kind) in &self.attention {
            let same = |other: &Kind| discriminant(other) == discriminant(kind);
            if !known.iter().any(|(other, usual)| other == name && same(usual)) {
                return Err(Error::new(format!(
                    "{place}: attention {name:?} is no mechanism of the catalogue, or of another kind there; give your own to --attention"
                )));
            }
        }
        Ok(())
    }

    /// The mechanisms of the catalogue, with the knobs that they have here.
    pub fn catalogue(&self) -> Result<Vec<(String, Kind)>, Error> {
        let own = |(name, usual): (String, Kind)| {
            let kind = self.attention.get(&name).cloned().unwrap_or(usual);
            (name, kind)
        };
        Ok(catalogue()?.into_iter().map(own).collect())
    }

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
        self.check_rate()?;
        let mechanism = kind.mechanism();
        kind.check(&e.sizes(self.length))?;
        if e.causal && !mechanism.causal() {
            return Err(Error::new("this attention has no causal form; take another, or leave causal out"));
        }
        Ok(())
    }

    /// Refuses a rate that goes up the loss, or nowhere.
    pub fn check_rate(&self) -> Result<(), Error> {
        let Schedule { rate, warmup, .. } = self.schedule;
        if !(rate > 0.0 && rate <= MOST_RATE) {
            return Err(Error::new(format!("rate {rate}: a number above 0 and up to {MOST_RATE} is expected (--lr)")));
        }
        match warmup {
            Warmup::Ratio(ratio) if !(0.0..=1.0).contains(&ratio) => {
                Err(Error::new(format!("warmup ratio {ratio}: a number from 0 to 1 is expected")))
            }
            _ => Ok(()),
        }
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

    /// Every mechanism fits every task of both configurations.
    #[test]
    fn all_configurations_are_sound() {
        for name in CONFIGURATIONS {
            let recipes = recipes(name, None).unwrap();
            for task in Task::ALL {
                let training = Training::of(&recipes, task).unwrap();
                assert_eq!(training.length, task.length(), "{name} {}", task.name());
                for (_, kind) in training.catalogue().unwrap() {
                    training.check(&kind).unwrap();
                    kind.mechanism().fits(task.side()).unwrap();
                }
            }
        }
        assert!(recipes("large", None).unwrap_err().to_string().contains("small and benchmark"));
    }

    /// The benchmark's own configuration has the arena's knobs where they differ from the catalogue's; the small one has none.
    #[test]
    fn the_benchmark_has_its_own_knobs() {
        let of = |name: &str, task: Task, mechanism: &str| {
            let recipes = recipes(name, None).unwrap();
            let all = Training::of(&recipes, task).unwrap().catalogue().unwrap();
            let (_, kind) = all.into_iter().find(|(name, _)| name == mechanism).unwrap();
            serde_json::to_value(kind).unwrap()
        };
        for task in Task::ALL {
            let benchmark = |mechanism: &str| of("benchmark", task, mechanism);
            let block = if task.side().is_some() { 64 } else { 50 };
            assert_eq!(benchmark("local")["block"], block, "{}", task.name());
            assert_eq!(benchmark("linformer")["rank"], 16);
            assert_eq!((&benchmark("reformer")["buckets"], &benchmark("reformer")["hashes"]), (&10.into(), &1.into()));
            assert_eq!(benchmark("sinkhorn")["block"], 50);
            assert_eq!(benchmark("longformer")["window"], 512);
            assert_eq!((&benchmark("bigbird")["block"], &benchmark("bigbird")["random"]), (&64.into(), &3.into()));
            assert_eq!(benchmark("performer")["features"], 256);
            assert_eq!(benchmark("synthesizer-factorised-random")["rank"], 32);
            assert_eq!(of("small", task, "linformer")["rank"], 128);
        }
    }

    /// Knobs that nothing would ask for are a mistake.
    #[test]
    fn unknown_mechanisms_are_refused() {
        let of = |name: &str, kind: &str| {
            let mut all: serde_json::Value = serde_json::from_str(SMALL).unwrap();
            all["image"]["attention"][name] = serde_json::from_str(kind).unwrap();
            recipes("mine.json", Some(&all.to_string()))
        };
        assert!(of("local", r#"{"kind":"local","block":3}"#).is_ok());
        for (name, kind) in [("locale", r#"{"kind":"local","block":3}"#), ("local", r#"{"kind":"linear"}"#)] {
            let error = of(name, kind).unwrap_err().to_string();
            assert!(error.contains("mine.json: image") && error.contains(name), "{error}");
        }
    }

    #[test]
    fn rates_that_train_nothing_are_refused() {
        let recipes = recipes("small", None).unwrap();
        let full: Kind = serde_json::from_str(r#"{"kind":"full"}"#).unwrap();
        let good = Training::of(&recipes, Task::Image).unwrap();
        for absurd in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            let mut bad = good.clone();
            bad.schedule.rate = absurd;
            let error = bad.check(&full).unwrap_err().to_string();
            assert!(error.contains("--lr") && error.contains(&absurd.to_string()), "{error}");
        }
        let mut bad = good.clone();
        bad.schedule.warmup = Warmup::Ratio(-0.5);
        assert!(bad.check(&full).unwrap_err().to_string().contains("warmup"));
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
