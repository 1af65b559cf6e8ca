//! Plain English sentences of a diagnosis.

use tidegate_api::explain::{
    Basis, Cause, Diagnosis, Finding, Gap, MissedPart, Mostly, Remedy, Verdict,
};
use tidegate_units::human;

use crate::findings::MEAN_GROWN;

/// Findings that the first sentence has.
const SHOWN: usize = 3;
/// Share of a cause from which it is worth a sentence although the VM was no slower than usual.
const MOST: f64 = 0.5;

/// Writes a diagnosis in sentences: the division of the time, the verdict, what may help, and what
/// is not known. `when`: the time that is explained, such as `at 14:02`.
pub fn sentences(of: &Diagnosis, when: Option<&str>) -> Vec<String> {
    let when = when.map_or_else(String::new, |when| format!(" {when}"));
    let mut sentences = vec![headline(of, &when)];
    if of.verdict == Verdict::NoRequests {
        sentences.extend(missed(of));
        sentences.extend(unfit(of));
        return sentences;
    }
    sentences.extend(verdict(of));
    sentences.extend(missed(of));
    sentences.extend(unfit(of));
    sentences.extend(remedies(of));
    let gaps = of.gaps.iter().filter(|gap| matters(of.verdict, **gap));
    sentences.extend(gaps.map(|gap| gap_sentence(*gap, of)));
    sentences
}

fn headline(of: &Diagnosis, when: &str) -> String {
    if of.verdict == Verdict::NoRequests {
        return match of.unanswered {
            0 => format!("`{}` had no request answered{when}.", of.vm),
            waiting => format!(
                "`{}` had no request answered{when} although {waiting} waited{}.",
                of.vm,
                device_facts(of)
            ),
        };
    }
    let parts: Vec<String> = (of.findings.iter().take(SHOWN))
        .map(|it| part(of, it))
        .collect();
    let parts = parts.join(", ");
    let mean = human::duration(of.mean_ns);
    let [before, p99] = [of.p99_before_ns, of.p99_ns].map(|it| it.map(human::duration));
    match (of.verdict, of.basis, before, p99) {
        (Verdict::NotSlower, _, Some(before), Some(p99)) => format!(
            "`{}` was no slower than usual{when}: p99 was at most {p99}, usually {before}. Of its \
             time, {parts}.",
            of.vm
        ),
        (_, Basis::Increase, Some(before), Some(p99)) => {
            let change = if of.p99_ns > of.p99_before_ns {
                "rose"
            } else {
                "went"
            };
            format!("p99 {change} from {before} to {p99}{when}: of the added time, {parts}.")
        }
        (_, Basis::Increase, _, _) => {
            format!("The mean latency rose to {mean}{when}: of the added time, {parts}.")
        }
        (_, Basis::Total, Some(before), Some(p99)) if only_the_tail_grew(of) => format!(
            "p99 rose from {before} to {p99}{when}, but the mean latency did not grow ({mean}): \
             of all time, {parts}."
        ),
        (_, Basis::Total, _, Some(p99)) => {
            format!("The mean latency was {mean}{when} (p99 {p99}): {parts}.")
        }
        (_, Basis::Total, _, None) => format!("The mean latency was {mean}{when}: {parts}."),
    }
}

/// Returns true if the VM was slower by its 99th percentile, and not by its mean.
fn only_the_tail_grew(of: &Diagnosis) -> bool {
    of.p99_ns > of.p99_before_ns
        && (of.mean_before_ns).is_some_and(|before| of.mean_ns as f64 <= before as f64 * MEAN_GROWN)
}

/// One cause with its share.
fn part(of: &Diagnosis, finding: &Finding) -> String {
    let share = human::percent(finding.share, 1.0);
    let text = match finding.cause {
        Cause::Vm => {
            let name = finding.vm.as_deref().unwrap_or("(removed)");
            format!("behind `{name}`{}", culprit(finding))
        }
        Cause::OtherVms => "behind other VMs".to_owned(),
        Cause::OwnLimit => "held by its own limit".to_owned(),
        Cause::OwnLoad => "behind its own requests".to_owned(),
        Cause::Device => format!("device{}", device_facts(of)),
        Cause::Service => "service by the device".to_owned(),
        Cause::Policy => "deliberate waits of the policy".to_owned(),
        Cause::Reply => "until replies were sent".to_owned(),
        Cause::Unknown => "of no known cause".to_owned(),
    };
    format!("{share} {text}")
}

fn device_facts(of: &Diagnosis) -> String {
    if of.hung {
        return " (its disk hung)".to_owned();
    }
    if of.stalled_ns > 0 {
        let stalled = human::duration(of.stalled_ns);
        return format!(" (it ended nothing for {stalled})");
    }
    let Some(longest) = &of.longest_io else {
        return String::new();
    };
    let what = if longest.is_flush {
        "a flush"
    } else {
        "an I/O"
    };
    let whose = longest.vm.as_ref();
    let whose = whose.map_or_else(String::new, |vm| format!(" by `{vm}`"));
    format!(" ({what} of {}{whose})", human::duration(longest.ns))
}

/// States the main cause. A VM that is no slower than usual has one if it stands out.
fn verdict(of: &Diagnosis) -> Option<String> {
    let text = match of.verdict {
        Verdict::Others if is_idle_for_others(of) => match &of.culprits[..] {
            [] => "The policy left the device idle on purpose, probably for other VMs.".to_owned(),
            all => format!(
                "The policy left the device idle on purpose, probably for {}.",
                names(all)
            ),
        },
        Verdict::Others => match &of.culprits[..] {
            [] => "Other VMs delayed it, none of them most.".to_owned(),
            all => format!("{} delayed it most.", names(all)),
        },
        Verdict::OwnLimit => "Its own limit held it back.".to_owned(),
        Verdict::OwnLoad => "It waited mostly for its own requests.".to_owned(),
        Verdict::Device => "Nobody delayed it, the device did.".to_owned(),
        Verdict::Service => "The largest part was service by the device.".to_owned(),
        Verdict::Policy => "The policy left the device idle on purpose.".to_owned(),
        Verdict::Reply => {
            "Its replies were not sent at once: the client or the host is busy.".to_owned()
        }
        Verdict::NotSlower => {
            return match usual_cause(of)?.cause {
                Cause::Vm | Cause::OtherVms if of.reserved => {
                    Some("Others delay it all the time.".to_owned())
                }
                Cause::Vm | Cause::OtherVms => {
                    Some("Others delay it all the time: a reservation protects it.".to_owned())
                }
                Cause::OwnLimit => Some("Its own limit holds it back all the time.".to_owned()),
                _ => None,
            };
        }
        Verdict::NoRequests => return None,
        Verdict::Unknown => "The cause of most of the time is not known.".to_owned(),
    };
    Some(text)
}

/// Cause that takes most of the time.
fn usual_cause(of: &Diagnosis) -> Option<&Finding> {
    of.findings.first().filter(|it| it.share >= MOST)
}

/// States the parts of the objective that were missed.
fn missed(of: &Diagnosis) -> Option<String> {
    let part = |it: &MissedPart| {
        let name = match it.part.as_str() {
            "latency" => "latency bound",
            name => name,
        };
        format!("its {name} in {} of {} s", it.missed_s, it.judged_s)
    };
    let parts: Vec<String> = of.missed.iter().map(part).collect();
    (!parts.is_empty()).then(|| format!("It missed {}.", parts.join(", ")))
}

/// States that the device cannot keep its promises, whoever delayed whom.
fn unfit(of: &Diagnosis) -> Option<String> {
    let device = of.device.as_ref();
    let device = device.map_or_else(|| "its device".to_owned(), |name| format!("`{name}`"));
    of.promises_unfit.then(|| {
        format!(
            "The promises of {device} do not fit together: `tidegate plan` with the configuration \
             says which, and what would."
        )
    })
}

/// Returns true if others are to blame although most of the time was left idle: for them.
fn is_idle_for_others(of: &Diagnosis) -> bool {
    let is_other = |it: &&Finding| matches!(it.cause, Cause::Vm | Cause::OtherVms);
    let others: f64 = of.findings.iter().filter(is_other).map(|it| it.share).sum();
    let idle = of.findings.iter().find(|it| it.cause == Cause::Policy);
    of.verdict == Verdict::Others && idle.is_some_and(|it| it.share > others)
}

/// Names of VMs as a list in words.
fn names(vms: &[String]) -> String {
    let quoted: Vec<String> = vms.iter().map(|name| format!("`{name}`")).collect();
    match &quoted[..] {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// Returns true if a cause is that of a verdict.
fn is_cause_of(cause: Cause, of: &Diagnosis) -> bool {
    match of.verdict {
        Verdict::Others => {
            matches!(cause, Cause::Vm | Cause::OtherVms)
                || cause == Cause::Policy && is_idle_for_others(of)
        }
        // A limit that always holds the VM back may be too low; all else is as it is.
        Verdict::OwnLimit | Verdict::NotSlower => cause == Cause::OwnLimit,
        Verdict::OwnLoad => cause == Cause::OwnLoad,
        Verdict::Device => cause == Cause::Device,
        Verdict::Service => cause == Cause::Service,
        Verdict::Policy => cause == Cause::Policy,
        Verdict::Reply => cause == Cause::Reply,
        Verdict::NoRequests | Verdict::Unknown => false,
    }
}

/// Remedies of the verdict's cause, by its largest finding.
fn remedies(of: &Diagnosis) -> Option<String> {
    if of.verdict == Verdict::NotSlower {
        usual_cause(of).filter(|it| it.cause == Cause::OwnLimit)?;
    }
    let largest = |of_policy: bool| {
        of.findings.iter().find(|it| {
            is_cause_of(it.cause, of)
                && (it.cause == Cause::Policy) == of_policy
                && !it.remedies.is_empty()
        })
    };
    // Where the device was left idle for others, the policy may be changed, too.
    let largest = [largest(false), largest(true)].into_iter().flatten();
    let remedies = largest.flat_map(|it| &it.remedies);
    let remedies: Vec<String> = remedies.map(|it| remedy(of, it)).collect();
    (!remedies.is_empty()).then(|| format!("To try: {}.", remedies.join(", or ")))
}

fn remedy(of: &Diagnosis, remedy: &Remedy) -> String {
    match remedy {
        Remedy::Limit {
            vm,
            bytes_per_s: 0,
            iops,
        } => format!("a limit on `{vm}`, for example {iops} IOPS, half of its rate"),
        Remedy::Limit {
            vm, bytes_per_s, ..
        } => {
            let rate = human::bytes_per_s(*bytes_per_s as f64);
            format!("a limit on `{vm}`, for example {rate}, half of its rate")
        }
        Remedy::Reserve { iops } => format!("a reservation of {iops} IOPS for `{}`", of.vm),
        Remedy::RaiseLimit => format!("a higher limit for `{}`", of.vm),
        Remedy::LessLoad => "fewer requests at a time, or a faster device".to_owned(),
        Remedy::CheckDevice => "a look at the device and its log".to_owned(),
        Remedy::OtherPolicy => "another policy".to_owned(),
    }
}

/// Traffic of a culprit in brackets.
fn culprit(finding: &Finding) -> String {
    let Some(facts) = &finding.culprit else {
        return String::new();
    };
    let size = human::bytes(facts.mean_size);
    let what = match facts.mostly {
        Mostly::Flushes => "flushes".to_owned(),
        Mostly::Reads => format!("{size} reads"),
        Mostly::Writes => format!("{size} writes"),
    };
    let kind = if facts.background {
        ", background process"
    } else {
        ""
    };
    let limit = if facts.limited { "limited" } else { "no limit" };
    format!(" ({what}{kind}, {limit})")
}

/// Returns true if a gap weakens the verdict: that a VM was no slower is known without causes.
fn matters(verdict: Verdict, gap: Gap) -> bool {
    verdict != Verdict::NotSlower || matches!(gap, Gap::NoCauses | Gap::NoBaseline)
}

fn gap_sentence(gap: Gap, of: &Diagnosis) -> String {
    let text = match gap {
        Gap::NoCauses => {
            "No causes were kept then: whose requests it waited for is not known, only the time \
             that its own limit, merging and deliberate waits took."
        }
        Gap::NoSamples => "No request was sampled: whose requests it waited for is not known.",
        Gap::FewSamples => "Few requests were sampled: the shares are rough.",
        Gap::NoBaseline => "There is no earlier time to compare with.",
        Gap::AssumedCosts => {
            "Device times are assumed, without a profile or learnt costs: the parts of other VMs \
             may be off."
        }
        Gap::NoRecording => {
            let device = of.device.as_ref();
            let device = device.map_or_else(String::new, |device| format!(" {device}"));
            return format!(
                "Not all requests of that time were recorded: what a change would have brought \
                 needs a recording (`tidegate record on{device}`)."
            );
        }
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
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
}
