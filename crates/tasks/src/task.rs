//! The tasks there are: where their files lie, which columns they have, how they are scored.

use crate::Metric;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// A task: a dataset's format, its labels and its metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Is the sentence acceptable English?
    Cola,
    /// Is the review positive?
    Sst2,
    /// Do the sentences say the same?
    Mrpc,
    /// How similar are the sentences, 0 to 5?
    Stsb,
    /// Do the questions ask the same?
    Qqp,
    /// Does the first sentence entail the second? Genres seen in training.
    Mnli,
    /// The same, genres not seen in training.
    MnliMismatched,
    /// Does the sentence answer the question?
    Qnli,
    /// Does the first sentence entail the second?
    Rte,
    /// Is the pronoun replaced correctly?
    Wnli,
    /// Find the answer in the text.
    Squad,
    /// Find the answer in the text, or say that there is none.
    SquadV2,
    /// Predict the tokens of a text.
    Language,
    /// The user's own table.
    Own,
}

/// How a GLUE task's official files are laid out.
pub(crate) struct Layout {
    /// Folder under the GLUE root.
    pub folder: &'static str,
    /// Header of the text.
    pub text: &'static str,
    /// Header of the second text.
    pub pair: Option<&'static str>,
    /// Header of the label.
    pub label: &'static str,
}

/// Which part of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// For training.
    Train,
    /// For development (validation): what GLUE scores are reported on.
    #[default]
    Dev,
    /// For the final test; GLUE publishes no labels for it.
    Test,
}

impl Task {
    /// Every task with files of its own.
    pub const ALL: [Task; 13] = [
        Task::Cola,
        Task::Sst2,
        Task::Mrpc,
        Task::Stsb,
        Task::Qqp,
        Task::Mnli,
        Task::MnliMismatched,
        Task::Qnli,
        Task::Rte,
        Task::Wnli,
        Task::Squad,
        Task::SquadV2,
        Task::Language,
    ];

    /// The task of this name; upper case, `-` and `_` do not matter.
    pub fn parse(name: &str) -> Result<Task, Error> {
        let wanted = plain(name);
        let alias = match wanted.as_str() {
            "sst" => "sst2",
            "mnlim" | "mnlimatched" => "mnli",
            "mnlimm" => "mnlimismatched",
            "squad1" | "squadv1" | "squadv11" => "squad",
            "squad2" => "squadv2",
            "lm" | "wikitext" | "wikitext2" | "wikitext103" | "ptb" => "language",
            other => other,
        };
        Task::ALL.into_iter().find(|task| plain(task.name()) == alias).ok_or_else(|| {
            let known: Vec<_> = Task::ALL.iter().map(|t| t.name()).collect();
            Error::new(format!(
                "no task is called {name:?}; there are {}, or your own file (CSV, TSV, JSONL, JSON, Parquet)",
                known.join(", ")
            ))
        })
    }

    /// The name as flags and reports have it.
    pub fn name(self) -> &'static str {
        match self {
            Task::Cola => "cola",
            Task::Sst2 => "sst2",
            Task::Mrpc => "mrpc",
            Task::Stsb => "stsb",
            Task::Qqp => "qqp",
            Task::Mnli => "mnli",
            Task::MnliMismatched => "mnli_mismatched",
            Task::Qnli => "qnli",
            Task::Rte => "rte",
            Task::Wnli => "wnli",
            Task::Squad => "squad",
            Task::SquadV2 => "squad_v2",
            Task::Language => "language",
            Task::Own => "own",
        }
    }

    /// Names of the labels in the order of the reference datasets (`datasets`' GLUE); empty for tasks without labels.
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Task::Cola => &["unacceptable", "acceptable"],
            Task::Sst2 => &["negative", "positive"],
            Task::Mrpc => &["not_equivalent", "equivalent"],
            Task::Qqp => &["not_duplicate", "duplicate"],
            Task::Mnli | Task::MnliMismatched => &["entailment", "neutral", "contradiction"],
            Task::Qnli | Task::Rte => &["entailment", "not_entailment"],
            Task::Wnli => &["not_entailment", "entailment"],
            Task::Stsb | Task::Squad | Task::SquadV2 | Task::Language | Task::Own => &[],
        }
    }

    /// What the task is scored by, the headline first. Empty where the head decides ([`Task::Own`]).
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Task::Cola => &[Metric::Matthews, Metric::Accuracy],
            Task::Mrpc | Task::Qqp => &[Metric::Accuracy, Metric::F1],
            Task::Stsb => &[Metric::Pearson, Metric::Spearman],
            Task::Sst2 | Task::Mnli | Task::MnliMismatched | Task::Qnli | Task::Rte | Task::Wnli => &[Metric::Accuracy],
            Task::Squad => &[Metric::F1, Metric::ExactMatch],
            Task::SquadV2 => &[Metric::F1, Metric::ExactMatch, Metric::AnswerableF1, Metric::UnanswerableAccuracy],
            Task::Language | Task::Own => &[],
        }
    }

    /// Present for the nine GLUE tasks.
    pub(crate) fn layout(self) -> Option<Layout> {
        let (folder, text, pair, label) = match self {
            Task::Cola => ("CoLA", "sentence", None, "label"),
            Task::Sst2 => ("SST-2", "sentence", None, "label"),
            Task::Mrpc => ("MRPC", "#1 String", Some("#2 String"), "Quality"),
            Task::Stsb => ("STS-B", "sentence1", Some("sentence2"), "score"),
            Task::Qqp => ("QQP", "question1", Some("question2"), "is_duplicate"),
            Task::Mnli | Task::MnliMismatched => ("MNLI", "sentence1", Some("sentence2"), "gold_label"),
            Task::Qnli => ("QNLI", "question", Some("sentence"), "label"),
            Task::Rte => ("RTE", "sentence1", Some("sentence2"), "label"),
            Task::Wnli => ("WNLI", "sentence1", Some("sentence2"), "label"),
            _ => return None,
        };
        Some(Layout { folder, text, pair, label })
    }
}

impl Split {
    /// The split of this name; `validation` and `valid` are `dev`.
    pub fn parse(name: &str) -> Result<Split, Error> {
        match name.to_lowercase().as_str() {
            "train" => Ok(Split::Train),
            "dev" | "valid" | "validation" => Ok(Split::Dev),
            "test" => Ok(Split::Test),
            _ => Err(Error::new(format!("no split is called {name:?}; there are train, dev, test"))),
        }
    }

    /// `train`, `dev` or `test`.
    pub fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Dev => "dev",
            Split::Test => "test",
        }
    }
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_aliases_work() {
        for task in Task::ALL {
            assert_eq!(Task::parse(task.name()).unwrap(), task);
        }
        for (alias, task) in [
            ("SST-2", Task::Sst2),
            ("MNLI-mm", Task::MnliMismatched),
            ("squad_v1.1", Task::Squad),
            ("wikitext-2", Task::Language),
        ] {
            assert_eq!(Task::parse(alias).unwrap(), task, "{alias}");
        }
        let message = Task::parse("sts").unwrap_err().to_string();
        assert!(message.starts_with("no task is called \"sts\"; there are cola, sst2"));
    }
}
