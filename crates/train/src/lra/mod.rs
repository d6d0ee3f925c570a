//! Long Range Arena: one encoder, any attention, all tasks. See `docs/zoo.md`.

mod clock;
mod config;
mod encoder;
mod record;
mod speed;
#[cfg(test)]
mod tests;
mod training;

pub use clock::BlockClock;
pub use config::{CONFIGURATIONS, EncoderConfig, Pool, Positions, Recipes, Training, recipes};
pub use encoder::{Encoder, Mode};
pub use record::{RECORD, Record, Settings};
pub use speed::{MeasuredSpeed, UpdateClock};
pub use training::{Data, Job, accuracy, run};
