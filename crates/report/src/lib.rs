//! The report of an optimisation: what was asked, what was tried, what was chosen, and how well it did on unseen data.
//!
//! [`Report`] is the data (`report.json`). Files written by a newer version are read: unknown fields are passed over, and
//! missing ones have their defaults.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod candidate;
mod elements;
mod number;
mod request;
mod result;
mod setting;

pub use candidate::{Candidate, Interval};
pub use elements::{ElementMap, LayerMap, State, Width};
pub use request::{Focus, Metric, Model, Task};
pub use result::{Gain, PartTime, Report, Verification};
pub use setting::{Machine, Versions};
