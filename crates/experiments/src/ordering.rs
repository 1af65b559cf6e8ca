//! Orderings: pairs of alternatives that a paper compares, and the agreement of our order with the
//! paper's.

use crate::findings::{Cell, Ordering, Sense, heading};
use std::collections::BTreeMap;

/// Adds to each cell the comparison that it takes part in. `ordering` returns the subject, the
/// alternative's name and the better direction.
pub(crate) fn with_orderings(
    cells: Vec<Cell>,
    ordering: impl Fn(&Cell) -> Option<(String, String, Sense)>,
) -> Vec<Cell> {
    let with = |mut cell: Cell| {
        cell.ordering = ordering(&cell).map(|(about, who, sense)| Ordering { about, who, sense });
        cell
    };
    cells.into_iter().map(with).collect()
}

/// Compares our order of each pair of alternatives with the paper's. Returns the number of pairs in
/// the same order, the number of all pairs, and a description of each pair in another order. Pairs
/// are formed within a comparison of a table; pairs that are equal in the paper are left out.
pub fn order<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> (usize, usize, Vec<String>) {
    let mut contests: BTreeMap<(&str, &str), Vec<(&Cell, &Ordering)>> = BTreeMap::new();
    for cell in cells {
        if let Some(ordering) = &cell.ordering {
            let key = (cell.table.as_str(), ordering.about.as_str());
            contests.entry(key).or_default().push((cell, ordering));
        }
    }
    let (mut same, mut all, mut other) = (0, 0, Vec::new());
    for ((table, about), cells) in contests {
        for (i, (a, who)) in cells.iter().enumerate() {
            // Each pair once.
            for (b, whom) in &cells[i + 1..] {
                if a.theirs == b.theirs {
                    continue;
                }
                all += 1;
                // Equal figures of ours are not in the paper's order.
                if (a.theirs < b.theirs) == (a.ours < b.ours) && a.ours != b.ours {
                    same += 1;
                    continue;
                }
                // The better direction is for the description only; the order above does not need
                // it.
                let a_wins = (a.theirs < b.theirs) == (who.sense == Sense::Less);
                let (better, worse) = if a_wins {
                    ((a, who), (b, whom))
                } else {
                    ((b, whom), (a, who))
                };
                other.push(format!(
                    "{}, {about}: {} before {} ({:.2} and {:.2}; ours {:.2} and {:.2})",
                    heading(table),
                    better.1.who,
                    worse.1.who,
                    better.0.theirs,
                    worse.0.theirs,
                    better.0.ours,
                    worse.0.ours
                ));
            }
        }
    }
    (same, all, other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::cell;

    fn rival(who: &str, theirs: f64, ours: f64) -> Cell {
        Cell {
            ordering: Some(Ordering {
                about: "time of a read".to_owned(),
                who: who.to_owned(),
                sense: Sense::Less,
            }),
            ..cell(theirs, ours, false)
        }
    }

    #[test]
    fn pairs_count_where_both_put_them_alike() {
        let cells = [
            rival("a", 1.0, 10.0),
            rival("b", 2.0, 30.0),
            rival("c", 3.0, 20.0),
            // Equal in the paper: no order.
            rival("d", 3.0, 5.0),
            cell(0.0, 100.0, false),
        ];
        let (same, all, other) = order(&cells);
        assert_eq!((same, all, other.len()), (2, 5, 3));
        assert_eq!(
            other[0],
            "table 3, time of a read: a before d (1.00 and 3.00; ours 10.00 and 5.00)"
        );
    }
}
