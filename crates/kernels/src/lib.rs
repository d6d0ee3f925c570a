//! CPU kernels of Sparing.
//!
//! Everything here works on rows ([`Rows`], [`RowsMut`]) of f32 or bf16 numbers that the caller owns, and chooses
//! its instruction set at run time ([`isa::active`]). Beside each fast kernel stands a slow, obvious one in [`mod@reference`],
//! and tests compare the two. All of the project's `unsafe` lives in this crate.

mod activation;
pub mod attention;
mod buffer;
mod epilogue;
pub mod gemm;
pub mod isa;
mod math;
pub mod norm;
mod pack;
pub mod peak;
mod product;
pub mod reference;
mod rows;
mod simd;
pub mod staircase;
mod team;
mod tile;
pub mod training;
mod words;

pub use activation::Activation;
pub use buffer::{Aligned, Buffer};
pub use epilogue::Epilogue;
pub use gemm::{Scratch, gemm, gemm_columns};
pub use math::{activate, activation_gradient};
pub use pack::{Format, InputRounding, PackedMatrix};
pub use product::{After, Products, Side};
pub use rows::{Chunks, Element, Elements, ElementsMut, Rows, RowsMut, bf16_to_f32, f32_to_bf16};
pub use team::{PerWorker, Team};
