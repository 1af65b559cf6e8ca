//! Panics of the engine, caught and reported as violations with their place.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `run`. A panic becomes an error with its message and place instead of being printed.
pub(super) fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    // Hooks are of the process, and torture runs on several threads: one hook, a flag for each
    // thread.
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if CATCHING.get() {
                SAID.set(Some(describe(info)))
            } else {
                previous(info)
            }
        }));
    });
    CATCHING.set(true);
    // After a panic only the journal is read, and a list of lines has no broken state.
    let outcome = panic::catch_unwind(AssertUnwindSafe(run));
    CATCHING.set(false);
    outcome.map_err(|_| SAID.take().unwrap_or_else(|| "a panic".to_owned()))
}

fn describe(info: &PanicHookInfo) -> String {
    let said = info.payload_as_str().unwrap_or("a panic");
    match info.location() {
        Some(place) => format!("{said} ({}:{})", place.file(), place.line()),
        None => said.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_place() {
        let said = caught(|| panic!("the sky fell")).unwrap_err();
        assert!(said.starts_with("the sky fell ("), "{said}");
        assert!(said.contains("panics.rs:"), "{said}");
        assert_eq!(caught(|| 7), Ok(7));
    }
}
