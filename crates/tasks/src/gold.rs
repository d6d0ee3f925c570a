//! From labels as files spell them to numbers in the model's order.

use crate::dataset::{Dataset, Example, Label};
use sparing_model::{Error, HeadKind};

/// What is right for an example, in the model's terms.
#[derive(Debug, Clone, PartialEq)]
pub enum Gold {
    /// The number of the right label.
    Class(usize),
    /// The numbers of the right labels, ascending.
    Labels(Vec<usize>),
    /// The right number.
    Score(f64),
    /// The number of the right label of every word, and the words' byte ranges.
    Tags(Vec<usize>, Vec<(usize, usize)>),
    /// Accepted answers.
    Answers(Vec<String>),
    /// A text is its own target.
    Text,
}

impl Gold {
    /// Whether a text is its own target for this head: labels are neither needed nor looked at.
    pub fn is_text(kind: HeadKind) -> bool {
        matches!(kind, HeadKind::CausalLm | HeadKind::MaskedLm)
    }
}

/// What to do with a model that embeds, where there is no similarity of two texts to score it by.
pub(crate) const NO_CLASSIFIER: &str = "this model embeds texts and has no classifier: make one with sparing train finetune, \
                                        or give pairs with a similarity (--pair, a number in --label)";

impl Dataset {
    /// What is right for each example, in the order of the model's labels. What the user should be told is added to `notes`.
    pub fn gold(&self, kind: HeadKind, labels: &[String], notes: &mut Vec<String>) -> Result<Vec<Gold>, Error> {
        let names = Names::new(self, kind, labels, notes)?;
        self.examples.iter().map(|example| self.one(example, kind, &names)).collect()
    }

    fn one(&self, example: &Example, kind: HeadKind, names: &Names) -> Result<Gold, Error> {
        let wrong = |what: String| {
            let column = &self.label_column;
            let column = if column.is_empty() { String::new() } else { format!(", column {column}") };
            Error::new(format!("{}{column}: {what}", self.at(example)))
        };
        let one = |text: &str| names.find(text).ok_or_else(|| wrong(names.unknown(text)));
        match (kind, &example.label) {
            (kind, _) if Gold::is_text(kind) => Ok(Gold::Text),
            (_, Label::None) => Err(self.no_label_column().unwrap_or_else(|| {
                wrong("no label, so there is nothing to score against (name the column with --label)".into())
            })),
            (HeadKind::Classify, Label::One(text)) => Ok(Gold::Class(one(text)?)),
            (HeadKind::Classify, Label::Many(list)) if list.len() == 1 => Ok(Gold::Class(one(&list[0])?)),
            (HeadKind::MultiLabel, Label::One(text)) => {
                let parts = text.split('|').map(str::trim).filter(|p| !p.is_empty());
                set(parts.map(one).collect::<Result<_, _>>()?)
            }
            (HeadKind::MultiLabel, Label::Many(list)) => set(list.iter().map(|t| one(t)).collect::<Result<_, _>>()?),
            (HeadKind::Regress | HeadKind::Embed { .. }, Label::One(text)) => match text.parse::<f64>() {
                Ok(score) if score.is_finite() => Ok(Gold::Score(score)),
                _ if kind != HeadKind::Regress => {
                    Err(wrong(format!("{} is not a number; {NO_CLASSIFIER}", short(text))))
                }
                _ => Err(wrong(format!("{} is not a number", short(text)))),
            },
            (HeadKind::TokenClassify, Label::Tags { words, tags }) => {
                let tags = tags.iter().map(|t| one(t)).collect::<Result<_, _>>()?;
                Ok(Gold::Tags(tags, words.clone()))
            }
            (HeadKind::Answer, Label::Answers(answers)) => {
                Ok(Gold::Answers(answers.iter().map(|a| a.text.clone()).collect()))
            }
            (HeadKind::Embed { .. }, _) => Err(wrong(NO_CLASSIFIER.into())),
            (kind, _) => {
                Err(wrong(format!("labels of this kind cannot be scored with a model that {}", what_it_does(kind))))
            }
        }
    }
}

fn set(mut labels: Vec<usize>) -> Result<Gold, Error> {
    labels.sort_unstable();
    labels.dedup();
    Ok(Gold::Labels(labels))
}

/// What a model with this head does, to be continued after "a model that".
pub(crate) fn what_it_does(kind: HeadKind) -> &'static str {
    match kind {
        HeadKind::Hidden => "gives hidden states",
        HeadKind::Classify => "chooses one label",
        HeadKind::MultiLabel => "chooses any number of labels",
        HeadKind::Regress => "predicts a number",
        HeadKind::TokenClassify => "labels every word",
        HeadKind::Answer => "answers questions",
        HeadKind::MaskedLm => "fills masks",
        HeadKind::CausalLm => "predicts the next token",
        HeadKind::Embed { .. } => "embeds texts",
    }
}

/// The names a label may have, and the model's number for each.
struct Names {
    /// Plain names in the order of the file's numbers.
    names: Vec<String>,
    /// From the file's number to the model's.
    order: Vec<usize>,
    shown: String,
}

impl Names {
    fn new(dataset: &Dataset, kind: HeadKind, model: &[String], notes: &mut Vec<String>) -> Result<Names, Error> {
        let task = dataset.task.labels();
        let shown = list(model);
        let same_order: Vec<usize> = (0..model.len()).collect();
        let plain_model: Vec<String> = model.iter().map(|l| plain(l)).collect();
        if task.is_empty() || kind != HeadKind::Classify {
            return Ok(Names { names: plain_model, order: same_order, shown });
        }
        if task.len() != model.len() {
            return Err(Error::new(format!(
                "the task {} has {} labels ({}), but the model has {} ({shown})",
                dataset.task.name(),
                task.len(),
                task.join(", "),
                model.len(),
            )));
        }
        // The reference does the same: the model's own names decide, and if they are others, the order does.
        let by_name: Option<Vec<usize>> =
            task.iter().map(|t| plain_model.iter().position(|m| *m == plain(t))).collect();
        if by_name.is_none() && !model.iter().enumerate().all(|(i, l)| generic(l, i)) {
            notes.push(format!(
                "the model's labels ({shown}) are not called like the task's ({}): taken in that order",
                task.join(", ")
            ));
        }
        Ok(Names { names: task.iter().map(|t| plain(t)).collect(), order: by_name.unwrap_or(same_order), shown })
    }

    /// By name, `LABEL_n` or number.
    fn find(&self, text: &str) -> Option<usize> {
        let wanted = plain(text);
        let number = || numbered(&wanted).filter(|number| *number < self.order.len());
        let truth = || match (self.order.len(), wanted.as_str()) {
            (2, "false") => Some(0),
            (2, "true") => Some(1),
            _ => None,
        };
        let position = self.names.iter().position(|name| *name == wanted);
        Some(self.order[position.or_else(number).or_else(truth)?])
    }

    fn unknown(&self, text: &str) -> String {
        let Names { order, shown, .. } = self;
        let (label, count) = (short(text), order.len());
        let accepted =
            "names in any case, LABEL_n and numbers from 0 are understood, others with --labels theirs=model's";
        format!("label {label} is not one of the model's {count} ({shown}); {accepted}")
    }
}

/// `LABEL_3`, or the number alone.
pub(crate) fn generic(label: &str, number: usize) -> bool {
    let label = plain(label);
    label.strip_prefix("label_").unwrap_or(&label) == number.to_string()
}

/// The number of a plain name that is one: `3`, `label_3`, or `3.0`, which tables often make of whole numbers.
pub(crate) fn numbered(plain: &str) -> Option<usize> {
    let digits = plain.strip_prefix("label_").unwrap_or(plain);
    digits.strip_suffix(".0").unwrap_or(digits).parse().ok()
}

/// The same for all ways to write a name.
pub(crate) fn plain(label: &str) -> String {
    label.trim().to_lowercase().replace([' ', '-'], "_")
}

fn short(text: &str) -> String {
    let cut: String = text.chars().take(40).collect();
    format!("{cut:?}{}", if cut.len() < text.len() { "..." } else { "" })
}

/// At most twelve labels.
pub(crate) fn list(labels: &[String]) -> String {
    let shown = labels[..labels.len().min(12)].join(", ");
    match labels.len().saturating_sub(12) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Task;

    fn data(task: Task, labels: &[Label]) -> Dataset {
        let example = |(i, label): (usize, &Label)| Example { label: label.clone(), line: i + 2, ..Example::default() };
        Dataset {
            task,
            source: "f.csv".into(),
            place: "line",
            label_column: "label".into(),
            columns: vec![],
            examples: labels.iter().enumerate().map(example).collect(),
            notes: vec![],
        }
    }

    fn ones(texts: &[&str]) -> Vec<Label> {
        texts.iter().map(|t| Label::One(t.to_string())).collect()
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| n.to_string()).collect()
    }

    fn classes(task: Task, texts: &[&str], model: &[&str]) -> Result<(Vec<usize>, usize), String> {
        let mut notes = vec![];
        let gold = data(task, &ones(texts))
            .gold(HeadKind::Classify, &strings(model), &mut notes)
            .map_err(|e| e.to_string())?;
        let numbers = gold.iter().map(|g| match g {
            Gold::Class(c) => *c,
            _ => panic!(),
        });
        Ok((numbers.collect(), notes.len()))
    }

    #[test]
    fn names_numbers_and_generic_names() {
        let model = ["Negative", "very positive"];
        let got = classes(Task::Own, &["negative", "1", "LABEL_1", "Very-Positive", "0.0", "true"], &model);
        assert_eq!(got.unwrap().0, [0, 1, 1, 1, 0, 1]);
        // A name wins over a number.
        assert_eq!(classes(Task::Own, &["1"], &["1", "2"]).unwrap().0, [0]);
    }

    #[test]
    fn the_models_order_wins_where_names_agree() {
        let file = ["entailment", "neutral", "contradiction", "0"];
        let model = ["CONTRADICTION", "NEUTRAL", "ENTAILMENT"];
        assert_eq!(classes(Task::Mnli, &file, &model).unwrap(), (vec![2, 1, 0, 2], 0));
        let generic = ["LABEL_0", "LABEL_1", "LABEL_2"];
        assert_eq!(classes(Task::Mnli, &file, &generic).unwrap(), (vec![0, 1, 2, 0], 0));
        let other = ["yes", "maybe", "no"];
        assert_eq!(classes(Task::Mnli, &file, &other).unwrap(), (vec![0, 1, 2, 0], 1));
        assert_eq!(
            classes(Task::Rte, &["entailment"], &model).unwrap_err(),
            "the task rte has 2 labels (entailment, not_entailment), but the model has 3 (CONTRADICTION, NEUTRAL, ENTAILMENT)"
        );
    }

    #[test]
    fn unknown_labels_are_named() {
        assert_eq!(
            classes(Task::Own, &["0", "great"], &["bad", "good"]).unwrap_err(),
            "f.csv line 3, column label: label \"great\" is not one of the model's 2 (bad, good); \
             names in any case, LABEL_n and numbers from 0 are understood, others with --labels theirs=model's"
        );
        assert!(classes(Task::Own, &["2"], &["bad", "good"]).is_err());
        assert!(classes(Task::Own, &["-1"], &["bad", "good"]).is_err());
        assert!(classes(Task::Own, &[""], &["bad", "good"]).is_err());
        let e =
            data(Task::Own, &[Label::None]).gold(HeadKind::Classify, &strings(&["a", "b"]), &mut vec![]).unwrap_err();
        assert!(e.to_string().starts_with("f.csv line 2, column label: no label"));
        let e = data(Task::Squad, &[Label::Answers(vec![])])
            .gold(HeadKind::Classify, &strings(&["a", "b"]), &mut vec![])
            .unwrap_err();
        assert!(e.to_string().ends_with("with a model that chooses one label"));
    }

    #[test]
    fn several_labels_and_numbers() {
        let model = strings(&["a", "b", "c"]);
        let labels = [Label::One("c | a".into()), Label::One("".into()), Label::Many(strings(&["2", "b", "b"]))];
        let gold = data(Task::Own, &labels).gold(HeadKind::MultiLabel, &model, &mut vec![]).unwrap();
        assert_eq!(gold, [Gold::Labels(vec![0, 2]), Gold::Labels(vec![]), Gold::Labels(vec![1, 2])]);
        let scores = data(Task::Own, &ones(&["1.5", "x"]));
        let e = scores.gold(HeadKind::Regress, &[], &mut vec![]).unwrap_err();
        assert_eq!(e.to_string(), "f.csv line 3, column label: \"x\" is not a number");
        // Whoever gives words to a model that embeds wants a classifier.
        let embeds = HeadKind::Embed { normalise: true };
        let e = scores.gold(embeds, &[], &mut vec![]).unwrap_err().to_string();
        assert!(e.contains("has no classifier: make one with sparing train finetune"), "{e}");
    }
}
