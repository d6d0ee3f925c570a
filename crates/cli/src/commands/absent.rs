//! What stands for commands that need training in a build without it.

use crate::failure::Failure;
use clap::Args;

/// Whatever such a command is given.
#[derive(Debug, Args)]
pub struct Rest {
    /// What a build with training would do
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

/// Says what to do instead.
pub fn training() -> Failure {
    Failure::new(
        "this program was built without training; build it with `cargo build --release --features train` \
         (and cuda or wgpu for a GPU: `--features train,cuda`)",
    )
}

/// `sparing train`.
pub mod train {
    use super::{Args, Failure, Rest};

    /// Trains a model (not in this build: needs the cargo feature `train`)
    #[derive(Debug, Args)]
    pub struct TrainArgs {
        #[command(flatten)]
        _rest: Rest,
    }

    /// Says what to do instead.
    pub fn train(_: &TrainArgs) -> Result<(), Failure> {
        Err(super::training())
    }
}

/// `sparing lra`.
pub mod lra {
    use super::{Args, Failure, Rest};

    /// Long Range Arena (not in this build: needs the cargo feature `train`)
    #[derive(Debug, Args)]
    pub struct LraArgs {
        #[command(flatten)]
        _rest: Rest,
    }

    /// One attention block by length (not in this build: needs the cargo feature `train`)
    #[derive(Debug, Args)]
    pub struct AttentionArgs {
        #[command(flatten)]
        _rest: Rest,
    }

    /// Says what to do instead.
    pub fn attention(_: &AttentionArgs) -> Result<(), Failure> {
        Err(super::training())
    }

    /// Says what to do instead.
    pub fn lra(_: &LraArgs) -> Result<(), Failure> {
        Err(super::training())
    }
}

/// `sparing study functions` and `layer`.
pub mod study {
    use super::{Args, Rest};

    /// Figures of networks in the place of functions (not in this build: needs the cargo feature `train`)
    #[derive(Debug, Args)]
    pub struct FunctionsArgs {
        #[command(flatten)]
        _rest: Rest,
    }

    /// One encoder layer's time by what is replaced (not in this build: needs the cargo feature `train`)
    #[derive(Debug, Args)]
    pub struct LayerArgs {
        #[command(flatten)]
        _rest: Rest,
    }
}
