//! The `sparing` command.

#![forbid(unsafe_code)]

mod args;
mod attention;
mod bits;
mod cascade;
mod commands;
mod console;
mod failure;
mod files;
mod inputs;
mod interrupt;
mod load;
mod machine;
mod parameters;
mod peak;
mod plot;
mod progress;
mod shapes;
mod stats;
mod svg;
mod table;

use args::{Cli, Command, WELCOME};
use clap::Parser;
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

fn main() -> ExitCode {
    one_line_panics();
    let cli = Cli::parse();
    let work = || sparing_kernels::isa::choose().map_err(Failure::new).and_then(|_| dispatch(cli));
    // A panic has been told by the hook; what is left is the exit code.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(Err(Failure::Told));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                complain(message);
            }
            ExitCode::from(failure.code())
        }
    }
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        None => Ok(writeln!(std::io::stdout(), "{WELCOME}")?),
        Some(Command::Run(args)) => commands::run::run(args),
        Some(Command::Eval(args)) => commands::eval::eval(&args),
        Some(Command::Inspect(args)) => commands::inspect::inspect(args),
        Some(Command::Bench(args)) => commands::bench::bench(&args),
        Some(Command::Calibrate(args)) => commands::calibrate::calibrate(&args),
        Some(Command::Serve(args)) => commands::serve::serve(&args),
        Some(Command::Study(args)) => commands::study::study(&args),
        Some(Command::Optimize(args)) => commands::optimize::optimize(&args),
        Some(Command::Quantize(args)) => commands::quantize::quantize(&args),
        Some(Command::Train(args)) => commands::train::train(&args),
        Some(Command::Lra(args)) => commands::lra::lra(&args),
        Some(Command::Completions(args)) => commands::completions::completions(&args),
    }
}

/// One line on standard error.
fn complain(message: &str) {
    let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    // Nobody to tell if standard error is closed.
    let _ = writeln!(std::io::stderr(), "{} {line}", console::Paint::stderr().bad("error:"));
}

/// A defect of ours is still told in one line, with what is needed to report it.
fn one_line_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        complain(&told(&place, sparing_model::panic_text(info.payload()).unwrap_or_default()));
        if std::thread::current().name() == Some("main") {
            failure::UNWINDING.store(true, Ordering::Relaxed);
            end_soon();
        }
    }));
}

/// What to say of a panic. The library that drives GPUs panics when one is lost to it, and that is nobody's defect here.
fn told(place: &str, what: &str) -> String {
    match place.contains("/cubecl-") {
        true => format!(
            "the GPU stopped answering ({what}, at {place}); a process that was killed can take it from all others; \
             checkpoints are still there"
        ),
        false => format!("internal error at {place}: {what}; this is a defect of sparing, please report it"),
    }
}

/// Ends the program if unwinding does not: a GPU's driver can wait for work that will never be done.
fn end_soon() {
    std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_secs(10));
        // One that was caught is over.
        if failure::UNWINDING.load(Ordering::Relaxed) {
            std::process::exit(Failure::Told.code().into())
        }
    });
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn a_lost_gpu_is_not_our_defect() {
        let lost = told("registry/cubecl-common-0.11.3/src/device/handle/channel.rs:409:35", "RecvError");
        assert!(lost.starts_with("the GPU stopped answering (RecvError"), "{lost}");
        assert!(told("crates/cli/src/main.rs:1:1", "oh").contains("please report it"));
    }
}
