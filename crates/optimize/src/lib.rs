//! The search for a cheaper model within the loss of accuracy that is accepted.
//!
//! An [`Anatomy`] says what a network can lose, a [`Recipe`] what a candidate does lose, a [`Workshop`] makes the candidate,
//! a [`Judge`] says what its answers are worth and a [`Stopwatch`] what it costs.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod anatomy;
mod axes;
mod belief;
mod contest;
mod cost;
mod costs;
mod economy;
mod elements;
mod journal;
mod judge;
mod map;
mod number;
pub mod outcome;
mod queue;
mod recipe;
mod rounding;
mod running;
mod search;
mod stopwatch;
mod surgeon;
#[cfg(test)]
mod testing;
mod trail;
mod weight;
mod workshop;

pub use anatomy::{Anatomy, Kind, Site};
pub use contest::{Contest, Contestant, contest};
pub use costs::Costs;
pub use economy::{Economy, Strategy};
pub use elements::{Element, Weight, bottom_first, queue as element_queue};
pub use journal::Journal;
pub use judge::{Elsewhere, Judge, Verdict, answers, executor, without_intervals};
pub use queue::Thresholds;
pub use recipe::{Left, Recipe};
pub use running::{Counted, GivenUp, Prices, Running};
pub use search::{Event, Search, Settings, Tried, Tune};
pub use stopwatch::{Stopwatch, Timed, median, median_interval};
pub use surgeon::{Moments, Spared, Surgeon};
pub use trail::{Milestone, Trail, further};
pub use workshop::Workshop;
