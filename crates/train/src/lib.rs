//! The same [`Model`](sparing_model::Model) with gradients, on Burn.
//!
//! There are no layer types here: [`Parameters`] holds every tensor under its Hugging Face name, and [`Network`] walks
//! the one parametric [`Architecture`](sparing_model::Architecture) with them. So what is trained is what is saved, name
//! by name and bit by bit, and a family that loads also trains.

pub mod attention;
mod average;
mod batch;
mod batches;
mod checkpoint;
mod clock;
mod corpus;
mod curve;
mod data;
mod device;
mod distill;
mod economy;
mod executor;
mod feed;
mod finetune;
mod gpu;
mod inventory;
#[cfg(any(feature = "cuda", feature = "wgpu", test))]
mod kernels;
mod layers;
mod log;
pub mod losses;
pub mod lra;
mod maps;
mod masks;
mod network;
mod objective;
mod operations;
mod ops;
mod optimizer;
mod parameters;
mod place;
mod prepare;
mod pretrain;
mod quantise;
mod random;
mod ranges;
mod recorder;
mod rows;
mod schedule;
mod session;
mod sines;
mod student;
mod summary;
mod ticket;
mod trainer;
mod transfer;

pub use batch::PaddedBatch;
pub use executor::BurnExecutor;
pub use maps::{AttentionMap, attention_maps};
pub use network::{Beyond, Capture, Encoded, Forward, Guide, LinearHook, Mode, Network, Statistics};
pub use parameters::{Parameter, Parameters};

pub use average::average;
pub use batches::{epoch_batches, padded_length};
pub use checkpoint::{Best, State, Work};
pub use clock::{PassClock, StepClock, StepParts, StepShape};
pub use corpus::{MASKED_SHARE, Masking, PairTask, Pairs, pieces};
pub use data::{Example, Target, check_head, examples, holdout};
pub use device::{device, device_memory};
pub use distill::{Distill, Mapping, Teaching};
pub use finetune::Finetune;
pub use log::{Line, read as read_log};
pub use masks::{Holes, Masks, prunable};
pub use objective::{Loss, Objective, Pass, Supervised};
pub use operations::{OperationTime, operation_times};
pub use optimizer::{AdamOptions, AdamW, NamedGradients};
pub use place::Place;
pub use prepare::{Prepared, Store, Wanted};
pub use pretrain::Pretrain;
pub use quantise::{FakeQuantization, Rounding};
pub use schedule::{Curve, Schedule, Warmup};
pub use student::StudentShape;
pub use summary::{RunSummary, Summary};
pub use ticket::{Round, RoundKind, Ticket, TicketSummary};
pub use trainer::{Event, Finish, Judge, TrainOptions, Watch, rate_scales, train};
pub use transfer::{Beginning, Transfer, TransferTexts, same_words};
