//! What a search found, and how it came to its end.

use super::searching::Work;
use crate::failure::Failure;
use sparing_model::Model;
use sparing_optimize::{GivenUp, Journal, Recipe, Settings, Tried, outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a search found.
pub struct Found {
    pub tried: Vec<Tried>,
    /// Index of the best; `None` if nothing is good enough.
    pub best: Option<usize>,
    pub ended: Ended,
    /// What did not pay by the clock.
    pub given_up: Vec<GivenUp>,
    /// What else there is to say of it.
    pub notes: Vec<String>,
    /// Candidates that are there as they will be saved, by index: those that were fine-tuned, and what the best was made into.
    pub made: BTreeMap<usize, Arc<Model>>,
    /// Candidates whose answers to some unseen rows are no numbers, by index.
    pub broken: BTreeSet<usize>,
    /// What it knows of recipes, as they are without training.
    #[cfg_attr(not(feature = "train"), allow(dead_code))]
    pub journal: Journal,
}

/// How a search came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// There was nothing left to try.
    Whole,
    /// It was asked to stop.
    Stopped,
    /// A training failed, and this is why.
    #[cfg_attr(not(feature = "train"), allow(dead_code))]
    Failed(String),
}

impl Ended {
    /// What to say at once, before the best so far is finished.
    pub fn at_once(&self) -> Option<String> {
        match self {
            Ended::Whole => None,
            Ended::Stopped => Some(
                "stopped: finishing the best so far (Ctrl-C again leaves at once); --resume goes on with the search"
                    .into(),
            ),
            Ended::Failed(why) => Some(format!("fine-tuning failed: {why}; finishing the best so far")),
        }
    }

    /// What to say in the report.
    pub fn note(&self) -> Option<String> {
        match self {
            Ended::Whole => None,
            Ended::Stopped => {
                Some("the search was stopped before its end; the same command with --resume goes on".into())
            }
            Ended::Failed(why) => Some(format!(
                "fine-tuning failed: {why}; what was found before is saved, and the same command with --resume goes on"
            )),
        }
    }

    /// The same for scripts, and what failed.
    pub fn told(&self) -> (sparing_report::Ended, Option<String>) {
        match self {
            Ended::Whole => (sparing_report::Ended::Whole, None),
            Ended::Stopped => (sparing_report::Ended::Stopped, None),
            Ended::Failed(why) => (sparing_report::Ended::Failed, Some(why.clone())),
        }
    }
}

impl Found {
    /// Whether a candidate can be made as it was judged, and answers with numbers wherever it was asked.
    pub fn is_kept(&self, number: usize) -> bool {
        !self.broken.contains(&number) && (!self.tried[number].trained || self.made.contains_key(&number))
    }

    /// The best of what can be saved: a trial that was trained and judged, but not kept, cannot.
    pub fn best_kept(&self, settings: &Settings) -> Option<usize> {
        let kept: Vec<usize> = (0..self.tried.len()).filter(|number| self.is_kept(*number)).collect();
        let candidates: Vec<Tried> = kept.iter().map(|number| self.tried[*number].clone()).collect();
        outcome::best(&candidates, settings.focus, settings.budget).map(|best| kept[best])
    }

    /// Leaves out a candidate whose answers to some unseen rows are no numbers, and says so once.
    pub fn leave_out(&mut self, number: usize) {
        if self.broken.insert(number) {
            let name = number + 1;
            self.notes.push(format!("candidate {name} was left out: its answers to some unseen rows are no numbers"));
        }
    }

    /// Whether what is made by this recipe was left out.
    pub fn is_left_out(&self, recipe: &Recipe) -> bool {
        self.broken.iter().any(|number| self.tried[*number].recipe == *recipe)
    }

    /// A candidate as it will be saved.
    pub fn model(&self, number: usize, work: &Work<'_>) -> Result<Arc<Model>, Failure> {
        match self.made.get(&number) {
            Some(model) => Ok(model.clone()),
            None => Ok(Arc::new(work.shop.make(&self.tried[number].recipe)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparing_model::Precision;
    use sparing_optimize::{Counted, Strategy, Verdict};
    use sparing_report::Focus;

    /// So much faster, and nothing lost.
    fn tried(foreseen: f64, precision: Precision) -> Tried {
        let verdict = Verdict {
            score: 0.9,
            lost: 0.0,
            doubt: 0.0,
            luck: 0.0,
            loss: 0.1,
            divergence: 0.0,
            agreement: 1.0,
            not_worse: 1.0,
            counted: Counted::default(),
        };
        let recipe = Recipe { precision: Some(precision), ..Recipe::default() };
        Tried { recipe, verdict, foreseen, bytes: 1, accepted: false, pays: true, fair: true, trained: false }
    }

    #[test]
    fn the_next_best_takes_the_place_of_what_gives_no_numbers() {
        let settings = Settings {
            focus: Focus::Speed,
            budget: 0.01,
            strategy: Strategy::Cost,
            menu: Vec::new(),
            group: 1,
            bottom_first: false,
            thresholds: Default::default(),
            most_rows: false,
            seed: 0,
            trials: 1,
            last_steps: false,
        };
        let mut found = Found {
            tried: vec![tried(2.0, Precision::Bf16), tried(3.0, Precision::Int8)],
            best: Some(1),
            ended: Ended::Whole,
            given_up: Vec::new(),
            notes: Vec::new(),
            made: BTreeMap::new(),
            broken: BTreeSet::new(),
            journal: Journal::default(),
        };
        assert_eq!(found.best_kept(&settings), Some(1));
        (0..2).for_each(|_| found.leave_out(1));
        assert_eq!((found.best_kept(&settings), found.is_kept(1)), (Some(0), false));
        assert_eq!(found.notes, ["candidate 2 was left out: its answers to some unseen rows are no numbers"]);
        assert!(found.is_left_out(&found.tried[1].recipe) && !found.is_left_out(&found.tried[0].recipe));
        found.leave_out(0);
        assert_eq!(found.best_kept(&settings), None);
    }

    #[test]
    fn a_failure_is_not_called_a_stop() {
        let told = |ended: &Ended| [ended.at_once(), ended.note()].map(Option::unwrap_or_default);
        assert_eq!(told(&Ended::Whole), ["", ""]);
        assert!(told(&Ended::Stopped).iter().all(|text| text.contains("stopped") && text.contains("--resume")));
        let failed = told(&Ended::Failed("no space left".into()));
        assert!(failed.iter().all(|text| text.contains("failed: no space left") && !text.contains("stopped")));
        assert!(failed[1].contains("--resume"), "{failed:?}");
    }
}
