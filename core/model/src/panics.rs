//! Calls libraries that panic on malformed input. Decides nothing about panics of our own.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use sluice_io::error::panic_message as message_of;

thread_local! {
    /// The calls on this thread that catch panics, one inside the other.
    static CATCHING: Cell<u32> = const { Cell::new(0) };
}

/// Calls what panics on some malformed input. `Err` is the panic.
///
/// The panic hook still runs, but [`is_panic_caught`] then tells it to print nothing. What `call`
/// changed before it panicked must not be used afterwards.
pub fn catch<T>(call: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    let before = CATCHING.get();
    CATCHING.set(before + 1);
    let result = catch_unwind(AssertUnwindSafe(call));
    CATCHING.set(before);
    result
}

/// Calls a library that panics on some malformed input, as [`catch`] does. `Err` says what is wrong
/// with the input: the error of the library, or that `library` panicked, and its message.
pub fn catch_panics<T, E: Display>(
    library: &str,
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, String> {
    match catch(call) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(format!("{library} panicked: {}", message_of(&*panic))),
    }
}

/// Whether a panic of this thread is caught by [`catch`]: then the input is at fault, not the
/// program. For panic hooks.
pub fn is_panic_caught() -> bool {
    CATCHING.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_caught_only_inside_of_the_call() {
        let panics = || -> Result<(), String> {
            assert!(is_panic_caught());
            panic!("not implemented")
        };
        let reason = catch_panics("the library", panics).unwrap_err();
        assert_eq!(reason, "the library panicked: not implemented");
        assert!(!is_panic_caught());
    }

    #[test]
    fn a_call_inside_of_another_does_not_end_it() {
        let outer = catch_panics("outer", || {
            catch_panics("inner", || Ok::<_, String>(())).map(|()| is_panic_caught())
        });
        assert_eq!(outer, Ok(true));
    }

    #[test]
    fn other_threads_are_not_concerned() {
        let other = catch_panics("the library", || {
            std::thread::scope(|scope| {
                scope.spawn(is_panic_caught).join().map_err(|_| "the thread panicked")
            })
        });
        assert_eq!(other, Ok(false));
    }

    #[test]
    fn an_error_of_the_library_is_kept() {
        assert_eq!(
            catch_panics("the library", || Err::<(), _>("too short")),
            Err("too short".into())
        );
    }
}
