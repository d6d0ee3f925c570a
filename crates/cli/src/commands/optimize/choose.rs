//! Which candidate is saved: the clock's choice, as long as it answers unseen rows with numbers.

use super::OptimizeArgs;
use super::clock::{self, Raced};
use super::data::Data;
use super::found::Found;
use super::searching::Work;
use crate::failure::Failure;
use indicatif::ProgressBar;
use sparing_engine::Engine;
use sparing_model::{Executor, Model};
use sparing_optimize::{Recipe, Settings, answers};
use sparing_tasks::{Report as Scores, Watched};
use std::sync::Arc;

/// What is saved, and what it answers.
pub struct Chosen {
    pub raced: Raced,
    pub recipe: Recipe,
    pub model: Arc<Model>,
    pub engine: Engine,
    /// On unseen rows, in the engine, as it will; `None` for the model as it came.
    pub answered: Option<Scores>,
}

/// Has the clock choose, and the next best if what was chosen cannot answer unseen rows with numbers.
pub fn choose(
    args: &OptimizeArgs,
    data: &Data,
    settings: &Settings,
    work: &Work<'_>,
    found: &mut Found,
    bar: &ProgressBar,
) -> Result<Chosen, Failure> {
    loop {
        let mut raced = clock::contest(args, data, settings, work, found, bar)?;
        raced.broken.iter().for_each(|number| found.leave_out(*number));
        found.best = raced.contest.winner;
        bar.suspend(|| work.store(settings, found))?;
        raced.contest.winner = found.best;
        let recipe = found.best.map_or_else(Recipe::default, |best| found.tried[best].recipe.clone());
        let model = match found.best {
            Some(best) => found.model(best, work)?,
            None => work.shop.make(&recipe)?.into(),
        };
        let engine = Engine::compile(&model, &args.engine())?;
        let Some(best) = found.best else { return Ok(Chosen { raced, recipe, model, engine, answered: None }) };
        let answered = unseen(args, data, &engine, &model)?;
        if answered.is_some() {
            return Ok(Chosen { raced, recipe, model, engine, answered });
        }
        found.leave_out(best);
        found.best = found.best_kept(settings);
    }
}

/// All answers on rows that the search never saw; `None` where some are no numbers.
pub fn unseen(
    args: &OptimizeArgs,
    data: &Data,
    executor: &dyn Executor,
    model: &Model,
) -> Result<Option<Scores>, Failure> {
    let watched = Watched::new(executor);
    let answered = answers(&watched, model, &data.unseen, &args.evaluation(), &mut || false);
    if watched.is_broken() { Ok(None) } else { Ok(Some(answered?)) }
}
