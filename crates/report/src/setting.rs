//! What it ran on.

use serde::{Deserialize, Serialize};

/// The machine that times were measured on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Cores that were used.
    pub cores: usize,
    /// The instruction set of the kernels.
    pub isa: String,
    /// Operating system and processor family: `linux x86_64`.
    pub os: String,
}

/// Versions of what ran.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Versions {
    /// This program's.
    pub sparing: String,
    /// The commit it was built from, where whoever built it said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// How it was built: "optimised, with training".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}
