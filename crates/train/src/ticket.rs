//! Lottery tickets: iterative magnitude pruning with rewinding to the weights before training (Frankle and Carbin 2018,
//! <https://arxiv.org/abs/1803.03635>; for pre-trained models Chen et al. 2020, <https://arxiv.org/abs/2007.12223>).

use crate::checkpoint::difference;
use crate::economy::Economy;
use crate::masks::{Masks, prunable};
use crate::session::{Session, begun, check_finished};
use crate::trainer::{Event, TrainOptions};
use crate::{Example, Network, Place, Prepared, RunSummary, Supervised, Wanted, examples};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use sparing_model::{Error, Model, Weights, check_replaceable, replace_file};
use sparing_tasks::{Dataset, Value};
use std::fs;
use std::path::{Path, PathBuf};

/// The file of what was found.
const FILE: &str = "ticket.json";

/// What to look for a ticket in, and how. The network is trained, its smallest weights are taken out, the others go back to
/// what they were before, and so on; a mask drawn at random is trained for comparison.
pub struct Ticket<'a> {
    /// The pre-trained model.
    pub model: &'a Model,
    /// To learn from.
    pub train: &'a Dataset,
    /// To score every round with.
    pub dev: &'a Dataset,
    /// How to train a round; its seed is the only one.
    pub options: TrainOptions,
    /// Texts are cut to this many tokens.
    pub max_tokens: Option<usize>,
    /// Share of the prunable weights that is gone in the end, above 0 and below 1.
    pub sparsity: f64,
    /// Rounds, each taking out as many of the original weights.
    pub rounds: usize,
    /// Where to compute.
    pub device: Device,
    /// Where to write. Rounds are in a directory of this name with `.work` appended until all are done.
    pub place: Place,
}

/// One training of the search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// What is trained: `dense`, `ticket` or `random`.
    pub kind: RoundKind,
    /// Share of the prunable weights that is gone.
    pub sparsity: f64,
    /// What the engine says of the saved model.
    pub saved: Vec<Value>,
    /// Bytes of its weights' file.
    pub bytes: u64,
}

/// What a round trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoundKind {
    /// Everything.
    Dense,
    /// What magnitudes leave.
    Ticket,
    /// What chance leaves.
    Random,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TicketSummary {
    /// Dense, then every round, then the random mask.
    pub rounds: Vec<Round>,
    /// Weights that pruning chose from.
    pub prunable: usize,
    /// Where the ticket is.
    pub directory: PathBuf,
    /// False: stopped before all rounds were done; what was done is saved.
    pub complete: bool,
    /// What the user should be told.
    pub notes: Vec<String>,
}

/// [`FILE`]: what was found, and what was looked for.
#[derive(Serialize, Deserialize)]
struct Finished {
    #[serde(flatten)]
    found: TicketSummary,
    /// Older files do not have it.
    #[serde(default)]
    options: serde_json::Value,
}

/// What all rounds share.
struct Bench<'a> {
    prepared: Prepared,
    network: Network,
    examples: Vec<Example>,
    names: std::collections::BTreeSet<String>,
    job: &'a Ticket<'a>,
}

impl Ticket<'_> {
    /// Kind and sparsity of every round, in order.
    pub fn plan(&self) -> Vec<(RoundKind, f64)> {
        let share = |round: usize| self.sparsity * round as f64 / self.rounds as f64;
        let tickets = (1..=self.rounds).map(|round| (RoundKind::Ticket, share(round)));
        let dense = std::iter::once((RoundKind::Dense, 0.0));
        dense.chain(tickets).chain([(RoundKind::Random, self.sparsity)]).collect()
    }

    /// Trains all rounds. `watch` gets the number in [`Ticket::plan`] and the event; false asks to stop.
    pub fn run(&self, watch: &mut dyn FnMut(usize, &Event) -> bool) -> Result<TicketSummary, Error> {
        if !(self.sparsity > 0.0 && self.sparsity < 1.0) || self.rounds == 0 {
            return Err(Error::new("a ticket has a sparsity above 0 and below 1, and one round at least"));
        }
        let _held = self.place.hold()?;
        let work = self.place.beside();
        if let Some(done) = self.finished(&work)? {
            return Ok(done);
        }
        self.begin(&work)?;
        let mut notes = self.train.notes.clone();
        let prepared = Prepared::new(self.model, &Wanted::for_dataset(self.train, &mut notes)?)?;
        let examples =
            examples(self.train, self.model.tokenizer()?, &prepared.architecture, self.max_tokens, &mut notes)?;
        let (network, names) = (Network::new(&prepared.architecture), prunable(&prepared.architecture));
        let bench = Bench { prepared, network, examples, names, job: self };
        notes.push("holes make the file smaller, not the model faster: the engine multiplies zeros too".to_string());
        let mut found = TicketSummary {
            rounds: vec![],
            prunable: 0,
            directory: self.place.directory.clone(),
            complete: false,
            notes,
        };
        let plan = self.plan();
        let mut ticket = None;
        for (number, (kind, sparsity)) in plan.iter().copied().enumerate() {
            let before = |round: usize| Weights::open(&self.round(&work, round));
            let masks = match kind {
                RoundKind::Dense => Masks::default(),
                RoundKind::Ticket => Masks::smallest(&before(number - 1)?, &bench.names, sparsity)?,
                RoundKind::Random => Masks::random(&before(0)?, &bench.names, sparsity, self.options.seed)?,
            };
            let place = Place { directory: self.round(&work, number), resume: true, overwrite: false };
            let run = bench.train((kind, sparsity), &masks, &place, &mut |event| watch(number, event))?;
            let Some(run) = run else { return Ok(found) };
            let file = place.directory.join("model.safetensors");
            let bytes = fs::metadata(&file).map_err(|e| failed(&file, e))?.len();
            found.rounds.push(Round { kind, sparsity, saved: run.saved.clone(), bytes });
            found.prunable = found.prunable.max(masks.count().1);
            ticket = if kind == RoundKind::Ticket { Some((place.directory, run)) } else { ticket };
        }
        found.complete = true;
        if let Some((directory, run)) = ticket {
            self.finish(&directory, run, &found)?;
        }
        fs::remove_dir_all(&work).map_err(|e| failed(&work, e))?;
        Ok(found)
    }

    fn round(&self, work: &Path, number: usize) -> PathBuf {
        work.join(format!("round-{number}"))
    }

    /// What an earlier call with the same options has finished.
    fn finished(&self, work: &Path) -> Result<Option<TicketSummary>, Error> {
        if !self.place.resume || work.exists() {
            return Ok(None);
        }
        let file = self.place.directory.join(FILE);
        let Some(done) = fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Finished>(&text).ok()) else {
            return Ok(None);
        };
        check_finished(&file, &done.options, &self.told()?)?;
        Ok(Some(done.found))
    }

    /// What the result depends on.
    fn told(&self) -> Result<serde_json::Value, Error> {
        Ok(serde_json::json!({
            "model": begun(self.model, None)?,
            "options": self.options,
            "data": self.train.source,
            "sparsity": self.sparsity,
            "rounds": self.rounds,
            "max_tokens": self.max_tokens,
        }))
    }

    /// Refuses to lose anything, and to go on with other options.
    fn begin(&self, work: &Path) -> Result<(), Error> {
        if work.exists() && self.place.overwrite {
            fs::remove_dir_all(work).map_err(|e| failed(work, e))?;
        } else if work.exists() && !self.place.resume {
            let why = "holds an unfinished search; go on with --resume, or start over with --overwrite";
            return Err(Error::new(format!("{} {why}", work.display())));
        }
        self.place.check(&[self.options.seed])?;
        let told = self.told()?;
        let file = work.join("options.json");
        if let Ok(text) = fs::read(&file) {
            let known = serde_json::from_slice(&text).unwrap_or_default();
            return match difference(&known, &told) {
                None => Ok(()),
                Some(what) => Err(Error::new(format!(
                    "{}: this search was begun with other options: {what}; give the same ones, or start over with --overwrite",
                    file.display()
                ))),
            };
        }
        fs::create_dir_all(work).map_err(|e| failed(work, e))?;
        replace_file(&file, told.to_string().as_bytes()).map_err(|e| failed(&file, e))
    }

    /// Puts the last round where the result goes.
    fn finish(&self, directory: &Path, mut run: RunSummary, found: &TicketSummary) -> Result<(), Error> {
        let target = &self.place.directory;
        run.directory = target.clone();
        let put = |name: &str, text: serde_json::Result<Vec<u8>>| {
            let text = text.map_err(|e| Error::new(format!("{name}: {e}")))?;
            replace_file(&directory.join(name), &text).map_err(|e| failed(&directory.join(name), e))
        };
        put("training.json", serde_json::to_vec_pretty(&run))?;
        put(FILE, serde_json::to_vec_pretty(&Finished { found: found.clone(), options: self.told()? }))?;
        // Something may have come in since it was looked at; what was trained stays where it is then.
        check_replaceable(target)?;
        if target.exists() {
            fs::remove_dir_all(target).map_err(|e| failed(target, e))?;
        }
        fs::rename(directory, target).map_err(|e| failed(target, e))
    }
}

fn failed(path: &Path, e: std::io::Error) -> Error {
    Error::new(format!("{}: {e}", path.display()))
}

impl Bench<'_> {
    /// One round from the weights before training; `None` if it was asked to stop.
    fn train(
        &self,
        (kind, sparsity): (RoundKind, f64),
        masks: &Masks,
        place: &Place,
        watch: &mut dyn FnMut(&Event) -> bool,
    ) -> Result<Option<RunSummary>, Error> {
        let job = self.job;
        let (holes, economy) = (masks.on(&job.device), Economy::default());
        let objective = Supervised::new(&self.network, &self.examples, None).with_holes(&holes);
        let what = format!("{kind:?} at {:.0}%", 100.0 * sparsity);
        let session = Session {
            prepared: &self.prepared,
            tokenizer: job.model.tokenizer()?,
            dev: Some(job.dev),
            max_tokens: job.max_tokens,
            quantization: None,
            economy: &economy,
            masks: Some(masks),
            place,
            seeds: 1,
            title: format!("Ticket on {}, {what}", job.train.task.name()),
        };
        let device = job.device.clone().autodiff();
        let make = |seed: u64| {
            let (mut parameters, fresh) = self.prepared.parameters(&job.model.weights, seed, &device)?;
            holes.clear(&mut parameters);
            Ok((parameters, fresh))
        };
        let subject = format!("ticket of {}, {what}", job.train.source);
        let options = TrainOptions { subject, ..job.options.clone() };
        let seeds = [job.options.seed];
        let summary = session.all(&seeds, &options, &objective, vec![], &make, &mut |_, event| watch(event))?;
        Ok(summary.runs.into_iter().next().filter(|_| summary.complete))
    }
}
