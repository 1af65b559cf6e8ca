//! Plots of figures 7 to 15: ranges over all rounds under Credit2, ISACS and `io-turns`.

use super::case::{Case, Source};
use super::policy::Policy;
use super::run::Runs;
use crate::Wanted;
use tidegate_report::{Axis, Plot, Point, Series, Unit};

/// Schedulers in the plots, with their labels.
const DRAWN: [(Policy, &str); 3] = [
    (Policy::CREDIT2, "credit2"),
    (Policy::ISACS, "isacs"),
    (Policy::IO_TURNS, "io-turns"),
];

/// Numbers of VMs with I/O, of twelve.
const HYBRID: [usize; 6] = [1, 3, 5, 7, 9, 11];
/// Numbers of VMs with both I/O and computation.
const MIXED: [usize; 7] = [1, 2, 4, 6, 8, 10, 12];
/// Numbers of VMs in section 5.4.
const UP_TO_SIX: [usize; 6] = [1, 2, 3, 4, 5, 6];

/// Figure over several cases.
struct Swept {
    table: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
    cases: Vec<(usize, Case)>,
}

impl Swept {
    fn new(
        table: &'static str,
        [title, x, y]: [&'static str; 3],
        counts: &[usize],
        case: impl Fn(usize) -> Case,
    ) -> Swept {
        Swept {
            table,
            title,
            x,
            y,
            cases: counts.iter().map(|&n| (n, case(n))).collect(),
        }
    }

    fn plot(&self, runs: &Runs) -> Plot {
        let mut plot = Plot::new(
            self.title,
            Axis::linear(self.x, Unit::Number).including(0.0),
            Axis::linear(self.y, Unit::Number).including(0.0),
        );
        for (policy, name) in DRAWN {
            let point = |&(n, case): &(usize, Case)| {
                // A case that was not run leaves a gap, and the curve goes on.
                let found = runs.get(case, policy)?;
                let (low, high) = found.range;
                Some(Point::new(n as f64, found.shown()).between(low, high))
            };
            let points = self.cases.iter().filter_map(point);
            plot.add(Series::line(name).points(points));
        }
        plot
    }
}

fn swept() -> Vec<Swept> {
    let (io, both) = ("VMs with I/O, of twelve", "VMs that do both");
    let (gb, mb) = ("GB in a minute", "MB a second");
    let (vms, s) = ("VMs", "seconds");
    vec![
        Swept::new(
            "5",
            ["Figure 9: streams, hybrid", io, gb],
            &HYBRID,
            Case::IperfHybrid,
        ),
        Swept::new(
            "6",
            ["Figure 10: streams, mixed", both, gb],
            &MIXED,
            Case::IperfMixed,
        ),
        Swept::new(
            "7",
            ["Figure 11: files from /dev/urandom, hybrid", io, mb],
            &HYBRID,
            |n| Case::DdHybrid(Source::Urandom, n),
        ),
        Swept::new(
            "7",
            ["Figure 11: files from /dev/zero, hybrid", io, mb],
            &HYBRID,
            |n| Case::DdHybrid(Source::Zero, n),
        ),
        Swept::new(
            "8",
            ["Figure 12: files from /dev/urandom, mixed", both, mb],
            &MIXED,
            |n| Case::DdMixed(Source::Urandom, n),
        ),
        Swept::new(
            "8",
            ["Figure 12: files from /dev/zero, mixed", both, mb],
            &MIXED,
            |n| Case::DdMixed(Source::Zero, n),
        ),
        Swept::new(
            "section 5.4",
            ["Figure 13: fixed work inside mixed VMs", vms, s],
            &UP_TO_SIX,
            Case::Inside,
        ),
        Swept::new(
            "section 5.4",
            ["Figure 14: fixed work beside VMs with I/O", vms, s],
            &UP_TO_SIX,
            Case::NeighbourHybrid,
        ),
        Swept::new(
            "section 5.4",
            ["Figure 15: fixed work beside mixed VMs", vms, s],
            &UP_TO_SIX,
            Case::NeighbourMixed,
        ),
    ]
}

/// Cases that only figures need.
pub(super) fn further_cases(wanted: &Wanted, known: &[Case]) -> Vec<Case> {
    let figures = swept()
        .into_iter()
        .filter(|figure| wanted.wants(figure.table));
    let cases = figures
        .flat_map(|figure| figure.cases)
        .map(|(_, case)| case);
    // Cases of the tables have been run already, with more rounds.
    cases.filter(|case| !known.contains(case)).collect()
}

/// Cumulative distribution of round trips.
fn latencies(title: String, case: Case, runs: &Runs) -> Plot {
    let mut plot = Plot::new(
        title,
        Axis::log10("round trip", Unit::Nanos),
        Axis::linear("took no longer", Unit::Percent).including(0.0),
    );
    for (policy, name) in DRAWN {
        let Some(found) = runs.get(case, policy) else {
            continue;
        };
        let mut trips = found.all_trips_ms.clone();
        trips.sort_by(f64::total_cmp);
        // A case may have no round trips at all.
        let Some(last) = trips.len().checked_sub(1) else {
            continue;
        };
        // Milliseconds become nanoseconds, the unit of the axis.
        let point = |percent: usize| (trips[last * percent / 100] * 1e6, percent as f64);
        plot.add(Series::line(name).points((0..=100).map(point)));
    }
    plot
}

/// All wanted plots, in the order of the paper.
pub(super) fn plots(runs: &Runs, wanted: &Wanted) -> Vec<Plot> {
    let mut plots = Vec::new();
    if wanted.wants("3") {
        let hybrid = |n| {
            let title = format!("Figure 7: round trips, hybrid, VMs with I/O: {n}");
            latencies(title, Case::PingHybrid(n), runs)
        };
        plots.extend((1..=3).map(hybrid));
    }
    if wanted.wants("4") {
        let title = "Figure 8: round trips, six mixed VMs".to_owned();
        plots.push(latencies(title, Case::PingMixed, runs));
    }
    let swept = swept()
        .into_iter()
        .filter(|figure| wanted.wants(figure.table));
    plots.extend(swept.map(|figure| figure.plot(runs)));
    plots
}

#[cfg(test)]
mod tests {
    use super::super::run::CaseResult;
    use super::*;

    fn wanted(table: Option<&str>) -> Wanted {
        Wanted {
            table: table.map(str::to_owned),
            ..Wanted::default()
        }
    }

    #[test]
    fn figures_7_to_15_are_drawn_where_they_are_wanted() {
        let titles = |table| {
            let plots = plots(&Runs::default(), &wanted(table));
            let titles = plots.iter().map(|plot| plot.title().to_owned());
            titles.collect::<Vec<_>>()
        };
        let all = titles(None);
        for figure in 7..=15 {
            let name = format!("Figure {figure}:");
            assert!(all.iter().any(|title| title.starts_with(&name)), "{name}");
        }
        assert_eq!(titles(Some("4")), ["Figure 8: round trips, six mixed VMs"]);
        assert_eq!(titles(Some("7")).len(), 2);
    }

    #[test]
    fn what_only_figures_show_is_run_once_and_nothing_twice() {
        let known = [
            Case::Inside(6),
            Case::NeighbourHybrid(6),
            Case::NeighbourMixed(4),
        ];
        let further = further_cases(&wanted(Some("section 5.4")), &known);
        assert_eq!(further.len(), 15);
        assert!(known.iter().all(|case| !further.contains(case)));
        assert!(further_cases(&wanted(Some("3")), &[]).is_empty());
    }

    #[test]
    fn a_round_trip_stands_at_its_part_of_all() {
        let case = Case::PingMixed;
        let found = CaseResult {
            all_trips_ms: (1..=101).rev().map(f64::from).collect(),
            ..CaseResult::default()
        };
        let runs = Runs::from_iter([((case, Policy::ISACS), found)]);
        let drawn = latencies("t".to_owned(), case, &runs);
        let mut due = latencies("t".to_owned(), case, &Runs::default());
        let points = (0..=100).map(|n| (f64::from(n + 1) * 1e6, f64::from(n)));
        due.add(Series::line("isacs").points(points));
        assert_eq!(drawn, due);
    }
}
