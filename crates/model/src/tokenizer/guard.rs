//! Panics of the tokenizers library as errors about the file that made it panic.

use crate::{Error, guard};

/// Does the work; a panic is an error about `file`. What the work has changed must not be used after that.
pub(super) fn guarded<T>(file: &str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    guard::guarded(work).unwrap_or_else(|why| {
        Err(Error::new(format!(
            "{file}: damaged or at odds with itself, the tokenizers library gives up on it ({why}); fetch it anew, or \
             save it again with the library that made it"
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line_about_the_file() {
        let panicked = guarded("t.json", || -> Result<(), Error> { panic!("index {}\nis out of bounds", 7) });
        let message = panicked.unwrap_err().to_string();
        assert!(message.starts_with("t.json: damaged") && message.contains("(index 7 is out of bounds)"), "{message}");
        assert_eq!(guarded("t.json", || Ok(3)).unwrap(), 3);
        let failed = guarded("t.json", || Err::<(), _>(Error::new("no")));
        assert_eq!(failed.unwrap_err().to_string(), "no");
    }
}
