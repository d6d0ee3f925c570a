//! The part of a plan that says how precisely attention's values are computed (Monte-Carlo Attention, Kim and Ko 2022,
//! and its heirs).

use crate::{Architecture, Error, Keep, Keys, KeysBy, Tokens, Wanted};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;

/// What is economised in attention; empty: nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionPlan {
    /// Values computed as precisely as attention needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mca: Option<Mca>,
    /// Tokens that bring little to others are dropped, or skip feed-forward blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// Attention over a few keys that are chosen first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Keys>,
}

/// Values computed as precisely as attention needs them: per head and token
/// `r = (n · pooled attention / alpha)²` of `d` inputs are paid for (equation 9 of the paper).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mca {
    /// The error coefficient: small is precise, above 0.
    pub alpha: f32,
    /// How the budget is spent.
    #[serde(default)]
    pub sampler: Sampler,
    /// How the attention that a token gets from all queries becomes one number.
    #[serde(default)]
    pub pooling: Pooling,
    /// Seed of the draws.
    #[serde(default)]
    pub seed: u64,
    /// What n is.
    #[serde(default)]
    pub length: Length,
    /// Draw even where the exact product would be as fast. Off by default: a token whose budget is three quarters of the
    /// exact product's cost, and a sequence that would save less than a quarter, are computed exactly (half and so on for
    /// precisions whose exact product is faster).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Layers that differ: another alpha, or `"exact"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub layers: BTreeMap<usize, LayerAlpha>,
}

/// How a budget is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampler {
    /// Independent draws, probabilities from the weights' norms: the paper's.
    #[default]
    Paper,
    /// The same around the calibration mean, probabilities from norms and calibration spread.
    Calibrated,
    /// The same without replacement.
    Systematic,
    /// The most important directions of the calibration data, nothing random.
    Graded,
    /// The rival: as many tokens exactly as the budget buys, the mean for the others.
    Mean,
    /// The rival: as many tokens exactly as the budget buys, the others in int8.
    Int8,
}

impl Sampler {
    /// Whether it needs a calibration.
    pub fn needs_calibration(self) -> bool {
        !matches!(self, Sampler::Paper | Sampler::Int8)
    }

    /// The name in plans; on the command line the paper's is also `mca`.
    pub fn name(self) -> &'static str {
        match self {
            Sampler::Paper => "paper",
            Sampler::Calibrated => "calibrated",
            Sampler::Systematic => "systematic",
            Sampler::Graded => "graded",
            Sampler::Mean => "mean",
            Sampler::Int8 => "int8",
        }
    }
}

/// How the attention that a token gets from all queries becomes one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The largest: the paper's.
    #[default]
    Max,
    /// The mean.
    Mean,
    /// The median.
    Median,
}

/// What n is in equation 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Length {
    /// The tokens of the sequence.
    #[default]
    Actual,
    /// What the authors pad every input to (128): to reproduce their figures.
    Padded(usize),
}

/// A layer that differs from the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LayerAlpha {
    /// Computed exactly.
    Exact,
    /// With this alpha.
    Alpha(f32),
}

impl Serialize for LayerAlpha {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            LayerAlpha::Exact => serializer.serialize_str("exact"),
            LayerAlpha::Alpha(alpha) => serializer.serialize_f32(*alpha),
        }
    }
}

impl<'de> Deserialize<'de> for LayerAlpha {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(f32),
            Text(String),
        }
        match Either::deserialize(deserializer) {
            Ok(Either::Number(alpha)) => Ok(LayerAlpha::Alpha(alpha)),
            Ok(Either::Text(text)) if text == "exact" => Ok(LayerAlpha::Exact),
            _ => Err(serde::de::Error::custom("a layer has a number, its alpha, or \"exact\"")),
        }
    }
}

impl Mca {
    /// The paper's sampler with this alpha.
    pub fn new(alpha: f32) -> Mca {
        Mca {
            alpha,
            sampler: Sampler::default(),
            pooling: Pooling::default(),
            seed: 0,
            length: Length::default(),
            strict: false,
            layers: BTreeMap::new(),
        }
    }

    /// A layer's alpha; `None`: the layer is exact.
    pub fn alpha_of(&self, layer: usize) -> Option<f32> {
        match self.layers.get(&layer) {
            None => Some(self.alpha),
            Some(LayerAlpha::Alpha(alpha)) => Some(*alpha),
            Some(LayerAlpha::Exact) => None,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let others = self.layers.values().filter_map(|layer| match layer {
            LayerAlpha::Alpha(alpha) => Some(*alpha),
            LayerAlpha::Exact => None,
        });
        if let Some(alpha) = others.chain([self.alpha]).find(|alpha| !(alpha.is_finite() && *alpha > 0.0)) {
            return Err(Error::new(format!("attention: alpha is {alpha}; a number above 0 is needed, such as 0.4")));
        }
        match self.length {
            Length::Padded(0) => Err(Error::new("attention: padded to 0 tokens; 1 at least, the authors' is 128")),
            _ => Ok(()),
        }
    }
}

impl Architecture {
    /// Why nothing can be economised by what tokens attend to, if so.
    pub fn no_shares(&self) -> Option<&'static str> {
        let network = self.layers.iter().any(|layer| layer.attention.network.is_some());
        network.then_some(
            "values, tokens and keys are economised by softmax's shares, and this model has a network in its place",
        )
    }
}

impl AttentionPlan {
    /// Whether nothing is economised.
    pub fn is_exact(&self) -> bool {
        *self == AttentionPlan::default()
    }

    /// Checks the numbers.
    pub fn check(&self) -> Result<(), Error> {
        self.mca.as_ref().map_or(Ok(()), Mca::check)?;
        self.tokens.as_ref().map_or(Ok(()), Tokens::check)?;
        self.keys.as_ref().map_or(Ok(()), Keys::check)
    }

    /// Checks that there will be a result of everything that is wanted: tokens that leave have none.
    pub fn check_wanted(&self, wanted: &Wanted) -> Result<(), Error> {
        if self.tokens.as_ref().is_some_and(Tokens::leaves_fewer) && *wanted != Wanted::Head {
            return Err(Error::new(
                "attention: results of every token are wanted, but tokens leave; use skip or exact",
            ));
        }
        Ok(())
    }

    /// Checks that a network can do it.
    pub fn check_for(&self, architecture: &Architecture) -> Result<(), Error> {
        self.check()?;
        if let Some(why) = architecture.no_shares().filter(|_| !self.is_exact()) {
            return Err(Error::new(format!("attention: {why}; use --attention exact")));
        }
        self.tokens.as_ref().map_or(Ok(()), |tokens| tokens.check_for(architecture))?;
        self.keys.as_ref().map_or(Ok(()), |keys| keys.check_for(architecture))?;
        self.check_together(architecture)?;
        let Some(mca) = &self.mca else { return Ok(()) };
        let layers = architecture.layers.len();
        if let Some(layer) = mca.layers.keys().find(|layer| **layer >= layers) {
            return Err(Error::new(format!("attention: there is no layer {layer}; the model has {layers}, from 0 on")));
        }
        let able = |layer: &crate::Layer| layer.bottleneck.is_none();
        if !architecture.layers.iter().all(able) {
            return Err(Error::new(
                "attention: values of layers with a bottleneck (MobileBERT) cannot be economised; use --attention exact",
            ));
        }
        Ok(())
    }

    /// Values within budgets and tokens that leave or skip go by all probabilities of a layer, which are never computed
    /// where keys are chosen: a layer has one or the other.
    fn check_together(&self, architecture: &Architecture) -> Result<(), Error> {
        let Some(keys) = &self.keys else { return Ok(()) };
        let chooses = |layer: &usize| keys.of(*layer, architecture).is_some();
        for layer in (0..architecture.layers.len()).filter(chooses) {
            let refuse = |what: &str, other: &str| {
                Err(Error::new(format!(
                    "attention: layer {layer} chooses keys and {what}, which goes by all keys; add keys{layer}=exact or {other}"
                )))
            };
            if self.mca.as_ref().is_some_and(|mca| mca.alpha_of(layer).is_some()) {
                return refuse("computes values within budgets", &format!("layer{layer}=exact"));
            }
            if let Some((name, nothing)) = self.tokens.as_ref().and_then(|tokens| tokens.measured_in(layer)) {
                return refuse(&format!("{name}s tokens"), &format!("{name}{layer}={nothing}"));
            }
        }
        Ok(())
    }
}

/// `exact`, or `SAMPLER:ALPHA`, with settings after commas: `graded:0.4`, `mca:0.4,seed=3,pooling=mean,padded=128,strict`,
/// `mca:0.4,layer0=exact,layer5=0.2`, `exact,drop=0.5,drop0=0`, `exact,keep=0.8,keep3=0.5`, `exact,merge=0.1`, `graded:0.4,skip=0.3`, `exact,keys=64,by=norm,keys0=exact`.
/// `sign:64` is short for `exact,keys=64,by=sign`, and so for what else keys are chosen by.
impl FromStr for AttentionPlan {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |what: String| Error::new(format!("--attention {text}: {what}"));
        let number = |what: &str, text: &str| {
            text.parse::<f32>().map_err(|_| wrong(format!("{what} is \"{text}\"; a number is expected")))
        };
        let mut settings = text.split(',');
        let first = settings.next().unwrap_or_default();
        let mut plan = AttentionPlan::default();
        match first.split_once(':').and_then(|(name, keep)| Some((KeysBy::named(name)?, keep))) {
            Some((by, keep)) => {
                let expected = || wrong(format!("keys is \"{keep}\"; a number of keys or auto is expected"));
                plan.keys = Some(Keys { by, ..Keys::new(Keep::named(keep).ok_or_else(expected)?) });
            }
            None => plan.mca = sampler(first).map_err(wrong)?,
        }
        for setting in settings {
            let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
            if Tokens::claims(key) {
                let tokens = plan.tokens.get_or_insert_default();
                tokens.set(key, number(key, value)?).ok_or_else(|| wrong(unknown(key)))?;
            } else if let Some(done) = Keys::set(&mut plan.keys, key, value) {
                done.map_err(wrong)?;
            } else if let Some(mca) = &mut plan.mca {
                mca.set(key, value).map_err(wrong)?;
            } else {
                return Err(wrong(unknown(key)));
            }
        }
        plan.check().map_err(|e| wrong(e.to_string().trim_start_matches("attention: ").to_string()))?;
        Ok(plan)
    }
}

/// What to say to a setting that does not exist.
fn unknown(key: &str) -> String {
    format!(
        "no setting is called \"{key}\"; use drop, keep, merge, skip, dropN, keepN, mergeN, skipN, keys, keysN, by, ends or threshold, and with a sampler seed, pooling, padded, strict or layerN"
    )
}

/// Reads `exact` or `SAMPLER:ALPHA`.
fn sampler(text: &str) -> Result<Option<Mca>, String> {
    if text == "exact" {
        return Ok(None);
    }
    let (name, alpha) = text.split_once(':').ok_or(
        "exact, mca:ALPHA, calibrated:ALPHA, systematic:ALPHA, graded:ALPHA, mean:ALPHA, int8:ALPHA or sign:KEYS is expected",
    )?;
    let alpha = alpha.parse().map_err(|_| format!("alpha is \"{alpha}\"; a number is expected"))?;
    let sampler = match name {
        "mca" | "paper" => Sampler::Paper,
        "calibrated" => Sampler::Calibrated,
        "systematic" => Sampler::Systematic,
        "graded" => Sampler::Graded,
        "mean" => Sampler::Mean,
        "int8" => Sampler::Int8,
        _ => {
            return Err(format!(
                "no sampler is called \"{name}\"; use mca, calibrated, systematic, graded, mean or int8"
            ));
        }
    };
    Ok(Some(Mca { sampler, ..Mca::new(alpha) }))
}

impl Mca {
    /// Reads a setting of the command line.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let whole = || value.parse::<u64>().map_err(|_| format!("{key}={value}: a whole number is expected"));
        match key {
            "seed" => self.seed = whole()?,
            "padded" => self.length = Length::Padded(whole()? as usize),
            "strict" if value.is_empty() => self.strict = true,
            "pooling" => {
                self.pooling = match value {
                    "max" => Pooling::Max,
                    "mean" => Pooling::Mean,
                    "median" => Pooling::Median,
                    _ => return Err(format!("pooling is max, mean or median, not \"{value}\"")),
                }
            }
            _ => {
                let Some(Ok(layer)) = key.strip_prefix("layer").map(str::parse::<usize>) else {
                    return Err(unknown(key));
                };
                let number = || value.parse().map_err(|_| format!("{key} is \"{value}\"; a number is expected"));
                let alpha = if value == "exact" { LayerAlpha::Exact } else { LayerAlpha::Alpha(number()?) };
                self.layers.insert(layer, alpha);
            }
        }
        Ok(())
    }
}

/// As [`AttentionPlan::from_str`] reads it.
impl std::fmt::Display for AttentionPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.mca {
            Some(mca) => mca.fmt(f)?,
            None => f.write_str("exact")?,
        }
        self.tokens.as_ref().map_or(Ok(()), |tokens| tokens.fmt(f))?;
        self.keys.as_ref().map_or(Ok(()), |keys| keys.fmt(f))
    }
}

/// As [`AttentionPlan::from_str`] reads it.
impl std::fmt::Display for Mca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mca = self;
        let name = if mca.sampler == Sampler::Paper { "mca" } else { mca.sampler.name() };
        write!(f, "{name}:{}", mca.alpha)?;
        match mca.pooling {
            Pooling::Max => {}
            Pooling::Mean => f.write_str(",pooling=mean")?,
            Pooling::Median => f.write_str(",pooling=median")?,
        }
        if let Length::Padded(length) = mca.length {
            write!(f, ",padded={length}")?;
        }
        if mca.strict {
            f.write_str(",strict")?;
        }
        if mca.seed != 0 {
            write!(f, ",seed={}", mca.seed)?;
        }
        for (layer, alpha) in &mca.layers {
            match alpha {
                LayerAlpha::Exact => write!(f, ",layer{layer}=exact")?,
                LayerAlpha::Alpha(alpha) => write!(f, ",layer{layer}={alpha}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_and_plans_say_the_same() {
        for text in [
            "exact",
            "mca:0.4",
            "graded:1,pooling=mean,padded=128,strict,seed=3,layer0=exact,layer5=0.25",
            "exact,drop=0.5,drop0=0,skip=0.25,skip3=0.5",
            "exact,drop=0.5,keep=0.8,keep3=12,merge=0.1,merge2=0.5,skip=0.25",
            "graded:0.4,keep=1,keep1=0.5",
            "graded:0.4,skip=0.3",
            "exact,keys=64",
            "exact,keys=auto,by=value,threshold=0.5,ends,keys0=exact,keys3=32,keys4=auto",
            "graded:0.4,layer1=exact,skip=0.3,keys=8,by=grouped",
        ] {
            let plan: AttentionPlan = text.parse().unwrap();
            assert_eq!(plan.to_string(), text);
            let json = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<AttentionPlan>(&json).unwrap(), plan, "{json}");
        }
        let plan: AttentionPlan =
            serde_json::from_str(r#"{"mca": {"alpha": 0.4, "length": {"padded": 128}}}"#).unwrap();
        assert_eq!(plan.to_string(), "mca:0.4,padded=128");
        assert_eq!("exact,keep3=0.5".parse::<AttentionPlan>().unwrap().to_string(), "exact,keep=1,keep3=0.5");
        let json = r#"{"tokens": {"drop": {"cut": 0.5}, "keep": {"all": 1, "layers": {"2": 0.7}}}}"#;
        let plan: AttentionPlan = serde_json::from_str(json).unwrap();
        assert_eq!(plan.to_string(), "exact,drop=0.5,keep=1,keep2=0.7");
        let json = r#"{"keys": {"by": "sign", "keep": 64, "layers": {"0": "exact", "3": 32}}}"#;
        let plan: AttentionPlan = serde_json::from_str(json).unwrap();
        assert_eq!(plan.to_string(), "exact,keys=64,keys0=exact,keys3=32");
        assert_eq!("norm:auto,ends".parse::<AttentionPlan>().unwrap().to_string(), "exact,keys=auto,by=norm,ends");
    }

    #[test]
    fn what_makes_no_sense_is_said_in_one_line() {
        for (text, part) in [
            ("mca", "mca:ALPHA"),
            ("mca:", "a number is expected"),
            ("mca:0", "alpha is 0"),
            ("mca:-1", "alpha is -1"),
            ("mca:nan", "alpha is NaN"),
            ("mca:inf", "alpha is inf"),
            ("best:0.4", "no sampler is called \"best\""),
            ("mca:0.4,seed=x", "whole number"),
            ("mca:0.4,pooling=min", "max, mean or median"),
            ("mca:0.4,padded=0", "padded to 0"),
            ("mca:0.4,layerx=1", "no setting"),
            ("mca:0.4,layer1=0", "alpha is 0"),
            ("exact,drop=-1", "drop is -1"),
            ("exact,skip=nan", "skip is NaN"),
            ("exact,drop", "a number is expected"),
            ("exact,dropx=1", "no setting"),
            ("exact,drop1x=1", "no setting"),
            ("exact,keep=0", "keep is 0"),
            ("exact,keep=1.5", "or a count"),
            ("exact,keep=0.5,keep2=nan", "keep is NaN"),
            ("exact,keepx=1", "no setting"),
            ("exact,keep", "a number is expected"),
            ("exact,merge=0.6", "merge is 0.6"),
            ("exact,merge=-0.1", "from 0 to 0.5"),
            ("exact,merge1=nan", "merge is NaN"),
            ("exact,merger=0.1", "no setting"),
            ("exact,seed=1", "no setting"),
            ("exact,keys", "a number of keys or auto"),
            ("exact,keys=-1", "a number of keys or auto"),
            ("exact,keys=0", "keys is 0"),
            ("sign:0", "keys is 0"),
            ("sign:many", "a number of keys or auto"),
            ("exact,keys=8,keys1=x", "or exact"),
            ("exact,keys=8,keysx=1", "no setting"),
            ("exact,keys=8,by=best", "sign, norm, value or grouped"),
            ("exact,keys=8,threshold=nan", "threshold is NaN"),
            ("exact,by=norm", "must come before"),
            ("exact,keys=8,ends=1", "takes no value"),
        ] {
            let message = text.parse::<AttentionPlan>().unwrap_err().to_string();
            assert!(message.contains(part) && !message.contains('\n'), "{text}: {message}");
        }
        for json in [
            r#"{"mca": {"alpha": 0.4, "layers": {"1": "none"}}}"#,
            r#"{"mca": {}}"#,
            r#"{"mca": {"alpha": 0.4, "sampler": "x"}}"#,
            r#"{"mcq": {"alpha": 0.4}}"#,
            r#"{"keys": {"by": "sign"}}"#,
            r#"{"keys": {"keep": -1}}"#,
            r#"{"keys": {"keep": 8, "layers": {"0": "never"}}}"#,
        ] {
            assert!(serde_json::from_str::<AttentionPlan>(json).is_err(), "{json}");
        }
    }
}
