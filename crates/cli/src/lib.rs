//! Sparing as a library: one name for the crates an application needs.
//!
//! [`Model`] reads a Hugging Face directory, [`Engine`] compiles it for this machine's CPU, and
//! [`Executor::run`] turns a [`Batch`] of token ids into numbers. The `sparing` command is built on the
//! same items; turn the feature `command` off to leave its dependencies out.

pub use sparing_engine::{Engine, Options};
pub use sparing_model::{Batch, Error, Executor, Model, Outputs, Precision, Sequence, Wanted};

pub use sparing_engine as engine;
pub use sparing_kernels as kernels;
pub use sparing_model as model;
pub use sparing_tasks as tasks;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;
