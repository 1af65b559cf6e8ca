//! Plots of a profile: rates by request size, and latencies by queue depth.

use tidegate_config::profile::{Measured, MeasuredCurve, MeasuredDepth, MeasuredPoint, Mix};
use tidegate_core::profile::DepthPoint;
use tidegate_core::time::Nanos;
use tidegate_report::{Axis, Plot, Point, Series, Unit};
use tidegate_units::human::exact_bytes;

/// Returns all plots for which the profile has points.
pub(super) fn plots(measured: &Measured) -> Vec<Plot> {
    let of = |kind: fn(&Mix) -> bool, title| {
        let some: Vec<_> = measured.curves.iter().filter(|c| kind(&c.mix)).collect();
        (!some.is_empty()).then(|| rates(&format!("{}: {title}", measured.device), &some))
    };
    let pure = of(|mix| matches!(mix, Mix::All(_)), "IOPS at saturation");
    let mixed = of(
        |mix| matches!(mix, Mix::Reads(_)),
        "IOPS of random mixes at saturation",
    );
    let times = measured.latency_by_kind().map(times);
    pure.into_iter().chain(mixed).chain(times).collect()
}

fn rates(title: &str, curves: &[&MeasuredCurve]) -> Plot {
    let mut plot = Plot::new(
        title,
        Axis::log2("request size", Unit::Bytes),
        Axis::log10("IOPS", Unit::Number),
    );
    for curve in curves {
        plot.add(Series::line(curve.name()).points(curve.points.iter().map(rate)));
    }
    plot
}

fn rate(point: &MeasuredPoint) -> Point {
    let of = (f64::from(point.size), point.iops);
    with_interval(of, point.within_percent, point.runs)
}

fn with_interval((x, mean): (f64, f64), within_percent: f64, runs: u32) -> Point {
    let at = Point::new(x, mean);
    // A single run has no interval; one of 100 % or more has no lower end on a log scale.
    match within_percent / 100.0 {
        within if runs > 1 && within < 1.0 => {
            at.between(mean * (1.0 - within), mean * (1.0 + within))
        }
        _ => at,
    }
}

/// Returns the plot of latencies of one kind and size.
fn times(group: &[MeasuredDepth]) -> Plot {
    let title = group
        .first()
        .map_or(String::new(), |MeasuredDepth { point: first, .. }| {
            let kind = Mix::All(first.direction).with(first.access);
            format!("{} {kind}: latency", exact_bytes(first.size.into()))
        });
    let mut plot = Plot::new(
        title,
        Axis::log2("queue depth", Unit::Number),
        Axis::log10("latency", Unit::Nanos),
    );
    let of = |point: &DepthPoint, time: Nanos| (f64::from(point.depth), time.0 as f64);
    let means = group.iter().map(|at| {
        let mean = of(&at.point, at.point.mean);
        with_interval(mean, at.within_percent, at.runs)
    });
    plot.add(Series::line("mean").points(means));
    let mut add = |name: &str, time: fn(&DepthPoint) -> Nanos| {
        let points = group.iter().map(|at| of(&at.point, time(&at.point)));
        plot.add(Series::line(name).points(points));
    };
    add("p50", |point| point.p50);
    add("p99", |point| point.p99);
    plot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_of_a_profile_is_drawn() {
        let measured = tidegate_config::profile::built_in("nvme-1tb").expect("there");
        let plots = plots(&measured);
        let titles: Vec<_> = plots.iter().map(Plot::title).collect();
        assert_eq!(
            titles[..3],
            [
                "nvme-1tb: IOPS at saturation",
                "nvme-1tb: IOPS of random mixes at saturation",
                "4 KiB random reads: latency"
            ]
        );
        assert_eq!(titles.len(), 2 + 8);
        let svg = tidegate_report::svg(&plots);
        for name in ["sequential writes", "70 % reads", "p99"] {
            assert!(svg.contains(name), "{name}");
        }
    }
}
