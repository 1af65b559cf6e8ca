//! Who is better than whom: the order in which a paper puts what it compares.

use crate::findings::{Cell, Contest, Sense, heading};
use std::collections::BTreeMap;

/// Cells with what each competes in, as `contest` says: about what, who, and which way is better.
pub(crate) fn competing(
    cells: Vec<Cell>,
    contest: impl Fn(&Cell) -> Option<(String, String, Sense)>,
) -> Vec<Cell> {
    let with = |mut cell: Cell| {
        cell.contest = contest(&cell).map(|(about, who, sense)| Contest { about, who, sense });
        cell
    };
    cells.into_iter().map(with).collect()
}

/// How often our order of two is the paper's, of how many pairs, and each pair that is not: in
/// words. Pairs are those within a contest of a table; one that the paper has equal is none.
pub fn order<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> (usize, usize, Vec<String>) {
    let mut contests: BTreeMap<(&str, &str), Vec<(&Cell, &Contest)>> = BTreeMap::new();
    for cell in cells {
        if let Some(contest) = &cell.contest {
            let key = (cell.table.as_str(), contest.about.as_str());
            contests.entry(key).or_default().push((cell, contest));
        }
    }
    let (mut same, mut all, mut other) = (0, 0, Vec::new());
    for ((table, about), cells) in contests {
        for (i, (a, who)) in cells.iter().enumerate() {
            for (b, whom) in &cells[i + 1..] {
                if a.theirs == b.theirs {
                    continue;
                }
                all += 1;
                if (a.theirs < b.theirs) == (a.ours < b.ours) && a.ours != b.ours {
                    same += 1;
                    continue;
                }
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
            contest: Some(Contest {
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
