//! Hugging Face Transformers as ONE parametric architecture.
//!
//! [`Architecture`] says what the network is, [`Plan`] what is economised, [`Weights`] holds the
//! (memory-mapped) numbers, and [`Model`] is all of them with the tokenizer. Nothing here computes:
//! whatever turns a [`Batch`] into [`Outputs`] is an [`Executor`].

#![deny(missing_docs)]

pub mod architecture;
mod calibration;
mod check;
mod config;
mod contents;
mod directory;
mod elements;
mod error;
pub mod executor;
mod families;
mod functions;
mod guard;
#[cfg(feature = "hub")]
mod hub;
mod keys;
mod load;
mod mca;
mod plan;
mod prune;
mod replace;
mod save;
mod sentence;
mod tokenizer;
mod tokens;
mod weights;
mod window;

pub use architecture::*;
pub use calibration::{CALIBRATION_FILE, Calibration, LayerCalibration, value_fingerprint};
pub use elements::{Elements, LayerElements, Widths};
pub use error::Error;
pub use executor::*;
pub use families::HeadChoice;
pub use functions::{All, Functions, Relu, SoftmaxNetwork};
pub use guard::{guarded, panic_text};
#[cfg(feature = "hub")]
pub use hub::{OpenOptions, Transfer};
pub use keys::{Keep, Keys, KeysBy, LayerKeys};
pub use load::{LoadOptions, Model};
pub use mca::{AttentionPlan, LayerAlpha, Length, Mca, Pooling, Sampler};
pub use plan::{Activations, Bits, Blocks, LayerBits, Plan, Precision, Quantization};
pub use prune::{Edits, FfnEdit, LayerEdit, NewNumbers};
pub use replace::{replace_file, replace_file_with};
pub use save::{check_replaceable, write_directory};
pub use tokenizer::{Encoded, Tokenizer};
pub use tokens::{ByLayer, LayerTokens, Tokens};
pub use weights::{Dtype, Integers, OwnedTensor, Quantized, ScaleAxis, Scales, Tensor, Weights, not_finite};
