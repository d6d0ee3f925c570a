//! Economies that are chosen text by text while the model runs: tokens that leave or are merged, keys that are looked at, values
//! as precise as attention needs them. What they leave out is counted; what that is worth in the clock is measured, coarsely, for
//! choosing costs time as well, and few rows are not computed as fast as many.

use crate::axes::What;
use crate::{Recipe, Stopwatch, Workshop};
use serde::{Deserialize, Serialize};
use sparing_engine::{Engine, Options};
use sparing_model::{
    Architecture, AttentionPlan, ByLayer, Error, Keep, Keys, LayerAlpha, LayerKeys, Mca, Sampler, Tokens, Wanted,
};

/// A cut below which nothing leaves, though everything is measured.
const NOTHING: f32 = 1e-6;
/// A cut below which much leaves.
const MUCH: f32 = 0.7;
/// Shares of the tokens to merge that say what finding like tokens costs, and what it saves.
const FEW: f32 = 0.05;
const MANY: f32 = 0.25;
/// An alpha that leaves out much of the values.
const COARSE: f32 = 1.0;
/// Rounds of a race.
const ROUNDS: usize = 7;
/// Savings below this are not worth a choice.
const LEAST: f64 = 0.01;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Running {
    /// Tokens leave.
    Tokens,
    /// Tokens are merged into others that are like them.
    Merge,
    /// Attention over chosen keys.
    Keys,
    /// Values within budgets.
    Values,
}

impl Running {
    /// All of them.
    pub const ALL: [Running; 4] = [Running::Tokens, Running::Merge, Running::Keys, Running::Values];

    /// What it is, in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Running::Tokens => "letting tokens leave",
            Running::Merge => "merging tokens that are alike",
            Running::Keys => "attention over chosen keys",
            Running::Values => "values within budgets",
        }
    }

    /// Whether a recipe has it.
    fn is_in(self, recipe: &Recipe) -> bool {
        recipe.attention.as_ref().is_some_and(|attention| match self {
            Running::Tokens => attention.tokens.as_ref().is_some_and(|tokens| unmerged(tokens) != Tokens::default()),
            Running::Merge => attention.tokens.as_ref().is_some_and(|tokens| tokens.merge.is_some()),
            Running::Keys => attention.keys.is_some(),
            Running::Values => attention.mca.is_some(),
        })
    }

    /// The recipe without it; `None` where it is not there. `came`: whether the model came with such economies, which a recipe
    /// that says nothing of attention leaves as they are.
    pub fn without(self, recipe: &Recipe, came: bool) -> Option<Recipe> {
        let mut attention = recipe.attention.clone()?;
        let was_there = match self {
            Running::Tokens => {
                let merge = attention.tokens.take().and_then(|tokens| tokens.merge);
                attention.tokens = merge.map(|merge| Tokens { merge: Some(merge), ..Tokens::default() });
                self.is_in(recipe)
            }
            Running::Merge => {
                attention.tokens = attention.tokens.as_ref().map(unmerged).filter(|rest| *rest != Tokens::default());
                self.is_in(recipe)
            }
            Running::Keys => attention.keys.take().is_some(),
            Running::Values => attention.mca.take().is_some(),
        };
        let attention = Some(attention).filter(|attention| came || !attention.is_exact());
        was_there.then(|| Recipe { attention, ..recipe.clone() })
    }
}

/// What was counted while a candidate ran: shares of the exact operations that were not done.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Because tokens left or were merged.
    pub tokens: f64,
    /// Because values had budgets.
    pub values: f64,
}

impl Counted {
    /// By an engine since it was made.
    pub fn by(engine: &Engine) -> Counted {
        let spent = engine.spending();
        let share = |saved: u64| saved as f64 / (spent.model_exact as f64).max(1.0);
        Counted { tokens: share(spent.skipped), values: share(spent.values_exact.saturating_sub(spent.values)) }
    }
}

/// What they are worth in the clock, as shares of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// What it costs to measure in one layer which tokens may leave.
    measuring: f64,
    /// What it costs to find in one layer which tokens are alike.
    matching: f64,
    /// Time saved for operations saved because tokens left, because they were merged, and because values had budgets.
    tokens: f64,
    merged: f64,
    values: f64,
    /// Time that chosen keys save in one layer.
    keys: f64,
}

impl Default for Prices {
    /// An operation saved is its time saved, and choosing is free.
    fn default() -> Prices {
        Prices { measuring: 0.0, matching: 0.0, tokens: 1.0, merged: 1.0, values: 1.0, keys: 0.0 }
    }
}

impl Prices {
    /// Races engines with and without, on top of a recipe, for those that may be chosen; the others are worth nothing. Rounded to hundredths of the time
    /// and tenths of a saving: what is left after that is the machine, not its mood.
    pub fn measure(
        shop: &Workshop<'_>,
        begin: &Recipe,
        watch: &Stopwatch,
        options: &Options,
        may: &[Running],
    ) -> Result<Prices, Error> {
        // Nothing is chosen here, whatever the model came with: prices are beside that.
        let model = shop.shape(&Recipe { attention: Some(AttentionPlan::default()), ..begin.clone() })?;
        let architecture = &model.architecture;
        let plain = Engine::compile(&model, options)?;
        let race = |attention: AttentionPlan| -> Result<(f64, Engine), Error> {
            let model = shop.shape(&Recipe { attention: Some(attention), ..begin.clone() })?;
            let engine = Engine::compile(&model, options)?;
            let ratio = watch.race(&plain, &engine, ROUNDS)?.undisturbed;
            Ok((1.0 - 1.0 / ratio, engine))
        };
        let able = |attention: &AttentionPlan| attention.check_for(architecture).is_ok();
        let mut prices = Prices { measuring: 0.0, matching: 0.0, tokens: 0.0, merged: 0.0, values: 0.0, keys: 0.0 };
        let layers = architecture.layers.len();
        let drop = |cut: f32| (0..layers).fold(AttentionPlan::default(), |plan, layer| dropping(plan, layer, cut));
        if may.contains(&Running::Tokens) && able(&drop(MUCH)) {
            let idle = hundredths(race(drop(NOTHING))?.0).min(0.0);
            let (saved, engine) = race(drop(MUCH))?;
            prices.measuring = -idle / layers.saturating_sub(1).max(1) as f64;
            prices.tokens = worth(saved - idle, Counted::by(&engine).tokens);
        }
        let merge = |share: f32| (0..layers).fold(AttentionPlan::default(), |plan, layer| merging(plan, layer, share));
        if may.contains(&Running::Merge) && able(&merge(MANY)) {
            let (little, few) = race(merge(FEW))?;
            let (much, many) = race(merge(MANY))?;
            let (few, many) = (Counted::by(&few).tokens, Counted::by(&many).tokens);
            prices.merged = worth(much - little, many - few);
            let idle = hundredths(little - prices.merged * few).min(0.0);
            prices.matching = -idle / layers.saturating_sub(1).max(1) as f64;
        }
        if may.contains(&Running::Values) && shop.is_calibrated() && able(&budgeted(AttentionPlan::default(), COARSE)) {
            let (saved, engine) = race(budgeted(AttentionPlan::default(), COARSE))?;
            prices.values = worth(saved, Counted::by(&engine).values);
        }
        let choosing = (0..layers).fold(AttentionPlan::default(), |plan, layer| choosing(plan, layer, layers));
        if may.contains(&Running::Keys) && able(&choosing) {
            let chosen = choosing.keys.as_ref();
            let layers = (0..layers).filter(|layer| chosen.is_some_and(|k| k.of(*layer, architecture).is_some()));
            let layers = layers.count().max(1);
            // Texts too short to have more keys than are kept need no race.
            if saves_operations(&choosing, shop, begin, watch, options)? {
                prices.keys = hundredths(race(choosing)?.0).max(0.0) / layers as f64;
            }
        }
        Ok(prices)
    }

    /// Where an operation that is spared because tokens leave is worth so much, and measuring them in a layer costs so much.
    #[cfg(test)]
    pub(crate) fn of_tokens(tokens: f64, measuring: f64) -> Prices {
        Prices { tokens, measuring, ..Prices::default() }
    }

    /// Share of the time that a plan saves, given what was counted; negative where choosing costs more.
    pub fn saved(&self, attention: Option<&AttentionPlan>, counted: &Counted, architecture: &Architecture) -> f64 {
        let Some(attention) = attention else { return 0.0 };
        let layers = || 0..architecture.layers.len();
        // The last layer never chooses.
        let tokens = |layer: usize| attention.tokens.as_ref().filter(|_| layer + 1 < architecture.layers.len());
        let measured = layers().filter(|layer| tokens(*layer).is_some_and(|t| t.of(*layer).measures())).count();
        let matched = layers().filter(|layer| tokens(*layer).is_some_and(|t| t.of(*layer).merge > 0.0)).count();
        let costs = self.measuring * measured as f64 + self.matching * matched as f64;
        // Operations are counted together: where tokens both leave and are merged, layers say how much is whose.
        let worth = [(measured, self.tokens), (matched, self.merged)].into_iter().filter(|(_, worth)| *worth > 0.0);
        let (sum, of) = worth.fold((0.0, 0), |(sum, of), (layers, worth)| (sum + layers as f64 * worth, of + layers));
        let fewer = counted.tokens * sum / of.max(1) as f64;
        let choose = |layer: &usize| attention.keys.as_ref().is_some_and(|k| k.of(*layer, architecture).is_some());
        let keys = layers().filter(choose).count() as f64 * self.keys;
        fewer - costs + self.values * counted.values + keys
    }

    /// Share of the time that chosen keys save in one layer.
    pub(crate) fn keys(&self) -> f64 {
        self.keys
    }

    /// What a choice that leaves nothing out saves: less than nothing.
    pub(crate) fn idle(&self, what: What) -> f64 {
        match what {
            What::Tokens(_) => -self.measuring,
            What::Merge(_) => -self.matching,
            _ => 0.0,
        }
    }

    /// Whether there is anything to win at the lengths that were timed.
    pub fn pays(&self, what: Running) -> bool {
        match what {
            Running::Tokens => self.tokens > 0.0,
            Running::Merge => self.merged > 0.0,
            Running::Values => self.values > 0.0,
            Running::Keys => self.keys > 0.0,
        }
    }
}

/// Whether attention by a plan takes fewer operations at the lengths that are timed, as far as that is known beforehand.
pub(crate) fn saves_operations(
    attention: &AttentionPlan,
    shop: &Workshop<'_>,
    begin: &Recipe,
    watch: &Stopwatch,
    options: &Options,
) -> Result<bool, Error> {
    let flops = |recipe: &Recipe| -> Result<f64, Error> {
        let engine = Engine::compile(&shop.shape(recipe)?, options)?;
        Ok(engine.ledger(&watch.lengths(), &Wanted::Head).flops() as f64)
    };
    let with = Recipe { attention: Some(attention.clone()), ..begin.clone() };
    Ok(flops(&with)? < (1.0 - LEAST) * flops(begin)?)
}

/// An economy that some candidate did without, because it did not pay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GivenUp {
    /// Which.
    pub what: Running,
    /// By what share it made requests slower.
    pub slower: f64,
}

impl GivenUp {
    /// What to say of it beside a recipe that was saved; nothing where that one has such an economy, a milder one, after all.
    pub fn note(&self, saved: &Recipe) -> Option<String> {
        let slower = 100.0 * self.slower;
        let what = self.what.name();
        (!self.what.is_in(saved))
            .then(|| format!("{what} was given up: by the clock it made requests {slower:.1}% slower"))
    }
}

/// Time saved for operations saved, in tenths. Nothing where there is hardly any.
fn worth(saved: f64, counted: f64) -> f64 {
    if saved < LEAST || counted < LEAST { 0.0 } else { (10.0 * (saved / counted).min(1.0)).round() / 10.0 }
}

fn hundredths(share: f64) -> f64 {
    (100.0 * share).round() / 100.0
}

/// Tokens below the cut leave in a layer.
pub(crate) fn dropping(mut attention: AttentionPlan, layer: usize, cut: f32) -> AttentionPlan {
    let tokens = attention.tokens.get_or_insert_with(Tokens::default);
    tokens.drop.get_or_insert_with(|| ByLayer::new(0.0)).layers.insert(layer, cut);
    attention
}

/// This share of a layer's tokens is merged into others.
pub(crate) fn merging(mut attention: AttentionPlan, layer: usize, share: f32) -> AttentionPlan {
    let tokens = attention.tokens.get_or_insert_with(Tokens::default);
    tokens.merge.get_or_insert_with(|| ByLayer::new(0.0)).layers.insert(layer, share);
    attention
}

/// The same, but nothing is merged.
pub(crate) fn unmerged(tokens: &Tokens) -> Tokens {
    Tokens { merge: None, ..tokens.clone() }
}

/// One of so many layers looks at as many keys as the paper has for a text's length.
pub(crate) fn choosing(mut attention: AttentionPlan, layer: usize, layers: usize) -> AttentionPlan {
    let keys = attention.keys.get_or_insert_with(|| Keys {
        ends: true,
        layers: (0..layers).map(|layer| (layer, LayerKeys::Exact)).collect(),
        ..Keys::new(Keep::Auto)
    });
    keys.layers.insert(layer, LayerKeys::Keep(Keep::Auto));
    attention
}

/// Values within budgets of this alpha, in all layers.
pub(crate) fn budgeted(mut attention: AttentionPlan, alpha: f32) -> AttentionPlan {
    attention.mca = Some(Mca { sampler: Sampler::Graded, ..Mca::new(alpha) });
    attention
}

/// Where several want the same layer: tokens save most, then keys, then values. Merging goes by keys alone and is beside all.
pub(crate) fn reconciled(mut attention: AttentionPlan, architecture: &Architecture) -> AttentionPlan {
    let Some(mut keys) = attention.keys.take() else { return attention };
    let mut chosen = false;
    for layer in 0..architecture.layers.len() {
        if keys.of(layer, architecture).is_none() {
            continue;
        }
        if attention.tokens.as_ref().is_some_and(|tokens| tokens.of(layer).measures()) {
            keys.layers.insert(layer, LayerKeys::Exact);
        } else {
            chosen = true;
            attention.mca.iter_mut().for_each(|mca| _ = mca.layers.insert(layer, LayerAlpha::Exact));
        }
    }
    attention.keys = chosen.then_some(keys);
    attention
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_saved_plan_has_was_not_given_up() {
        let given_up = GivenUp { what: Running::Tokens, slower: 0.123 };
        let note = given_up.note(&Recipe::default()).unwrap();
        assert_eq!(note, "letting tokens leave was given up: by the clock it made requests 12.3% slower");
        let has = Recipe { attention: Some(dropping(AttentionPlan::default(), 1, 0.5)), ..Recipe::default() };
        assert_eq!(given_up.note(&has), None);
        assert!(GivenUp { what: Running::Keys, slower: 0.1 }.note(&has).is_some());
    }

    #[test]
    fn merged_tokens_are_worth_what_the_clock_says_of_merging() {
        let architecture = crate::testing::model().architecture;
        let prices = Prices { measuring: 0.02, matching: 0.01, tokens: 0.8, merged: 0.5, values: 0.0, keys: 0.0 };
        let counted = Counted { tokens: 0.2, values: 0.0 };
        let saved = |plan: &str| prices.saved(Some(&plan.parse().unwrap()), &counted, &architecture);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(saved("exact,drop=0.5"), 0.8 * 0.2 - 0.02);
        near(saved("exact,merge=0.1"), 0.5 * 0.2 - 0.01);
        near(saved("exact,drop=0.5,merge=0.1"), 0.65 * 0.2 - 0.03);
        // The last layer never chooses.
        near(saved("exact,merge=0,merge1=0.1"), 0.0);
        // A model that came with merged tokens, and nobody asked what merging is worth.
        let unasked = Prices { matching: 0.0, merged: 0.0, ..prices };
        near(unasked.saved(Some(&"exact,drop=0.5,merge=0.1".parse().unwrap()), &counted, &architecture), 0.14);
    }

    #[test]
    fn savings_that_choosing_eats_are_not_worth_it() {
        assert_eq!(worth(0.09, 0.1), 0.9);
        assert_eq!(worth(0.2, 0.1), 1.0);
        assert_eq!(worth(0.034, 0.1), 0.3);
        assert_eq!((worth(-0.02, 0.1), worth(0.005, 0.1), worth(0.3, 0.0)), (0.0, 0.0, 0.0));
        assert_eq!((hundredths(0.0149), hundredths(-0.026)), (0.01, -0.03));
    }
}
