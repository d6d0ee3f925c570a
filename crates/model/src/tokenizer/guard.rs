//! Panics of the tokenizers library as errors.
//!
//! It slices and unwraps in places where a file that contradicts itself should be an error, so no check made
//! beforehand could be known to be complete.

use crate::Error;
use crate::weights::one_line;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is about to become an error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Does the work; a panic is an error about `file`, and nothing else is printed of it. What the work has changed must
/// not be used after that.
pub(super) fn guarded<T>(file: &str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    hush();
    let outer = GUARDED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    done.unwrap_or_else(|panic| Err(Error::new(broken(file, panic.as_ref()))))
}

fn broken(file: &str, panic: &(dyn Any + Send)) -> String {
    let why = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!(
        "{file}: damaged or at odds with itself, the tokenizers library gives up on it ({}); fetch it anew, or save it \
         again with the library that made it",
        one_line(why.unwrap_or("it does not say why"))
    )
}

/// Makes the process's panic hook pass over guarded panics. Done once and never undone: to set and restore a hook around
/// every call would lose the messages of other threads, and with two at a time the hook itself. A hook that a program
/// sets later prints them again, and changes nothing else.
fn hush() {
    static ONCE: Once = Once::new();
    // The hook may not be touched by a thread that panics already.
    if std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let told = take_hook();
        set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                told(panic);
            }
        }));
    });
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
        assert!(!GUARDED.get());
    }
}
