//! One module per command: its options, and what it does with them.

pub mod bench;
pub mod calibrate;
pub mod completions;
pub mod eval;
pub mod inspect;
pub mod lra;
pub mod optimize;
pub mod quantize;
pub mod run;
pub mod serve;
pub mod study;
pub mod train;
