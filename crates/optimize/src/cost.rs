//! Our own search: every economy is an axis of steps, each step saves something and changes something. Both are measured
//! on a few steps and filled in between; the cheapest changes are combined; what comes out is tried, and the
//! last steps are taken one by one.

use crate::axes::{Axis, axes, recipe};
use crate::running::{Prices, Running};
use crate::search::{Event, Search};
use crate::{Economy, Recipe};
use sparing_model::Error;
use sparing_report::Focus;

/// How often the total change is halved in the search for a combination.
const HALVINGS: usize = 7;

/// Where on each axis a combination stands: number of steps taken.
pub(crate) type Place = Vec<usize>;

pub(crate) fn search(search: &mut Search<'_>) -> Result<(), Error> {
    let (begin, axes) = survey(search)?;
    let place = match search.settings.focus {
        Focus::Accuracy => vec![0; axes.len()],
        _ => combine(search, &begin, &axes)?,
    };
    // For accuracy the last steps are all there are.
    if search.settings.last_steps || search.settings.focus == Focus::Accuracy {
        refine(search, &begin, &axes, place)?;
    }
    Ok(())
}

/// Where steps begin (with the precision and the bits that answer as well, and the economies of attention that the model came with),
/// and what every step saves and changes.
pub(crate) fn survey(search: &mut Search<'_>) -> Result<(Recipe, Vec<Axis>), Error> {
    let begin = search.precision()?;
    let begin = search.mixed(begin)?;
    let begin = search.rounded(begin)?;
    let begin = Recipe { attention: search.shop.model.plan.attention.clone(), ..begin };
    price(search, &begin)?;
    let mut axes = axes(search, &begin)?;
    probe(search, &begin, &mut axes)?;
    axes.retain(|axis| axis.steps.iter().any(|step| step.saved > 0.0 && step.change.is_finite()));
    Ok((begin, axes))
}

/// Measures what economies that are chosen while the model runs are worth here.
fn price(search: &mut Search<'_>, begin: &Recipe) -> Result<(), Error> {
    let settings = search.settings;
    let on_menu = [
        (Economy::Tokens, Running::Tokens),
        (Economy::Merge, Running::Merge),
        (Economy::Keys, Running::Keys),
        (Economy::Values, Running::Values),
    ];
    let may: Vec<Running> = on_menu.iter().filter(|(economy, _)| settings.may(*economy)).map(|(_, of)| *of).collect();
    if settings.focus == Focus::Speed {
        let (shop, watch, judge) = (search.shop, search.watch, search.judge);
        let key = format!("prices of {may:?} on top of {}", begin.key());
        search.prices = search.journal.clocked(&key, || Prices::measure(shop, begin, watch, judge.engine(), &may))?;
    }
    Ok(())
}

/// Measures how much steps change the answers, on a few of them.
fn probe(search: &mut Search<'_>, begin: &Recipe, axes: &mut [Axis]) -> Result<(), Error> {
    (search.tell)(Event::Phase("what each part is worth", axes.iter().map(|axis| axis.steps.len().min(2)).sum()));
    for axis in axes {
        if axis.steps.is_empty() {
            continue;
        }
        let last = axis.steps.len() - 1;
        let mut known: Vec<(usize, f64)> = Vec::new();
        for step in [last / 2, last] {
            if known.iter().any(|(at, _)| *at == step) {
                continue;
            }
            let recipe = recipe(search, begin, std::slice::from_ref(axis), &[step + 1]);
            let tried = search.look(&axis.name, &recipe)?;
            if axis.is_counted() {
                axis.steps[step].saved = search.chosen(&tried);
            }
            // `max` would make very little of what is not a number.
            let change = tried.verdict.divergence;
            known.push((step, if change.is_nan() { f64::INFINITY } else { change.max(1e-7) }));
        }
        fill(search, axis, &known);
    }
    Ok(())
}

/// Fills in what was not measured: the change grows as a power of the error that the surgeon foresees (of the number of the
/// step elsewhere), through the two points that were measured.
fn fill(search: &Search<'_>, axis: &mut Axis, known: &[(usize, f64)]) {
    let foreseen = axis.foreseen(search);
    let (first, last) = (known[0], known[known.len() - 1]);
    let span = (foreseen[last.0] / foreseen[first.0]).ln();
    let power = if span > 1e-6 { ((last.1 / first.1).ln() / span).clamp(0.3, 3.0) } else { 1.0 };
    let saved: Vec<f64> = known.iter().map(|(at, _)| axis.steps[*at].saved).collect();
    for number in 0..axis.steps.len() {
        let near = if number <= first.0 { first } else { last };
        axis.steps[number].change = near.1 * (foreseen[number] / foreseen[near.0]).powf(power);
        if axis.is_counted() {
            // Through the two points; before the first what is saved falls to what choosing costs.
            let (x, a, b) = (axis.along(number), axis.along(first.0), axis.along(last.0));
            let (ya, yb) = (saved[0], saved[saved.len() - 1]);
            let idle = search.prices.idle(axis.what);
            let between = |from: f64, to: f64| (x - from) / (to - from).max(1e-9);
            axis.steps[number].saved =
                if x <= a { idle + (ya - idle) * between(0.0, a) } else { ya + (yb - ya) * between(a, b) };
        }
    }
}

/// The place that saves most within a total change: always the step that saves most for what it changes. Steps may be
/// skipped where only several together are worth it.
pub(crate) fn within(axes: &[Axis], total: f64) -> Place {
    let mut place = vec![0; axes.len()];
    let mut left = total;
    loop {
        let best = |number: usize| {
            let axis: &Axis = &axes[number];
            let from: usize = place[number];
            let now = from.checked_sub(1).map_or((0.0, 0.0), |step| (axis.steps[step].saved, axis.steps[step].change));
            let worth = move |to: usize| {
                let (saved, change) = (axis.steps[to].saved - now.0, (axis.steps[to].change - now.1).max(1e-9));
                (saved > 0.0 && change <= left).then_some((saved / change, number, to + 1, change))
            };
            (from..axis.steps.len()).filter_map(worth).max_by(|a, b| a.0.total_cmp(&b.0))
        };
        let Some((_, axis, to, change)) = (0..axes.len()).filter_map(best).max_by(|a, b| a.0.total_cmp(&b.0)) else {
            return place;
        };
        place[axis] = to;
        left -= change;
    }
}

/// The largest total change whose combination is still within the budget, by halving.
fn combine(search: &mut Search<'_>, begin: &Recipe, axes: &[Axis]) -> Result<Place, Error> {
    (search.tell)(Event::Phase("combinations", HALVINGS));
    let changes = || axes.iter().flat_map(|axis| axis.steps.iter().map(|step| step.change)).filter(|c| c.is_finite());
    let (mut low, mut high) =
        (changes().fold(f64::INFINITY, f64::min).max(1e-6).ln(), changes().sum::<f64>().max(1e-5).ln());
    let mut best = vec![0; axes.len()];
    let mut seen: Vec<Place> = vec![best.clone()];
    for _ in 0..2 * HALVINGS {
        let middle = (low + high) / 2.0;
        let place = within(axes, middle.exp());
        if high - low < 0.05 || search.trials_left() == 0 || seen.len() > HALVINGS {
            break;
        }
        if place == best {
            low = middle;
            continue;
        }
        if seen.contains(&place) {
            high = middle;
            continue;
        }
        seen.push(place.clone());
        let candidate = recipe(search, begin, axes, &place);
        let tried = search.attempt("combination", &candidate)?;
        if tried.is_acceptable(search.settings.budget) {
            search.accept();
            (low, best) = (middle, place);
        } else {
            high = middle;
        }
    }
    Ok(best)
}

/// Takes further steps one by one, the most worthwhile first, as long as they are within the budget and, for accuracy,
/// make the loss smaller.
fn refine(search: &mut Search<'_>, begin: &Recipe, axes: &[Axis], mut place: Place) -> Result<(), Error> {
    let most = axes.len().min(search.trials_left());
    (search.tell)(Event::Phase("last steps", most));
    let mut least = search.judge.own().loss;
    let mut stuck = vec![false; axes.len()];
    while search.trials_left() > 0 {
        let worth = |number: usize| {
            let (saved, change) = axes[number].further(place[number])?;
            let worth = match search.settings.focus {
                Focus::Accuracy => 1.0 / change,
                _ => saved / change,
            };
            (!stuck[number] && saved > 0.0).then_some((worth, number))
        };
        let Some((_, number)) = (0..axes.len()).filter_map(worth).max_by(|a, b| a.0.total_cmp(&b.0)) else { break };
        let mut next = place.clone();
        next[number] += 1;
        let candidate = recipe(search, begin, axes, &next);
        let tried = search.attempt(&axes[number].name, &candidate)?;
        let smaller = search.settings.focus != Focus::Accuracy || tried.verdict.loss < least;
        if smaller && tried.is_acceptable(search.settings.budget) {
            search.accept();
            least = least.min(tried.verdict.loss);
            place = next;
        } else {
            stuck[number] = true;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Strategy;
    use crate::outcome;
    use crate::testing::{model, searching_with, settings};
    use sparing_model::{Model, OwnedTensor, Precision};

    /// The same model, but one number of what the first attention returns is a thousand times as large, and the map behind it makes up
    /// for that: what is rounded beside it to 8 bits is lost, what is rounded to bf16 is as it was.
    fn outlying() -> Model {
        let mut model = model();
        let attention = &model.architecture.layers[0].attention;
        let (value, output) = (attention.value.clone(), attention.output.clone());
        let scaled = |linear: &sparing_model::Linear, is: &dyn Fn(usize) -> bool, by: f32| {
            let mut weight = model.weights.matrix(linear).unwrap();
            weight.iter_mut().enumerate().filter(|(i, _)| is(*i)).for_each(|(_, w)| *w *= by);
            OwnedTensor::f32(linear.weight.name(), &[linear.outputs, linear.inputs], &weight)
        };
        let stored = value.stored_bias().unwrap();
        let mut bias = model.weights.bias(stored, value.outputs).unwrap();
        bias[0] *= 1000.0;
        let changed = vec![
            scaled(&value, &|i| i < value.inputs, 1000.0),
            scaled(&output, &|i| i.is_multiple_of(output.inputs), 0.001),
            OwnedTensor::f32(stored.name.clone(), &[value.outputs], &bias),
        ];
        model.weights = model.weights.replace(changed).unwrap();
        model
    }

    #[test]
    fn what_does_not_bear_int8_stays_in_bf16() {
        let model = outlying();
        let faster = [(Precision::Int8, 4.0), (Precision::Bf16, 2.0)];
        let mut settings = settings(Strategy::Cost, Focus::Speed, &[Economy::Precision]);
        // Between what both lose.
        let doubts = faster.map(|(precision, _)| {
            searching_with(&model, &settings, 12, &faster, |search| {
                let whole = Recipe { precision: Some(precision), ..Recipe::default() };
                search.attempt("whole", &whole).unwrap().verdict.doubt
            })
        });
        assert!(doubts[0] > 4.0 * doubts[1], "{doubts:?}");
        settings.budget = 0.5 * doubts[0];
        searching_with(&model, &settings, 12, &faster, |search| {
            search.run().unwrap();
            let best = &search.tried[outcome::best(&search.tried, Focus::Speed, settings.budget).unwrap()];
            let words = outcome::words(&best.recipe, &search.shop.anatomy);
            assert_eq!((best.recipe.precision, &best.recipe.bf16), (Some(Precision::Int8), &[0].into()), "{words}");
            assert_eq!(words, "int8, but 1 of 4 blocks in bf16");
            assert!(best.foreseen > 2.0 && best.foreseen < 4.0, "{}", best.foreseen);
            let made = search.shop.make(&best.recipe).unwrap();
            assert_eq!(outcome::recipe_of(&made, &search.shop.anatomy), best.recipe);
        });
        // Within the budget, but nothing is left for anything else: the same blocks are asked, and the whole stays a candidate.
        settings.budget = 1.01 * doubts[0];
        searching_with(&model, &settings, 12, &faster, |search| {
            assert_eq!(survey(search).unwrap().0.bf16.len(), 4);
            let best = &search.tried[outcome::best(&search.tried, Focus::Speed, settings.budget).unwrap()];
            assert!(best.recipe.precision == Some(Precision::Int8) && best.recipe.bf16.is_empty());
        });
        settings.budget = 3.0 * doubts[0];
        searching_with(&model, &settings, 12, &faster, |search| {
            assert!(survey(search).unwrap().0.bf16.is_empty());
        });
        // Where int8 is no faster nobody asks for it.
        searching_with(&model, &settings, 12, &[(Precision::Int8, 1.0), (Precision::Bf16, 1.0)], |search| {
            search.run().unwrap();
            assert!(search.tried.iter().all(|tried| tried.recipe.precision.is_none()));
        });
    }
}
