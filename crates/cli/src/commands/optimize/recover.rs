//! Rounds of economising and fine-tuning: each goes further than answers would allow, and training brings them back.

use super::data::Data;
use super::found::{Ended, Found};
use super::searching::Work;
use super::teller::Teller;
use super::tutor::{AnalysisArg, Tutor};
use super::{OptimizeArgs, searching};
use crate::failure::Failure;
use crate::{console, interrupt};
use sparing_model::Model;
use sparing_optimize::{Event, Journal, Milestone, Recipe, Settings, Strategy, Tried};
use sparing_optimize::{Trail, Workshop, further, outcome};
use sparing_report::Focus;
use sparing_tasks::Dataset;
use std::sync::Arc;

/// How many times cheaper a round tries to make the model.
const STRIDE: f64 = 1.4;
/// The same where nothing matters but the score.
const GENTLE: f64 = 1.15;
/// Rounds that would gain less than this are not worth a training.
const LEAST: f64 = 1.05;
/// Trainings at most, where nobody says how many.
const ROUNDS: usize = 8;
/// Rows that the training of a trial sees.
const ANALYSIS_ROWS: usize = 512;

fn rounds(args: &OptimizeArgs) -> usize {
    args.tutor.rounds.unwrap_or(ROUNDS)
}

/// What rounds share.
struct Rounds<'a> {
    args: &'a OptimizeArgs,
    data: &'a Data,
    settings: &'a Settings,
    /// Of the model as it came.
    first: &'a Work<'a>,
    tutor: Tutor<'a>,
    /// Trainings that are left.
    left: usize,
    found: Found,
}

/// What a round came to.
enum End {
    /// Go on from this model, which is so many times cheaper than the first.
    Accepted(Arc<Model>, f64),
    /// Nothing more is to be had.
    Enough,
    Stopped,
}

/// Searches, then economises and trains in turns as long as that is good enough.
pub fn search(
    args: &OptimizeArgs,
    data: &Data,
    rows: &Dataset,
    settings: &Settings,
    work: &Work<'_>,
    journal: Journal,
) -> Result<Found, Failure> {
    let directory = args.rounds();
    let failed = |e: std::io::Error| Failure::new(format!("{}: {e}", directory.display()));
    if !args.resume && directory.exists() {
        std::fs::remove_dir_all(&directory).map_err(failed)?;
    }
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let tutor = Tutor {
        args: &args.tutor,
        teacher: work.shop.model,
        rows,
        epochs: args.tutor.epochs,
        average: args.tutor.average.unwrap_or(if settings.focus == Focus::Accuracy { 3 } else { 1 }),
        max_tokens: searching::limit(work.shop.model, args),
        seed: args.seed,
        directory: &directory,
    };
    let found = match args.tutor.analysis {
        AnalysisArg::Evaluate => work.search(settings, journal, None)?,
        AnalysisArg::Finetune => {
            let mut few = rows.clone();
            few.thin(args.tutor.analysis_rows.unwrap_or(ANALYSIS_ROWS), args.seed);
            let brief = Tutor { rows: &few, epochs: 1, average: 1, ..tutor };
            work.search(settings, journal, Some(&mut |model: &Model| brief.try_out(model)))?
        }
    };
    let mut found = match found.ended {
        Ended::Whole => recover(args, data, settings, work, tutor, found),
        _ => found,
    };
    found.best = found.best_kept(settings);
    Ok(found)
}

/// Economises and trains in turns, beginning with what a search found; adds what was tried.
fn recover(
    args: &OptimizeArgs,
    data: &Data,
    settings: &Settings,
    work: &Work<'_>,
    tutor: Tutor<'_>,
    found: Found,
) -> Found {
    let mut rounds = Rounds { args, data, settings, first: work, tutor, left: rounds(args), found };
    let ended = match settings.strategy {
        Strategy::Cost => rounds.all(),
        _ => rounds.last(),
    };
    let mut found = rounds.found;
    found.ended = match ended {
        Ok(true) => Ended::Whole,
        Ok(false) => Ended::Stopped,
        // After Ctrl-C, whatever failed did so because of it.
        Err(_) if interrupt::asked() => Ended::Stopped,
        // Whatever failed, what was found before it is worth having.
        Err(failure) => Ended::Failed(failure.message().unwrap_or("nothing says why").into()),
    };
    if let Some(note) = found.ended.at_once() {
        console::note(&note);
    }
    found
}

impl<'a> Rounds<'a> {
    /// Round after round, each from what the last one left; false if it was stopped.
    fn all(&mut self) -> Result<bool, Failure> {
        let best = self.found.best.map(|best| &self.found.tried[best]);
        let reached = best.map_or(1.0, |best| match self.settings.focus {
            Focus::Size => self.first_bytes() / best.bytes.max(1) as f64,
            _ => best.foreseen,
        });
        // What the clock gave up is not tried again.
        let pays = best.is_some_and(|best| best.recipe.attention.is_some());
        let menu = self.settings.menu.iter().copied().filter(|economy| pays || !economy.is_running()).collect();
        let settings = Settings { menu, ..self.settings.clone() };
        let mut end = self.round(self.first, 1.0, reached.max(1.0), &settings)?;
        let settings = Settings { menu: further(&self.settings.menu), ..self.settings.clone() };
        loop {
            match end {
                End::Enough => return Ok(true),
                End::Accepted(..) if self.left == 0 => return Ok(true),
                End::Stopped => return Ok(false),
                End::Accepted(model, gain) => {
                    let work = self.prepare(&model, &settings)?;
                    end = self.round(&work, gain, gain, &settings)?;
                }
            }
        }
    }

    /// Fine-tunes what a search came to, as it is: what was taken step by step may be further than what is good enough without training.
    /// Where that is too far, shorter beginnings of it are tried, by halves, and at last what was good enough as a trial, if trials
    /// are not kept; false if it was stopped.
    fn last(&mut self) -> Result<bool, Failure> {
        let tried = &self.found.tried;
        let mut taken: Vec<usize> = (0..tried.len()).filter(|number| tried[*number].accepted).collect();
        if taken.is_empty() {
            taken.extend(self.found.best);
        }
        // The first `good` steps are good enough, as nothing is; as many as `too_many` are not.
        let (mut good, mut too_many) = (0, taken.len() + 1);
        let mut steps = taken.len();
        while steps > good && self.left > 0 {
            let name = if steps == taken.len() { "last".to_owned() } else { format!("first-{steps}") };
            let Some(within) = self.train_as_it_is(taken[steps - 1], &name)? else { return Ok(false) };
            *(if within { &mut good } else { &mut too_many }) = steps;
            steps = (good + too_many) / 2;
        }
        let trial = self.found.best.filter(|best| !taken.contains(best) && !self.found.is_kept(*best));
        match trial.filter(|_| good == 0 && self.left > 0) {
            Some(best) => Ok(self.train_as_it_is(best, "trial")?.is_some()),
            None => Ok(true),
        }
    }

    /// Trains a candidate of the search to the end; whether it is good enough then, `None` if it was stopped.
    fn train_as_it_is(&mut self, number: usize, name: &str) -> Result<Option<bool>, Failure> {
        let candidate = &self.found.tried[number];
        let place = Milestone { recipe: candidate.recipe.clone(), gain: candidate.foreseen };
        self.left -= 1;
        Ok(self.train(self.first, &place, name)?.map(|(_, within)| within))
    }

    /// Goes as far from a model as training can make up for. The model is `gain` times cheaper than the
    /// first; `reached`: how many times cheaper what is known to be good enough is.
    fn round(&mut self, work: &Work<'_>, gain: f64, reached: f64, settings: &Settings) -> Result<End, Failure> {
        let teller = std::cell::RefCell::new(Teller::new(work, settings));
        let mut tell = |event: Event<'_>| teller.borrow_mut().tell(event);
        let mut stop = interrupt::asked;
        // Of the first model much is known already.
        let known = if gain == 1.0 { std::mem::take(&mut self.found.journal) } else { Journal::default() };
        let mut search = work.begin(settings, known, &mut tell, &mut stop);
        let trail = Trail::of(&mut search);
        teller.borrow_mut().end();
        if interrupt::asked() {
            return Ok(End::Stopped);
        }
        let trail = trail?;
        let mut too_far: Option<f64> = None;
        let stride = if self.settings.focus == Focus::Accuracy { GENTLE } else { STRIDE };
        while self.left > 0 {
            let goal = too_far.map_or(reached * stride, |too_far| (reached * too_far).sqrt());
            if goal < reached * LEAST {
                break;
            }
            let Some(mut place) = trail.reaching(goal / gain, &search) else {
                too_far = Some(goal);
                continue;
            };
            place.gain *= gain;
            let number = 1 + rounds(self.args) - self.left;
            let Some((model, within)) = self.train(work, &place, &format!("round-{number}"))? else {
                return Ok(End::Stopped);
            };
            self.left -= 1;
            if within {
                return Ok(End::Accepted(model, place.gain));
            }
            too_far = Some(goal);
        }
        Ok(End::Enough)
    }

    /// Makes, trains, judges and notes a candidate; `None` if it was stopped. Also whether it is good enough.
    fn train(&mut self, work: &Work<'_>, place: &Milestone, name: &str) -> Result<Option<(Arc<Model>, bool)>, Failure> {
        let shape = work.shop.shape(&place.recipe)?;
        let stored = stored(work, &place.recipe);
        let Some(trained) = self.tutor.teach(&shape, &stored, name)? else { return Ok(None) };
        let model = Arc::new(self.store(&trained, &stored)?);
        let verdict = match self.first.judge.verdict(&model, &mut interrupt::asked) {
            Err(_) if interrupt::asked() => return Ok(None),
            verdict => verdict?,
        };
        let anatomy = &self.first.shop.anatomy;
        let recipe = outcome::recipe_of(&model, anatomy);
        let foreseen = match self.settings.focus {
            Focus::Size => self.first.costs.ratio(&recipe, anatomy, 0.0),
            _ => place.gain,
        };
        let tried = Tried {
            recipe,
            verdict,
            foreseen,
            bytes: model.weights.size_in_bytes() as u64,
            accepted: false,
            pays: true,
            fair: self.settings.is_fair(&verdict),
            trained: true,
        };
        let within = outcome::good_enough(&tried, self.settings.focus, self.settings.budget) && tried.fair;
        let line = format!("{} after training", self.first.line(name, &tried, within));
        eprintln!("{}", console::Paint::stderr().judged(within, &line));
        self.found.made.insert(self.found.tried.len(), model.clone());
        self.found.tried.push(Tried { accepted: within, ..tried });
        Ok(Some((model, within)))
    }

    /// A trained model with its weights in these bits.
    fn store(&self, trained: &Model, bits: &Recipe) -> Result<Model, Failure> {
        // What was trained with few bits has them already.
        if self.settings.focus != Focus::Size || trained.plan.quantization.is_some() {
            return Ok(Workshop::new(trained)?.make(bits)?);
        }
        // Few bits need to know what maps read.
        let settings = Settings { menu: further(&self.settings.menu), ..self.settings.clone() };
        Ok(self.prepare(trained, &settings)?.shop.make(bits)?)
    }

    /// What a search from a model of a later round needs.
    fn prepare<'m>(&self, model: &'m Model, settings: &Settings) -> Result<Work<'m>, Failure>
    where
        'a: 'm,
    {
        Work::prepare(self.args, model, self.data, settings, self.first.elsewhere, &mut Journal::default())
    }

    fn first_bytes(&self) -> f64 {
        self.first.shop.model.weights.size_in_bytes() as f64
    }
}

/// The bits that a recipe says, else those of the model that it is for.
fn stored(of: &Work<'_>, recipe: &Recipe) -> Recipe {
    match (recipe.bits, &of.shop.model.plan.quantization) {
        (Some(bits), _) => Recipe { bits: Some(bits), layer_bits: recipe.layer_bits.clone(), ..Recipe::default() },
        (None, Some(was)) => Recipe { bits: Some(was.bits), layer_bits: was.layers.clone(), ..Recipe::default() },
        (None, None) => Recipe::default(),
    }
}
