//! Panics of libraries as errors.
//!
//! Some slice, unwrap and assert in places where a file that contradicts itself should be an error, so no check made
//! beforehand could be known to be complete.

use crate::weights::one_line;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is about to become an error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Does the work; of a panic nothing is printed, and the error is what it said, in one line. What the work has changed
/// must not be used after that.
///
/// For libraries that panic over what a user gave them. A defect of our own had better be heard.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    hush();
    let outer = GUARDED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    done.map_err(|panic| one_line(panic_text(panic.as_ref()).unwrap_or("it does not say why")))
}

/// What a panic says, if it says anything.
pub fn panic_text(panic: &(dyn Any + Send)) -> Option<&str> {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str))
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
    fn a_panic_is_one_line() {
        let panicked = guarded(|| -> u8 { panic!("index {}\nis out of bounds", 7) });
        assert_eq!(panicked.unwrap_err(), "index 7 is out of bounds");
        assert_eq!(guarded(|| -> u8 { std::panic::panic_any(7) }).unwrap_err(), "it does not say why");
        assert_eq!(guarded(|| guarded(|| 3)), Ok(Ok(3)));
        assert!(!GUARDED.get());
    }
}
