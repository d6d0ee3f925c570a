//! From what was tried to a saved model and its report.

use super::choose::{Chosen, choose};
use super::data::Data;
use super::found::{Ended, Found};
use super::notes::notes;
use super::place::Begun;
use super::searching::Work;
use super::{OptimizeArgs, clock, name, resume, saved};
use crate::failure::Failure;
use crate::{interrupt, load, machine, progress};
use sparing_model::{HeadKind, Model};
use sparing_optimize::{Recipe, Settings, Verdict, answers, outcome};
use sparing_report::{BaseCard, Candidate, Focus, Interval, Metric, Report, Task, Versions};
use sparing_tasks::Report as Scores;
use std::path::{Path, PathBuf};

/// Standard errors on either side of what has 95% of a normal distribution between them.
pub const SIDES: f64 = 1.96;

/// Saves the best model, has it measured, and writes the report beside it; also says where.
pub fn finish(
    args: &OptimizeArgs,
    data: &Data,
    settings: &Settings,
    work: &Work<'_>,
    mut found: Found,
    before: &Scores,
    begun: &Begun,
) -> Result<(Report, PathBuf), Failure> {
    let bar = progress::bar(clock::shown(&found, settings, work).len() as u64 + 3, "measurements");
    let Chosen { raced, recipe, model, engine, answered } = choose(args, data, settings, work, &mut found, &bar)?;
    bar.set_message("saving");
    let (place, taken) = begun.save(args, &model)?;
    found.notes.extend(taken);
    bar.inc(1);

    let mut baseline = candidate("the model as it came", &Recipe::default(), work, work.judge.own().score);
    score(&mut baseline, before, before, args);
    (baseline.time_ratio, baseline.bytes) = (1.0, work.shop.model.weights.size_in_bytes() as u64);
    (baseline.meets_budget, baseline.memory_bytes) = (true, Some(work.baseline.weight_bytes() as u64));
    let mut candidates: Vec<Candidate> = Vec::new();
    for (number, tried) in found.tried.iter().enumerate() {
        let mut one = candidate(&format!("candidate {}", number + 1), &tried.recipe, work, tried.verdict.score);
        (one.bytes, one.agreement) = (tried.bytes, Some(tried.verdict.agreement));
        one.search_interval = Some(searched(&tried.verdict, work));
        if tried.trained {
            one.what += ", fine-tuned";
        } else {
            (one.doubt, one.luck) = (Some(tried.verdict.doubt), Some(tried.verdict.luck));
        }
        if !tried.pays {
            one.what += match settings.focus {
                Focus::Size => "; given up, for it is no smaller",
                _ => "; given up, for by the clock it is slower than without what is chosen while it runs",
            };
        }
        if found.broken.contains(&number) {
            one.what += "; left out, for its answers to some unseen rows are no numbers";
        }
        one.meets_budget = outcome::good_enough(tried, settings.focus, settings.budget);
        if let Some(after) = answered.as_ref().filter(|_| Some(number) == found.best) {
            score(&mut one, before, after, args);
            one.bytes = model.weights.size_in_bytes() as u64;
        } else if let Some((after, bytes)) = raced.scored.get(&number) {
            score(&mut one, before, after, args);
            one.bytes = *bytes;
        }
        candidates.push(one);
    }
    bar.inc(1);

    bar.set_message("the speed of what was saved");
    let own = saved::race(args, work.shop.model, data, &work.baseline, &engine)?;
    bar.set_message("a fresh process measures what was saved");
    let measured = saved::by_fresh_process(&place)?;
    bar.inc(1);
    bar.set_message("where the time goes");
    baseline.time_ms = measured.baseline_ms;
    clock::put_times(&mut candidates, &found, &raced.contest, &measured);
    if let Some(chosen) = found.best.and_then(|best| candidates.get_mut(best)) {
        chosen.memory_bytes = Some(measured.memory);
    }
    mark_frontier(&mut candidates, &found, work);
    let (ended, failure) = found.ended.told();
    let mut report = Report {
        version: Report::VERSION,
        command: command(),
        seed: args.seed,
        created: sparing_report::time::now(),
        seconds: Some(begun.at.elapsed().as_secs_f64()),
        machine: here(),
        versions: versions(),
        marks: resume::marks(work.shop.model, &[&data.unseen])?,
        model: described(args, work.shop.model),
        focus: settings.focus,
        budget: settings.budget,
        strategy: strategy(settings),
        order: outcome::order(settings).into(),
        analysis: args.tutor.name().into(),
        economies: settings.menu.iter().map(|e| e.name().to_string()).collect(),
        task: Task {
            name: data.name.clone(),
            metric: metric(work),
            search_rows: work.judge.rows(),
            report_rows: before.n,
        },
        timing: clock::timing(args, work),
        criterion: work.judge.criterion(settings.focus, settings.budget),
        elements: outcome::element_map(&recipe, &work.shop.anatomy, &model, settings.group),
        gains: clock::gains(args, work, &recipe, &measured)?,
        parts_before: clock::parts(work, &work.baseline, measured.baseline_ms)?,
        parts_after: clock::parts(work, &engine, measured.baseline_ms / measured.time_ratio)?,
        ended,
        failure,
        notes: notes(data, settings, work, &found, &recipe, before, &measured),
        verification: Some(measured.verification(&own)),
        chosen: found.best,
        f32_bytes: came_in_fewer_bits(work),
        baseline,
        candidates,
        confidence: Some(args.evaluation().bootstrap.confidence),
        verdict: None,
        lost: None,
    };
    report.judge();
    bar.finish_and_clear();
    report.save(&place, &base_card(args, work.shop.model))?;
    confirm(&report, model.weights.size_in_bytes() as u64)?;
    // The journal has done its duty, unless the search is to go on.
    if found.ended == Ended::Whole {
        let _ = std::fs::remove_file(args.journal());
        let _ = std::fs::remove_dir_all(args.rounds());
    }
    Ok((report, place))
}

/// What the model's own card says, if it came with one.
pub fn base_card(args: &OptimizeArgs, model: &Model) -> BaseCard {
    let card = own_card(args.model.name());
    // The head that was scored is known better here.
    BaseCard { pipeline_tag: pipeline(model).map(String::from).or(card.pipeline_tag), ..card }
}

fn own_card(name: &str) -> BaseCard {
    if name == load::BUILTIN {
        return BaseCard::parse(sparing_builtin::CARD);
    }
    let readme = std::fs::read(Path::new(name).join("README.md")).unwrap_or_default();
    BaseCard::parse(&String::from_utf8_lossy(&readme))
}

/// What ran. Packagers say the commit in SPARING_COMMIT when they build.
pub fn versions() -> Versions {
    let training = if cfg!(feature = "train") { ", with training" } else { "" };
    let build = if cfg!(debug_assertions) { "with checks, slower" } else { "optimised" };
    Versions {
        sparing: env!("CARGO_PKG_VERSION").into(),
        commit: option_env!("SPARING_COMMIT").filter(|commit| !commit.is_empty()).map(String::from),
        build: Some(format!("{build}{training}")),
    }
}

/// The answers of the model as it came on rows that the search will not see, before it begins: rows that nothing can be scored on are no
/// news for after it.
pub fn as_it_came(args: &OptimizeArgs, data: &Data, work: &Work<'_>) -> Result<Scores, Failure> {
    let spinner = progress::spinner("the model as it came: unseen rows");
    let answered = answers(&work.baseline, work.shop.model, &data.unseen, &args.evaluation(), &mut interrupt::asked);
    spinner.finish_and_clear();
    let answered = answered.map_err(interrupt::told)?;
    match answered.values.first() {
        Some(value) if !value.value.is_finite() => Err(Failure::new(format!(
            "{}: {} is not defined on its {} unseen rows (are all labels the same?): the report could say nothing; give others with \
             --unseen, or more",
            data.unseen.source,
            value.metric.name(),
            answered.n
        ))),
        _ => Ok(answered),
    }
}

/// A saved model that does not do what the search said, or is not as large as its own copy, is a defect.
fn confirm(report: &Report, bytes: u64) -> Result<(), Failure> {
    let said = report.chosen().unwrap_or(&report.baseline).score;
    let Some(found) = &report.verification else { return Ok(()) };
    let defect =
        |what: String| Err(Failure::new(format!("the saved model {what}; do not use it, and please report this")));
    match said {
        Some(said) if (said - found.score).abs() > 1e-6 * said.abs().max(1.0) => {
            defect(format!("scores {:.4} where the search's own copy scored {said:.4}", found.score))
        }
        _ if found.bytes != bytes => {
            defect(format!("has {} bytes of weights where the search's own copy had {bytes}", found.bytes))
        }
        _ => Ok(()),
    }
}

fn candidate(name: &str, recipe: &Recipe, work: &Work<'_>, search_score: f64) -> Candidate {
    Candidate {
        name: name.into(),
        plan: serde_json::to_value(recipe).unwrap_or_default(),
        what: outcome::words(recipe, &work.shop.anatomy),
        search_score,
        ..Candidate::default()
    }
}

/// Puts in what came of unseen rows.
fn score(candidate: &mut Candidate, before: &Scores, after: &Scores, args: &OptimizeArgs) {
    let Some(value) = after.values.first() else { return };
    let interval = |i: sparing_tasks::Interval| Interval { low: i.low, high: i.high };
    candidate.score = Some(value.value).filter(|score| score.is_finite());
    candidate.interval = value.interval.map(interval);
    // Answers that have no score (all the same, where a correlation is asked for) cannot be compared; others still can.
    let change = before.compare(after, value.metric, &args.evaluation().bootstrap).ok();
    candidate.change = change.and_then(|change| change.widened().interval).map(interval);
}

/// What was given up is on no frontier.
fn mark_frontier(candidates: &mut [Candidate], found: &Found, work: &Work<'_>) {
    let sign = if work.judge.metric().higher_is_better() { 1.0 } else { -1.0 };
    let points: Vec<_> = candidates.iter().map(|c| (sign * c.search_score, c.time_ratio, c.bytes)).collect();
    let stays = |number: usize| found.tried[number].pays && !found.broken.contains(&number);
    let points: Vec<_> =
        (0..).zip(points).map(|(number, p)| if stays(number) { p } else { (f64::MIN, p.1, p.2) }).collect();
    for (number, (one, on)) in candidates.iter_mut().zip(outcome::frontier(&points)).enumerate() {
        one.on_frontier = on && stays(number);
    }
}

fn metric(work: &Work<'_>) -> Metric {
    let metric = work.judge.metric();
    Metric { name: metric.name().into(), is_share: metric.is_share(), lower_is_better: !metric.higher_is_better() }
}

/// Where a score on searched rows lies, as far as it can be told from the baseline's.
fn searched(verdict: &Verdict, work: &Work<'_>) -> Interval {
    let off = SIDES * verdict.luck * work.judge.own().score.abs();
    let most = if metric(work).is_share { 1.0 } else { f64::INFINITY };
    Interval { low: verdict.score - off, high: (verdict.score + off).min(most) }
}

/// Bytes of the model in 32-bit floats, if it came in fewer bits.
pub fn came_in_fewer_bits(work: &Work<'_>) -> Option<u64> {
    let whole = work.shop.f32_bytes();
    // Scales take a little, and files may hold halves.
    (work.shop.model.weights.size_in_bytes() as u64).lt(&(whole * 9 / 10)).then_some(whole)
}

/// What the model does, in the Hub's words.
fn pipeline(model: &Model) -> Option<&'static str> {
    match model.architecture.head.kind {
        HeadKind::Classify | HeadKind::MultiLabel | HeadKind::Regress => Some("text-classification"),
        HeadKind::TokenClassify => Some("token-classification"),
        HeadKind::Answer => Some("question-answering"),
        HeadKind::MaskedLm => Some("fill-mask"),
        HeadKind::CausalLm => Some("text-generation"),
        HeadKind::Embed { .. } => Some("feature-extraction"),
        HeadKind::Hidden => None,
    }
}

fn strategy(settings: &Settings) -> String {
    serde_json::to_value(settings.strategy).ok().and_then(|v| v.as_str().map(String::from)).unwrap_or_default()
}

fn described(args: &OptimizeArgs, model: &Model) -> sparing_report::Model {
    let given = args.model.name();
    let hub = (given.split('/').count() == 2 && !std::path::Path::new(given).exists()).then(|| given.to_string());
    let family = serde_json::to_value(model.architecture.family).ok();
    let family = family.and_then(|v| v.as_str().map(String::from)).unwrap_or_default();
    let name = if given == load::BUILTIN { "builtin".into() } else { name(args) };
    sparing_report::Model { name, hub, family }
}

/// The machine that times are of.
pub fn here() -> sparing_report::Machine {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, n)| n.trim().to_string()));
    sparing_report::Machine {
        cpu: cpu.unwrap_or_else(|| "unknown processor".into()),
        cores: machine::cores(),
        isa: format!("{:?}", sparing_kernels::isa::active()).to_lowercase(),
        os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    }
}

/// The command line, to do it again.
pub fn command() -> String {
    let args = std::env::args_os().skip(1).map(|arg| quoted(&arg.to_string_lossy()));
    std::iter::once("sparing".to_string()).chain(args).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it back.
pub fn quoted(word: &str) -> String {
    match !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=,:%+@".contains(c)) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparing_report::Verification;

    #[test]
    fn the_built_in_model_has_a_licence_and_something_it_began_with() {
        let card = own_card(load::BUILTIN);
        assert_eq!(card.license.as_deref(), Some("apache-2.0"));
        assert_eq!(card.base_model.as_deref(), Some("sentence-transformers/all-MiniLM-L6-v2"));
        assert_eq!(own_card("no/such/directory"), BaseCard::default());
    }

    #[test]
    fn a_saved_model_is_the_one_that_was_promised() {
        let chosen = Candidate { score: Some(0.9), ..Candidate::default() };
        let report = |score: f64, bytes: u64| Report {
            chosen: Some(0),
            candidates: vec![chosen.clone()],
            verification: Some(Verification { score, bytes, ..Verification::default() }),
            ..Report::default()
        };
        let told = |report: Report| {
            let confirmed = confirm(&report, 1000);
            confirmed.map_err(|failure| failure.message().unwrap_or_default().to_string())
        };
        assert_eq!(told(report(0.9, 1000)), Ok(()));
        assert!(told(report(0.8, 1000)).unwrap_err().contains("scores 0.8000"));
        assert!(told(report(0.9, 996)).unwrap_err().contains("996 bytes"));
    }
}
