//! How a command ends when it does not end well, and the exit code that says so.

use std::fmt::Display;
use std::io;
use std::sync::atomic::AtomicBool;

/// Why a command stopped.
#[derive(Debug)]
pub enum Failure {
    /// Something is wrong with the input; one line for the user. Exit code 1.
    Message(String),
    /// The options do not make sense together; one line for the user. Exit code 2, as clap's own.
    Usage(String),
    /// Ctrl-C; what was done has been shown. Exit code 130.
    Interrupted,
    /// Whoever read our output has stopped reading (`| head`): nobody is left to tell.
    Closed,
    /// The user has been told already. Exit code 1.
    Told,
}

impl Failure {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Failure::Message(message.into())
    }

    /// The exit code of the process.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Message(_) | Failure::Told => 1,
            Failure::Usage(_) => 2,
            Failure::Interrupted => 130,
            Failure::Closed => 0,
        }
    }

    /// The line for the user, if there is one.
    pub fn message(&self) -> Option<&str> {
        match self {
            Failure::Message(text) | Failure::Usage(text) => Some(text),
            Failure::Interrupted => Some("interrupted"),
            Failure::Closed | Failure::Told => None,
        }
    }

    /// The same failure with the place it happened in front.
    pub fn at(self, place: impl Display) -> Self {
        match self {
            Failure::Message(text) => Failure::Message(format!("{place}: {text}")),
            other => other,
        }
    }
}

impl From<sparing_model::Error> for Failure {
    fn from(error: sparing_model::Error) -> Self {
        Failure::Message(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Message(error.to_string()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(kind) => io::Error::from(kind).into(),
            None => Failure::Message(error.to_string()),
        }
    }
}

/// Whether the main thread is on its way out of a panic that nobody has caught yet.
pub static UNWINDING: AtomicBool = AtomicBool::new(false);
