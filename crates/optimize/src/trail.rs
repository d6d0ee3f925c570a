//! Recipes that go further than answers allow, for those who train afterwards: the least change at every saving.

use crate::axes::{Axis, What, recipe};
use crate::cost::{Place, survey, within};
use crate::search::Search;
use crate::{Economy, Recipe};
use sparing_model::{Error, Model};
use sparing_report::Focus;

/// How often the total change is halved.
const HALVINGS: usize = 40;

/// What every step of every economy saves and changes: the way from a model to ever cheaper ones.
pub struct Trail {
    begin: Recipe,
    /// How many times cheaper its beginning is than the model as it came.
    begin_gain: f64,
    axes: Vec<Axis>,
}

/// A place on a trail.
#[derive(Debug, Clone, PartialEq)]
pub struct Milestone {
    /// What to do.
    pub recipe: Recipe,
    /// How many times cheaper that makes the model, as far as it can be foreseen: in time, or in bytes where these matter
    /// most.
    pub gain: f64,
}

impl Trail {
    /// Tries parts one by one, without combining them.
    pub fn of(search: &mut Search<'_>) -> Result<Trail, Error> {
        let (begin, axes) = survey(search)?;
        let bytes = |model: &Model| model.weights.size_in_bytes() as f64;
        let begin_gain = match search.settings.focus {
            Focus::Size => bytes(search.shop.model) / bytes(&search.shop.make(&begin)?).max(1.0),
            _ => search.costs.ratio(&begin, &search.shop.anatomy, 0.0),
        };
        Ok(Trail { begin, begin_gain, axes })
    }

    /// The place of the least change that gains as much; `None` if no place does.
    pub fn reaching(&self, gain: f64, search: &Search<'_>) -> Option<Milestone> {
        let at = |change: f64| {
            let place = within(&self.axes, change);
            (self.gain(&place), place)
        };
        let harshest = |axis: &Axis| axis.steps.iter().map(|step| step.change).fold(0.0, f64::max);
        let (mut low, mut high) = (1e-7f64.ln(), self.axes.iter().map(harshest).sum::<f64>().max(1e-6).ln() + 0.1);
        let mut found = Some(at(high.exp())).filter(|most| most.0 >= gain)?;
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            let place = at(middle.exp());
            if place.0 >= gain {
                (high, found) = (middle, place);
            } else {
                low = middle;
            }
        }
        Some(Milestone { recipe: recipe(search, &self.begin, &self.axes, &found.1), gain: found.0 })
    }

    /// What is removed for good and what is left out while the model runs (or stored in fewer bits) save shares of each
    /// other's rest.
    fn gain(&self, place: &Place) -> f64 {
        let (mut removed, mut left_out) = (0.0, 0.0);
        for (axis, taken) in self.axes.iter().zip(place) {
            let saved = taken.checked_sub(1).map_or(0.0, |step| axis.steps[step].saved);
            match axis.what {
                What::Site(_) => removed += saved,
                _ => left_out += saved,
            }
        }
        self.begin_gain / ((1.0 - removed) * (1.0 - left_out)).max(0.01)
    }
}

/// What can still be removed from a model that was trained as its recipe says; how the rest is computed stays.
pub fn further(menu: &[Economy]) -> Vec<Economy> {
    let removes = |economy: &Economy| matches!(economy, Economy::Blocks | Economy::Heads | Economy::Width);
    menu.iter().copied().filter(removes).collect()
}
