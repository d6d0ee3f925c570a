//! The shapes that inputs come in.

use crate::inference::Input;
use serde::Deserialize;

/// One input or several.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Inputs {
    /// One text.
    Text(String),
    /// Token ids of one text.
    Ids(Vec<u32>),
    /// Several.
    Many(Vec<TextOrIds>),
}

/// A text, or its token ids.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum TextOrIds {
    /// A text.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

impl Inputs {
    /// `single` or `batch`.
    pub(crate) fn method(&self) -> &'static str {
        if matches!(self, Inputs::Many(_)) { "batch" } else { "single" }
    }

    /// The inputs in order.
    pub(crate) fn into_inputs(self) -> Vec<Input> {
        match self {
            Inputs::Text(text) => vec![Input::Text(text)],
            // What is empty has no type; text-embeddings-inference takes it for a batch, too.
            Inputs::Ids(ids) if ids.is_empty() => vec![],
            Inputs::Ids(ids) => vec![Input::Ids(ids)],
            Inputs::Many(many) => many
                .into_iter()
                .map(|one| match one {
                    TextOrIds::Text(text) => Input::Text(text),
                    TextOrIds::Ids(ids) => Input::Ids(ids),
                })
                .collect(),
        }
    }
}

/// What `/predict` takes: a text, a pair, or a batch of lists of one or two texts.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum PredictInputs {
    /// One text.
    Text(String),
    /// One text or a pair.
    One(Vec<String>),
    /// Several of those.
    Many(Vec<Vec<String>>),
}

impl PredictInputs {
    /// The inputs, and whether they were a batch. `None`: a list that is neither a text nor a pair.
    pub(crate) fn into_inputs(self) -> Option<(Vec<Input>, bool)> {
        match self {
            PredictInputs::Text(text) => Some((vec![Input::Text(text)], false)),
            PredictInputs::One(texts) if texts.is_empty() => Some((vec![], true)),
            PredictInputs::One(texts) => Some((vec![text_or_pair(texts)?], false)),
            PredictInputs::Many(many) => {
                Some((many.into_iter().map(text_or_pair).collect::<Option<Vec<Input>>>()?, true))
            }
        }
    }
}

fn text_or_pair(mut texts: Vec<String>) -> Option<Input> {
    let last = texts.pop()?;
    match (texts.pop(), texts.is_empty()) {
        (None, _) => Some(Input::Text(last)),
        (Some(first), true) => Some(Input::Pair(first, last)),
        (Some(_), false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predict(json: &str) -> Option<(Vec<Input>, bool)> {
        serde_json::from_str::<PredictInputs>(json).unwrap().into_inputs()
    }

    #[test]
    fn pairs_are_told_from_batches() {
        let text = |t: &str| Input::Text(t.to_string());
        let pair = |a: &str, b: &str| Input::Pair(a.to_string(), b.to_string());
        assert_eq!(predict("\"a\""), Some((vec![text("a")], false)));
        assert_eq!(predict("[\"a\"]"), Some((vec![text("a")], false)));
        assert_eq!(predict("[\"a\",\"b\"]"), Some((vec![pair("a", "b")], false)));
        assert_eq!(predict("[[\"a\"],[\"b\",\"c\"]]"), Some((vec![text("a"), pair("b", "c")], true)));
        assert_eq!(predict("[\"a\",\"b\",\"c\"]"), None);
        assert_eq!(predict("[[\"a\"],[]]"), None);
        assert_eq!(predict("[]"), Some((vec![], true)));
    }

    #[test]
    fn other_shapes_are_refused_in_plain_words() {
        let error = serde_json::from_str::<PredictInputs>("5").err().unwrap().to_string();
        assert!(crate::json::plainly(&error).starts_with("`inputs` is a text, a pair"), "{error}");
        let error = serde_json::from_str::<Inputs>("{}").err().unwrap().to_string();
        assert!(crate::json::plainly(&error).starts_with("`inputs` is a text, its token ids"), "{error}");
    }

    #[test]
    fn ids_are_told_from_texts() {
        let inputs = |json: &str| {
            let inputs = serde_json::from_str::<Inputs>(json).unwrap();
            (inputs.method(), inputs.into_inputs())
        };
        assert_eq!(inputs("[1,2]"), ("single", vec![Input::Ids(vec![1, 2])]));
        assert_eq!(inputs("[[1],\"a\"]"), ("batch", vec![Input::Ids(vec![1]), Input::Text("a".to_string())]));
        assert!(serde_json::from_str::<Inputs>("{}").is_err());
    }
}
