//! Looking at what linear maps read while a batch runs: for calibration.

use crate::compile::Packed;
use crate::profile::Clock;
use crate::{Engine, RunOptions};
use sparing_kernels::Rows;
use sparing_model::{Batch, Error, Outputs};

/// Rows that a linear map reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed<'a> {
    /// The name of the map's weight: its tensor's, with the part of a fused one (`c_attn.weight[0..768]`).
    pub weight: &'a str,
    /// The first of the maps that read these rows together (query, for query, key and value).
    pub leader: &'a str,
    /// Row-major `[rows, inputs]`.
    pub rows: &'a [f32],
    /// Width of a row.
    pub inputs: usize,
}

impl Engine {
    /// Runs a batch and shows the input rows of every linear map of the program to `see`: map by map as they are
    /// computed, a chunk of rows at a time, rows in the order of the batch. Queries, keys and values that read the same
    /// rows come by one after the other; layers that share weights come by under the same name.
    ///
    /// What is seen is what is computed: of the last layer only the rows that the head reads, identical inputs once
    /// (unless [`crate::Options::economies`] are off). Slower than [`sparing_model::Executor::run`], with the same result.
    pub fn observe(&self, batch: &Batch, see: &mut dyn FnMut(Observed<'_>)) -> Result<Outputs, Error> {
        let mut held = Vec::new();
        let mut observer = |packed: &Packed, rows: Rows<'_>| {
            let inputs = rows.width();
            held.resize(rows.count() * inputs, 0.0);
            for (row, to) in held.chunks_exact_mut(inputs).enumerate() {
                rows.read_row(row, to);
            }
            for weight in &packed.names {
                see(Observed { weight, leader: &packed.names[0], rows: &held, inputs });
            }
        };
        self.run_with(batch, &RunOptions::exact(), &mut Clock::stopped(), Some(&mut observer))
    }
}
