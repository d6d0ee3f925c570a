//! From a trial to a promise: how much to escalate, and what that guarantees.

use super::{Decision, Fingerprint, Trial};
use crate::binomial;
use serde::{Deserialize, Serialize};
use sparing_model::Error;
use std::path::Path;

/// The largest file that is read as a certificate.
const MAX_BYTES: u64 = 1 << 20;

/// What is to be promised.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Share of inputs decided as the exact model decides them.
    pub certify: f64,
    /// How sure the promise is: of trials on other inputs of the same kind, this share would give one that holds.
    pub confidence: f64,
}

/// Which inputs are run exactly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Escalate {
    /// None: the cheap executor alone keeps the promise.
    Nothing,
    /// Those whose margin is at most this.
    UpTo(f32),
    /// All: nothing can be promised of the cheap executor.
    Everything,
}

/// A promise about a cascade: for inputs like those of the trial, its decisions are the exact model's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// What is promised.
    pub target: Target,
    /// Which inputs are run exactly.
    pub escalate: Escalate,
    /// What is decided.
    pub decision: Decision,
    /// Inputs of the trial.
    pub inputs: usize,
    /// How many of them the cheap executor decided otherwise.
    pub differ: usize,
    /// How many of those are not escalated.
    pub missed: usize,
    /// Upper bound, at the confidence, of the probability that an input is decided otherwise by the cascade.
    pub bound: f64,
    /// Share of the trial's inputs that are escalated.
    pub escalated: f64,
    /// Where the trial's inputs came from.
    pub source: String,
    /// The model and the cheap configuration that this is about.
    pub about: Fingerprint,
}

impl Target {
    /// Refuses what cannot be promised.
    pub fn check(&self) -> Result<(), Error> {
        let inside = |x: f64| x > 0.0 && x < 1.0;
        if !inside(self.certify) {
            return Err(Error::new(format!("--certify {}: give a share between 0 and 1, such as 0.99", self.certify)));
        }
        if !inside(self.confidence) {
            let confidence = self.confidence;
            return Err(Error::new(format!("--confidence {confidence}: give a share between 0 and 1, such as 0.95")));
        }
        Ok(())
    }

    /// The fewest inputs with which anything can be certified.
    pub fn fewest_inputs(&self) -> usize {
        ((1.0 - self.confidence).ln() / self.certify.ln()).ceil().max(1.0) as usize
    }
}

impl Escalate {
    /// Up to this margin, or a little more: rounded up to a number that survives being written and read.
    fn up_to(need: f64) -> Escalate {
        let near = need as f32;
        let above = if f64::from(near) < need { near.next_up() } else { near };
        if above.is_finite() { Escalate::UpTo(above) } else { Escalate::Everything }
    }

    /// Whether an input with this margin is run exactly. One that is not a number is.
    pub fn wants(self, margin: f64) -> bool {
        match self {
            Escalate::Nothing => margin.is_nan(),
            Escalate::UpTo(threshold) => margin.is_nan() || margin <= f64::from(threshold),
            Escalate::Everything => true,
        }
    }
}

impl Certificate {
    /// The least escalation that keeps the promise, given a trial on inputs drawn like those to come.
    ///
    /// An input fails under a threshold `t` if it needs more than `t`, so what has to be bounded is the share of inputs
    /// whose need exceeds `t`. If `n` inputs were tried and `k` events in `n` draws prove a probability of at most
    /// `1 - certify`, the (k+1)-th largest need is such a threshold (Wilks 1941; Bates et al., "Distribution-free,
    /// risk-controlling prediction sets", 2021): one threshold is chosen by its rank, so no correction for many
    /// thresholds is due.
    pub fn new(trial: &Trial, decision: Decision, target: Target, about: Fingerprint) -> Result<Certificate, Error> {
        target.check()?;
        let inputs = trial.needed.len();
        let mut needs: Vec<f64> = trial.needed.iter().copied().filter(|need| *need > f64::NEG_INFINITY).collect();
        needs.sort_by(|a, b| b.total_cmp(a));
        let escalate = match binomial::allowed(inputs, 1.0 - target.certify, target.confidence) {
            None => Escalate::Everything,
            Some(allowed) => match needs.get(allowed) {
                None => Escalate::Nothing,
                Some(need) => Escalate::up_to(*need),
            },
        };
        let missed = needs.iter().filter(|need| !escalate.wants(**need)).count();
        let bound = match escalate {
            Escalate::Everything => 0.0,
            _ => binomial::upper(missed, inputs, target.confidence),
        };
        let escalated = trial.margins.iter().filter(|margin| escalate.wants(**margin)).count();
        Ok(Certificate {
            target,
            escalate,
            decision,
            inputs,
            differ: needs.len(),
            missed,
            bound,
            escalated: escalated as f64 / inputs.max(1) as f64,
            source: trial.source.clone(),
            about,
        })
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Certificate, Error> {
        let failed = |e: std::io::Error| Error::new(format!("{}: cannot be read ({e})", path.display()));
        let wrong =
            |what: &dyn std::fmt::Display| Error::new(format!("{}: not a certificate ({what})", path.display()));
        if std::fs::metadata(path).map_err(failed)?.len() > MAX_BYTES {
            return Err(wrong(&"it is too large"));
        }
        let bytes = std::fs::read(path).map_err(failed)?;
        let found: Certificate = serde_json::from_slice(&bytes).map_err(|e| wrong(&e))?;
        found.target.check().map_err(|e| wrong(&e))?;
        Ok(found)
    }

    /// Refuses a certificate that was made for something else.
    pub fn check_for(&self, about: &Fingerprint, decision: Decision) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::new(format!("the certificate {text}; make one with sparing eval")));
        if self.about.model != about.model {
            return refuse(
                "is for another model (weights, configuration, labels or tokenizer differ), or of another version"
                    .to_string(),
            );
        }
        if self.about.configuration != about.configuration || self.about.details != about.details {
            let (a, b) = (&self.about.configuration, &about.configuration);
            return refuse(if a == b {
                format!("is for {a} with another calibration")
            } else {
                format!("is for {a}, not for {b}")
            });
        }
        if self.decision != decision {
            return refuse("is about other decisions: a threshold, tolerance or --unanswerable differs".to_string());
        }
        Ok(())
    }
}
