//! What the user should know of a search, beside its figures.

use super::data::Data;
use super::finish::{SIDES, came_in_fewer_bits};
use super::found::Found;
use super::saved::Measured;
use super::searching::Work;
use sparing_model::Precision;
use sparing_optimize::{Recipe, Settings, Tried, Verdict, outcome};
use sparing_report::Focus;
use sparing_tasks::Report as Scores;

/// What the user should know.
pub fn notes(
    data: &Data,
    settings: &Settings,
    work: &Work<'_>,
    found: &Found,
    saved: &Recipe,
    before: &Scores,
    measured: &Measured,
) -> Vec<String> {
    let given_up = found.given_up.iter().filter_map(|given_up| given_up.note(saved));
    let mut notes: Vec<String> =
        measured.doubt().into_iter().chain(given_up).chain(found.notes.iter().cloned()).collect();
    notes.extend(found.ended.note());
    let slow: Vec<&str> = work.costs.slow().map(Precision::name).collect();
    if !slow.is_empty() {
        notes.push(format!(
            "left out: {}, for by the clock it is not faster here than the model as it came",
            slow.join(" and ")
        ));
    }
    if found.best.is_none() {
        notes.push(format!("{}: the model is saved as it came", none(found, settings)));
    }
    notes.extend(few_rows(found, settings, work.judge.rows(), before.n));
    if let Some(whole) = came_in_fewer_bits(work) {
        notes.push(format!(
            "the model came in fewer bits: in 32-bit floats it would take {:.1} MB, {:.2} times what is left",
            whole as f64 / 1e6,
            whole as f64 / measured.bytes.max(1) as f64
        ));
    }
    notes.extend(data.unseen.notes.iter().cloned());
    notes
}

/// Why nothing is chosen.
fn none(found: &Found, settings: &Settings) -> &'static str {
    let Settings { focus, budget, .. } = *settings;
    let tried = |number: &usize| &found.tried[*number];
    let candidates = || (0..found.tried.len()).filter(|number| tried(number).recipe != Recipe::default());
    let within = || candidates().filter(|number| outcome::good_enough(tried(number), focus, budget));
    let pays = |number: &usize| tried(number).fair && tried(number).pays;
    if candidates().next().is_none() {
        "there was nothing to try"
    } else if within().next().is_none() {
        "nothing that was tried is within the budget"
    } else if !within().any(|number| tried(&number).fair) {
        "what is within the budget makes most rows worse"
    } else if !within().any(|number| pays(&number)) {
        match focus {
            Focus::Size => "what is within the budget is no smaller",
            _ => "what is within the budget does not pay by the clock",
        }
    } else if within().any(|number| pays(&number) && found.is_kept(number)) {
        "what is within the budget is slower by the clock than the model as it came"
    } else if within().any(|number| pays(&number) && found.broken.contains(&number)) {
        "what is within the budget answers some unseen rows with what is no number"
    } else {
        "what is within the budget was trained to be judged and not kept"
    }
}

/// Whether rows are too few to tell a loss as large as the budget from luck, and how many it would take.
fn few_rows(found: &Found, settings: &Settings, searched: usize, unseen: usize) -> Option<String> {
    let budget = settings.budget;
    let told = |verdict: &Verdict| {
        let needed = needed(searched, verdict.luck, budget);
        (needed, (needed / 100.0).ceil() * 100.0)
    };
    let percent = |share: f64| format!("{}%", (1e3 * share).round() / 10.0);
    if let Some(best) = found.best {
        let (needed, about) = told(&found.tried[best].verdict);
        let few: Vec<String> = [(searched, "searched"), (unseen, "unseen")]
            .iter()
            .filter(|(rows, _)| (*rows as f64) < needed)
            .map(|(rows, which)| format!("{rows} {which}"))
            .collect();
        let each = if few.len() == 2 { " of each" } else { "" };
        return (!few.is_empty()).then(|| {
            let (few, loss) = (few.join(" and "), percent(budget));
            format!("{few} rows cannot tell a loss of {loss} from luck; about {about}{each} would be needed")
        });
    }
    // Nothing was chosen: perhaps because too few rows could vouch for it.
    let most = outcome::most_lost(settings.focus, budget);
    let seems_good = |tried: &&Tried| {
        let verdict = &tried.verdict;
        tried.recipe != Recipe::default() && !tried.trained && verdict.lost <= most && verdict.doubt > budget
    };
    let mildest = found.tried.iter().filter(seems_good).min_by(|a, b| a.verdict.doubt.total_cmp(&b.verdict.doubt))?;
    let (needed, about) = told(&mildest.verdict);
    ((searched as f64) < needed).then(|| {
        let (lost, doubt) = (percent(mildest.verdict.lost.max(0.0)), percent(mildest.verdict.doubt));
        format!(
            "{searched} searched rows are too few to vouch for a candidate that lost {lost} on them, and perhaps {doubt} elsewhere; \
             about {about} would be needed"
        )
    })
}

/// Rows that tell a loss as large as the budget from luck, 95 times of 100, by the standard error that so many rows have: it
/// shrinks with their root.
fn needed(rows: usize, luck: f64, budget: f64) -> f64 {
    // No difference on these rows is less than one row's worth, and not none.
    let luck = if luck > 0.0 { luck } else { 1.0 / rows.max(1) as f64 };
    rows as f64 * (SIDES * luck / budget.max(1e-4)).powi(2)
}

#[cfg(test)]
mod tests {
    use super::needed;

    #[test]
    fn rows_that_are_needed_go_by_the_luck_that_was_seen() {
        // A standard error that is the budget over 1.96 is what is just enough, whatever the metric.
        assert!((needed(400, 0.005 / 1.96, 0.005) - 400.0).abs() < 1e-6);
        assert!((needed(400, 0.01 / 1.96, 0.005) - 1600.0).abs() < 1e-6);
        // Rows without any difference do not say that there is none.
        assert_eq!(needed(100, 0.0, 0.01), needed(100, 0.01, 0.01));
    }
}
