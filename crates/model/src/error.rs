//! Errors: one line that names the file, tensor or field, and says what to do.

/// Everything that can go wrong with a model, in words a user can act on.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// An error with this message (one line, no full stop needed).
    pub fn new(message: impl Into<String>) -> Self {
        Error(message.into())
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
