//! Plain English sentences of a diagnosis.

use tidegate_api::explain::{
    Basis, Cause, Diagnosis, Finding, Gap, MissedPart, Mostly, Remedy, Verdict,
};
use tidegate_units::human;

use crate::findings::MEAN_GROWN;

/// Findings that the first sentence has, and commands that advice has.
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
        Cause::OwnLimit => format!("held by {}", own_limit(of)),
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
        Verdict::OwnLimit if only_disks_limit(of) => {
            "The limits of its disks held it back.".to_owned()
        }
        Verdict::OwnLimit if !of.limited_disks.is_empty() => {
            "Its own limit, or those of its disks, held it back.".to_owned()
        }
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
                Cause::OwnLimit if only_disks_limit(of) => {
                    Some("The limits of its disks hold it back all the time.".to_owned())
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

/// Returns true if the VM is limited by its disks alone.
fn only_disks_limit(of: &Diagnosis) -> bool {
    !of.limited && !of.limited_disks.is_empty()
}

/// Limits that may have held the VM: the time held by limits of its disks counts as held by its
/// own.
fn own_limit(of: &Diagnosis) -> &'static str {
    match (of.limited_disks.is_empty(), of.limited) {
        (true, _) => "its own limit",
        (false, false) => "limits of its disks",
        (false, true) => "its own limit or those of its disks",
    }
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
        Remedy::RaiseLimit => {
            let disks = match of.limited_disks.len() {
                0 => return format!("a higher limit for `{}`", of.vm),
                1 => format!("its disk {}", names(&of.limited_disks)),
                _ => format!("its disks {}", names(&of.limited_disks)),
            };
            let disks = format!("{disks}{}", limit_commands(of));
            if of.limited {
                format!("a higher limit for `{}` or for {disks}", of.vm)
            } else {
                format!("a higher limit for {disks}")
            }
        }
        Remedy::LessLoad => "fewer requests at a time, or a faster device".to_owned(),
        Remedy::CheckDevice => "a look at the device and its log".to_owned(),
        Remedy::OtherPolicy => "another policy".to_owned(),
    }
}

/// Commands that double limits of the VM's disks; empty without any.
fn limit_commands(of: &Diagnosis) -> String {
    let commands = of.raise_disk_limits.iter().take(SHOWN);
    let shown: Vec<String> = commands.map(|command| format!("`{command}`")).collect();
    let rest = match of.raise_disk_limits.len() - shown.len() {
        0 => "",
        _ => ", and so for the others",
    };
    match shown.len() {
        0 => String::new(),
        _ => format!(", for example twice as high: {}{rest}", shown.join(", ")),
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
mod tests;
