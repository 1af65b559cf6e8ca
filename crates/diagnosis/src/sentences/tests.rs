//! Sentences of diagnoses of all kinds.

use super::*;
use crate::{DeviceFacts, LongestIo, Party, SLOWER, Traffic, Victim, Window, diagnose};
use tidegate_core::interference::{CLASSES, Class, CostSource, CulpritTime, Interval};
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;

const MS: u64 = 1_000_000;

/// Window of 100 requests with the time of each by class, in milliseconds, and behind VM 1.
fn window(p99: u64, times: &[(Class, u64)], behind: u64) -> Window {
    let mut interval = Interval {
        requests: 100,
        samples: 60,
        times: [Nanos::ZERO; CLASSES],
        ..Interval::default()
    };
    for &(class, ms) in times {
        interval.times[class as usize] = Nanos(100 * ms * MS);
    }
    if behind > 0 {
        let waited = Nanos(100 * behind * MS);
        interval.times[Class::Others as usize] = waited;
        interval.culprits.push(CulpritTime {
            vm: VmId::from_bits(1),
            waited,
            inside: Nanos::ZERO,
        });
    }
    Window {
        interval,
        p99: Some(Nanos(p99 * MS)),
        span: Nanos::from_secs(10),
        ..Window::default()
    }
}

fn backup() -> Party<'static> {
    Party {
        vm: VmId::from_bits(1),
        name: "backup",
        background: false,
        limited: false,
        traffic: Traffic {
            writes: 800,
            bytes_written: 800 << 20,
            ..Traffic::default()
        },
    }
}

const DEVICE: DeviceFacts = DeviceFacts {
    costs: CostSource::Profile,
    stalled: Nanos::ZERO,
    longest: Some(LongestIo {
        took: Nanos(220 * MS),
        vm: Some("db"),
        is_flush: true,
    }),
    hung: false,
    recorded: false,
};

#[test]
fn advice_on_limits_names_the_disks_that_have_them() {
    let now = window(12, &[(Class::OwnLimit, 9), (Class::Service, 3)], 0);
    let victim = Victim {
        name: "db",
        now: &now,
        usual: None,
        reserved: false,
        slower_from: SLOWER,
    };
    let explanation = |limited, [disks, commands]: [&[&str]; 2]| {
        let mut found = diagnose(&victim, &[], &DEVICE);
        assert_eq!(found.verdict, Verdict::OwnLimit);
        found.limited = limited;
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        found.limited_disks = owned(disks);
        found.raise_disk_limits = owned(commands);
        sentences(&found, None).join(" ")
    };
    for (limited, names, parts) in [
        (
            true,
            [&[][..], &[]],
            ["held by its own limit", "a higher limit for `db`."],
        ),
        (
            false,
            [&["log"], &[]],
            [
                "held by limits of its disks",
                "a higher limit for its disk `log`.",
            ],
        ),
        (
            false,
            [&["log"], &["tidegate disk set log --limit \"2 IOPS\""]],
            [
                "held by limits of its disks",
                "`log`, for example twice as high: `tidegate disk set log --limit \"2 IOPS\"`.",
            ],
        ),
        (
            false,
            [&["a", "b"], &["set a", "set b", "set c", "set d"]],
            [
                "a higher limit for its disks `a` and `b`, for example twice as high: `set a`,",
                " `set b`, `set c`, and so for the others.",
            ],
        ),
        (
            true,
            [&["log", "data"], &[]],
            [
                "held by its own limit or those of its disks",
                "a higher limit for `db` or for its disks `log` and `data`.",
            ],
        ),
    ] {
        let text = explanation(limited, names);
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn advice_looks_at_what_is_promised_and_names_the_device() {
    // No slower than usual, and most of its time behind others.
    let now = window(12, &[(Class::Service, 1)], 11);
    let said = |reserved| {
        let victim = Victim {
            name: "db",
            now: &now,
            usual: Some(&now),
            reserved,
            slower_from: SLOWER,
        };
        let mut found = diagnose(&victim, &[backup()], &DEVICE);
        assert_eq!(found.verdict, Verdict::NotSlower);
        found.device = Some("ssd".to_owned());
        found.promises_unfit = reserved;
        sentences(&found, None).join(" ")
    };
    let without = said(false);
    assert!(without.contains("a reservation protects it"), "{without}");
    assert!(!without.contains("tidegate plan"), "{without}");
    let with = said(true);
    assert!(with.contains("Others delay it all the time."), "{with}");
    assert!(!with.contains("a reservation protects it"), "{with}");
    let unfit = "The promises of `ssd` do not fit together: `tidegate plan`";
    assert!(with.contains(unfit), "{with}");

    let usual = window(4, &[(Class::Service, 2)], 0);
    let victim = Victim {
        name: "db",
        now: &now,
        usual: Some(&usual),
        reserved: true,
        slower_from: SLOWER,
    };
    let mut slower = diagnose(&victim, &[backup()], &DEVICE);
    slower.device = Some("ssd".to_owned());
    let text = sentences(&slower, None).join(" ");
    assert!(text.contains("`tidegate record on ssd`"), "{text}");
}

#[test]
fn the_added_time_is_divided_and_the_culprit_named() {
    let usual = window(4, &[(Class::Service, 2)], 0);
    let now = window(31, &[(Class::Service, 5), (Class::Deliberate, 1)], 11);
    let victim = Victim {
        name: "db",
        now: &now,
        usual: Some(&usual),
        reserved: false,
        slower_from: SLOWER,
    };
    let found = diagnose(&victim, &[backup()], &DEVICE);
    assert_eq!(found.verdict, Verdict::Others);
    assert_eq!(found.culprits, ["backup"]);
    assert_eq!(
        sentences(&found, Some("at 14:02")),
        [
            "p99 rose from 4 ms to 31 ms at 14:02: of the added time, 73 % behind \
             `backup` (1 MiB writes, no limit), 20 % device (a flush of 220 ms by `db`), \
             7 % deliberate waits of the policy.",
            "`backup` delayed it most.",
            "To try: a limit on `backup`, for example 41.9 MB/s, half of its rate, or a \
             reservation of 10 IOPS for `db`.",
            "Not all requests of that time were recorded: what a change would have brought \
             needs a recording (`tidegate record on`).",
        ]
    );
}

#[test]
fn verdicts_name_the_largest_cause() {
    let verdict = |times: &[(Class, u64)]| {
        let now = window(9, times, 2);
        let victim = Victim {
            name: "db",
            now: &now,
            usual: None,
            reserved: true,
            slower_from: SLOWER,
        };
        diagnose(&victim, &[backup()], &DEVICE).verdict
    };
    assert_eq!(verdict(&[(Class::OwnLimit, 3)]), Verdict::OwnLimit);
    assert_eq!(verdict(&[(Class::OwnRequests, 3)]), Verdict::OwnLoad);
    assert_eq!(verdict(&[(Class::SlowDevice, 3)]), Verdict::Device);
    assert_eq!(verdict(&[(Class::Reply, 3)]), Verdict::Reply);
    assert_eq!(verdict(&[(Class::Unknown, 3)]), Verdict::Unknown);
    assert_eq!(verdict(&[(Class::Service, 1)]), Verdict::Others);
    // The device was left idle for the VM in front.
    assert_eq!(verdict(&[(Class::Deliberate, 30)]), Verdict::Others);
    let alone = window(9, &[(Class::Deliberate, 3), (Class::Service, 1)], 0);
    let victim = Victim {
        name: "db",
        now: &alone,
        usual: None,
        reserved: true,
        slower_from: SLOWER,
    };
    let found = diagnose(&victim, &[backup()], &DEVICE);
    assert_eq!(found.verdict, Verdict::Policy);
}

#[test]
fn a_vm_as_fast_as_before_has_no_culprit() {
    let now = window(4, &[(Class::Service, 2)], 2);
    let victim = Victim {
        name: "db",
        now: &now,
        usual: Some(&now),
        reserved: false,
        slower_from: SLOWER,
    };
    let found = diagnose(&victim, &[backup()], &DEVICE);
    assert_eq!(found.verdict, Verdict::NotSlower);
    assert!(found.culprits.is_empty());
    let none = Window::default();
    let victim = Victim {
        now: &none,
        usual: None,
        ..victim
    };
    let found = diagnose(&victim, &[], &DEVICE);
    assert_eq!(sentences(&found, None), ["`db` had no request answered."]);
}

/// VM without anything to compare with, or with what is usual for it.
fn victim<'a>(now: &'a Window, usual: Option<&'a Window>) -> Victim<'a> {
    Victim {
        name: "db",
        now,
        usual,
        reserved: true,
        slower_from: SLOWER,
    }
}

#[test]
fn without_samples_nobody_and_nothing_is_blamed() {
    let mut now = window(200, &[(Class::Service, 200)], 0);
    now.interval.samples = 0;
    let usual = window(4, &[(Class::Service, 2)], 0);
    for usual in [None, Some(&usual)] {
        let found = diagnose(&victim(&now, usual), &[backup()], &DEVICE);
        assert_eq!(found.verdict, Verdict::Unknown);
        let text = sentences(&found, None).join(" ");
        assert!(text.contains("No request was sampled"), "{text}");
        assert!(!text.contains("To try"), "{text}");
    }
    // Time that was not divided before says nothing of what was added.
    let mut usual = usual;
    usual.interval.samples = 0;
    let now = window(200, &[(Class::Service, 2)], 198);
    let found = diagnose(&victim(&now, Some(&usual)), &[backup()], &DEVICE);
    assert_eq!(
        (found.verdict, found.basis),
        (Verdict::Others, Basis::Total)
    );
}

#[test]
fn service_that_is_as_usual_is_no_fault_of_the_device() {
    let now = window(9, &[(Class::Service, 5)], 0);
    let found = diagnose(&victim(&now, None), &[backup()], &DEVICE);
    assert_eq!(found.verdict, Verdict::Service);
    let text = sentences(&found, None).join(" ");
    assert!(text.contains("100 % service by the device."), "{text}");
    assert!(!text.contains("To try"), "{text}");
    // Service that takes longer than usual is.
    let usual = window(4, &[(Class::Service, 2)], 0);
    let found = diagnose(&victim(&now, Some(&usual)), &[backup()], &DEVICE);
    assert_eq!(found.verdict, Verdict::Device);
    let device = &found.findings[0];
    assert_eq!(
        (device.cause, device.mean_ns, device.before_ns),
        (Cause::Device, 5 * MS, Some(2 * MS))
    );
}

#[test]
fn a_tail_that_grew_alone_blames_no_vm_for_a_speck_of_time() {
    let usual = window(4, &[(Class::Service, 2)], 0);
    let mut now = window(31, &[(Class::Service, 1)], 1);
    // 10 us of each request.
    now.interval.times[Class::Others as usize] = Nanos(MS);
    now.interval.culprits[0].waited = Nanos(MS);
    let found = diagnose(&victim(&now, Some(&usual)), &[backup()], &DEVICE);
    assert_eq!(
        (found.verdict, found.basis),
        (Verdict::Service, Basis::Total)
    );
    assert!(found.culprits.is_empty());
    let text = sentences(&found, None);
    assert_eq!(
        text[0],
        "p99 rose from 4 ms to 31 ms, but the mean latency did not grow (1.01 ms): of all \
         time, 99 % service by the device."
    );
}

#[test]
fn a_tail_is_divided_by_what_has_grown_enough_to_make_it() {
    let usual = window(4, &[(Class::Service, 2)], 0);
    let now = window(31, &[(Class::Service, 1)], 1);
    let found = diagnose(&victim(&now, Some(&usual)), &[backup()], &DEVICE);
    let verdict = (found.verdict, found.basis);
    assert_eq!(verdict, (Verdict::Others, Basis::Increase));
    assert_eq!(found.culprits, ["backup"]);
}

#[test]
fn deliberate_waits_are_for_others_that_are_more_than_an_odd_sample() {
    let found = |behind: u64, samples: u64| {
        let mut now = window(90, &[(Class::Deliberate, 80)], behind);
        now.interval.samples = samples;
        diagnose(&victim(&now, None), &[backup()], &DEVICE)
    };
    assert_eq!(found(1, 60).verdict, Verdict::Policy);
    assert_eq!(found(10, 3).verdict, Verdict::Policy);
    let for_backup = found(10, 60);
    assert_eq!(for_backup.culprits, ["backup"]);
    let text = sentences(&for_backup, None);
    assert_eq!(
        text[1],
        "The policy left the device idle on purpose, probably for `backup`."
    );
    assert_eq!(
        text[2],
        "To try: a limit on `backup`, for example 41.9 MB/s, half of its rate, or another \
         policy."
    );
}

#[test]
fn remedies_are_those_of_the_verdict() {
    let mut now = window(90, &[(Class::SlowDevice, 40)], 60);
    let vms = [1, 2, 3, 4].map(VmId::from_bits);
    now.interval.culprits = vms
        .map(|vm| CulpritTime {
            vm,
            waited: Nanos(100 * 15 * MS),
            inside: Nanos::ZERO,
        })
        .to_vec();
    let names = ["a", "b", "c", "d"];
    let parties = vms.iter().zip(names);
    let parties: Vec<Party> = parties
        .map(|(&vm, name)| Party {
            vm,
            name,
            ..backup()
        })
        .collect();
    let found = diagnose(&victim(&now, None), &parties, &DEVICE);
    let text = sentences(&found, None);
    assert_eq!(text[1], "`a`, `b`, `c` and `d` delayed it most.");
    assert!(text[2].starts_with("To try: a limit on `a`"), "{text:?}");
    assert!(!text[2].contains("its log"), "{text:?}");
}

#[test]
fn a_limit_that_is_suggested_lets_something_through() {
    let remedies = |traffic: Traffic| {
        let now = window(90, &[], 60);
        let party = Party {
            traffic,
            ..backup()
        };
        let found = diagnose(&victim(&now, None), &[party], &DEVICE);
        found.findings[0].remedies.clone()
    };
    let limit = |bytes_per_s: u64| Remedy::Limit {
        vm: "backup".to_owned(),
        bytes_per_s,
        iops: 1,
    };
    let writes = Traffic {
        writes: 1,
        bytes_written: 7,
        ..Traffic::default()
    };
    assert_eq!(remedies(writes), [limit(1)]);
    let flushes = Traffic {
        flushes: 3,
        ..Traffic::default()
    };
    assert_eq!(remedies(flushes), [limit(0)]);
    // The rate of the culprit is not known.
    assert_eq!(remedies(Traffic::default()), []);
}
