//! Measures that `claims.toml` names, and claims that are no comparisons of them.

use super::{Pridyn, priorities, streams, tenancy, third, use_cases};
use crate::claim::{Measure, series};
use crate::frame::Code;

/// Combinations of readers and writers; `all` stands for those with more than one VM.
const OPERATIONS: &[&str] = &["R", "W", "RR", "RW", "WW", "RRW", "RWW", "all"];
const USE_CASES: &[&str] = &["use case 1", "use case 2"];
/// Kinds of deadlines: met by default, by priority only, or not at all.
const KINDS: &[&str] = &["easy", "tight", "impossible"];
const WRITERS: &[&str] = &["host", "1 VM", "2 VMs", "3 VMs"];
const SCHEDULERS: &[&str] = &["cfq", "pridyn"];
const STREAMS: &[&str] = &["first", "second", "both"];
const CASES: &[&str] = &["case 1", "case 2"];

pub(super) const MEASURES: &[Measure<Pridyn>] = &[
    // MB/s of a writer at each record size, natively or in so many VMs.
    Measure {
        name: "each_writer",
        arguments: &[WRITERS],
        evaluate: |results, arguments| tenancy::each_writer(results, arguments[0]).map(series),
    },
    // MB/s of all writers together.
    Measure {
        name: "all_writers",
        arguments: &[WRITERS],
        evaluate: |results, arguments| tenancy::all_writers(results, arguments[0]).map(series),
    },
    // MB/s of each VM of a combination.
    Measure {
        name: "rate",
        arguments: &[OPERATIONS],
        evaluate: |results, arguments| tenancy::rates(results, arguments[0]).map(series),
    },
    // Bandwidth of each VM of a combination, as a part of its bandwidth alone.
    Measure {
        name: "kept",
        arguments: &[OPERATIONS],
        evaluate: |results, arguments| tenancy::kept(results, arguments[0]).map(series),
    },
    // Seconds that each VM of a combination takes.
    Measure {
        name: "took",
        arguments: &[OPERATIONS],
        evaluate: |results, arguments| tenancy::times(results, arguments[0]).map(series),
    },
    // Mean seconds of each combination of so many VMs.
    Measure {
        name: "mean_took",
        arguments: &[&["1 VM", "2 VMs", "3 VMs"]],
        evaluate: |results, arguments| tenancy::mean_times(results, arguments[0]).map(series),
    },
    // MB/s of 1 to 3 streams together.
    Measure {
        name: "all_streams",
        arguments: &[],
        evaluate: |results, _| tenancy::all_streams(results).map(series),
    },
    // MB/s of a reader before the first writer's end and after it.
    Measure {
        name: "given_up",
        arguments: &[&["before", "later"]],
        evaluate: |results, arguments| {
            let (before, later) = priorities::given_up(results)?;
            Some(series([if arguments[0] == "before" {
                before
            } else {
                later
            }]))
        },
    },
    // MB/s of a reader until its end, and of each writer before that and after it.
    Measure {
        name: "served_first",
        arguments: &[&["reader", "writers", "writers later"]],
        evaluate: |results, arguments| {
            let writers = priorities::beside_the_first(results)?.into_iter();
            Some(match arguments[0] {
                "reader" => series([priorities::served_first(results)?]),
                "writers" => series(writers.map(|(before, _)| before)),
                _ => series(writers.map(|(_, later)| later)),
            })
        },
    },
    // Seconds that the first application of a use case takes in each experiment of a kind.
    Measure {
        name: "latency",
        arguments: &[USE_CASES, KINDS],
        evaluate: |results, arguments| {
            use_cases::latency(results, arguments[0], arguments[1]).map(series)
        },
    },
    // Its deadlines, in seconds.
    Measure {
        name: "deadline",
        arguments: &[USE_CASES, KINDS],
        evaluate: |results, arguments| {
            use_cases::deadlines(results, arguments[0], arguments[1]).map(series)
        },
    },
    // 1 for each of these experiments in which a class was other than the default.
    Measure {
        name: "turned",
        arguments: &[USE_CASES, KINDS],
        evaluate: |results, arguments| {
            use_cases::class_changed(results, arguments[0], arguments[1]).map(series)
        },
    },
    // 1 for each of them in which the first application had the lowest class.
    Measure {
        name: "lowest",
        arguments: &[USE_CASES, KINDS],
        evaluate: |results, arguments| {
            use_cases::was_lowest(results, arguments[0], arguments[1]).map(series)
        },
    },
    // The most that one of the others takes longer in them than by default, as a part of that.
    Measure {
        name: "slower",
        arguments: &[USE_CASES, KINDS],
        evaluate: |results, arguments| {
            Some(series([use_cases::largest_slowdown(
                results,
                arguments[0],
                arguments[1],
            )?]))
        },
    },
    // Deadlines missed at each delta, in percent.
    Measure {
        name: "missed_by_delta",
        arguments: &[SCHEDULERS, STREAMS],
        evaluate: |results, arguments| {
            streams::missed_by_delta(results, arguments[0], arguments[1]).map(series)
        },
    },
    // Change of that by PriDyn, in points; below any figure where none are missed without it.
    Measure {
        name: "missed_change",
        arguments: &[STREAMS],
        evaluate: |results, arguments| {
            let [without, with] = ["cfq", "pridyn"]
                .map(|scheduler| streams::missed_by_delta(results, scheduler, arguments[0]));
            let change = |(without, with): (f64, f64)| {
                if without == 0.0 {
                    // Nothing missed cannot be improved, which passes any bound from above.
                    f64::NEG_INFINITY
                } else {
                    with - without
                }
            };
            Some(series(without?.into_iter().zip(with?).map(change)))
        },
    },
    // Deadlines missed where web and research are beside each other, in percent.
    Measure {
        name: "beside_missed",
        arguments: &[SCHEDULERS, &["web", "research"]],
        evaluate: |results, arguments| {
            Some(series([streams::beside_missed(
                results,
                arguments[0],
                arguments[1],
            )?]))
        },
    },
    // Mean time of a web request beside research, in ms.
    Measure {
        name: "web_ms",
        arguments: &[SCHEDULERS],
        evaluate: |results, arguments| Some(series([streams::web_ms(results, arguments[0])?])),
    },
    // MB/s of research beside web requests.
    Measure {
        name: "research_mb_s",
        arguments: &[SCHEDULERS],
        evaluate: |results, arguments| {
            Some(series([streams::research_mb_s(results, arguments[0])?]))
        },
    },
    // Deadlines missed before the third application of figure 5.2 comes and later, in percent.
    Measure {
        name: "missed",
        arguments: &[&["before", "later"], CASES, &["A", "B"]],
        evaluate: |results, arguments| {
            Some(series([third::missed(
                results,
                arguments[0],
                arguments[1],
                arguments[2],
            )?]))
        },
    },
    // Mean time of A's requests once the third is there, as a part of their deadlines.
    Measure {
        name: "mean_part",
        arguments: &[CASES],
        evaluate: |results, arguments| {
            Some(series([third::mean_response_to_deadline_ratio(
                results,
                arguments[0],
            )?]))
        },
    },
];

pub(super) const CODE: &[(&str, Code<Pridyn>)] = &[("steady", priorities::code)];
