//! Memory that changes between two reads of it, as shared memory may: for tests and fuzz targets.
//!
//! Code that validates one read and uses another is found by changes behind each single read.

use std::cell::RefCell;

type Change = Box<dyn FnMut()>;

thread_local! {
    static CHANGE: RefCell<Option<Change>> = const { RefCell::new(None) };
}

/// Runs `body` with `change` being called behind each read that this thread makes of memory that
/// others may change.
pub(crate) fn with<T>(change: impl FnMut() + 'static, body: impl FnOnce() -> T) -> T {
    CHANGE.set(Some(Box::new(change)));
    let result = body();
    CHANGE.set(None);
    result
}

/// Makes the change that [`with`] set, if any.
pub(super) fn after_read() {
    // The change may itself read.
    if let Some(mut change) = CHANGE.take() {
        change();
        CHANGE.set(Some(change));
    }
}
