//! What is asked of every table of beta and V: near what is said, steadier than without V-Cup, and
//! no worse than the paper's.

use crate::Cell;
use crate::said::Said;

/// Above this beta, in per cent, is not near.
const MOST_BETA: f64 = 10.0;
/// So many points above the paper's beta are allowed.
const BETA_ABOVE: f64 = 2.0;

/// The cells of a column.
pub(super) fn column<'a>(cells: &'a [Cell], column: &str) -> Vec<&'a Cell> {
    cells.iter().filter(|cell| cell.column == column).collect()
}

/// A cell's VM; tables that have a column for each begin with how many there are.
fn who(cell: &Cell) -> String {
    match cell.column.starts_with("vm") {
        true => format!("{} of {}", cell.column, cell.row),
        false => cell.row.clone(),
    }
}

fn worst<'a>(cells: &[&'a Cell], of: impl Fn(&Cell) -> f64) -> Option<(&'a Cell, f64)> {
    let all = cells.iter().map(|cell| (*cell, of(cell)));
    all.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// That each beta is small, and not much above the paper's.
pub(super) fn beta(about: &str, cells: &[&Cell]) -> Option<Said> {
    let (largest, most) = worst(cells, |cell| cell.ours)?;
    let (farthest, above) = worst(cells, |cell| cell.ours - cell.theirs)?;
    Some(Said::new(
        format!(
            "each beta is at most {MOST_BETA:.0} %, and at most {BETA_ABOVE:.0} points above the paper's ({about})"
        ),
        most <= MOST_BETA && above <= BETA_ABOVE,
        format!(
            "the largest is {most:.2} % ({}), and the farthest above {above:+.2} points ({})",
            who(largest),
            who(farthest)
        ),
    ))
}

/// That each V is below what the paper has without V-Cup.
pub(super) fn below_fq(about: &str, ours: &[&Cell], theirs: &[&Cell]) -> Option<Said> {
    let pairs = ours.iter().zip(theirs);
    let part = |(ours, fq): (&&Cell, &&Cell)| (who(ours), ours.ours, fq.theirs);
    let all: Vec<_> = pairs.map(part).collect();
    let nearest = all
        .iter()
        .max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)))?;
    Some(Said::new(
        format!("each V is below the paper's under FQ ({about})"),
        all.iter().all(|(_, ours, fq)| ours < fq),
        format!(
            "the nearest is {:.2} %, the paper's under FQ {:.2} ({})",
            nearest.1, nearest.2, nearest.0
        ),
    ))
}

/// That V is no worse than the paper's in the mean.
pub(super) fn v(about: &str, cells: &[&Cell]) -> Option<Said> {
    let mean = |of: &dyn Fn(&Cell) -> f64| {
        cells.iter().map(|cell| of(cell)).sum::<f64>() / cells.len() as f64
    };
    let (largest, most) = worst(cells, |cell| cell.ours)?;
    let (ours, theirs) = (mean(&|cell| cell.ours), mean(&|cell| cell.theirs));
    Some(Said::new(
        format!("V is on average at most the paper's under V-Cup ({about})"),
        ours <= theirs,
        format!(
            "the mean is {ours:.2} %, the paper's {theirs:.2}; the largest is {most:.2} % ({})",
            who(largest)
        ),
    ))
}

/// A claim of what Tidegate adds, beside that of the paper's letter.
pub(super) fn added(said: Option<Said>) -> Option<Said> {
    said.map(|said| said.named(|claim| format!("with what Tidegate adds {claim}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::cell;

    #[test]
    fn two_points_above_the_paper_are_allowed_and_ten_per_cent_at_most() {
        let holds = |theirs: f64, ours: f64| {
            let cells = [cell(theirs, ours, false), cell(9.0, 1.0, false)];
            let said = beta("t", &cells.iter().collect::<Vec<_>>()).expect("cells");
            said.hangs_on(&[]).holds
        };
        assert!(holds(3.0, 5.0) && !holds(3.0, 5.1));
        assert!(holds(9.0, 10.0) && !holds(9.0, 10.1));
        assert!(beta("t", &[]).is_none());
    }

    #[test]
    fn v_is_compared_in_the_mean_and_with_fq_one_by_one() {
        let ours = [cell(10.0, 12.0, false), cell(10.0, 7.0, false)];
        let fq = [cell(12.5, 0.0, false), cell(7.0, 0.0, false)];
        let (ours, fq): (Vec<_>, Vec<_>) = (ours.iter().collect(), fq.iter().collect());
        assert!(v("t", &ours).expect("cells").hangs_on(&[]).holds);
        let said = below_fq("t", &ours, &fq).expect("cells");
        assert!(!said.hangs_on(&[]).holds);
        assert!(
            below_fq("t", &ours[..1], &fq)
                .expect("one")
                .hangs_on(&[])
                .holds
        );
    }
}
