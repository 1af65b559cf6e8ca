//! Tests of schedules: entries in force, next changes and errors.

use jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_core::objective::{Objective, Rate};

use super::*;
use crate::document;

/// Reads an objective with its schedule from JSON.
fn schedule(objective: Value) -> Schedule {
    merge(&Schedule::default(), &objective).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the message with which an objective is refused.
fn refused(objective: Value) -> String {
    let before = Schedule::default();
    merge(&before, &objective)
        .expect_err("accepted")
        .to_string()
}

/// Parses a time with its offset from UTC, such as `2026-11-22T18:00+01:00`.
fn time(text: &str) -> Timestamp {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Schedule in the time zone of Berlin whose base target is 10 MB/s.
fn berlin(entries: Value) -> Schedule {
    schedule(json!({ "target": "10 MB/s", "timezone": "Europe/Berlin", "schedule": entries }))
}

/// Target in MB/s.
fn target_mb_s(objective: &Objective) -> u64 {
    objective.target.bytes_per_s.expect("there is one") / 1_000_000
}

fn target_mb_s_at(schedule: &Schedule, at: &str) -> u64 {
    target_mb_s(schedule.in_force_at(time(at)).objective)
}

/// Next `steps` changes after `at`, as local time and target in MB/s.
fn next_changes(schedule: &Schedule, at: &str, steps: usize) -> Vec<(String, u64)> {
    let mut now = time(at);
    let mut all = Vec::new();
    for _ in 0..steps {
        let Some(next) = schedule.next(now) else {
            break;
        };
        let local = next.at.to_zoned(schedule.zone());
        all.push((
            local.strftime("%a %d %H:%M %z").to_string(),
            target_mb_s(next.in_force.objective),
        ));
        now = next.at;
    }
    all
}

/// Expected changes (local time, target in MB/s), as [`next_changes`] returns them.
fn changes(steps: &[(&str, u64)]) -> Vec<(String, u64)> {
    let owned = |(at, mb_s): &(&str, u64)| ((*at).to_owned(), *mb_s);
    steps.iter().map(owned).collect()
}

#[test]
fn an_evening_of_every_day_begins_and_ends_on_the_second() {
    let evening = berlin(json!([{ "from": "18:00", "until": "23:00", "target": "50 MB/s" }]));
    for (at, mb_s) in [
        ("2026-11-22T17:59:59+01:00", 10),
        ("2026-11-22T18:00:00+01:00", 50),
        ("2026-11-22T22:59:59+01:00", 50),
        ("2026-11-22T23:00:00+01:00", 10),
        // The moment of 18:00, in another time zone.
        ("2026-11-22T17:00:00Z", 50),
    ] {
        assert_eq!(target_mb_s_at(&evening, at), mb_s, "{at}");
    }
    assert_eq!(
        next_changes(&evening, "2026-11-22T12:00+01:00", 3),
        changes(&[
            ("Sun 22 18:00 +0100", 50),
            ("Sun 22 23:00 +0100", 10),
            ("Mon 23 18:00 +0100", 50),
        ])
    );
    let bound = evening.next_bound(time("2026-11-22T18:00+01:00"));
    assert_eq!(bound, Some(time("2026-11-22T23:00+01:00")));
}

#[test]
fn a_night_ends_on_the_next_day_and_belongs_to_the_day_it_begins_on() {
    let night = berlin(json!([
        { "from": "22:00", "until": "06:00", "days": ["sat"], "target": "50 MB/s" }
    ]));
    for (at, mb_s) in [
        ("2026-11-21T03:00+01:00", 10),
        ("2026-11-21T22:00+01:00", 50),
        ("2026-11-22T05:59:59+01:00", 50),
        ("2026-11-22T06:00+01:00", 10),
        ("2026-11-22T22:30+01:00", 10),
    ] {
        assert_eq!(target_mb_s_at(&night, at), mb_s, "{at}");
    }
    let days = berlin(json!([{ "days": ["sat", "sun"], "target": "50 MB/s" }]));
    assert_eq!(
        next_changes(&days, "2026-11-20T12:00+01:00", 2),
        changes(&[("Sat 21 00:00 +0100", 50), ("Mon 23 00:00 +0100", 10)]),
        "whole days that follow each other are one"
    );
    let late = berlin(json!([{ "from": "18:00", "target": "50 MB/s" }]));
    assert_eq!(target_mb_s_at(&late, "2026-11-22T23:59:59+01:00"), 50);
    assert_eq!(
        target_mb_s_at(&late, "2026-11-23T00:00+01:00"),
        10,
        "until midnight"
    );
    let same = berlin(json!([{ "from": "18:00", "until": "24:00", "target": "50 MB/s" }]));
    assert_eq!(same, late);
}

#[test]
fn times_in_the_hours_of_a_clock_change_are_resolved_as_documented() {
    // On 2026-03-29 clocks jump from 02:00 to 03:00, on 2026-10-25 from 03:00 back to 02:00.
    let spring = "2026-03-28T12:00+01:00";
    let autumn = "2026-10-24T12:00+02:00";
    let within = berlin(json!([{ "from": "02:30", "until": "04:00", "target": "50 MB/s" }]));
    assert_eq!(
        next_changes(&within, spring, 2),
        changes(&[("Sun 29 03:30 +0200", 50), ("Sun 29 04:00 +0200", 10)]),
        "a skipped time is moved back by the hour of the change"
    );
    assert_eq!(
        next_changes(&within, autumn, 2),
        changes(&[("Sun 25 02:30 +0200", 50), ("Sun 25 04:00 +0100", 10)]),
        "of a repeated time the first counts"
    );
    let across = berlin(json!([{ "from": "01:00", "until": "02:30", "target": "50 MB/s" }]));
    assert_eq!(
        next_changes(&across, spring, 2),
        changes(&[("Sun 29 01:00 +0100", 50), ("Sun 29 03:30 +0200", 10)])
    );
    assert_eq!(
        next_changes(&across, autumn, 3),
        changes(&[
            ("Sun 25 01:00 +0200", 50),
            ("Sun 25 02:30 +0200", 10),
            ("Mon 26 01:00 +0100", 50),
        ]),
        "the entry does not hold again from the second 02:00 on"
    );
    let inside = berlin(json!([
        { "from": "02:30", "until": "03:00", "days": ["sun"], "target": "50 MB/s" }
    ]));
    assert_eq!(
        next_changes(&inside, spring, 1),
        changes(&[("Sun 05 02:30 +0200", 50)]),
        "an entry within the skipped hour does not hold on that Sunday but on the next"
    );
    // Local time counts: 18:00 before and after the change, at different times of UTC.
    let evening = berlin(json!([{ "from": "18:00", "until": "23:00", "target": "50 MB/s" }]));
    assert_eq!(
        next_changes(&evening, spring, 3),
        changes(&[
            ("Sat 28 18:00 +0100", 50),
            ("Sat 28 23:00 +0100", 10),
            ("Sun 29 18:00 +0200", 50),
        ])
    );
}

#[test]
fn one_time_entry_holds_once() {
    let once = berlin(json!([
        { "at": "2026-12-01T18:00", "until": "2026-12-03T06:00:30", "target": "50 MB/s" }
    ]));
    assert_eq!(
        next_changes(&once, "2026-06-01T00:00+02:00", 9),
        changes(&[("Tue 01 18:00 +0100", 50), ("Thu 03 06:00 +0100", 10)])
    );
    assert_eq!(
        once.end_of_entry(0),
        Some(time("2026-12-03T06:00:30+01:00"))
    );
    let for_good = berlin(json!([{ "at": "2026-12-01 18:00", "target": "50 MB/s" }]));
    assert_eq!(target_mb_s_at(&for_good, "2026-12-01T17:59:59+01:00"), 10);
    assert_eq!(target_mb_s_at(&for_good, "2126-12-01T18:00+01:00"), 50);
    assert_eq!(for_good.end_of_entry(0), None);
    assert_eq!(next_changes(&for_good, "2027-01-01T00:00+01:00", 1), []);
}

#[test]
fn last_matching_entry_wins_and_merges_with_base_only() {
    let both = berlin(json!([
        { "from": "08:00", "until": "20:00", "target": "20 MB/s", "weight": 7 },
        { "from": "12:00", "until": "13:00", "target": "30 MB/s" },
        { "at": "2026-11-24T00:00", "until": "2026-11-25T00:00", "target": "40 MB/s" },
    ]));
    let at = |hour: &str| {
        *both
            .in_force_at(time(&format!("2026-11-23T{hour}+01:00")))
            .objective
    };
    assert_eq!((target_mb_s(&at("11:00")), at("11:00").weight), (20, 7));
    assert_eq!((target_mb_s(&at("12:00")), at("12:00").weight), (30, 100));
    assert_eq!(
        both.in_force_at(time("2026-11-23T12:00+01:00")).entry,
        Some(1)
    );
    assert_eq!(
        next_changes(&both, "2026-11-23T19:00+01:00", 4),
        changes(&[
            ("Mon 23 20:00 +0100", 10),
            ("Tue 24 00:00 +0100", 40),
            ("Wed 25 00:00 +0100", 10),
            ("Wed 25 08:00 +0100", 20),
        ]),
        "an overridden entry changes nothing"
    );
}

#[test]
fn whole_days_on_every_day_of_the_week_never_change() {
    let always = berlin(
        json!([{ "days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
                                 "target": "50 MB/s" }]),
    );
    assert_eq!(target_mb_s_at(&always, "2026-11-22T00:00+01:00"), 50);
    assert_eq!(always.next(time("2026-11-22T18:00+01:00")), None);
    // The next change is found however far off it is.
    let ends = berlin(json!([
        { "from": "00:00", "target": "50 MB/s" },
        { "at": "2028-01-01T00:00", "until": "2028-01-01T06:00", "target": "20 MB/s" },
    ]));
    assert_eq!(
        next_changes(&ends, "2026-11-22T18:00+01:00", 3),
        changes(&[("Sat 01 00:00 +0100", 20), ("Sat 01 06:00 +0100", 50)])
    );
}

/// Weekly entry that sets a weight.
fn weekly(from: &str, until: &str, days: &[&str]) -> Value {
    json!({ "from": from, "until": until, "days": days, "weight": 7 })
}

/// One-time entry that sets a weight.
fn once(at: &str, until: &str) -> Value {
    json!({ "at": at, "until": until, "weight": 7 })
}

fn overlaps(entries: Value) -> Vec<(usize, usize)> {
    berlin(entries).overlaps()
}

/// Asserts for pairs of entries, in the order of the schedule, whether they are reported as
/// overlapping.
fn assert_overlaps(pairs: impl IntoIterator<Item = (Value, Value, bool)>) {
    for (first, second, overlap) in pairs {
        let found = overlaps(json!([first, second]));
        assert_eq!(
            !found.is_empty(),
            overlap,
            "{first} and {second}: {found:?}"
        );
    }
}

#[test]
fn overlaps_of_weekly_entries_are_found() {
    let all = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    assert_overlaps([
        (
            weekly("08:00", "12:00", &all),
            weekly("12:00", "14:00", &all),
            false,
        ),
        (
            weekly("08:00", "12:01", &all),
            weekly("12:00", "14:00", &all),
            true,
        ),
        (
            weekly("08:00", "12:00", &["mon"]),
            weekly("08:00", "12:00", &["tue"]),
            false,
        ),
        (
            weekly("22:00", "06:00", &["mon"]),
            weekly("05:00", "07:00", &["tue"]),
            true,
        ),
        (
            weekly("22:00", "06:00", &["sun"]),
            weekly("05:00", "07:00", &["mon"]),
            true,
        ),
        (
            weekly("22:00", "06:00", &["sun"]),
            weekly("06:00", "07:00", &["mon"]),
            false,
        ),
    ]);
}

#[test]
fn one_time_entries_overlap_unless_they_follow_as_an_exception() {
    let [first, second] = ["2026-12-01T00:00", "2026-12-02T00:00"];
    let morning = || once("2026-12-01T08:00", "2026-12-01T09:00");
    // 2026-12-01 is a Tuesday.
    assert_overlaps([
        (once(first, second), once(second, "2026-12-03T00:00"), false),
        (
            once(first, "2026-12-02T00:01"),
            once(second, "2026-12-03T00:00"),
            true,
        ),
        (morning(), weekly("08:30", "10:00", &["tue"]), true),
        (morning(), weekly("09:00", "10:00", &["tue"]), false),
        (morning(), weekly("08:30", "10:00", &["wed"]), false),
        (
            once("2026-12-01T02:00", "2026-12-01T03:00"),
            weekly("22:00", "06:00", &["mon"]),
            true,
        ),
        (
            once("2026-12-01T08:00", "2027-12-01T08:00"),
            weekly("22:00", "23:00", &["sun"]),
            true,
        ),
        // A one-time entry behind a weekly one is meant as an exception to it.
        (weekly("08:30", "10:00", &["tue"]), morning(), false),
    ]);
    let for_good = json!({ "at": "2026-12-01T00:00", "weight": 7 });
    let year = once("2027-01-01T00:00", "2027-01-02T00:00");
    assert_eq!(overlaps(json!([for_good, year])), [(0, 1)]);
}

#[test]
fn a_change_keeps_what_it_does_not_name_and_entries_follow_the_base() {
    let was = berlin(json!([{ "from": "18:00", "until": "23:00", "target": "50 MB/s" }]));
    let evening = time("2026-11-22T20:00+01:00");
    let weight = merge(&was, &json!({ "weight": 7, "target": "20 MB/s" })).expect("good");
    assert_eq!(weight.entries().len(), 1);
    let now = weight.in_force_at(evening).objective;
    assert_eq!(
        (target_mb_s(now), now.weight),
        (50, 7),
        "the entry is merged with the new base"
    );
    assert_eq!(target_mb_s(weight.base()), 20);

    let zone = merge(&was, &json!({ "timezone": "UTC" })).expect("good");
    assert_eq!(target_mb_s_at(&zone, "2026-11-22T18:30+01:00"), 10);
    assert_eq!(target_mb_s_at(&zone, "2026-11-22T18:30Z"), 50);
    let none = merge(&was, &json!({ "schedule": null, "timezone": null })).expect("good");
    assert!(none.is_plain_objective());
    assert_eq!(none, Schedule::from(*was.base()));
    assert_eq!(none.next(evening), None);
    let none = merge(&was, &json!({ "schedule": "none" })).expect("good");
    assert_eq!(
        (none.entries().len(), none.timezone()),
        (0, Some("Europe/Berlin"))
    );

    let limited = berlin(json!([{ "from": "18:00", "limit": "20 MB/s" }]));
    let message = merge(
        &limited,
        &json!({ "reservation": "30 MB/s", "target": null }),
    )
    .expect_err("too much");
    let message = message.to_string();
    assert!(
        message.contains("entry 1 of the schedule (18:00 to 00:00 every day)"),
        "{message}"
    );
    assert!(message.contains("30 MB/s"), "{message}");
}

#[test]
fn entries_round_trip_through_json() {
    let words = json!([
        { "from": "18:00", "until": "23:00:30", "days": ["mon", "fri"], "target": "50 MB/s" },
        { "from": "00:00", "until": "00:00", "force": true, "limit": { "write": "20 MB/s" } },
        { "at": "2026-12-01T18:00", "until": "2026-12-02T06:00", "target": null, "weight": 7 },
    ]);
    let read = berlin(words.clone());
    assert_eq!(Value::from(read.entries_to_json()), words);
    let again = berlin(read.entries_to_json().into());
    assert_eq!(again, read);
    assert!(read.entries()[1].force && !read.entries()[0].force);
    let shown: Vec<String> = read.entries().iter().map(|e| e.when.to_string()).collect();
    assert_eq!(
        shown,
        [
            "18:00 to 23:00:30 on mon, fri",
            "00:00 to 00:00 every day",
            "2026-12-01 18:00 to 2026-12-02 06:00",
        ]
    );
}

#[test]
fn dates_and_times_of_toml_need_no_quotes() {
    let read = |text: &str| {
        let loaded = document::read(text, "t.toml", |field| {
            from_field(field, &Schedule::default())
        });
        loaded.unwrap_or_else(|error| panic!("{error}")).config
    };
    let quoted = read(
        "timezone = \"UTC\"\n[[schedule]]\nfrom = \"18:00\"\nweight = 7\n\
         [[schedule]]\nat = \"2026-12-01T18:00\"\nlimit = \"none\"\n",
    );
    let plain = read(
        "timezone = \"UTC\"\n[[schedule]]\nfrom = 18:00:00\nweight = 7\n\
         [[schedule]]\nat = 2026-12-01T18:00:00\nlimit = \"none\"\n",
    );
    assert_eq!(plain, quoted);
    assert_eq!(quoted.entries()[1].objective, Objective::default());
    assert_eq!(quoted.entries()[0].objective.target, Rate::NONE);
}

#[test]
fn invalid_entries_name_key_and_fix() {
    let one = |entry: Value| refused(json!({ "schedule": [entry] }));
    for (entry, expected) in [
        (
            json!({ "weight": 7 }),
            "schedule[0]: the times of this entry are missing",
        ),
        (json!({ "from": "18:00" }), "schedule[0]: changes nothing"),
        (
            json!({ "from": "6 pm", "weight": 7 }),
            "schedule[0].from: found \"6 pm\", expected a time",
        ),
        (json!({ "from": "24:00", "weight": 7 }), "schedule[0].from"),
        (
            json!({ "until": "18:00Z", "weight": 7 }),
            "schedule[0].until",
        ),
        (
            json!({ "from": 18, "weight": 7 }),
            "schedule[0].from: found 18",
        ),
        (
            json!({ "days": ["mo"], "weight": 7 }),
            "did you mean \"mon\"?",
        ),
        (
            json!({ "days": [], "weight": 7 }),
            "schedule[0].days: an empty list of days",
        ),
        (
            json!({ "at": "2026-02-30T18:00", "weight": 7 }),
            "schedule[0].at",
        ),
        (
            json!({ "at": "2026-12-01T18:00+01:00", "weight": 7 }),
            "schedule[0].at",
        ),
        (
            json!({ "at": "2026-12-01", "weight": 7 }),
            "\"2026-12-01T18:00\"",
        ),
        (
            json!({ "at": "2026-12-01T18:00", "days": ["mon"], "weight": 7 }),
            "schedule[0].days",
        ),
        (
            json!({ "at": "2026-12-01T18:00", "until": "2026-12-01T18:00", "weight": 7 }),
            "schedule[0].until: ends before it begins",
        ),
        (
            json!({ "from": "18:00", "wieght": 7 }),
            "did you mean `weight`?",
        ),
        (
            json!({ "from": "18:00", "schedule": [] }),
            "unknown key `schedule`",
        ),
        (
            json!({ "from": "18:00", "target": 50 }),
            "schedule[0].target: 50 is a bare number",
        ),
        (
            json!({ "from": "18:00", "reservation": "9 IOPS", "limit": "5 IOPS" }),
            "schedule[0].reservation",
        ),
    ] {
        let found = one(entry.clone());
        assert!(found.contains(expected), "{entry}: {found}");
    }
}

#[test]
fn unknown_zone_and_too_many_entries_are_refused() {
    let zone = refused(json!({ "timezone": "Europe/Berln" }));
    assert!(zone.contains("did you mean \"Europe/Berlin\"?"), "{zone}");
    let zone = refused(json!({ "timezone": "../etc/passwd" }));
    assert!(zone.contains("unknown time zone"), "{zone}");
    let many = vec![json!({ "from": "18:00", "weight": 7 }); ENTRIES_MAX + 1];
    let many = refused(json!({ "schedule": many }));
    assert!(many.contains("65 entries is too long"), "{many}");
    // An objective outside a daemon, as in a scenario, has no time of day.
    let merged = crate::objective::merge(&Objective::default(), &json!({ "schedule": [] }));
    let message = merged.expect_err("no clock").to_string();
    assert!(message.contains("[[event]]"), "{message}");
}

#[test]
fn first_and_last_timestamps_are_handled() {
    let ends = berlin(json!([
        { "at": "0000-01-01T00:00", "until": "9999-12-31T23:59:59", "weight": 7 },
        { "at": "9999-12-31T23:59", "weight": 8 },
        { "from": "23:00", "until": "22:59:59", "weight": 9 },
    ]));
    for now in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
        for zone in ["Europe/Berlin", "Pacific/Kiritimati", "Pacific/Apia", "UTC"] {
            let there = merge(&ends, &json!({ "timezone": zone })).expect("a zone");
            let next = there.next(now);
            assert!(next.is_none_or(|next| next.at > now), "{zone}: {next:?}");
            assert!(there.next_bound(now).is_none_or(|at| at > now));
            assert!(there.bounds(now).iter().all(|at| *at > now));
        }
    }
    assert_eq!(
        ends.overlaps(),
        [(0, 1), (0, 2)],
        "weekly entries have no day after the last, so the third hides the first but not the second"
    );
    // Apia had no 2011-12-30: the day from midnight to midnight did not hold.
    let apia = schedule(json!({ "timezone": "Pacific/Apia", "target": "10 MB/s",
        "schedule": [{ "days": ["fri"], "target": "50 MB/s" }] }));
    assert_eq!(
        next_changes(&apia, "2011-12-29T12:00-10:00", 1),
        changes(&[("Fri 06 00:00 +1400", 50)])
    );
}

proptest::proptest! {
    /// `next` agrees with an oracle that evaluates the schedule at every full hour of the next 15
    /// days.
    #[test]
    fn next_agrees_with_an_hourly_oracle(
        spans in proptest::collection::vec((0u32..24, 0u32..24, 0usize..7), 1..5),
        start in 0i64..3 * 86400,
    ) {
        let entries: Vec<Value> = (spans.iter().enumerate())
            .map(|(i, (from, until, day))| json!({
                "from": format!("{from:02}:00"),
                "until": format!("{until:02}:00"),
                "days": [(entry_times::DAY_NAMES[*day])],
                "target": format!("{} MB/s", 20 + i % 2),
            }))
            .collect();
        let schedule = berlin(entries.into());
        // Around the end of summer time.
        let now = time("2026-10-23T00:00+02:00") + jiff::SignedDuration::from_secs(start);
        let current = *schedule.in_force_at(now).objective;
        // All entries begin and end at full hours.
        let hour = now.as_second() / 3600 + 1;
        let oracle = (hour..hour + 15 * 24)
            .map(|hour| Timestamp::from_second(hour * 3600).expect("in range"))
            .find(|at| *schedule.in_force_at(*at).objective != current);
        proptest::prop_assert_eq!(schedule.next(now).map(|next| next.at), oracle);
    }
}
