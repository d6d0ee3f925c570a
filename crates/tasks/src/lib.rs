//! Datasets, metrics and evaluation.
//!
//! A [`Dataset`] is read from official files, the user's own tables or the program itself; [`evaluate`] runs
//! a model over it and gives a [`Report`] of metrics with bootstrap intervals; [`Prepared`] is for many runs over
//! the same inputs; [`agreement`] says how alike two executors answer; [`Report::compare`] whether one is better than another; [`Cascade`] makes one of a cheap and an
//! exact executor that decides as the exact one does, with a [`Certificate`].

#![deny(missing_docs)]

mod agreement;
mod answer;
mod batches;
pub mod binomial;
mod bootstrap;
mod cascade;
mod compare;
mod dataset;
mod encode;
mod evaluate;
#[cfg(test)]
mod evaluation_tests;
mod glue;
mod gold;
mod language;
pub mod lra;
mod mean;
pub mod metrics;
mod outcome;
mod pairing;
mod perplexity;
mod prepared;
mod random;
mod renames;
mod report;
mod scorable;
mod scorer;
mod source;
mod squad;
mod table;
mod task;
mod watched;

pub use agreement::{Agreement, agreement, kl};
pub use answer::{AnswerOptions, Found, best_span, choose};
pub use batches::Progress;
pub use bootstrap::{Bootstrap, Interval};
pub use cascade::{
    Cascade, Certificate, Check, Decision, Escalate, Fingerprint, Pair, Tally, Target, Trial, check, try_out,
};
pub use compare::{Comparison, McNemar, mcnemar};
pub use dataset::{Answer, Dataset, Example, Label, Select};
pub use encode::Encode;
pub use evaluate::{Options, evaluate, visit};
pub use gold::Gold;
pub use mean::Mean;
pub use outcome::{Labels, Metric, Outcome};
pub use pairing::Pairing;
pub use prepared::Prepared;
pub use random::Random;
pub use renames::Renames;
pub use report::{Report, Value};
pub use table::Columns;
pub use task::{Split, Task};
pub use watched::Watched;
