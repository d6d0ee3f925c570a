//! The paper's search (its Algorithms 2 and 3) and the baselines it is compared with: elements are looked at one after the
//! other, each against the loss with it removed.

use crate::elements::{Element, queue};
use crate::search::{Economy, Event, Search, Strategy};
use crate::{Kind, Left, Recipe};
use sparing_model::Error;
use sparing_quantize::Part;
use sparing_report::Focus;
use std::collections::BTreeSet;

/// Thresholds of Table 9, times the baseline's loss.
const PRUNE: f64 = 1.005;
const APPROXIMATE: f64 = 1.02;
/// Tighter for blocks, looser for what is smaller (the paper's "adaptive threshold").
const ADAPTIVE: [f64; 2] = [1.002, 1.005];

/// Bits by the loss without an element, as a multiple of the baseline's (Table 9, with size in focus).
const BANDS: [(f64, u32); 4] = [(1.006, 4), (1.007, 5), (1.008, 6), (1.009, 7)];

/// By how much an element is dimmed to see the slope of the loss.
const SLOPE: f32 = 0.1;

/// What became of an element.
enum Action {
    Prune,
    Approximate,
    Keep,
}

pub(crate) fn search(search: &mut Search<'_>) -> Result<(), Error> {
    let mut state = State::new(search)?;
    match search.settings.strategy {
        Strategy::TopLayers => top_layers(search, &mut state),
        _ => {
            let elements = ordered(search, &state)?;
            (search.tell)(Event::Phase("elements", elements.len()));
            walk(search, &mut state, elements)?;
            stored(search, &state)
        }
    }
}

/// Tries the bits that blocks have come to with all that is left: removals were tried with those that were known then.
fn stored(search: &mut Search<'_>, state: &State) -> Result<(), Error> {
    if state.recipe.bits.is_some()
        && search.attempt("bits of what stays", &state.recipe)?.within(search.settings.budget)
    {
        search.accept();
    }
    Ok(())
}

/// Where the search stands.
struct State {
    recipe: Recipe,
    /// Sites whose blocks are of too much worth to look inside.
    closed: BTreeSet<usize>,
    least: f64,
}

impl State {
    /// Begins with the whole model, in the precision or the bits that the focus allows.
    fn new(search: &mut Search<'_>) -> Result<State, Error> {
        let recipe = search.precision()?;
        let recipe = search.rounded(recipe)?;
        Ok(State { recipe, closed: BTreeSet::new(), least: search.judge.own().loss })
    }

    /// The recipe without an element.
    fn without(&self, search: &Search<'_>, element: &Element) -> Recipe {
        let site = &search.shop.anatomy.sites[element.site];
        let left = match self.recipe.left.get(&element.site) {
            Some(Left::Only(units)) => units.clone(),
            _ => site.units.clone(),
        };
        let gone = &site.units[element.units.clone()];
        let mut recipe = self.recipe.clone();
        recipe.left.insert(element.site, Left::Only(left.into_iter().filter(|unit| !gone.contains(unit)).collect()));
        recipe
    }
}

/// The elements in the order of the strategy.
fn ordered(search: &mut Search<'_>, state: &State) -> Result<Vec<Element>, Error> {
    let anatomy = &search.shop.anatomy;
    let weights = |kind| {
        anatomy.of_kind(kind).map(|s| anatomy.sites[s].units.len() * anatomy.sites[s].unit_weights).sum::<usize>()
    };
    let heavy = if weights(Kind::Ffn) >= weights(Kind::Attention) { Kind::Ffn } else { Kind::Attention };
    let mut elements = queue(anatomy, heavy, search.settings);
    match search.settings.strategy {
        // Everything in one queue, the small first: nothing is spared by what it belongs to.
        Strategy::Flat => elements.sort_by_key(|element| std::cmp::Reverse(element.granularity)),
        Strategy::Taylor => {
            (search.tell)(Event::Phase("slopes", elements.len()));
            let mut slopes = Vec::new();
            for element in &elements {
                let units = search.shop.anatomy.sites[element.site].units[element.units.clone()].to_vec();
                let mut recipe = state.recipe.clone();
                recipe.left.insert(element.site, Left::Dimmed(units, 1.0 - SLOPE));
                slopes.push(search.probe(&element.name(&search.shop.anatomy), &recipe)?.abs());
            }
            let mut order: Vec<usize> = (0..elements.len()).collect();
            order.sort_by(|a, b| slopes[*a].total_cmp(&slopes[*b]));
            elements = order.into_iter().map(|i| elements[i].clone()).collect();
        }
        _ => {}
    }
    Ok(elements)
}

/// Algorithm 3. With speed in focus a block's weight groups go from its two ends inwards until one has to stay ("greedy
/// shrinking").
fn walk(search: &mut Search<'_>, state: &mut State, elements: Vec<Element>) -> Result<(), Error> {
    let shrink = search.settings.focus == Focus::Speed;
    let mut walked: BTreeSet<usize> = BTreeSet::new();
    for element in &elements {
        if search.trials_left() == 0 {
            break;
        }
        let groups = element.granularity == 1 && search.shop.anatomy.sites[element.site].kind == Kind::Ffn;
        if state.closed.contains(&element.site) || (groups && shrink && walked.contains(&element.site)) {
            continue;
        }
        if groups && shrink {
            walked.insert(element.site);
            let mine: Vec<&Element> =
                elements.iter().filter(|e| e.site == element.site && e.granularity == 1).collect();
            let from_below = ends(search, state, &mine)?;
            let rest: Vec<&Element> = mine[from_below..].iter().rev().copied().collect();
            ends(search, state, &rest)?;
            continue;
        }
        match look(search, state, element)? {
            Action::Prune if element.granularity == 0 => _ = state.closed.insert(element.site),
            Action::Keep if element.granularity == 0 && search.settings.strategy != Strategy::Flat => {
                state.closed.insert(element.site);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes elements in order until one has to stay; how many went.
fn ends(search: &mut Search<'_>, state: &mut State, elements: &[&Element]) -> Result<usize, Error> {
    for (number, element) in elements.iter().enumerate() {
        if search.trials_left() == 0 || !matches!(look(search, state, element)?, Action::Prune) {
            return Ok(number);
        }
    }
    Ok(elements.len())
}

/// Algorithm 2, and what follows from it.
fn look(search: &mut Search<'_>, state: &mut State, element: &Element) -> Result<Action, Error> {
    let recipe = state.without(search, element);
    let name = element.name(&search.shop.anatomy);
    let tried = search.attempt(&name, &recipe)?;
    let (loss, own) = (tried.verdict.loss, search.judge.own().loss);
    let settings = search.settings;
    let prune = match (settings.focus, settings.strategy) {
        (Focus::Accuracy, _) => state.least,
        (_, Strategy::Adaptive) => ADAPTIVE[element.granularity.min(1)] * own,
        _ => PRUNE * own,
    };
    let approximate = if settings.focus == Focus::Accuracy { APPROXIMATE * state.least } else { APPROXIMATE * own };
    if settings.focus == Focus::Size && settings.may(Economy::Bits) && element.granularity == 0 {
        // Elements smaller than a tensor have the bits of their block.
        let site = &search.shop.anatomy.sites[element.site];
        let part = if site.kind == Kind::Attention { Part::Attention } else { Part::Ffn };
        for layer in site.layers.clone() {
            state.recipe.set_bits(part, Some(layer), bits(loss / own));
        }
    }
    if loss < prune && tried.fair {
        search.accept();
        state.least = state.least.min(loss);
        state.recipe = recipe;
        return Ok(Action::Prune);
    }
    Ok(if loss < approximate { Action::Approximate } else { Action::Keep })
}

/// Bits for a block without which the loss is so many times the baseline's.
fn bits(loss: f64) -> u32 {
    BANDS.iter().find(|(below, _)| loss < *below).map_or(8, |(_, bits)| *bits)
}

/// Whole layers from the top, as long as the score holds.
fn top_layers(search: &mut Search<'_>, state: &mut State) -> Result<(), Error> {
    let layers = search.shop.anatomy.layers;
    (search.tell)(Event::Phase("layers", layers));
    for layer in (0..layers).rev() {
        let mut recipe = state.recipe.clone();
        for (number, site) in search.shop.anatomy.sites.iter().enumerate() {
            if site.layers.contains(&layer) {
                recipe.left.insert(number, Left::Only(vec![]));
            }
        }
        let tried = search.attempt(&format!("layer {layer}"), &recipe)?;
        if !tried.verdict.within(search.settings.budget) || search.trials_left() == 0 {
            break;
        }
        search.accept();
        state.recipe = recipe;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_as_in_the_papers_table() {
        let losses = [1.0055, 1.006, 1.0075, 1.0085, 1.009, 1.2];
        assert_eq!(losses.map(bits), [4, 5, 6, 7, 8, 8]);
    }
}
