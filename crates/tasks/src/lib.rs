//! Datasets, metrics and evaluation.
