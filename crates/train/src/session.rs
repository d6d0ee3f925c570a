//! One training from beginning to end: in a work directory beside the result, scored again from what was saved.

use crate::checkpoint::{Work, difference};
use crate::economy::Economy;
use crate::log::{self, Line};
use crate::objective::Objective;
use crate::prepare::Store;
use crate::trainer::{Event, Judge, TrainOptions, Watch, rate_scales, train};
use crate::{BurnExecutor, FakeQuantization, Masks, Parameters, Place, Prepared, Rounding, RunSummary, Summary, curve};
use serde::{Deserialize, Serialize};
use sparing_engine::{Engine, Options as EngineOptions};
use sparing_model::{CALIBRATION_FILE, Error, Model, Plan, Tokenizer, Weights, replace_file, value_fingerprint};
use sparing_tasks::{Bootstrap, Dataset, Options, Value, Watched, evaluate};
use std::fs;
use std::path::Path;

/// Tokens that are evaluated together.
const EVALUATION_TOKENS: usize = 4096;
/// The file of the plan.
const PLAN: &str = "sparing.json";
/// What says that a training is finished.
pub(crate) const TRAINING: &str = "training.json";

/// [`TRAINING`]: what came of a training, and what it was.
#[derive(Serialize, Deserialize)]
struct Finished {
    #[serde(flatten)]
    run: RunSummary,
    /// What the curve depends on; older files do not have it.
    #[serde(default)]
    options: serde_json::Value,
}

/// Everything but the objective.
pub(crate) struct Session<'a> {
    pub(crate) prepared: &'a Prepared,
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) dev: Option<&'a Dataset>,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) quantization: Option<&'a FakeQuantization>,
    pub(crate) economy: &'a Economy,
    /// Weights that are not there are not stored.
    pub(crate) masks: Option<&'a Masks>,
    pub(crate) place: &'a Place,
    pub(crate) seeds: usize,
    pub(crate) title: String,
}

impl Session<'_> {
    /// What an earlier call with the same options has finished already; one with others is not what is asked for.
    fn finished(&self, options: &TrainOptions) -> Result<Option<RunSummary>, Error> {
        if !self.place.resume || self.place.work(options.seed).exists() {
            return Ok(None);
        }
        let file = self.place.model(options.seed, self.seeds).join(TRAINING);
        let Some(found) = fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Finished>(&text).ok()) else {
            return Ok(None);
        };
        check_finished(&file, &found.options, &serde_json::to_value(options).map_err(|e| bad_options(&e))?)?;
        Ok(Some(found.run))
    }

    /// One training per seed; `make` gives the numbers to begin with and the names of those that are fresh.
    pub(crate) fn all(
        &self,
        seeds: &[u64],
        options: &TrainOptions,
        objective: &dyn Objective,
        mut notes: Vec<String>,
        make: &dyn Fn(u64) -> Result<(Parameters, Vec<String>), Error>,
        watch: &mut dyn FnMut(usize, &Event) -> bool,
    ) -> Result<Summary, Error> {
        let _held = self.place.hold()?;
        self.place.check(seeds)?;
        let mut runs = Vec::new();
        for (number, &seed) in seeds.iter().enumerate() {
            let options = TrainOptions { seed, ..options.clone() };
            if let Some(done) = self.finished(&options)? {
                runs.push(done);
                continue;
            }
            let (mut parameters, fresh) = make(seed)?;
            if number == 0 && !fresh.is_empty() {
                notes.push(fresh_note(&fresh));
            }
            let watch: &mut Watch<'_> = &mut |event| watch(number, event);
            match self.run(&mut parameters, objective, &options, watch)? {
                Some(run) => {
                    notes.extend(run.unrecorded.iter().map(|why| match run.repeated {
                        0 => format!("seed {seed}: every update was asked for step by step: {why}"),
                        n => format!("seed {seed}: {n} updates were repeated, others asked for step by step: {why}"),
                    }));
                    runs.push(run);
                }
                None => return Ok(Summary::new(runs, false, notes)),
            }
        }
        Ok(Summary::new(runs, true, notes))
    }

    /// Trains, keeps the best, writes it and scores what was written; `None` if it was asked to stop.
    fn run(
        &self,
        parameters: &mut Parameters,
        objective: &dyn Objective,
        options: &TrainOptions,
        watch: &mut Watch<'_>,
    ) -> Result<Option<RunSummary>, Error> {
        let directory = self.place.work(options.seed);
        let work = Work::new(&directory)?;
        let mut judge = self.dev.map(|dev| DevJudge { session: self, dev, work: &work, bf16: options.bf16 });
        let judge = judge.as_mut().map(|j| j as &mut dyn Judge);
        let scales = rate_scales(&self.prepared.architecture, options.layer_decay);
        let finish = train(scales, parameters, objective, options, &work, judge, watch)?;
        if !finish.complete {
            return Ok(None);
        }
        let kept = finish.state.best.map_or(finish.state.step, |b| b.step);
        let mut plan = self.plan()?;
        if finish.state.best.is_some() {
            let best = Weights::open(&work.best())?;
            *parameters = Parameters::from_weights(&best, &parameters.device().clone().without_autodiff())?;
            // With the ranges of its own time.
            plan = plan.and(fs::read(work.best().join(PLAN)).ok());
        }
        let lines = log::read(&work.log())?;
        let text = fs::read(work.log()).map_err(|e| Error::new(format!("{}: {e}", work.log().display())))?;
        let picture = curve::svg(&self.title, &lines);
        let target = self.place.model(options.seed, self.seeds);
        let mut extra = vec![("train.jsonl", text.as_slice()), ("loss.svg", picture.as_bytes())];
        extra.extend(plan.as_ref().map(|plan| (PLAN, plan.as_slice())));
        let calibration = self.economy.calibrate(&self.prepared.architecture, parameters)?;
        let calibration = calibration.map(|calibration| calibration.to_bytes()).transpose()?;
        extra.extend(calibration.as_ref().map(|bytes| (CALIBRATION_FILE, bytes.as_slice())));
        let store = |tensors| match (self.quantization, self.masks) {
            (Some(quantization), _) => quantization.store(tensors),
            (_, Some(masks)) => masks.store(tensors),
            (None, None) => Ok(tensors),
        };
        let store = Some(&store as &Store<'_>);
        self.prepared.write(&target, parameters, &extra, store)?;
        let losses: Vec<f64> =
            lines.iter().filter_map(|l| if let Line::Step { loss, .. } = l { Some(*loss) } else { None }).collect();
        let late = &losses[losses.len() - losses.len().div_ceil(10)..];
        let trained = lines.iter().find_map(|l| match l {
            Line::Evaluation { step, metrics } if *step == kept => Some(metrics.clone()),
            _ => None,
        });
        let Some(saved) = self.score(&target, watch)? else { return Ok(None) };
        let summary = RunSummary {
            seed: options.seed,
            steps: finish.state.step,
            kept,
            last_loss: losses.last().copied().unwrap_or(f64::NAN),
            late_loss: late.iter().sum::<f64>() / late.len() as f64,
            tokens: finish.state.tokens,
            seconds: finish.seconds,
            repeated: finish.repeated,
            unrecorded: finish.unrecorded,
            trained: trained.unwrap_or_default(),
            saved,
            directory: target.clone(),
        };
        let finished = Finished { run: summary.clone(), options: finish.state.options };
        let json = serde_json::to_vec_pretty(&finished).map_err(|e| Error::new(format!("{TRAINING}: {e}")))?;
        let file = target.join(TRAINING);
        replace_file(&file, &json).map_err(|e| Error::new(format!("{}: {e}", file.display())))?;
        fs::remove_dir_all(&directory).map_err(|e| Error::new(format!("{}: {e}", directory.display())))?;
        // The directory above goes with the last seed's.
        let _ = directory.parent().map(fs::remove_dir);
        Ok(Some(summary))
    }

    /// `sparing.json` as it is now, if anything is economised: the engine runs what was trained.
    fn plan(&self) -> Result<Option<Vec<u8>>, Error> {
        let mut plan = self.quantization.map_or(Ok(Plan::default()), FakeQuantization::plan)?;
        plan.attention = (!self.economy.plan.is_exact()).then(|| self.economy.plan.clone());
        plan.elements = self.prepared.elements.clone();
        plan.functions = self.prepared.functions.clone();
        plan.to_file()
    }

    /// Scores a directory with the engine: the artefact itself. `None` if it was asked to stop.
    fn score(&self, directory: &Path, watch: &mut Watch<'_>) -> Result<Option<Vec<Value>>, Error> {
        let Some(dev) = self.dev else { return Ok(Some(vec![])) };
        let model = Model::load(directory)?;
        let engine = Engine::compile(&model, &EngineOptions::default())?;
        let options = Options { max_tokens: self.max_tokens, ..Options::default() };
        let mut asked = false;
        let mut step = |_: &sparing_tasks::Progress| {
            asked |= !watch(&Event::Waiting);
            !asked
        };
        let report = evaluate(&engine, model.tokenizer()?, &model.architecture, dev, &options, &mut step);
        match report {
            _ if asked => Ok(None),
            report => Ok(Some(report?.values)),
        }
    }
}

/// Refuses to take a finished training for one with other options. Files of earlier versions do not say theirs.
pub(crate) fn check_finished(file: &Path, was: &serde_json::Value, is: &serde_json::Value) -> Result<(), Error> {
    match difference(was, is).filter(|_| !was.is_null()) {
        None => Ok(()),
        Some(what) => Err(Error::new(format!(
            "{}: this training was finished with other options: {what}; give another --out, or --overwrite instead of --resume",
            file.display()
        ))),
    }
}

fn bad_options(e: &serde_json::Error) -> Error {
    Error::new(format!("options: {e}"))
}

/// What a checkpoint says of where it began, and of how much of a text is read.
pub(crate) fn begun(model: &Model, max_tokens: Option<usize>) -> Result<String, Error> {
    let mark = value_fingerprint(&model.architecture, &model.weights)?;
    let cut = max_tokens.map(|most| format!(" in texts of at most {most} tokens")).unwrap_or_default();
    Ok(format!("{mark:016x}{cut}"))
}

/// What a checkpoint says of economies: nothing where there are none.
pub(crate) fn subject(rounding: Option<&Rounding>, economy: &Economy) -> String {
    let rounded = rounding.map(|r| format!(", {r:?}")).unwrap_or_default();
    format!("{rounded}{economy}")
}

/// Names a few tensors that begin fresh.
fn fresh_note(fresh: &[String]) -> String {
    const SHOWN: usize = 4;
    let more = if fresh.len() > SHOWN { format!(" and {} more", fresh.len() - SHOWN) } else { String::new() };
    format!("these begin with fresh numbers: {}{more}", fresh[..fresh.len().min(SHOWN)].join(", "))
}

/// Scores on the dev set.
struct DevJudge<'a> {
    session: &'a Session<'a>,
    dev: &'a Dataset,
    work: &'a Work,
    bf16: bool,
}

impl Judge for DevJudge<'_> {
    fn evaluate(&mut self, parameters: &Parameters, watch: &mut Watch<'_>) -> Result<Option<Vec<Value>>, Error> {
        let architecture = &self.session.prepared.architecture;
        let executor = BurnExecutor::new(architecture, parameters).with_bf16(self.bf16);
        let economy = self.session.economy;
        let mut executor = executor.with_attention(&economy.plan, economy.calibrate(architecture, parameters)?)?;
        if let Some(quantization) = self.session.quantization {
            executor = executor.with_hook(Box::new(quantization.frozen()));
        }
        // Intervals are drawn once, at the end.
        let bootstrap = Bootstrap { resamples: 0, ..Bootstrap::default() };
        let max_tokens = self.session.max_tokens;
        let options = Options { max_tokens, bootstrap, tokens_per_batch: EVALUATION_TOKENS, ..Options::default() };
        let mut asked = false;
        let mut step = |_: &sparing_tasks::Progress| {
            asked |= !watch(&Event::Waiting);
            !asked
        };
        let executor = Watched::new(&executor);
        let report = evaluate(&executor, self.session.tokenizer, architecture, self.dev, &options, &mut step);
        match report {
            // Training may still bring a model back that has no bounds yet.
            Err(_) if executor.is_broken() => Ok(Some(Vec::new())),
            Ok(report) if report.complete => Ok(Some(report.values)),
            Ok(_) => Ok(None),
            Err(_) if asked => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn keep(&mut self, parameters: &Parameters) -> Result<(), Error> {
        // In floats: what is kept may still be compared with what was trained.
        let plan = self.session.plan()?;
        let extra: Vec<(&str, &[u8])> = plan.iter().map(|plan| (PLAN, plan.as_slice())).collect();
        self.session.prepared.write(&self.work.best(), parameters, &extra, None)
    }
}
