//! Plain English sentences of a diagnosis.

use crate::causes::Cause;
use crate::findings::{Basis, Diagnosis, Finding, Gap, Remedy, Verdict};
use tidegate_units::human;

/// Findings that the first sentence has.
const SHOWN: usize = 3;

impl Diagnosis {
    /// Writes the diagnosis in sentences: the division of the time, the verdict, what may help,
    /// and what is not known. `at`: the time that is explained, such as `14:02`.
    pub fn sentences(&self, at: Option<&str>) -> Vec<String> {
        let mut sentences = vec![self.headline(at)];
        if self.verdict == Verdict::NoRequests {
            return sentences;
        }
        sentences.push(self.verdict_sentence());
        sentences.extend(self.remedy_sentence());
        sentences.extend(self.gaps.iter().map(|gap| gap_sentence(*gap).to_owned()));
        sentences
    }

    fn headline(&self, at: Option<&str>) -> String {
        let at = at.map_or_else(String::new, |at| format!(" at {at}"));
        if self.verdict == Verdict::NoRequests {
            return format!("`{}` had no request answered{at}.", self.vm);
        }
        let parts: Vec<String> = (self.findings.iter().take(SHOWN))
            .map(|it| self.part(it))
            .collect();
        let parts = parts.join(", ");
        let mean = human::duration(self.mean_ns);
        match (self.basis, self.p99_before_ns, self.p99_ns) {
            (Basis::Increase, Some(before), Some(now)) => {
                let change = if now > before { "rose" } else { "went" };
                let [before, now] = [before, now].map(human::duration);
                format!("p99 {change} from {before} to {now}{at}: of the added time, {parts}.")
            }
            (Basis::Increase, _, _) => {
                format!("The mean latency rose to {mean}{at}: of the added time, {parts}.")
            }
            (Basis::Total, _, Some(p99)) => {
                let p99 = human::duration(p99);
                format!("The mean latency was {mean}{at} (p99 {p99}): {parts}.")
            }
            (Basis::Total, _, None) => format!("The mean latency was {mean}{at}: {parts}."),
        }
    }

    /// One cause with its share.
    fn part(&self, finding: &Finding) -> String {
        let share = human::percent(finding.share, 1.0);
        let text = match finding.cause {
            Cause::Vm => {
                let name = finding.vm.as_deref().unwrap_or("(removed)");
                format!("behind `{name}`{}", culprit(finding))
            }
            Cause::OtherVms => "behind other VMs".to_owned(),
            Cause::OwnLimit => "held by its own limit".to_owned(),
            Cause::OwnLoad => "behind its own requests".to_owned(),
            Cause::Device => format!("device{}", self.device_facts()),
            Cause::Policy => "deliberate waits of the policy".to_owned(),
            Cause::Reply => "until replies were sent".to_owned(),
            Cause::Unknown => "of no known cause".to_owned(),
        };
        format!("{share} {text}")
    }

    fn device_facts(&self) -> String {
        if self.hung {
            return " (its disk hung)".to_owned();
        }
        if self.stalled_ns > 0 {
            let stalled = human::duration(self.stalled_ns);
            return format!(" (it ended nothing for {stalled})");
        }
        let Some(longest) = &self.longest_io else {
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

    fn verdict_sentence(&self) -> String {
        match self.verdict {
            Verdict::Others => match &self.culprits[..] {
                [] => "Other VMs delayed it, none of them most.".to_owned(),
                [one] => format!("`{one}` delayed it most."),
                [all @ .., last] => {
                    let all: Vec<String> = all.iter().map(|name| format!("`{name}`")).collect();
                    format!("{} and `{last}` delayed it most.", all.join(", "))
                }
            },
            Verdict::OwnLimit => "Its own limit held it back.".to_owned(),
            Verdict::OwnLoad => "It waited mostly for its own requests.".to_owned(),
            Verdict::Device => "Nobody delayed it, the device did.".to_owned(),
            Verdict::Policy => "The policy left the device idle on purpose.".to_owned(),
            Verdict::Reply => {
                "Its replies were not sent at once: the client or the host is busy.".to_owned()
            }
            Verdict::NotSlower => "It was no slower than before.".to_owned(),
            Verdict::NoRequests => String::new(),
            Verdict::Unknown => "The cause of most of the time is not known.".to_owned(),
        }
    }

    /// Remedies of the largest finding that has any.
    fn remedy_sentence(&self) -> Option<String> {
        if self.verdict == Verdict::NotSlower {
            return None;
        }
        let finding = self.findings.iter().find(|it| !it.remedies.is_empty())?;
        let remedies: Vec<String> = finding.remedies.iter().map(|it| self.remedy(it)).collect();
        Some(format!("To try: {}.", remedies.join(", or ")))
    }

    fn remedy(&self, remedy: &Remedy) -> String {
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
            Remedy::Reserve { iops } => format!("a reservation of {iops} IOPS for `{}`", self.vm),
            Remedy::RaiseLimit => format!("a higher limit for `{}`", self.vm),
            Remedy::LessLoad => "fewer requests at a time, or a faster device".to_owned(),
            Remedy::CheckDevice => "a look at the device and its log".to_owned(),
            Remedy::OtherPolicy => "another policy".to_owned(),
        }
    }
}

/// Traffic of a culprit in brackets.
fn culprit(finding: &Finding) -> String {
    let Some(facts) = &finding.culprit else {
        return String::new();
    };
    let what = match facts.mostly {
        "flushes" => "flushes".to_owned(),
        mostly => format!("{} {mostly}", human::bytes(facts.mean_size)),
    };
    let kind = if facts.background {
        ", background process"
    } else {
        ""
    };
    let limit = if facts.limited { "limited" } else { "no limit" };
    format!(" ({what}{kind}, {limit})")
}

fn gap_sentence(gap: Gap) -> &'static str {
    match gap {
        Gap::NoSamples => "No request was sampled: whose requests it waited for is not known.",
        Gap::FewSamples => "Few requests were sampled: the shares are rough.",
        Gap::NoBaseline => "There is no earlier time to compare with.",
        Gap::AssumedCosts => {
            "Device times are assumed, without a profile or learnt costs: the parts of other VMs \
             may be off."
        }
        Gap::NoRecording => {
            "Requests were not recorded: what a change would have brought cannot be simulated."
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{DeviceFacts, LongestIo, Party, Traffic, Verdict, Victim, Window, diagnose};
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
    fn the_added_time_is_divided_and_the_culprit_named() {
        let usual = window(4, &[(Class::Service, 2)], 0);
        let now = window(31, &[(Class::Service, 5), (Class::Deliberate, 1)], 11);
        let victim = Victim {
            name: "db",
            now: &now,
            usual: Some(&usual),
            reserved: false,
        };
        let found = diagnose(&victim, &[backup()], &DEVICE);
        assert_eq!(found.verdict, Verdict::Others);
        assert_eq!(found.culprits, ["backup"]);
        assert_eq!(
            found.sentences(Some("14:02")),
            [
                "p99 rose from 4 ms to 31 ms at 14:02: of the added time, 73 % behind \
                 `backup` (1 MiB writes, no limit), 20 % device (a flush of 220 ms by `db`), \
                 7 % deliberate waits of the policy.",
                "`backup` delayed it most.",
                "To try: a limit on `backup`, for example 41.9 MB/s, half of its rate, or a \
                 reservation of 10 IOPS for `db`.",
                "Requests were not recorded: what a change would have brought cannot be simulated.",
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
        assert_eq!(found.sentences(None), ["`db` had no request answered."]);
    }
}
