//! Compiles a model into a CPU program.
