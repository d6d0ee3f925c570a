//! What all strategies share: settings, trials, and the record of what was tried.

use crate::running::{GivenUp, Prices, Running};
use crate::{
    Costs, Economy, Journal, Judge, Recipe, Stopwatch, Strategy, Thresholds, Verdict, Workshop, cost, outcome, queue,
};
use serde::{Deserialize, Serialize};
use sparing_engine::Engine;
use sparing_model::{Bits, Error, Model, Precision};
use sparing_report::Focus;

/// Rounds of the race that decides whether an economy stays.
const ROUNDS: usize = 9;

/// Share of the budget up to which int8 as a whole leaves enough for other economies.
const LITTLE: f64 = 0.5;

/// What the user wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// What matters most.
    pub focus: Focus,
    /// Share of the baseline's score that may be lost.
    pub budget: f64,
    /// How to search.
    pub strategy: Strategy,
    /// What may be economised.
    pub menu: Vec<Economy>,
    /// Neurons of a weight group.
    pub group: usize,
    /// Lower layers first.
    pub bottom_first: bool,
    /// Of strategies that go from element to element.
    pub thresholds: Thresholds,
    /// An element may go only if most rows do not get worse by it.
    pub most_rows: bool,
    /// Seed of everything random.
    pub seed: u64,
    /// At most so many trials.
    pub trials: usize,
    /// Whether steps are taken one by one after the best combination was found; for little where it will be trained anyway.
    pub last_steps: bool,
}

impl Settings {
    /// Whether enough rows do not get worse, if that matters.
    pub fn is_fair(&self, verdict: &Verdict) -> bool {
        !self.most_rows || verdict.not_worse > 0.5
    }

    /// Whether an economy is on the menu.
    pub fn may(&self, economy: Economy) -> bool {
        self.menu.contains(&economy)
    }
}

/// A recipe that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// What it does.
    pub recipe: Recipe,
    /// What its answers are worth.
    pub verdict: Verdict,
    /// The baseline's time over its own, as far as that can be foreseen.
    pub foreseen: f64,
    /// Bytes of its weights as they would be saved.
    pub bytes: u64,
    /// Whether the search went on from it.
    pub accepted: bool,
    /// Whether all it economises saves time, as far as the clock was asked; with size in focus, whether it is smaller at all.
    pub pays: bool,
    /// Whether enough rows do not get worse, if that matters.
    pub fair: bool,
    /// Whether it was fine-tuned before it was judged.
    pub trained: bool,
}

impl Tried {
    /// Whether no more than this share of the score is lost. One that was trained need not believe what the baseline believes:
    /// its score alone decides.
    pub fn within(&self, budget: f64) -> bool {
        if self.trained { self.verdict.lost <= budget + 1e-9 } else { self.verdict.within(budget) }
    }

    /// Whether a search may go on from it: it is within the budget, and fair to most rows where that matters.
    pub(crate) fn is_acceptable(&self, budget: f64) -> bool {
        self.fair && self.within(budget)
    }
}

/// What a search tells while it runs.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// Something new begins, of about so many trials.
    Phase(&'a str, usize),
    /// A part was looked at.
    Look(&'a str),
    /// A trial is done: what was changed, and what came of it.
    Trial(&'a str, &'a Tried),
}

/// A search in progress.
pub struct Search<'a> {
    /// Makes candidates.
    pub shop: &'a Workshop<'a>,
    /// Judges them.
    pub judge: &'a Judge<'a>,
    /// Judges single parts, by fewer rows, where there are many.
    pub glance: Option<&'a Judge<'a>>,
    /// What parts cost here.
    pub costs: &'a Costs,
    /// Times them.
    pub watch: &'a Stopwatch,
    /// What economies that are chosen while a model runs are worth here; measured when the search begins.
    pub prices: Prices,
    /// What the user wants.
    pub settings: &'a Settings,
    /// What was tried before.
    pub journal: Journal,
    /// Everything that was tried.
    pub tried: Vec<Tried>,
    /// How many of them were there to see what a part is worth.
    pub looks: usize,
    /// What did not pay by the clock.
    pub given_up: Vec<GivenUp>,
    /// Told what happens.
    pub tell: &'a mut dyn FnMut(Event<'_>),
    /// Asked often.
    pub stop: &'a mut dyn FnMut() -> bool,
    /// Trains a candidate for a while before it is judged, where significance is to be found so.
    pub tune: Option<&'a mut Tune<'a>>,
}

/// Trains a model that was made for a trial.
pub type Tune<'a> = dyn FnMut(&Model) -> Result<Model, Error> + 'a;

impl Search<'_> {
    /// Searches. If it is stopped, what was tried so far stays in [`Search::tried`], and the result is false.
    pub fn run(&mut self) -> Result<bool, Error> {
        let found = match self.settings.strategy {
            Strategy::Cost => cost::search(self),
            _ => queue::search(self),
        };
        // Stopped or not, nothing that does not pay is kept.
        let complete = match found {
            Ok(()) => true,
            Err(_) if (self.stop)() => false,
            Err(e) => return Err(e),
        };
        match self.settle() {
            Ok(()) => Ok(complete),
            Err(_) if (self.stop)() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Has the clock compare the best candidate with the same one without each economy that is chosen while it runs: what does
    /// not pay is dropped.
    fn settle(&mut self) -> Result<(), Error> {
        let Settings { focus, budget, .. } = *self.settings;
        if focus != Focus::Speed {
            return Ok(());
        }
        let came = self.shop.model.plan.attention.is_some();
        let mut settled: Vec<(Running, String)> = Vec::new();
        while let Some(best) = outcome::best(&self.tried, focus, budget) {
            let recipe = self.tried[best].recipe.clone();
            let unsettled = |of: &Running| !settled.iter().any(|(done, key)| done == of && *key == recipe.key());
            let asked = Running::ALL.into_iter().filter(unsettled);
            let Some((of, without)) = asked.filter_map(|of| Some((of, of.without(&recipe, came)?))).next() else {
                break;
            };
            let ratio = self.race(&without, &recipe)?;
            settled.push((of, recipe.key()));
            if ratio >= 1.0 {
                continue;
            }
            let alike = |tried: &&mut Tried| tried.recipe.attention == recipe.attention;
            self.tried.iter_mut().filter(alike).for_each(|tried| tried.pays = false);
            // Once is enough: the next best may ask again.
            if !self.given_up.iter().any(|known| known.what == of) {
                self.given_up.push(GivenUp { what: of, slower: 1.0 / ratio - 1.0 });
            }
            // The model as it came is no candidate.
            if !(self.stop)() && without != Recipe::default() {
                self.attempt("the same without what does not pay", &without)?;
            }
        }
        Ok(())
    }

    /// The first recipe's time over the second's, by the clock.
    fn race(&mut self, first: &Recipe, second: &Recipe) -> Result<f64, Error> {
        let (shop, watch, judge) = (self.shop, self.watch, self.judge);
        let engine = |recipe: &Recipe| Engine::compile(&shop.shape(recipe)?, judge.engine());
        self.journal.clocked(&format!("{} against {}", first.key(), second.key()), || {
            Ok(watch.race(&engine(first)?, &engine(second)?, ROUNDS)?.undisturbed)
        })
    }

    /// Number of trials that are left; seeing what each part is worth is none.
    pub(crate) fn trials_left(&self) -> usize {
        self.settings.trials.saturating_sub(self.tried.len() - self.looks)
    }

    /// Share of the layers' time that is saved by what a candidate chooses while it runs, beside what the model as it came chooses.
    pub(crate) fn chosen(&self, tried: &Tried) -> f64 {
        let Model { architecture, plan, .. } = self.shop.model;
        let came = plan.attention.as_ref();
        let left = |attention, counted| 1.0 - self.prices.saved(attention, counted, architecture);
        let was = left(came, &self.judge.own().counted);
        let now = left(tried.recipe.attention.as_ref().or(came), &tried.verdict.counted);
        1.0 - now / was.max(0.02)
    }

    /// Tries a recipe: what its answers are worth.
    pub(crate) fn attempt(&mut self, what: &str, recipe: &Recipe) -> Result<Tried, Error> {
        let tried = self.judged(recipe, self.judge)?;
        (self.tell)(Event::Trial(what, &tried));
        self.tried.push(tried.clone());
        Ok(tried)
    }

    /// Looks at what a part is worth: by fewer rows than [`Search::attempt`] where there are many, and then it is no candidate.
    pub(crate) fn look(&mut self, what: &str, recipe: &Recipe) -> Result<Tried, Error> {
        let Some(glance) = self.glance.filter(|_| self.tune.is_none()) else {
            self.looks += 1;
            return self.attempt(what, recipe);
        };
        let tried = self.judged(recipe, glance)?;
        (self.tell)(Event::Look(what));
        Ok(tried)
    }

    /// By how much the loss changes with a recipe that is only there to be asked about: neither a candidate nor a trial.
    pub(crate) fn probe(&mut self, what: &str, recipe: &Recipe) -> Result<f64, Error> {
        let judge = self.glance.unwrap_or(self.judge);
        // A slope is that of the model as it is: training would take it away.
        let tune = self.tune.take();
        let tried = self.judged(recipe, judge);
        self.tune = tune;
        let tried = tried?;
        (self.tell)(Event::Look(what));
        Ok(tried.verdict.loss - judge.own().loss)
    }

    fn judged(&mut self, recipe: &Recipe, judge: &Judge<'_>) -> Result<Tried, Error> {
        if (self.stop)() {
            return Err(Error::new("stopped"));
        }
        // What the model came with and keeps is nothing that is done to it.
        let came = self.shop.model.plan.attention.as_ref();
        let attention = recipe.attention.clone().filter(|attention| Some(attention) != came);
        let recipe = &Recipe { attention, ..recipe.clone() };
        let model = self.make(recipe)?;
        let verdict = match self.journal.find(recipe, judge.rows()) {
            Some(verdict) => verdict,
            None => {
                let tuned = self.tune.as_mut().map(|tune| tune(&model)).transpose()?;
                let verdict = judge.verdict(tuned.as_ref().unwrap_or(&model), self.stop)?;
                self.journal.note(recipe, judge.rows(), verdict)?;
                verdict
            }
        };
        let bytes = self.shop.bytes(&model);
        let mut tried = Tried {
            recipe: recipe.clone(),
            verdict,
            foreseen: 1.0,
            bytes,
            accepted: false,
            pays: self.settings.focus != Focus::Size || bytes < self.shop.model.weights.size_in_bytes() as u64,
            fair: self.settings.is_fair(&verdict),
            trained: self.tune.is_some(),
        };
        tried.foreseen = self.costs.ratio(recipe, &self.shop.anatomy, self.chosen(&tried));
        Ok(tried)
    }

    /// Marks the last trial as the one to go on from.
    pub(crate) fn accept(&mut self) {
        if let Some(last) = self.tried.last_mut() {
            last.accepted = true;
        }
    }

    /// The model of a recipe, as far as its answers depend on it: rounded where it will be saved so.
    fn make(&self, recipe: &Recipe) -> Result<Model, Error> {
        let is_rounded = recipe.bits.is_some() || self.shop.came_rounded();
        if is_rounded { self.shop.make(recipe) } else { self.shop.shape(recipe) }
    }

    /// The fastest precision of those that answer as well, if one may be chosen.
    pub(crate) fn precision(&mut self) -> Result<Recipe, Error> {
        let mut best = (Recipe::default(), 1.0);
        if !self.settings.may(Economy::Precision) || self.settings.focus != Focus::Speed {
            return Ok(best.0);
        }
        (self.tell)(Event::Phase("precision", 2));
        for precision in [Precision::Int8, Precision::Bf16] {
            let ratio = self.costs.precision(precision);
            if ratio <= best.1 {
                continue;
            }
            let recipe = Recipe { precision: Some(precision), ..Recipe::default() };
            let tried = self.attempt("precision", &recipe)?;
            if tried.is_acceptable(self.settings.budget) {
                self.accept();
                best = (recipe, ratio);
            }
        }
        Ok(best.0)
    }

    /// Where int8 is fastest and leaves little for other economies, or nothing, while bf16 does: everything in bf16, to begin with.
    /// Blocks go over to int8 one by one then, as far as answers allow.
    pub(crate) fn mixed(&mut self, begin: Recipe) -> Result<Recipe, Error> {
        let [int8, bf16] = [Precision::Int8, Precision::Bf16].map(|precision| self.costs.precision(precision));
        let little = LITTLE * self.settings.budget;
        let is_cheap = |tried: &Tried| tried.recipe == begin && tried.verdict.doubt <= little;
        let is_int8 = begin.precision == Some(Precision::Int8);
        if int8 <= bf16.max(1.0) || bf16 < 1.0 || is_int8 && self.tried.iter().any(is_cheap) {
            return Ok(begin);
        }
        // It was not asked where it is no faster than the best so far.
        let in_bf16 = Recipe { precision: Some(Precision::Bf16), ..Recipe::default() };
        if begin != in_bf16 && !self.attempt("precision", &in_bf16)?.is_acceptable(little) {
            return Ok(begin);
        }
        let bf16 = (0..self.shop.anatomy.sites.len()).collect();
        Ok(Recipe { precision: Some(Precision::Int8), bf16, ..begin })
    }

    /// Weights in 8 bits, if that may be and answers as well.
    pub(crate) fn rounded(&mut self, begin: Recipe) -> Result<Recipe, Error> {
        if !self.settings.may(Economy::Bits) || self.settings.focus != Focus::Size {
            return Ok(begin);
        }
        (self.tell)(Event::Phase("bits", 1));
        let recipe = Recipe { bits: Some(Bits::all(8)), ..begin.clone() };
        if self.attempt("8 bits", &recipe)?.is_acceptable(self.settings.budget) {
            self.accept();
            return Ok(recipe);
        }
        Ok(begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{model, searching, settings};

    #[test]
    fn what_came_rounded_is_judged_as_it_will_be_saved() {
        let whole = model();
        let few = Recipe { bits: Some(Bits::all(3)), ..Recipe::default() };
        let came = crate::Workshop::new(&whole).unwrap().make(&few).unwrap();
        let settings = settings(Strategy::Paper, Focus::Speed, &[Economy::Heads]);
        searching(&came, &settings, 12, |search| {
            // One head of two is left, and what is behind it is dimmed: floats, until they are rounded again.
            let left = search
                .shop
                .anatomy
                .of_kind(crate::Kind::Attention)
                .map(|site| (site, crate::Left::Dimmed(vec![0], 0.5)));
            let recipe = Recipe { left: left.collect(), ..Recipe::default() };
            let tried = search.attempt("half", &recipe).unwrap();
            let saved = search.judge.verdict(&search.shop.make(&recipe).unwrap(), &mut || false).unwrap();
            let floats = search.judge.verdict(&search.shop.shape(&recipe).unwrap(), &mut || false).unwrap();
            assert_eq!(tried.verdict, saved);
            assert_ne!(tried.verdict.loss, floats.loss);
        });
    }

    #[test]
    fn what_a_model_came_with_is_nothing_new() {
        let mut came = model();
        came.plan.attention = Some("exact,drop=0.9".parse().unwrap());
        let settings = settings(Strategy::Cost, Focus::Speed, &[Economy::Tokens]);
        searching(&came, &settings, 30, |search| {
            search.prices = Prices::of_tokens(1.0, 0.01);
            let same = Recipe { attention: search.shop.model.plan.attention.clone(), ..Recipe::default() };
            let same = search.attempt("the same", &same).unwrap();
            assert_eq!(same.recipe, Recipe::default(), "it is the model as it came");
            assert!((same.foreseen - 1.0).abs() < 1e-9, "{}", same.foreseen);
            // All tokens stay: that is slower than what came.
            let none = Recipe { attention: Some("exact,drop=0.000001".parse().unwrap()), ..Recipe::default() };
            let none = search.attempt("milder", &none).unwrap();
            assert!(none.foreseen < 0.95, "{} {:?}", none.foreseen, search.judge.own().counted);
        });
    }

    #[test]
    fn what_is_no_smaller_does_not_pay_where_size_matters() {
        let settings = settings(Strategy::Paper, Focus::Size, &[Economy::Bits]);
        searching(&model(), &settings, 12, |search| {
            let tried = search.attempt("nothing", &Recipe { precision: Some(Precision::Int8), ..Recipe::default() });
            assert!(!tried.unwrap().pays);
            assert!(search.attempt("bits", &Recipe { bits: Some(Bits::all(8)), ..Recipe::default() }).unwrap().pays);
        });
    }
}
