//! Rows times packed weights, with what follows fused in.

use crate::{Activation, PackedMatrix, PerWorker, Rows, RowsMut, Team, reference};

/// What happens to a result before it is stored: `activation(x + bias) + residual`.
#[derive(Clone, Copy)]
pub struct Epilogue<'a> {
    /// One number per output.
    pub bias: Option<&'a [f32]>,
    /// Applied after the bias.
    pub activation: Activation,
    /// Added last; as many rows as the result.
    pub residual: Option<Rows<'a>>,
}

/// Working memory of one thread, grown on first use and reused.
#[derive(Default)]
pub struct Scratch {}

/// `out = epilogue(a · Wᵀ)` on the calling thread.
pub fn gemm(a: Rows, weights: &PackedMatrix, epilogue: &Epilogue, out: RowsMut, scratch: &mut Scratch) {
    let _ = scratch;
    reference::gemm(a, &weights.values, weights.outputs(), epilogue, out);
}

/// [`gemm`] shared by a team along the outputs: for few rows and many outputs, where rows cannot be shared out.
pub fn gemm_columns(
    team: &Team,
    a: Rows,
    weights: &PackedMatrix,
    epilogue: &Epilogue,
    out: RowsMut,
    scratch: &PerWorker<Scratch>,
) {
    let _ = team;
    gemm(a, weights, epilogue, out, &mut scratch.get(0));
}
