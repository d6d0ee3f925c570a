//! `sparing completions`: what the shell needs to complete our options.

use crate::args::Cli;
use crate::failure::Failure;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::Write;

/// Prints a completion script for your shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sparing completions bash > ~/.local/share/bash-completion/completions/sparing
  sparing completions zsh > \"${fpath[1]}/_sparing\"
  sparing completions fish > ~/.config/fish/completions/sparing.fish")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    // Into memory first: the generator panics where the pipe is closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sparing", &mut script);
    let mut out = std::io::stdout().lock();
    out.write_all(&script)?;
    Ok(out.flush()?)
}
