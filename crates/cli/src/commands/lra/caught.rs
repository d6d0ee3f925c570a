//! Panics as errors, where others have to go on. They are told as well, with their place: unlike those of a library over
//! a broken file (`sparing_model::guarded`) they are defects, or a GPU that is lost.

use crate::failure::UNWINDING;
use sparing_model::{Error, panic_text};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// What something comes to; a panic is an error like any other. What it has changed must not be used after that.
pub fn caught<T>(job: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let found = catch_unwind(AssertUnwindSafe(job));
    UNWINDING.store(false, Ordering::Relaxed);
    found.unwrap_or_else(|panic| Err(Error::new(panic_text(panic.as_ref()).unwrap_or("it panicked"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(caught(|| Ok(3)).unwrap(), 3);
        assert_eq!(caught(|| Err::<(), _>(Error::new("no"))).unwrap_err().to_string(), "no");
        let panicked = caught(|| -> Result<(), Error> { panic!("index {} is out of bounds", 7) });
        assert!(panicked.unwrap_err().to_string().contains("index 7"));
    }
}
