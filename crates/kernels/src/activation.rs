//! Element-wise non-linearities.

/// What a linear map's epilogue applies to its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x`.
    Identity,
    /// `x * Phi(x)`, exact error function.
    Gelu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
    /// `tanh(x)`.
    Tanh,
    /// `x * sigmoid(x)`.
    Silu,
    /// `min(max(x, -1), 1)`.
    Clip,
}
