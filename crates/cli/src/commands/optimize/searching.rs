//! The search, and what is prepared for it.

use super::OptimizeArgs;
use super::data::Data;
use super::found::{Ended, Found};
use super::teller::Teller;
use crate::commands::calibrate::collect;
use crate::console::Paint;
use crate::failure::Failure;
use crate::{console, interrupt, progress};
use sparing_engine::Engine;
use sparing_model::{AttentionPlan, Bits, Mca, Model, Precision};
use sparing_optimize::{
    Costs, Economy, Elsewhere, Event, Journal, Judge, Prices, Recipe, Search, Settings, Site, Stopwatch, Strategy,
    Tried, Tune, Verdict, Workshop, outcome, without_intervals,
};
use sparing_quantize::calibrate;
use sparing_report::Focus;
use sparing_tasks::Dataset;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Texts that values are calibrated with: there is little to learn, and it is soon learnt.
const VALUE_TEXTS: usize = 256;
/// Tokens to run together on another device than the engine's.
const TOKENS_ELSEWHERE: usize = 32768;
/// Requests that are timed in a round.
const REQUESTS: usize = 48;

/// What a search needs, and what the report needs after it.
pub struct Work<'a> {
    pub shop: Workshop<'a>,
    pub judge: Judge<'a>,
    /// Judges single parts, by fewer rows.
    glance: Option<Judge<'a>>,
    /// Where candidates answer if not in the engine.
    pub elsewhere: Option<&'a Elsewhere<'a>>,
    pub watch: Stopwatch,
    pub costs: Costs,
    pub baseline: Engine,
}

impl<'a> Work<'a> {
    pub fn prepare(
        args: &OptimizeArgs,
        model: &'a Model,
        data: &'a Data,
        settings: &Settings,
        elsewhere: Option<&'a Elsewhere<'a>>,
        journal: &mut Journal,
    ) -> Result<Work<'a>, Failure> {
        let spinner = progress::spinner("the model as it came: its answers");
        let mut stop = interrupt::asked;
        let mut options = without_intervals(&args.evaluation());
        if elsewhere.is_some() {
            options.tokens_per_batch = TOKENS_ELSEWHERE;
        }
        let mut by = |rows: &'a Dataset| {
            Judge::new(model, rows, options.clone(), args.engine(), elsewhere, &mut stop).map_err(interrupt::told)
        };
        let judge = by(&data.search)?;
        let glance = data.glance.as_ref().map(by).transpose()?;
        spinner.set_message("the model as it came: its time");
        let baseline = Engine::compile(model, &args.engine())?;
        let watch = Stopwatch::new(sequences(model, &data.search, args)?, args.batch, REQUESTS);
        let mut shop = Workshop::new(model)?;
        let precisions: &[Precision] =
            if settings.may(Economy::Precision) { &[Precision::Int8, Precision::Bf16] } else { &[] };
        let costs = Costs::measure(model, &shop.anatomy, &watch, &args.engine(), &baseline, precisions, journal)?;
        spinner.finish_and_clear();
        interrupt::check()?;
        if settings.strategy == Strategy::Cost {
            prepare(args, model, data, settings, &mut shop)?;
        }
        Ok(Work { shop, judge, glance, elsewhere, watch, costs, baseline })
    }

    /// A search that has not begun.
    pub fn begin<'s>(
        &'s self,
        settings: &'s Settings,
        journal: Journal,
        tell: &'s mut dyn FnMut(Event<'_>),
        stop: &'s mut dyn FnMut() -> bool,
    ) -> Search<'s> {
        Search {
            shop: &self.shop,
            judge: &self.judge,
            glance: self.glance.as_ref(),
            costs: &self.costs,
            watch: &self.watch,
            prices: Prices::default(),
            settings,
            journal,
            tried: Vec::new(),
            looks: 0,
            given_up: Vec::new(),
            tell,
            stop,
            tune: None,
        }
    }

    /// What became of a candidate, in a line.
    pub fn line(&self, what: &str, tried: &Tried, good: bool) -> String {
        let doubt = match tried.trained {
            true => String::new(),
            false => format!(", doubt {:.2}%", 100.0 * tried.verdict.doubt),
        };
        format!(
            "{} {what}: {}; {}, {} foreseen, score {:.4} ({:+.2}% ± {:.2}){doubt}",
            if good { "✓" } else { "·" },
            outcome::words(&tried.recipe, &self.shop.anatomy),
            times(self.shop.model.weights.size_in_bytes() as f64 / tried.bytes.max(1) as f64, "smaller", "larger"),
            times(tried.foreseen, "faster", "slower"),
            tried.verdict.score,
            -100.0 * tried.verdict.lost,
            100.0 * tried.verdict.luck,
        )
    }

    /// Searches, telling what is tried.
    /// `journal`: what is known already.
    /// `tune`: trains candidates before they are judged.
    pub fn search(&self, settings: &Settings, journal: Journal, tune: Option<&mut Tune<'_>>) -> Result<Found, Failure> {
        let mut teller = Teller::new(self, settings);
        teller.say(&format!("✓ {}", self.judge.criterion(settings.focus, settings.budget)));
        let mut tell = |event: Event<'_>| teller.tell(event);
        let mut stop = interrupt::asked;
        let mut search = self.begin(settings, journal, &mut tell, &mut stop);
        if let Some(tune) = tune {
            search.tune = Some(tune);
        }
        let ended = if search.run()? { Ended::Whole } else { Ended::Stopped };
        let (tried, given_up) = (search.tried, search.given_up);
        let journal = if search.tune.is_some() { Journal::default() } else { search.journal };
        teller.end();
        if let Some(note) = ended.at_once() {
            console::note(&note);
        }
        let best = outcome::best(&tried, settings.focus, settings.budget);
        let (made, broken) = (BTreeMap::new(), BTreeSet::new());
        let notes = self.overruled(settings, &tried).into_iter().collect();
        Ok(Found { tried, best, ended, given_up, notes, made, broken, journal })
    }

    /// What a strategy with thresholds of its own took and may not be saved untrained.
    fn overruled(&self, settings: &Settings, tried: &[Tried]) -> Option<String> {
        let last = tried.iter().rfind(|tried| tried.accepted).filter(|_| settings.strategy != Strategy::Cost)?;
        if outcome::good_enough(last, settings.focus, settings.budget) {
            return None;
        }
        let Verdict { lost, doubt, .. } = last.verdict;
        let why = match lost > outcome::most_lost(settings.focus, settings.budget) {
            true => format!("it loses {:.2}%", 100.0 * lost),
            false => format!("its doubt is {:.2}%", 100.0 * doubt),
        };
        let words = outcome::words(&last.recipe, &self.shop.anatomy);
        Some(format!(
            "by its own thresholds the strategy went as far as {words}, which is not good enough on searched rows: {why}"
        ))
    }

    /// Where size matters: the best candidate once more with its maps in int8, which take a quarter of the memory of floats. It
    /// is the best then, if it is good enough.
    pub fn lighten(&self, settings: &Settings, found: &mut Found) -> Result<(), Failure> {
        let Some(best) = found.best.filter(|_| settings.focus == Focus::Size && settings.may(Economy::Bits)) else {
            return Ok(());
        };
        let model = found.model(best, self)?;
        if model.plan.precision != Some(Precision::F32) {
            return Ok(());
        }
        let in_int8 = Recipe { precision: Some(Precision::Int8), ..Recipe::default() };
        let light = Workshop::new(&model)?.shape(&in_int8)?;
        let recipe = Recipe { precision: Some(Precision::Int8), ..found.tried[best].recipe.clone() };
        if self.instead("run in int8", (settings, found), best, recipe, light)? == Some(false) {
            found.notes.push("in int8 it would take less memory and lose too much: it runs in 32-bit floats".into());
        }
        Ok(())
    }

    /// Where speed matters: the best candidate once more, with what runs in int8 stored in 8 bits, embeddings and head too if that is
    /// good enough. It is as fast, and takes a quarter of the disk.
    pub fn store(&self, settings: &Settings, found: &mut Found) -> Result<(), Failure> {
        let Some(best) = found.best.filter(|best| settings.focus == Focus::Speed && !found.tried[*best].trained) else {
            return Ok(());
        };
        let model = found.model(best, self)?;
        let came = &found.tried[best].recipe;
        if model.plan.precision != Some(Precision::Int8) || came.bits.is_some() {
            return Ok(());
        }
        let maps = Bits { embeddings: None, head: None, ..Bits::all(8) };
        for recipe in [Bits::all(8), maps].map(|bits| Recipe { bits: Some(bits), ..came.clone() }) {
            if found.is_left_out(&recipe) {
                continue;
            }
            let stored = self.shop.make(&recipe)?;
            let is_smaller = stored.weights.size_in_bytes() < model.weights.size_in_bytes();
            if !is_smaller || self.instead("stored in 8 bits", (settings, found), best, recipe, stored)? != Some(false)
            {
                break;
            }
        }
        Ok(())
    }

    /// Whether a candidate in another form is good enough; it is the best then. `None`: nobody waits for that.
    fn instead(
        &self,
        what: &str,
        (settings, found): (&Settings, &mut Found),
        of: usize,
        recipe: Recipe,
        model: Model,
    ) -> Result<Option<bool>, Failure> {
        let verdict = match self.judge.verdict(&model, &mut interrupt::asked) {
            // What was found is good as it is.
            Err(_) if interrupt::asked() => return Ok(None),
            verdict => verdict?,
        };
        let bytes = model.weights.size_in_bytes() as u64;
        let fair = settings.is_fair(&verdict);
        let tried = Tried { recipe, verdict, bytes, fair, ..found.tried[of].clone() };
        let good = outcome::may_be_chosen(&tried, settings.focus, settings.budget);
        eprintln!("{}", Paint::stderr().judged(good, &self.line(what, &tried, good)));
        if good {
            found.made.insert(found.tried.len(), Arc::new(model));
            found.best = Some(found.tried.len());
        }
        found.tried.push(tried);
        Ok(Some(good))
    }
}

/// "1.92x faster", or "1.20x slower".
fn times(ratio: f64, more: &str, less: &str) -> String {
    if ratio < 0.995 { format!("{:.2}x {less}", 1.0 / ratio) } else { format!("{ratio:.2}x {more}") }
}

/// Looks at what maps read, and works out what can be spared.
fn prepare(
    args: &OptimizeArgs,
    model: &Model,
    data: &Data,
    settings: &Settings,
    shop: &mut Workshop<'_>,
) -> Result<(), Failure> {
    if settings.may(Economy::Values) && settings.focus == Focus::Speed {
        let mut texts = data.calibration.clone();
        texts.thin(VALUE_TEXTS, args.seed);
        // A model that cannot have budgets does without.
        if budgets_suit(model) {
            shop.calibrate(collect(model, &texts, &args.evaluation(), args.threads)?);
        }
    }
    // What is neither removed nor rounded with care need not be known by heart.
    if ![Economy::Blocks, Economy::Heads, Economy::Width, Economy::Bits].iter().any(|economy| settings.may(*economy)) {
        return Ok(());
    }
    let exact = sparing_engine::Options { precision: Some(Precision::F32), ..args.engine() };
    let engine = Engine::compile(model, &exact)?;
    let bar = progress::bar(0, "calibration texts");
    let statistics = calibrate(&engine, model, &data.calibration, &args.evaluation(), true, &mut |p| {
        bar.set_length(p.total as u64);
        bar.set_position(p.done as u64);
        !interrupt::asked()
    });
    bar.finish_and_clear();
    let statistics = statistics.map_err(interrupt::told)?.ok_or(Failure::Interrupted)?;
    let bar = progress::bar(shop.anatomy.sites.len() as u64, "blocks prepared");
    let group = settings.group;
    let whole = shop.prepare(statistics, &|site: &Site| stops(site, group), &|done, _| {
        bar.set_position(done as u64);
        !interrupt::asked()
    })?;
    bar.finish_and_clear();
    if whole { Ok(()) } else { Err(Failure::Interrupted) }
}

/// Whether values of this network can have budgets.
fn budgets_suit(model: &Model) -> bool {
    let plan = AttentionPlan { mca: Some(Mca::new(1.0)), ..AttentionPlan::default() };
    plan.check_for(&model.architecture).is_ok()
}

/// Numbers of units to prepare for, from many to none: every head, every group of neurons.
fn stops(site: &Site, group: usize) -> Vec<usize> {
    let all = site.units.len();
    let step = if site.unit_width == 1 { group } else { all.div_ceil(12).max(1) };
    (0..all).step_by(step).rev().collect()
}

/// Tokens that texts are cut to.
pub fn limit(model: &Model, args: &OptimizeArgs) -> Option<usize> {
    match (args.data.max_tokens, model.architecture.longest_input()) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

pub fn sequences(
    model: &Model,
    dataset: &Dataset,
    args: &OptimizeArgs,
) -> Result<Vec<sparing_model::Sequence>, Failure> {
    let tokenizer = model.tokenizer()?;
    let limit = limit(model, args);
    let encode = |e: &sparing_tasks::Example| Ok(tokenizer.encode(&e.text, e.pair.as_deref(), limit)?.sequence);
    dataset.examples.iter().map(encode).collect()
}
