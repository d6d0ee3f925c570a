//! A model with its task's inputs, made ready once, and the combinations to measure on it.

use super::McaArgs;
use super::results::{Cell, Part, Way};
use crate::commands::calibrate;
use crate::failure::Failure;
use crate::load;
use sparing_model::{AttentionPlan, Calibration, Family, Length, Mca, Model, Precision, Sampler, value_fingerprint};
use sparing_tasks::{Columns, Dataset, Options, Prepared, Select, Split, Task};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the authors cut inputs of GLUE to.
const GLUE_TOKENS: usize = 128;

/// A model and what it is scored on, as the command line names them.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    part: Part,
    /// A task of GLUE, or the user's own table.
    on: On,
    model: String,
}

#[derive(Debug, Clone, PartialEq)]
enum On {
    Glue(Task),
    Table(PathBuf),
}

impl Named {
    /// Reads `TASK=DIR` or `FILE=DIR`.
    pub fn parse(text: &str, part: Part) -> Result<Named, Failure> {
        let flag = if part == Part::Student { "--student" } else { "--model" };
        let wrong = |what: String| Failure::Usage(format!("{flag} {text}: {what}"));
        let Some((on, model)) = text.split_once('=').filter(|(on, model)| !on.is_empty() && !model.is_empty()) else {
            return Err(wrong("TASK=DIR is expected, such as sst2=my-model".to_string()));
        };
        let on = if Path::new(on).is_file() {
            On::Table(on.into())
        } else {
            let task = Task::parse(on).map_err(|e| wrong(format!("{e}; or name a file of your own")))?;
            if matches!(task, Task::Squad | Task::SquadV2 | Task::Language | Task::Own) {
                return Err(wrong("a task of GLUE or a file of your own is expected".to_string()));
            }
            On::Glue(task)
        };
        Ok(Named { part, on, model: model.to_string() })
    }

    fn task_name(&self) -> String {
        match &self.on {
            On::Glue(task) => task.name().to_string(),
            On::Table(path) => path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().to_lowercase()),
        }
    }

    /// Reads model and data.
    pub fn read(self, args: &McaArgs) -> Result<Subject, Failure> {
        let select = Select { sample: args.rows, ..Select::default() };
        let dataset = match (&self.on, &args.data) {
            (On::Glue(task), Some(data)) => Dataset::read(*task, data, Split::Dev, &select)?,
            (On::Glue(Task::Sst2), None) => Dataset::builtin("sst2", &select)?,
            (On::Glue(task), None) => {
                return Err(Failure::Usage(format!("{}: give --data, the folder that holds GLUE", task.name())));
            }
            (On::Table(path), _) => Dataset::table(path, &Columns::default(), &select)?,
        };
        let model = load::open(&self.model, None)?;
        let glue = matches!(self.on, On::Glue(_));
        let options = Options { max_tokens: args.max_tokens.or(glue.then_some(GLUE_TOKENS)), ..Options::default() };
        let prepared = Prepared::new(model.tokenizer()?, &model.architecture, &dataset, &options)?;
        for note in &prepared.notes {
            crate::console::note(note);
        }
        let part = if model.architecture.family == Family::Longformer { Part::Long } else { self.part };
        Ok(Subject {
            part,
            task: self.task_name(),
            name: load::short_name(&self.model),
            weights: format!("{:016x}", value_fingerprint(&model.architecture, &model.weights)?),
            on: self.on,
            model,
            prepared,
            options,
        })
    }
}

/// A model with its task's inputs.
pub struct Subject {
    part: Part,
    pub task: String,
    pub name: String,
    weights: String,
    on: On,
    pub model: Model,
    pub prepared: Prepared,
    options: Options,
}

/// A combination that is to be measured.
pub struct Planned {
    pub cell: Cell,
    pub plan: AttentionPlan,
    pub precision: Precision,
}

impl Subject {
    /// Everything asked for, the paper's grid first.
    pub fn plan(&self, args: &McaArgs) -> Result<Vec<Planned>, Failure> {
        let mut plans: Vec<(AttentionPlan, Option<Way>)> = Vec::new();
        let lengths = match &args.length {
            Some(lengths) => lengths.clone(),
            None if matches!(self.on, On::Glue(_)) => vec![Length::Padded(GLUE_TOKENS), Length::Actual],
            None => vec![Length::Actual],
        };
        for &sampler in &args.samplers()? {
            for &length in &lengths {
                for alpha in args.alphas()? {
                    // Every budget is spent as equation 9 says, also where the exact product would be as fast.
                    let mca = Mca { sampler, length, strict: true, ..Mca::new(alpha) };
                    let padded = match length {
                        Length::Padded(tokens) => Some(tokens),
                        Length::Actual => None,
                    };
                    let plan = AttentionPlan { mca: Some(mca), ..AttentionPlan::default() };
                    plans.push((plan, Some(Way { sampler, alpha, padded })));
                }
            }
        }
        plans.extend(args.attention.iter().map(|plan| (plan.clone(), None)));
        let mut planned = Vec::new();
        for precision in &args.precision {
            let precision = precision.resolve();
            for (plan, way) in &plans {
                plan.check_for(&self.model.architecture)?;
                let cell = self.cell(args, precision, plan, *way);
                planned.push(Planned { cell, plan: plan.clone(), precision });
            }
        }
        Ok(planned)
    }

    fn cell(&self, args: &McaArgs, precision: Precision, plan: &AttentionPlan, way: Option<Way>) -> Cell {
        let rows = self.prepared.lengths().count();
        let drawn = plan.mca.as_ref().is_some_and(|mca| is_drawn(mca.sampler));
        Cell {
            part: self.part,
            task: self.task.clone(),
            model: self.name.clone(),
            weights: self.weights.clone(),
            precision: precision.name().to_string(),
            attention: plan.to_string(),
            way,
            rows,
            seeds: if drawn { args.seeds.min(args.inputs / rows).max(args.seeds.min(2)) } else { 1 },
        }
    }

    /// What calibration data says of the model: kept in the study's folder, else collected from the training part.
    /// `None`: not of a task; the model directory's is used.
    pub fn calibration(&self, args: &McaArgs, folder: &Path) -> Result<Option<Arc<Calibration>>, Failure> {
        let (On::Glue(task), Some(data)) = (&self.on, &args.data) else { return Ok(None) };
        let path = folder.join(format!("calibration-{}-{}.safetensors", self.task, self.weights));
        if let Ok(kept) = Calibration::read(&path, &self.model) {
            return Ok(Some(Arc::new(kept)));
        }
        let select = Select { sample: Some(args.calibrate), ..Select::default() };
        let dataset = Dataset::read(*task, data, Split::Train, &select)?;
        let calibration = calibrate::collect(&self.model, &dataset, &self.options, args.threads)?;
        calibration.write(&path)?;
        Ok(Some(Arc::new(calibration)))
    }
}

/// Whether seeds make a difference.
fn is_drawn(sampler: Sampler) -> bool {
    matches!(sampler, Sampler::Paper | Sampler::Calibrated | Sampler::Systematic)
}
