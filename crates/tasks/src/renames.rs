//! The model's names for labels that a table calls otherwise.

use crate::dataset::{Dataset, Label};
use crate::gold::{list, numbered, plain};
use sparing_model::Error;

/// What a table calls a label, and what the model does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Renames(Vec<(String, String)>);

impl Renames {
    /// Reads `theirs=model's`, several of them with commas between.
    pub fn parse(text: &str) -> Result<Renames, Error> {
        let mut renames = Renames::default();
        for pair in text.split(',') {
            let named = pair.split_once('=').map(|(old, new)| (old.trim(), new.trim()));
            let Some((old, new)) = named.filter(|(old, new)| !old.is_empty() && !new.is_empty()) else {
                return Err(Error::new("a pair is expected: the table's name, =, the model's"));
            };
            if let Some(known) = renames.find(old) {
                return Err(Error::new(format!("{old} is to be {known} and {new}; give it one name")));
            }
            renames.0.push((old.into(), new.into()));
        }
        Ok(renames)
    }

    /// The model's name, for a label that is written in any of the ways that the model's own may be.
    fn find(&self, label: &str) -> Option<&String> {
        let wanted = key(label);
        self.0.iter().find(|(old, _)| key(old) == wanted).map(|(_, new)| new)
    }

    /// Renames the labels of a table. A part of it, or a small one, may well have none of them: that is only noted.
    pub(crate) fn apply(&self, data: &mut Dataset) {
        let mut seen = false;
        let mut rename = |label: &mut String| {
            let new = self.find(label);
            if let Some(new) = new {
                label.clone_from(new);
                seen = true;
            }
            new.is_some()
        };
        for example in &mut data.examples {
            match &mut example.label {
                Label::One(text) => {
                    // A name may have a stroke in it.
                    if !rename(text) && text.contains('|') {
                        let mut parts: Vec<String> = text.split('|').map(String::from).collect();
                        parts.iter_mut().for_each(|part| _ = rename(part));
                        *text = parts.join("|");
                    }
                }
                Label::Many(list) => list.iter_mut().for_each(|label| _ = rename(label)),
                Label::Tags { tags, .. } => tags.iter_mut().for_each(|tag| _ = rename(tag)),
                Label::None | Label::Answers(_) => {}
            }
        }
        let labelled = data.examples.iter().any(|example| example.label != Label::None);
        if !self.0.is_empty() && labelled && !seen {
            let old: Vec<String> = self.0.iter().map(|(old, _)| old.clone()).collect();
            let why = format!("no row has any of the labels that are to be renamed ({})", list(&old));
            data.notes.push(format!("{}: {why}", data.source));
        }
    }
}

/// The same for all ways to write a label, but that true and false may stand for numbers.
fn key(label: &str) -> String {
    let label = plain(label);
    numbered(&label).map_or(label, |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Example, Task};

    /// The labels as they are then, and the notes.
    fn renamed(renames: &str, labels: &[Label]) -> (Vec<Label>, Vec<String>) {
        let example = |label: &Label| Example { label: label.clone(), ..Example::default() };
        let mut data = Dataset {
            task: Task::Own,
            source: "f.csv".into(),
            place: "line",
            label_column: "label".into(),
            columns: vec![],
            examples: labels.iter().map(example).collect(),
            notes: vec![],
        };
        Renames::parse(renames).unwrap().apply(&mut data);
        (data.examples.into_iter().map(|example| example.label).collect(), data.notes)
    }

    fn one(text: &str) -> Label {
        Label::One(text.into())
    }

    #[test]
    fn labels_are_found_however_they_are_written() {
        let labels = ["Good", " very-bad", "2.0", "so so", "good|2|x", "a|b"].map(one);
        let (found, notes) = renamed("good=pos, very bad =neg,2=mid,a|b=both", &labels);
        assert_eq!(found, ["pos", "neg", "mid", "so so", "pos|mid|x", "both"].map(one));
        assert!(notes.is_empty());
        let lists = [
            Label::Many(vec!["GOOD".into(), "x".into()]),
            Label::Tags { words: vec![(0, 1)], tags: vec!["good".into()] },
        ];
        let expected = [
            Label::Many(vec!["pos".into(), "x".into()]),
            Label::Tags { words: vec![(0, 1)], tags: vec!["pos".into()] },
        ];
        assert_eq!(renamed("good=pos", &lists).0, expected);
        // What the model calls them too.
        let labels = ["LABEL_0", "0", "label_1.0", "LABEL_x"].map(one);
        assert_eq!(renamed("0=pos,LABEL_1=neg", &labels).0, ["pos", "pos", "neg", "LABEL_x"].map(one));
    }

    #[test]
    fn where_none_is_there_it_is_noted() {
        let (labels, notes) = renamed("good=pos,bad=neg", &[one("fine")]);
        assert_eq!(labels, [one("fine")]);
        assert_eq!(notes, ["f.csv: no row has any of the labels that are to be renamed (good, bad)"]);
        // Texts alone have nothing to rename.
        assert_eq!(renamed("good=pos", &[Label::None]).1, [""; 0]);
    }

    #[test]
    fn a_label_has_one_name() {
        let told = |text: &str| Renames::parse(text).unwrap_err().to_string();
        for text in ["", "good", "good=", "=pos", "good=pos,"] {
            assert_eq!(told(text), "a pair is expected: the table's name, =, the model's", "{text}");
        }
        assert_eq!(told("0=neg,Good=pos,good=neg"), "good is to be pos and neg; give it one name");
        assert_eq!(told("0=neg,LABEL_0=pos"), "LABEL_0 is to be neg and pos; give it one name");
        assert_eq!(told("1=neg,1.0=pos"), "1.0 is to be neg and pos; give it one name");
    }
}
