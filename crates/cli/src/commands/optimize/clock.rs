//! What the clock says of candidates: who is fastest, by how much, and where the time goes.

use super::OptimizeArgs;
use super::choose::unseen;
use super::data::Data;
use super::found::Found;
use super::saved::Measured;
use super::searching::Work;
use crate::failure::Failure;
use crate::interrupt;
use indicatif::ProgressBar;
use sparing_engine::Engine;
use sparing_optimize::{Contest, Contestant, Recipe, Settings, Timed, contest as defend, executor, outcome};
use sparing_report::{Candidate, Focus, Gain, Interval, PartTime};
use sparing_tasks::Report as Scores;
use std::collections::BTreeMap;

/// Candidates that are timed and scored on unseen rows because they are on the frontier.
const SHOWN: usize = 8;
/// Candidates that may be the fastest after all: so many that are foreseen to be nearly as fast as the best.
const FINALISTS: usize = 4;
/// Rounds of their races.
const ROUNDS: usize = 9;
/// What is foreseen to be so many times faster than the model as it came need not be raced against that to know that it is not slower.
const SURELY: f64 = 1.5;

/// Who won, and the scores on unseen rows and bytes of all that were in it but the first.
pub struct Raced {
    pub contest: Contest,
    pub scored: BTreeMap<usize, (Scores, u64)>,
    /// Who could not be in it: their answers to some unseen rows are no numbers.
    pub broken: Vec<usize>,
}

/// Has the best candidate defend its place against all that are shown, two at a time and in turns.
pub fn contest(
    args: &OptimizeArgs,
    data: &Data,
    settings: &Settings,
    work: &Work<'_>,
    found: &Found,
    bar: &ProgressBar,
) -> Result<Raced, Failure> {
    bar.set_message("candidates");
    let may_win = |number: usize| settings.focus == Focus::Speed && may_be_chosen(found, settings, number);
    let all = shown(found, settings, work).into_iter().map(|number| (number, may_win(number)));
    // Who is in a hurry waits for nobody that is only shown.
    let all: Vec<_> = all.filter(|(_, may_win)| *may_win || !interrupt::asked()).collect();
    let compiled = |number: usize| -> Result<_, Failure> {
        let model = found.model(number, work)?;
        Ok((Engine::compile(&model, &args.engine())?, model))
    };
    let (mut scored, mut broken) = (BTreeMap::new(), Vec::new());
    // The defender, and the last challenger: who won is one of the two. Those who meet again do so with engines made anew.
    let mut known: Vec<(usize, Engine)> = Vec::new();
    let mut race = |defender: Contestant, challenger: usize| -> Result<Option<Timed>, Failure> {
        let again = known.iter().any(|(number, _)| *number == challenger);
        known.retain(|(number, _)| Some(*number) == defender && !again);
        if let (Some(defender), true) = (defender, known.is_empty()) {
            known.push((defender, compiled(defender)?.0));
        }
        let (engine, model) = compiled(challenger)?;
        if !again {
            bar.inc(1);
            let answered = match executor(work.elsewhere, &model)? {
                Some(executor) => unseen(args, data, &*executor, &model)?,
                None => unseen(args, data, &engine, &model)?,
            };
            let Some(answered) = answered else {
                broken.push(challenger);
                return Ok(None);
            };
            scored.insert(challenger, (answered, model.weights.size_in_bytes() as u64));
        }
        let defending = known.first().map_or(&work.baseline, |(_, engine)| engine);
        let timed = work.watch.race(defending, &engine, ROUNDS)?;
        known.push((challenger, engine));
        Ok(Some(timed))
    };
    let contest = defend(found.best, &all, &mut race)?;
    let close = |number: usize| settings.focus == Focus::Speed && found.tried[number].foreseen < SURELY;
    let contest = match contest.winner.is_some_and(close) {
        true => contest.or_nobody(&mut |winner| -> Result<_, Failure> {
            Ok(work.watch.race(&work.baseline, &compiled(winner)?.0, ROUNDS)?)
        })?,
        false => contest,
    };
    Ok(Raced { contest, scored, broken })
}

/// Candidates that are timed: the best of the rest at every speed, and those that may be the fastest after all.
pub fn shown(found: &Found, settings: &Settings, work: &Work<'_>) -> Vec<usize> {
    let foreseen = |number: &usize| found.tried[*number].foreseen;
    let mut finalists: Vec<usize> =
        (0..found.tried.len()).filter(|number| may_be_chosen(found, settings, *number)).collect();
    finalists.sort_by(|a, b| foreseen(b).total_cmp(&foreseen(a)));
    finalists.dedup_by(|a, b| found.tried[*a].recipe == found.tried[*b].recipe);
    finalists.truncate(if settings.focus == Focus::Speed { FINALISTS } else { 0 });

    let sign = if work.judge.metric().higher_is_better() { 1.0 } else { -1.0 };
    let points: Vec<_> = found.tried.iter().map(|t| (sign * t.verdict.score, t.foreseen, t.bytes)).collect();
    let on = outcome::frontier(&points);
    let worth_showing = |number: &usize| {
        let tried = &found.tried[*number];
        on[*number] && tried.pays && found.is_kept(*number) && tried.recipe != Recipe::default()
    };
    let mut best: Vec<usize> = (0..points.len()).filter(worth_showing).collect();
    best.sort_by(|a, b| foreseen(b).total_cmp(&foreseen(a)));
    let step = best.len().div_ceil(SHOWN).max(1);
    let rest = best.into_iter().step_by(step).filter(|number| !finalists.contains(number));
    let mut shown: Vec<usize> = rest.collect();
    shown.splice(0..0, finalists);
    shown.retain(|number| Some(*number) != found.best);
    shown
}

fn may_be_chosen(found: &Found, settings: &Settings, number: usize) -> bool {
    found.is_kept(number) && outcome::may_be_chosen(&found.tried[number], settings.focus, settings.budget)
}

/// Puts times in: of the chosen one what the fresh process measured, of those that were raced against it as much more or less,
/// of the rest what was foreseen beside it.
pub fn put_times(candidates: &mut [Candidate], found: &Found, contest: &Contest, measured: &Measured) {
    let (base, within, foreseen) = match contest.winner {
        Some(winner) => (measured.time_ratio, measured.time_interval, found.tried[winner].foreseen),
        None => (1.0, [1.0; 2], 1.0),
    };
    for (number, one) in candidates.iter_mut().enumerate() {
        let (ratio, interval) = match contest.speeds.get(&number) {
            _ if contest.winner == Some(number) => (measured.time_ratio, Some(measured.interval())),
            // As well as both are known.
            Some((speed, [low, high])) => {
                (base * speed, Some(Interval { low: within[0] * low, high: within[1] * high }))
            }
            None => (base * found.tried[number].foreseen / foreseen, None),
        };
        (one.time_ratio, one.time_interval, one.time_ms) = (ratio, interval, measured.baseline_ms / ratio);
    }
}

/// What each technique saves: the recipe put together piece by piece, each step raced against the one before. What the clock
/// cannot tell from nothing is nothing; all together is what the fresh process measured. Where races on a busy machine say something else
/// altogether, the steps are what the search foresaw of them.
pub fn gains(args: &OptimizeArgs, work: &Work<'_>, recipe: &Recipe, measured: &Measured) -> Result<Vec<Gain>, Failure> {
    let whole = work.shop.model.weights.size_in_bytes() as f64;
    let (mut time, mut bytes) = (1.0, whole);
    let mut gains = Vec::new();
    let mut last: Option<Engine> = None;
    let steps: Vec<_> = outcome::techniques(recipe, &work.shop.anatomy);
    for (technique, step) in &steps {
        let model = work.shop.make(step)?;
        let engine = Engine::compile(&model, &args.engine())?;
        let timed = work.watch.race(last.as_ref().unwrap_or(&work.baseline), &engine, ROUNDS)?;
        let saved = |ratio: f64| time * (1.0 - 1.0 / ratio);
        let [low, high] = timed.interval.map(saved);
        let left = model.weights.size_in_bytes() as f64;
        let gain = if low <= 0.0 && high >= 0.0 { 0.0 } else { saved(timed.ratio) };
        let time_interval = Some(Interval { low, high });
        gains.push(Gain { technique: (*technique).into(), time: gain, time_interval, bytes: (bytes - left) / whole });
        (time, bytes, last) = (time - gain, left, Some(engine));
    }
    let saved = 1.0 - 1.0 / measured.time_ratio;
    let told: f64 = gains.iter().map(|gain| gain.time).sum();
    if !(0.5..=2.0).contains(&(saved / told)) {
        let left = |step: &Recipe| 1.0 / work.costs.ratio(step, &work.shop.anatomy, 0.0);
        let before = std::iter::once(1.0).chain(steps.iter().map(|(_, step)| left(step)));
        for ((gain, (_, step)), before) in gains.iter_mut().zip(&steps).zip(before) {
            (gain.time, gain.time_interval) = (before - left(step), None);
        }
    }
    Gain::add_up(&mut gains, saved);
    Ok(gains)
}

/// Time by part, of an engine that takes so long for a request.
pub fn parts(work: &Work<'_>, engine: &Engine, ms: f64) -> Result<Vec<PartTime>, Failure> {
    let mut parts: Vec<PartTime> = Vec::new();
    for ((_, part), ms) in work.watch.parts(engine, 3)? {
        match parts.iter_mut().find(|known| known.part == part) {
            Some(known) => known.ms += ms,
            None => parts.push(PartTime { part: part.into(), ms }),
        }
    }
    PartTime::add_up(&mut parts, ms);
    Ok(parts)
}

/// What was timed, in words.
pub fn timing(args: &OptimizeArgs, work: &Work<'_>) -> String {
    format!(
        "requests of {} text{} ({:.0} tokens on average), {} thread{}, two models in turns; candidates without an interval of their \
         speed are not timed but foreseen",
        args.batch,
        if args.batch == 1 { "" } else { "s" },
        work.watch.tokens(),
        work.baseline.threads(),
        if work.baseline.threads() == 1 { "" } else { "s" },
    )
}
