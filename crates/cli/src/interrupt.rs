//! Ctrl-C: the first one asks, the second one insists.

use crate::console;
use crate::failure::Failure;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);
static ANSWER: OnceLock<&str> = OnceLock::new();

/// From now on the first Ctrl-C only sets a flag, so that a command can finish what it is at and show it.
/// A second one ends the process at once.
pub fn watch() {
    let handler = || {
        if ASKED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        ANSWER.get().iter().for_each(|answer| console::note(answer));
    };
    // Without a handler Ctrl-C simply ends the process: still correct, only less kind.
    let _ = ctrlc::set_handler(handler);
}

/// From now on the first Ctrl-C gets this for an answer at once: whoever works on and says nothing seems not to have heard.
pub fn answer(text: &'static str) {
    let _ = ANSWER.set(text);
}

/// Whether Ctrl-C was pressed.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// What went wrong; after Ctrl-C, whatever it was went wrong because of it.
pub fn told(error: sparing_model::Error) -> Failure {
    if asked() { Failure::Interrupted } else { error.into() }
}

/// An error if Ctrl-C was pressed, for commands whose half-done work is worth nothing.
pub fn check() -> Result<(), Failure> {
    if asked() { Err(Failure::Interrupted) } else { Ok(()) }
}
