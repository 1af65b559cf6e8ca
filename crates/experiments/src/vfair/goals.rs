//! How near the whole comes.

use crate::said::Said;
use crate::{Cell, order};

/// Who is better than whom, over everything that was run.
pub(super) fn goals(cells: &[Cell]) -> Vec<Said> {
    let (same, all, other) = order(cells);
    if all == 0 {
        return Vec::new();
    }
    let share = 100.0 * same as f64 / all as f64;
    let mut said = Said::new(
        "who is better than whom is as in the paper in 90 % of the comparisons",
        share >= 90.0,
        format!("it is in {same} of {all}, {share:.0} %"),
    );
    if !other.is_empty() {
        said.more = format!(" Not so: {}.", other.join("; "));
    }
    vec![said]
}
