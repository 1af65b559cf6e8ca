//! Orderings: pairs of alternatives that a paper compares, and the agreement of our order with the
//! paper's.

use crate::findings::{Cell, Ordering, Sense, heading};
use crate::pattern::fits;
use crate::verdict::{Origin, Scope};
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

/// Largest difference of two figures, as a fraction of the larger one, at which none of them is
/// better.
const TIE: f64 = 0.01;

/// Our order of pairs of alternatives beside the paper's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Comparisons {
    /// Number of pairs.
    pub all: usize,
    /// Pairs in the paper's order: the one that is better there is better here by more than 1 %, or
    /// both are within 1 % there and here.
    pub agree: usize,
    /// Pairs that are within 1 % here and not in the paper.
    pub within: usize,
    /// Pairs in the other order, or in one where the paper's are within 1 %.
    pub opposite: usize,
    /// Pairs in the paper's order however small the differences are.
    pub by_sign: usize,
    /// Descriptions of the pairs that are not in the paper's order.
    pub others: Vec<String>,
}

/// Better of two alternatives; `Equal` within 1 %. `Less` has the smaller figure first.
fn three_way(a: f64, b: f64) -> std::cmp::Ordering {
    // Relative to the larger one, so that it does not matter which of them comes first.
    if (a - b).abs() <= TIE * f64::max(a.abs(), b.abs()) {
        std::cmp::Ordering::Equal
    } else {
        a.total_cmp(&b)
    }
}

/// Origin of the contradiction that rules out a comparison of two cells; that of the second reading
/// goes first.
fn ruled_out(cells: [(&Cell, &Ordering); 2]) -> Option<Origin> {
    let [(a, who), (b, whom)] = cells;
    let own = [a, b].map(|cell| cell.cannot_hold.as_ref().map(|reason| reason.from));
    let pairs = [(a, whom), (b, who)];
    let pairs = pairs.into_iter().flat_map(|(cell, other)| {
        let of_it = move |(against, _): &&(String, Origin)| fits(against, &other.who);
        cell.uncomparable
            .iter()
            .filter(of_it)
            .map(|(_, from)| *from)
    });
    own.into_iter().flatten().chain(pairs).min()
}

impl Comparisons {
    /// Adds a pair of a comparison.
    fn add(&mut self, [(a, who), (b, whom)]: [(&Cell, &Ordering); 2]) {
        self.all += 1;
        // Equal figures of ours are not in the paper's order.
        let same = (a.theirs < b.theirs) == (a.ours < b.ours) && a.ours != b.ours;
        self.by_sign += usize::from(same);
        let (theirs, ours) = (three_way(a.theirs, b.theirs), three_way(a.ours, b.ours));
        let outcome = if theirs == ours {
            self.agree += 1;
            return;
        } else if ours.is_eq() {
            self.within += 1;
            "within 1 %"
        } else if theirs.is_eq() {
            self.opposite += 1;
            "the paper's are within 1 %"
        } else {
            self.opposite += 1;
            "the other way"
        };
        // The better direction is for the description only; the order above does not need it.
        let a_wins = (a.theirs < b.theirs) == (who.sense == Sense::Less);
        let [better, worse] = if a_wins {
            [(a, who), (b, whom)]
        } else {
            [(b, whom), (a, who)]
        };
        self.others.push(format!(
            "{}, {}: {} before {} ({:.2} and {:.2}; ours {:.2} and {:.2}: {outcome})",
            heading(&a.table),
            who.about,
            better.1.who,
            worse.1.who,
            better.0.theirs,
            worse.0.theirs,
            better.0.ours,
            worse.0.ours
        ));
    }
}

/// Compares our order of each pair of alternatives with the paper's. Pairs are formed within a
/// comparison of a table, and counted if the scope has them; pairs that are equal in the paper are
/// left out.
pub fn order<'a>(cells: impl IntoIterator<Item = &'a Cell>, scope: Scope) -> Comparisons {
    let mut contests: BTreeMap<(&str, &str), Vec<(&Cell, &Ordering)>> = BTreeMap::new();
    for cell in cells {
        if let Some(ordering) = &cell.ordering {
            let key = (cell.table.as_str(), ordering.about.as_str());
            contests.entry(key).or_default().push((cell, ordering));
        }
    }
    let mut found = Comparisons::default();
    for cells in contests.into_values() {
        for (i, a) in cells.iter().enumerate() {
            // Each pair once.
            for b in &cells[i + 1..] {
                let pair = [*a, *b];
                if a.0.theirs != b.0.theirs && scope.includes(ruled_out(pair)) {
                    found.add(pair);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::cell;
    use crate::verdict::Reason;

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

    fn counts(cells: &[Cell], scope: Scope) -> [usize; 4] {
        let found = order(cells, scope);
        assert_eq!(found.others.len(), found.within + found.opposite);
        [found.all, found.agree, found.within, found.opposite]
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
        let found = order(&cells, Scope::All);
        assert_eq!((found.agree, found.all, found.others.len()), (2, 5, 3));
        assert_eq!(
            found.others[0],
            "table 3, time of a read: a before d (1.00 and 3.00; ours 10.00 and 5.00: the other \
             way)"
        );
    }

    #[test]
    fn differences_up_to_a_hundredth_are_a_verdict_of_their_own() {
        let pair = |theirs: [f64; 2], ours: [f64; 2]| {
            let cells = [
                rival("a", theirs[0], ours[0]),
                rival("b", theirs[1], ours[1]),
            ];
            let found = order(&cells, Scope::All);
            (found.agree, found.within, found.opposite, found.by_sign)
        };
        assert_eq!(pair([1.0, 2.0], [100.0, 102.0]), (1, 0, 0, 1));
        assert_eq!(pair([1.0, 2.0], [100.0, 101.0]), (0, 1, 0, 1));
        assert_eq!(pair([1.0, 2.0], [101.0, 100.0]), (0, 1, 0, 0));
        assert_eq!(pair([1.0, 2.0], [102.0, 100.0]), (0, 0, 1, 0));
        // Within 1 % in the paper as well.
        assert_eq!(pair([100.0, 100.5], [100.0, 99.5]), (1, 0, 0, 0));
        assert_eq!(pair([100.0, 100.5], [100.0, 120.0]), (0, 0, 1, 1));
    }

    #[test]
    fn what_cannot_hold_is_left_out_with_its_comparisons() {
        let impossible = |from| {
            Some(Reason {
                id: "i".to_owned(),
                from,
                arithmetic: String::new(),
            })
        };
        let mut cells = [
            rival("a", 1.0, 1.0),
            rival("b", 2.0, 2.0),
            rival("c", 3.0, 3.0),
        ];
        cells[0].cannot_hold = impossible(Origin::Own);
        let each = |cells: &[Cell]| Scope::EACH.map(|scope| counts(cells, scope)[0]);
        assert_eq!(each(&cells), [3, 3, 1]);
        cells[0].cannot_hold = impossible(Origin::Fidelity);
        assert_eq!(each(&cells), [3, 1, 1]);
        // The comparison with one alternative alone, whichever of both cells says so.
        cells[0].cannot_hold = None;
        cells[2].uncomparable = vec![("a".to_owned(), Origin::Fidelity)];
        assert_eq!(each(&cells), [3, 2, 2]);
    }
}
