//! Tests of reading and writing saturation profiles.

use super::*;

fn example() -> Measured {
    let curve = |mix, access, iops| MeasuredCurve {
        mix,
        access,
        points: vec![
            MeasuredPoint {
                size: 4096,
                iops,
                within_percent: 0.75,
                runs: 5,
            },
            MeasuredPoint {
                size: 65536,
                iops: iops / 4.0,
                within_percent: 0.0,
                runs: 0,
            },
        ],
    };
    let (read, write) = (Mix::All(Direction::Read), Mix::All(Direction::Write));
    let depth_point = |depth| MeasuredDepth {
        point: DepthPoint {
            direction: Direction::Read,
            access: Access::Random,
            size: 4096,
            depth,
            iops: 80.125,
            mean: Nanos(12_801_000),
            p50: Nanos(12_500_000),
            p99: Nanos(21_000_000),
        },
        within_percent: 1.5,
        runs: depth,
    };
    let beside = |size, depth| MeasuredBeside {
        point: BesideWrites {
            access: Access::Random,
            size,
            depth,
            p50: Nanos(13_500_000),
            p99: Nanos(212_000_000),
        },
        reads: 2000,
    };
    Measured {
        device: "a \"disk\"".to_owned(),
        measured: "2026-11-21".to_owned(),
        depth: 32,
        span: 1 << 31,
        notes: vec!["a \"note\"".to_owned()],
        curves: vec![
            curve(read, Access::Sequential, 8000.0),
            curve(read, Access::Random, 200.5),
            curve(write, Access::Sequential, 7000.0),
            curve(write, Access::Random, 180.0),
            curve(Mix::Reads(705), Access::Random, 190.0),
        ],
        latency: vec![depth_point(1), depth_point(4)],
        beside_writes: vec![beside(1 << 16, 1), beside(1 << 16, 4), beside(1 << 20, 1)],
    }
}

#[test]
fn profile_round_trips_through_toml() {
    let text = example().to_toml();
    assert_eq!(parse(&text, "p.toml"), Ok(example()), "{text}");
    let profile = example().profile().expect("complete");
    assert_eq!(profile.mixes().len(), 1);
    assert_eq!(profile.beside_writes().len(), 3);
    assert!(profile.has_writes());
}

/// A profile that version 0.1 measured on a busy machine.
const OLD: &str = include_str!("../../tests/data/busy.profile.toml");

#[test]
fn a_file_of_an_older_build_is_read_and_its_wide_points_are_not_trusted() {
    let measured = parse(OLD, "busy.profile.toml").expect("readable");
    assert_eq!(
        measured.imprecise(),
        [
            "4 KiB random reads (±330 %)",
            "64 KiB random writes (±26 %)",
            "4 KiB random reads at depth 4 (±48 %)",
            "4 KiB random reads at depth 16 (1 run)",
        ]
    );
    let profile = measured.profile().expect("complete");
    assert_eq!(profile.beside_writes(), [], "it was not measured");
    assert_eq!(
        profile.imprecision().as_deref(),
        Some(
            "4 points of the profile may be off by more than 25 %: 4 KiB random reads \
             (±330 %), 64 KiB random writes (±26 %), 4 KiB random reads at depth 4 (±48 %) \
             and 1 more"
        )
    );
    // The keys are unchanged, so that an older build can read the file.
    let old: toml::Table = OLD.parse().expect("TOML");
    let new: toml::Table = measured.to_toml().parse().expect("TOML");
    assert_eq!(new, old);
}

#[test]
fn points_without_interval_or_runs_count_as_precise() {
    // In turn, the four imprecise points of the file: one without an interval, two with intervals
    // that are narrow enough, and one with a second run.
    let text = OLD.replace(", within_percent = 330.12, runs = 3", "");
    let text = text.replace("26.00", "25.00").replace("48.30", "2.50");
    let text = text.replace("runs = 1 ", "runs = 2 ");
    let measured = parse(&text, "p.toml").expect("readable");
    assert_eq!(measured.imprecise(), [""; 0]);
    let profile = measured.profile().expect("complete");
    assert_eq!(profile.imprecision(), None);
}

#[test]
fn errors_name_file_and_line() {
    let text = example().to_toml();
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from));
        parse(&text.replacen(from, to, 1), "p.toml")
            .unwrap_err()
            .to_string()
    };
    let message = refused("iops = 8000.000", "iops = \"fast\"");
    assert!(
        message.contains("expected a number") && message.contains("p.toml:"),
        "{message}"
    );
    let message = refused("version = 1", "version = 2");
    assert!(message.contains("unknown version 2"), "{message}");
    let message = refused("size = \"64 KiB\"", "size = \"4 KiB\"");
    assert!(
        message.contains("the curve of sequential reads: 4 KiB is there twice"),
        "{message}"
    );
    let message = refused("reads_percent = 70.5\n", "");
    assert!(message.contains("`reads_percent` is missing"), "{message}");
}

#[test]
fn names_are_models_and_paths_are_files() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("p.toml"), example().to_toml()).expect("written");
    assert_eq!(find("p.toml", dir.path()), Ok(example()));
    for name in catalogue::names() {
        let found = find(name, dir.path()).expect("built in");
        assert_eq!(found.device, name);
    }
    let message = find("nvme-2tb", dir.path()).expect_err("there is none");
    assert!(message.contains("did you mean \"nvme-1tb\"?"), "{message}");
    assert!(find("q.toml", dir.path()).is_err());
}

#[test]
fn reads_alone_are_a_profile() {
    let mut measured = example();
    measured.curves.truncate(2);
    let profile = measured.profile().expect("complete");
    assert!(!profile.has_writes());
    measured.curves.truncate(1);
    assert_eq!(
        measured.profile(),
        Err(ProfileError::Missing("random reads"))
    );
}
