//! Which rows of the user's own table can be scored: those with a text and a label.

use crate::table::list;
use crate::{Dataset, Example, Gold, Label, Task};
use sparing_model::{Error, HeadKind};

impl Dataset {
    /// Leaves out rows of the user's own table without a text or, for a model with this head, without a label, and notes how
    /// many. Official files are taken as they are, and whoever predicts the text itself needs no label.
    pub fn keep_scorable(&mut self, kind: HeadKind) -> Result<(), Error> {
        if self.task != Task::Own || Gold::is_text(kind) {
            return Ok(());
        }
        if let Some(error) = self.no_label_column() {
            return Err(error);
        }
        let (mut without_text, mut without_label) = (0, 0);
        self.examples.retain(|example| {
            let (text, label) = (has_text(example), has_label(&example.label, kind));
            without_text += usize::from(!text);
            without_label += usize::from(text && !label);
            text && label
        });
        if self.examples.is_empty() {
            return Err(Error::new(format!(
                "{}: no row has a text and a label; name the columns with --text and --label (there are: {})",
                self.source,
                list(&self.columns)
            )));
        }
        let rows = |count: usize| format!("{count} row{}", if count == 1 { "" } else { "s" });
        let left_out = match (without_text, without_label) {
            (0, 0) => return Ok(()),
            (texts, 0) => format!("{} without text", rows(texts)),
            (0, labels) => format!("{} without a label", rows(labels)),
            (texts, labels) => format!("{} without text and {labels} without a label", rows(texts)),
        };
        self.notes.push(format!("{}: {left_out} left out", self.source));
        Ok(())
    }

    /// The error for a table of the user's in which no column is the label.
    pub(crate) fn no_label_column(&self) -> Option<Error> {
        (self.label_column.is_empty() && !self.columns.is_empty()).then(|| {
            let (source, there) = (&self.source, list(&self.columns));
            Error::new(format!("{source}: no column looks like a label; name it with --label (there are: {there})"))
        })
    }
}

fn has_text(example: &Example) -> bool {
    let is_there = |text: &String| !text.trim().is_empty();
    is_there(&example.text) && example.pair.as_ref().is_none_or(is_there)
}

/// Where any number of labels may be right, none may be too.
fn has_label(label: &Label, kind: HeadKind) -> bool {
    match label {
        Label::None => false,
        _ if kind == HeadKind::MultiLabel => true,
        Label::One(text) => !text.is_empty(),
        Label::Many(list) => !list.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Columns, Select};

    fn table(text: &str) -> Dataset {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, text).unwrap();
        let mut data = Dataset::table(&path, &Columns::default(), &Select::default()).unwrap();
        (data.source, data.notes) = ("a.jsonl".into(), Vec::new());
        data
    }

    const HOLES: &str = "{\"text\": \"a\", \"label\": \"1\"}\n{\"text\": \" \", \"label\": \"1\"}\n{\"label\": \"0\"}\n\
                         {\"text\": \"b\", \"label\": \" \"}\n{\"text\": \"c\"}\n{\"text\": \"d\", \"label\": \"0\"}\n";

    fn kept(kind: HeadKind) -> (Vec<usize>, Vec<String>) {
        let mut data = table(HOLES);
        data.keep_scorable(kind).unwrap();
        (data.examples.iter().map(|e| e.line).collect(), data.notes)
    }

    #[test]
    fn rows_without_text_or_label_are_left_out_and_counted() {
        let (lines, notes) = kept(HeadKind::Classify);
        assert_eq!(lines, [1, 6]);
        assert_eq!(notes, ["a.jsonl: 2 rows without text and 2 without a label left out"]);
        let (lines, notes) = kept(HeadKind::MultiLabel);
        assert_eq!(lines, [1, 4, 6]);
        assert_eq!(notes, ["a.jsonl: 2 rows without text and 1 without a label left out"]);
        assert_eq!(kept(HeadKind::CausalLm), ((1..7).collect(), vec![]));
        let mut none = table("{\"text\": \"a\", \"label\": null}\n");
        assert_eq!(
            none.keep_scorable(HeadKind::Classify).unwrap_err().to_string(),
            "a.jsonl: no row has a text and a label; name the columns with --text and --label (there are: label, text)"
        );
    }

    #[test]
    fn a_table_without_labels_lists_its_columns() {
        let mut data = table("{\"text\": \"a\", \"verdict\": \"1\"}\n");
        let why = "a.jsonl: no column looks like a label; name it with --label (there are: text, verdict)";
        assert_eq!(data.keep_scorable(HeadKind::Classify).unwrap_err().to_string(), why);
        assert_eq!(data.gold(HeadKind::Classify, &[], &mut vec![]).unwrap_err().to_string(), why);
        assert!(data.keep_scorable(HeadKind::CausalLm).is_ok());
    }
}
