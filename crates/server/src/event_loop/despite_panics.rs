//! Steps of the end of a loop that is lost, of which each is tried.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Passes each item to a function. A panic of the function, which its message tells of, keeps it
/// from no other item.
pub(super) fn for_each_despite_panics<T>(
    items: impl IntoIterator<Item = T>,
    mut act: impl FnMut(T),
) {
    for item in items {
        let _ = catch_unwind(AssertUnwindSafe(|| act(item)));
    }
}

#[cfg(test)]
mod tests {
    use super::for_each_despite_panics;

    #[test]
    fn a_panic_for_one_item_keeps_no_other_from_its_turn() {
        let mut done = Vec::new();
        for_each_despite_panics(1..=4, |item| {
            assert_ne!(item, 2, "as this test wants it");
            done.push(item);
        });
        assert_eq!(done, [1, 3, 4]);
    }
}
