//! The CPU engine of Sparing: compiles a [`sparing_model::Model`] into a program and runs it on packed batches.
//!
//! A program is a list of segments. In a *row-local* segment a row's result depends on that row alone (linear
//! maps, norms, activations, residuals): it runs chunk by chunk, every step of a chunk while the chunk is still
//! in the core's own cache, and the threads share the chunks out. Only attention (and gathering and pooling of
//! rows) looks at other rows, and stands between row-local segments. There is no padding anywhere.
//!
//! ```no_run
//! use sparing_engine::{Engine, Options};
//! use sparing_model::{Batch, Executor, Model, Sequence};
//!
//! # fn main() -> Result<(), sparing_model::Error> {
//! let model = Model::load(std::path::Path::new("path/to/model"))?;
//! let engine = Engine::compile(&model, &Options::default())?;
//! let sequence = Sequence { ids: vec![101, 7592, 102], types: vec![] };
//! let outputs = engine.run(&Batch { sequences: vec![sequence], ..Batch::default() })?;
//! println!("{:?}", outputs.sequences[0]);
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod arena;
mod batch;
mod compile;
mod embed;
mod engine;
mod finite;
mod generate;
mod keys;
mod layout;
mod ledger;
mod observe;
mod options;
mod profile;
mod program;
mod random;
mod relative;
mod run;
mod steps;
mod values;

pub use engine::Engine;
pub use generate::GenerateOptions;
pub use keys::keys_by;
pub use ledger::{Ledger, LedgerPart};
pub use observe::Observed;
pub use options::{Economies, Options, RunOptions, auto_precision};
pub use profile::PartTime;
pub use run::{FollowedLayer, like_tokens};
pub use steps::{Function, StepInfo, StepKind};
pub use values::{Calibrator, LayerExamined, Recipe, Spending};
