//! The paper's search (its Algorithms 2 and 3) and the baselines it is compared with: elements are looked at one after the
//! other, each against the loss with it removed.

use crate::elements::{Element, queue};
use crate::running::{Prices, Running, choosing, reconciled, saves_operations};
use crate::search::{Event, Search};
use crate::weight::weight;
use crate::{Economy, Kind, Left, Recipe, Strategy};
use serde::{Deserialize, Serialize};
use sparing_model::{AttentionPlan, Error};
use sparing_quantize::Part;
use sparing_report::Focus;
use std::collections::BTreeSet;

/// Loss without an element, as a multiple of the baseline's, below which it may go.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// For good.
    pub prune: f64,
    /// If something cheaper takes its place.
    pub approximate: f64,
}

impl Default for Thresholds {
    /// Those of Table 9.
    fn default() -> Thresholds {
        Thresholds { prune: 1.005, approximate: 1.02 }
    }
}

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
            let end = if search.settings.bottom_first { "bottom" } else { "top" };
            (search.tell)(Event::Phase(&format!("elements from the {end}"), elements.len()));
            walk(search, &mut state, elements)?;
            stored(search, &state)?;
            approximate(search, &mut state)
        }
    }
}

/// Tries the bits that blocks have come to with all that is left: removals were tried with those that were known then.
fn stored(search: &mut Search<'_>, state: &State) -> Result<(), Error> {
    if state.recipe.bits.is_some()
        && search.attempt("bits of what stays", &state.recipe)?.is_acceptable(search.settings.budget)
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
    /// Sites that are of too much worth to be removed, and of little enough to be approximated.
    approximable: BTreeSet<usize>,
    least: f64,
}

impl State {
    /// Begins with the whole model, in the precision or the bits that the focus allows.
    fn new(search: &mut Search<'_>) -> Result<State, Error> {
        let recipe = search.precision()?;
        let recipe = search.rounded(recipe)?;
        let least = search.judge.own().loss;
        Ok(State { recipe, closed: BTreeSet::new(), approximable: BTreeSet::new(), least })
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
    let weight = weight(search, &state.recipe)?;
    let mut elements = queue(&search.shop.anatomy, &weight, search.settings);
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
            let mut mine: Vec<&Element> =
                elements.iter().filter(|e| e.site == element.site && e.granularity == 1).collect();
            // Whatever the queue's order: what stays is one block only if they go from its ends.
            mine.sort_by_key(|element| element.units.start);
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
            Action::Approximate => _ = state.approximable.insert(element.site),
            _ => {}
        }
    }
    Ok(())
}

/// Gives attention that may be approximated sign matching, where that saves operations at these lengths. As in Algorithm 3 it
/// comes after all that is pruned; other than there each block is tried, for nothing need train what is left. Feed-forward blocks
/// stay as they are.
fn approximate(search: &mut Search<'_>, state: &mut State) -> Result<(), Error> {
    let (shop, settings) = (search.shop, search.settings);
    if settings.focus != Focus::Speed || !settings.may(Economy::Keys) {
        return Ok(());
    }
    let architecture = &shop.model.architecture;
    let is_left = |site: &usize| state.recipe.left.get(site).is_none_or(|left| left.count(1) > 0);
    let attention = |site: &usize| shop.anatomy.sites[*site].kind == Kind::Attention && is_left(site);
    let mut sites: Vec<usize> = state.approximable.iter().copied().filter(attention).collect();
    if !settings.bottom_first {
        sites.reverse();
    }
    let with_keys = |plan: &AttentionPlan, site: &usize| {
        let layers = shop.anatomy.sites[*site].layers.iter();
        let plan = layers.fold(plan.clone(), |plan, layer| choosing(plan, *layer, architecture.layers.len()));
        reconciled(plan, architecture)
    };
    let mut plan = state.recipe.attention.clone().or(shop.model.plan.attention.clone()).unwrap_or_default();
    let begin = Recipe { attention: Some(plan.clone()), ..state.recipe.clone() };
    // Where every key is needed, as in the last layer, none are chosen.
    sites.retain(|site| with_keys(&plan, site) != plan);
    let all = sites.iter().fold(plan.clone(), |plan, site| with_keys(&plan, site));
    let options = search.judge.engine();
    let able = all.check_for(architecture).is_ok();
    if !able || !saves_operations(&all, shop, &begin, search.watch, options)? {
        return Ok(());
    }
    let watch = search.watch;
    let key = format!("prices of keys on top of {}", begin.key());
    search.prices = search.journal.clocked(&key, || Prices::measure(shop, &begin, watch, options, &[Running::Keys]))?;
    (search.tell)(Event::Phase("sign matching", sites.len()));
    for site in sites {
        if search.trials_left() == 0 {
            break;
        }
        let next = with_keys(&plan, &site);
        let recipe = Recipe { attention: Some(next.clone()), ..state.recipe.clone() };
        let tried = search.attempt(&format!("chosen keys in {}", shop.anatomy.sites[site].name()), &recipe)?;
        if tried.is_acceptable(settings.budget) {
            search.accept();
            (state.recipe, plan) = (recipe, next);
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
    let Thresholds { prune, approximate } = settings.thresholds;
    let prune = match (settings.focus, settings.strategy) {
        (Focus::Accuracy, _) => state.least,
        (_, Strategy::Adaptive) => ADAPTIVE[element.granularity.min(1)] * own,
        _ => prune * own,
    };
    let approximate = approximate * if settings.focus == Focus::Accuracy { state.least } else { own };
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
    if !search.settings.may(Economy::Blocks) {
        return Ok(());
    }
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
        if !tried.is_acceptable(search.settings.budget) || search.trials_left() == 0 {
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
    use crate::Workshop;
    use crate::testing::{model, searching, settings};
    use sparing_model::Bits;

    #[test]
    fn what_takes_most_bytes_comes_first() {
        // One head of two: attention has fewer weights than feed-forward.
        let whole = model();
        let shop = Workshop::new(&whole).unwrap();
        let left = shop.anatomy.of_kind(Kind::Attention).map(|site| (site, Left::Only(vec![0]))).collect();
        let narrow = shop.shape(&Recipe { left, ..Recipe::default() }).unwrap();
        let first = |bits: Option<Bits>| {
            let settings = settings(Strategy::Paper, Focus::Size, &[Economy::Blocks]);
            searching(&narrow, &settings, 40, |search| {
                let recipe = Recipe { bits, ..Recipe::default() };
                let state = State { recipe, closed: BTreeSet::new(), approximable: BTreeSet::new(), least: 0.0 };
                let first = ordered(search, &state).unwrap()[0].site;
                search.shop.anatomy.sites[first].kind
            })
        };
        assert_eq!(first(None), Kind::Ffn);
        let coarse = Bits { attention: Some(8), ffn: Some(3), ..Bits::default() };
        assert_eq!(first(Some(coarse)), Kind::Attention);
    }

    #[test]
    fn what_is_left_of_a_block_is_one_block_in_any_order() {
        for strategy in [Strategy::Random, Strategy::Taylor, Strategy::Paper] {
            let settings = settings(strategy, Focus::Speed, &[Economy::Width]);
            let tried = searching(&model(), &settings, 12, |search| {
                search.run().unwrap();
                search.tried.iter().flat_map(|tried| tried.recipe.left.values().cloned()).collect::<Vec<_>>()
            });
            assert!(tried.iter().any(|left| matches!(left, Left::Only(units) if !units.is_empty())), "{strategy:?}");
            for left in tried {
                let Left::Only(units) = left else { continue };
                let gap = units.windows(2).find(|pair| pair[1] != pair[0] + 1);
                assert_eq!(gap, None, "{strategy:?}: {units:?}");
            }
        }
    }

    #[test]
    fn thresholds_decide_what_goes() {
        let removed = |thresholds| {
            let settings = settings(Strategy::Paper, Focus::Size, &[Economy::Blocks]);
            let settings = crate::Settings { thresholds, ..settings };
            searching(&model(), &settings, 12, |search| {
                search.run().unwrap();
                search.tried.iter().filter(|tried| tried.accepted).count()
            })
        };
        let all = removed(Thresholds { prune: 100.0, approximate: 100.0 });
        let none = removed(Thresholds { prune: 1e-3, approximate: 1e-3 });
        assert!(all > 0 && none == 0, "{all} {none}");
    }

    /// What is tried of sites that may all be approximated, and what is kept.
    fn approximated(tokens: u32, menu: &[Economy], budget: f64) -> (usize, Option<String>) {
        let settings = crate::Settings { budget, ..settings(Strategy::Paper, Focus::Speed, menu) };
        searching(&model(), &settings, tokens, |search| {
            let mut state = State::new(search).unwrap();
            state.approximable = (0..search.shop.anatomy.sites.len()).collect();
            approximate(search, &mut state).unwrap();
            (search.tried.len(), state.recipe.attention.map(|attention| attention.to_string()))
        })
    }

    #[test]
    fn approximable_attention_gets_sign_matching() {
        // One of two layers: the last attention sees all keys, and feed-forward blocks stay as they are.
        let keys = "exact,keys=auto,ends,keys0=auto,keys1=exact".to_string();
        assert_eq!(approximated(40, &[Economy::Blocks, Economy::Keys], 0.9), (1, Some(keys)));
        assert_eq!(approximated(40, &[Economy::Blocks, Economy::Keys], -1.0), (1, None), "too bad");
        assert_eq!(approximated(12, &[Economy::Blocks, Economy::Keys], 0.9), (0, None), "too short");
        assert_eq!(approximated(40, &[Economy::Blocks], 0.9), (0, None), "not on the menu");
    }

    #[test]
    fn attention_between_the_thresholds_is_approximable() {
        let settings = settings(Strategy::Paper, Focus::Speed, &[Economy::Blocks]);
        let whole = model();
        let shop = Workshop::new(&whole).unwrap();
        // Turned around this block is of use, and the more of it the more it is missed.
        let approximable = [0.0, -4.0, -12.0].map(|share: f32| {
            let dimmed = Left::Dimmed(shop.anatomy.sites[0].units.clone(), share / 24.0);
            let model = shop.shape(&Recipe { left: [(0, dimmed)].into(), ..Recipe::default() }).unwrap();
            searching(&model, &settings, 40, |search| {
                let mut state = State::new(search).unwrap();
                let units = 0..search.shop.anatomy.sites[0].units.len();
                walk(search, &mut state, vec![Element { site: 0, units, granularity: 0 }]).unwrap();
                let loss = search.tried[0].verdict.loss / search.judge.own().loss;
                let found = state.approximable.contains(&0);
                let Thresholds { prune, approximate } = Thresholds::default();
                assert_eq!(found, (prune..approximate).contains(&loss), "{loss}");
                found
            })
        });
        assert_eq!(approximable, [false, true, false]);
    }

    #[test]
    fn bits_as_in_the_papers_table() {
        let losses = [1.0055, 1.006, 1.0075, 1.0085, 1.009, 1.2];
        assert_eq!(losses.map(bits), [4, 5, 6, 7, 8, 8]);
    }
}
