//! The report of an optimisation: what was asked, what was tried, what was chosen, and how well it did on unseen data.
//!
//! [`Report`] is the data (`report.json`); [`Report::html`] is the same as a page, [`Report::card`] as a model card. Files written by a newer version are read: unknown fields are passed over, and
//! missing ones have their defaults.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod candidate;
mod card;
mod clock;
mod elements;
mod format;
mod headline;
mod number;
mod page;
mod request;
mod result;
mod save;
mod setting;
pub mod time;

pub use candidate::{Candidate, Interval};
pub use card::BaseCard;
pub use elements::{ElementMap, LayerMap, Numbers, State, Width};
pub use headline::{Headline, Verdict};
pub use request::{Focus, Metric, Model, Task};
pub use result::{Ended, Gain, PartTime, Report, Verification};
pub use setting::{Machine, Versions};
