//! A classifier that is right less often than whoever gives the most frequent label without reading: mostly the labels are
//! not what they are taken for.

use sparing_tasks::{Dataset, Label, Outcome, Report, Task};

/// More labels than these are not listed.
const LISTED: usize = 4;

/// What to say of a score that is worse than a guess; `None` where it is not.
pub fn worse(report: &Report, dataset: &Dataset, labels: &[String]) -> Option<String> {
    let (class, often) = report.most_frequent()?;
    let name = labels.get(class)?;
    let is_right = |outcome: &&Outcome| matches!(outcome, Outcome::Class { gold, predicted, .. } if gold == predicted);
    let right = report.outcomes.iter().filter(is_right).count();
    let percent = |count: usize| format!("{:.1}%", 100.0 * count as f64 / report.outcomes.len() as f64);
    (right < often).then(|| {
        let (share, guess, question) = (percent(right), percent(often), question(dataset, labels));
        format!("{share} right, less than always answering {name:?} ({guess}): {question}")
    })
}

fn question(dataset: &Dataset, labels: &[String]) -> String {
    if dataset.task != Task::Own {
        return format!("was this model trained for {}?", dataset.task.name());
    }
    let is_number = |label: &Label| matches!(label, Label::One(text) if text.parse::<f64>().is_ok());
    if labels.len() > LISTED || !dataset.examples.iter().all(|example| is_number(&example.label)) {
        return "is --label the right column?".into();
    }
    let numbers: Vec<String> = (0..labels.len()).map(|number| number.to_string()).collect();
    let (numbers, names) = (numbers.join(", "), labels.join(", "));
    format!(
        "is --label the right column, and are {numbers} the model's {names}? (--labels 0={}, … says otherwise)",
        labels.last().map_or("", String::as_str)
    )
}
