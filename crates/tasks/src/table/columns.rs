//! Which columns are the text, the second text and the label: named by the user, or guessed and said.

use super::{Cell, Table};
use crate::Renames;
use sparing_model::Error;

/// Names of the columns; those left out are guessed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    /// The text.
    pub text: Option<String>,
    /// The second text.
    pub pair: Option<String>,
    /// The label.
    pub label: Option<String>,
    /// The model's names for labels that the table calls otherwise.
    pub renamed: Renames,
    /// Labels are nobody's business: none is looked for.
    pub texts_only: bool,
}

/// Positions of the columns in the table.
pub(crate) struct Found {
    pub text: usize,
    pub pair: Option<usize>,
    pub label: Option<usize>,
}

/// Columns that belong together as first and second text.
const PAIRS: [(&str, &str); 10] = [
    ("sentence1", "sentence2"),
    ("text1", "text2"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("text", "text_pair"),
    ("text", "pair"),
    ("question", "sentence"),
    ("question", "passage"),
    ("query", "passage"),
    ("query", "document"),
];

const TEXTS: [&str; 16] = [
    "text",
    "sentence",
    "review",
    "content",
    "document",
    "body",
    "comment",
    "tweet",
    "message",
    "tokens",
    "words",
    "query",
    "question",
    "input",
    "description",
    "title",
];

const LABELS: [&str; 16] = [
    "label",
    "labels",
    "gold_label",
    "target",
    "class",
    "category",
    "sentiment",
    "score",
    "stars",
    "rating",
    "is_duplicate",
    "ner_tags",
    "tags",
    "pos_tags",
    "intent",
    "y",
];

impl Columns {
    /// Finds the columns; what is guessed is said in `notes`.
    pub(crate) fn find(&self, source: &str, table: &Table, notes: &mut Vec<String>) -> Result<Found, Error> {
        let names: Vec<&str> = table.columns.iter().map(String::as_str).collect();
        let exact = |name: &str| names.iter().position(|n| *n == name);
        let position =
            |name: &str| exact(name).or_else(|| names.iter().position(|n| n.to_lowercase() == name.to_lowercase()));
        let must = |name: &String| position(name).ok_or_else(|| Error::new(no_column(source, name, &table.columns)));
        let label = match &self.label {
            Some(name) => Some(must(name)?),
            None => LABELS.iter().find_map(|name| position(name)),
        };
        let named_pair = self.pair.as_ref().map(must).transpose()?;
        let (text, pair) = match &self.text {
            Some(name) => (must(name)?, named_pair),
            None => guess_texts(table, label, named_pair, &position).ok_or_else(|| {
                Error::new(format!(
                    "{source}: which column is the text? Name it with --text (there are: {})",
                    list(&table.columns)
                ))
            })?,
        };
        let (mut said, mut flags) = (Vec::new(), Vec::new());
        let mut say = |role: &str, column: Option<usize>, named: bool| {
            if let Some(column) = column.filter(|_| !named) {
                said.push(format!("{role} = {}", names[column]));
                flags.push(format!("--{role}"));
            }
        };
        say("text", Some(text), self.text.is_some());
        say("pair", pair, self.pair.is_some());
        let label = label.filter(|_| !self.texts_only);
        say("label", label, self.label.is_some());
        if !said.is_empty() {
            notes.push(format!(
                "{source}: guessed columns {} ({} would name others)",
                said.join(", "),
                flags.join(", ")
            ));
        }
        Ok(Found { text, pair, label })
    }
}

/// The text by its name, with its partner if there is one; else the only column left, else the one with the longest cells.
fn guess_texts(
    table: &Table,
    label: Option<usize>,
    pair: Option<usize>,
    position: &dyn Fn(&str) -> Option<usize>,
) -> Option<(usize, Option<usize>)> {
    if pair.is_none() {
        for (first, second) in PAIRS {
            if let (Some(first), Some(second)) = (position(first), position(second)) {
                return Some((first, Some(second)));
            }
        }
    }
    let free = |c: &usize| Some(*c) != label && Some(*c) != pair;
    if let Some(text) = TEXTS.iter().find_map(|name| position(name).filter(|c| free(c))) {
        return Some((text, pair));
    }
    let length = |column: usize| -> usize {
        let rows = table.rows.iter().take(100);
        rows.map(|row| match row.cell(column) {
            Cell::Text(text) => text.len(),
            _ => 0,
        })
        .sum()
    };
    let text = (0..table.columns.len()).filter(free).max_by_key(|&c| length(c))?;
    Some((text, pair))
}

/// The message for a column that is not there.
pub(crate) fn no_column(source: &str, name: &str, there: &[impl AsRef<str>]) -> String {
    format!("{source}: no column {name:?} (there are: {})", list(there))
}

/// At most twenty names.
pub(crate) fn list(names: &[impl AsRef<str>]) -> String {
    let short = |name: &str| name.chars().take(40).collect::<String>().replace('\n', " ");
    let shown: Vec<String> = names.iter().take(20).map(|name| short(name.as_ref())).collect();
    let more = names.len().saturating_sub(20);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Row;

    fn guess(columns: &[&str], cells: &[&str]) -> (String, Option<String>, Option<String>, String) {
        let table = Table {
            columns: columns.iter().map(|c| c.to_string()).collect(),
            rows: vec![Row::new(2, cells.iter().map(|c| Cell::Text(c.to_string())).collect())],
            ..Table::default()
        };
        let mut notes = Vec::new();
        let found = Columns::default().find("f", &table, &mut notes).unwrap();
        let name = |c: usize| table.columns[c].clone();
        (name(found.text), found.pair.map(name), found.label.map(name), notes.join(""))
    }

    #[test]
    fn guesses_are_sensible_and_said() {
        let (text, pair, label, note) = guess(&["idx", "Sentence", "label"], &["1", "a b", "0"]);
        assert_eq!((text.as_str(), pair, label.as_deref()), ("Sentence", None, Some("label")));
        assert_eq!(note, "f: guessed columns text = Sentence, label = label (--text, --label would name others)");
        // Whoever looks at texts alone hears nothing of labels.
        let table = Table { columns: vec!["text".into(), "label".into()], ..Table::default() };
        let (texts, mut notes) = (Columns { texts_only: true, ..Columns::default() }, Vec::new());
        assert_eq!(texts.find("f", &table, &mut notes).unwrap().label, None);
        assert_eq!(notes, ["f: guessed columns text = text (--text would name others)"]);
        let (text, pair, _, _) = guess(&["premise", "hypothesis", "label"], &["a", "b", "0"]);
        assert_eq!((text.as_str(), pair.as_deref()), ("premise", Some("hypothesis")));
        let (text, pair, label, _) = guess(&["id", "blurb", "class"], &["17", "a long blurb", "x"]);
        assert_eq!((text.as_str(), pair, label.as_deref()), ("blurb", None, Some("class")));
    }

    #[test]
    fn no_text_at_all_is_an_error() {
        let table = Table { columns: vec!["label".into()], rows: vec![], ..Table::default() };
        let e = Columns::default().find("f", &table, &mut Vec::new()).err().unwrap();
        assert_eq!(e.to_string(), "f: which column is the text? Name it with --text (there are: label)");
    }
}
