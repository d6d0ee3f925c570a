//! Which head a directory has, and the stages most families build theirs from.

use super::names::linear;
use crate::config::Config;
use crate::weights::one_line;
use crate::{Activation, Error, GlobalTokens, Head, HeadKind, HeadRows, HeadStage, Linear, Norm};

/// What a caller can ask to be put on top of the network; by default `architectures` in `config.json` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadChoice {
    /// The bare network: hidden states.
    Hidden,
    /// Sequence classification or regression; the configuration's `problem_type` and labels decide which.
    Sequence,
    /// One label per token.
    Token,
    /// Extractive question answering.
    Answer,
    /// Fill the mask.
    MaskedLm,
    /// Next token.
    CausalLm,
    /// One vector per sequence, as the `sentence-transformers` files say; mean and unit length without them.
    Embed,
}

impl HeadChoice {
    /// The head whose outputs are of this kind.
    pub fn of(kind: HeadKind) -> HeadChoice {
        match kind {
            HeadKind::Hidden => HeadChoice::Hidden,
            HeadKind::Classify | HeadKind::MultiLabel | HeadKind::Regress => HeadChoice::Sequence,
            HeadKind::TokenClassify => HeadChoice::Token,
            HeadKind::Answer => HeadChoice::Answer,
            HeadKind::MaskedLm => HeadChoice::MaskedLm,
            HeadKind::CausalLm => HeadChoice::CausalLm,
            HeadKind::Embed { .. } => HeadChoice::Embed,
        }
    }

    /// Reads `architectures`. `family` is how Python's class names of this family begin.
    pub(crate) fn from_config(config: &Config, family: &str) -> Result<HeadChoice, Error> {
        let Some(value) = config.get("architectures") else { return Ok(HeadChoice::Hidden) };
        let class = value.get(0).and_then(serde_json::Value::as_str);
        let class = class.ok_or_else(|| config.refuse("architectures", "a list with one class name is expected"))?;
        Ok(match class.strip_prefix(family).unwrap_or(class) {
            "Model" => HeadChoice::Hidden,
            "ForSequenceClassification" => HeadChoice::Sequence,
            "ForTokenClassification" => HeadChoice::Token,
            "ForQuestionAnswering" if family == "XLNet" => return Err(super::xlnet::beam()),
            "ForQuestionAnswering" | "ForQuestionAnsweringSimple" => HeadChoice::Answer,
            // What pre-training leaves behind: BERT's predicts masked words, ELECTRA's discriminator is used bare.
            "ForPreTraining" if family == "Electra" => HeadChoice::Hidden,
            "ForMaskedLM" | "ForPreTraining" => HeadChoice::MaskedLm,
            "LMHeadModel" | "ForCausalLM" => HeadChoice::CausalLm,
            _ => {
                return Err(Error::new(format!(
                    "config.json: \"architectures\" is \"{}\"; supported are the bare model and the heads ForSequenceClassification, \
                     ForTokenClassification, ForQuestionAnswering, ForMaskedLM and LMHeadModel of its family",
                    one_line(class)
                )));
            }
        })
    }
}

/// A linear map alone.
pub(crate) fn plain(linear: Linear) -> HeadStage {
    HeadStage { linear: Some(linear), activation: Activation::Identity, norm: None }
}

/// A linear map and a non-linearity.
pub(crate) fn activated(linear: Linear, activation: Activation) -> HeadStage {
    HeadStage { linear: Some(linear), activation, norm: None }
}

/// Linear map, non-linearity, norm: what stands before a vocabulary projection.
pub(crate) fn transform(linear: Linear, activation: Activation, norm: Norm) -> HeadStage {
    HeadStage { linear: Some(linear), activation, norm: Some(norm) }
}

/// Hidden states as they are.
pub(crate) fn hidden() -> Head {
    head(HeadRows::All, vec![], HeadKind::Hidden)
}

/// A head without labels.
pub(crate) fn head(rows: HeadRows, stages: Vec<HeadStage>, kind: HeadKind) -> Head {
    Head { rows, stages, kind, labels: vec![], global_tokens: GlobalTokens::None }
}

/// Sequence classification or regression: `before`, then `classifier` to the labels.
pub(crate) fn sequence(
    config: &Config,
    rows: HeadRows,
    before: Vec<HeadStage>,
    classifier: &str,
    width: usize,
) -> Result<Head, Error> {
    let labels = config.labels()?;
    let kind = match (config.text("problem_type", "")?, labels.len()) {
        ("regression", _) | ("", 1) => HeadKind::Regress,
        ("single_label_classification" | "", _) => HeadKind::Classify,
        ("multi_label_classification", _) => HeadKind::MultiLabel,
        _ => {
            let why = "supported are single_label_classification, multi_label_classification and regression";
            return Err(config.refuse("problem_type", why));
        }
    };
    let mut stages = before;
    stages.push(plain(linear(classifier, width, labels.len())));
    Ok(Head { rows, stages, kind, labels, global_tokens: GlobalTokens::None })
}

/// One label per token.
pub(crate) fn token(config: &Config, classifier: &str, width: usize) -> Result<Head, Error> {
    let labels = config.labels()?;
    let stages = vec![plain(linear(classifier, width, labels.len()))];
    Ok(Head { labels, ..head(HeadRows::All, stages, HeadKind::TokenClassify) })
}

/// Start and end per token.
pub(crate) fn answer(name: &str, width: usize) -> Head {
    head(HeadRows::All, vec![plain(linear(name, width, 2))], HeadKind::Answer)
}

/// The error for a head the family does not have.
pub(crate) fn none(family: &str, choice: HeadChoice) -> Error {
    Error::new(format!("{family} models have no {choice:?} head; ask for another one"))
}
