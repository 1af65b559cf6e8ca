//! Findings, verdict and remedies.

use crate::causes::Means;
use crate::{DeviceFacts, LongestIo, Party, Traffic, Victim};
use tidegate_api::explain::{
    Basis, Cause, Confidence, CulpritFacts, Diagnosis, Finding, Gap, LongestIoFacts, Mostly,
    Remedy, Verdict,
};
use tidegate_core::interference::{Class, CostSource};
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;

/// Growth of the mean or of the 99th percentile from which a VM counts as slower than in the
/// interval just before.
pub const SLOWER: f64 = 1.25;
/// Smallest share of the time that is a finding.
const FINDING_MIN: f64 = 0.05;
/// Part of the largest culprit's time from which another VM is named beside it.
const NAMED_MIN: f64 = 0.25;
/// Growth of the mean from which the added time is divided, not all of it.
pub(crate) const MEAN_GROWN: f64 = 1.05;
/// Part of the requests that the 99th percentile leaves out: so many at least took longer by what
/// it has grown by.
const TAIL: f64 = 0.01;
/// Samples below which shares are rough, and below which they are good.
const SAMPLES_FEW: u64 = 10;
const SAMPLES_GOOD: u64 = 50;

/// Explains the request times of a VM.
pub fn diagnose(victim: &Victim, parties: &[Party], device: &DeviceFacts) -> Diagnosis {
    let interval = &victim.now.interval;
    let means = Means::of(interval);
    let usual = victim.usual.filter(|it| it.interval.requests > 0);
    let before = usual.map(|it| Means::of(&it.interval));
    let p99 = [Some(victim.now), usual].map(|it| it.and_then(|it| it.p99));
    let slower = before.as_ref().map(|before| {
        let tail = match p99 {
            [Some(now), Some(before)] => now.0 as f64 > before.0 as f64 * victim.slower_from,
            _ => false,
        };
        tail || means.total() > before.total() * victim.slower_from
    });
    let grown = match (&before, usual) {
        (Some(before), Some(usual)) if slower == Some(true) => {
            // Time whose cause is known cannot be compared with time whose cause is not.
            let alike = usual.interval.samples > 0 || interval.samples == 0;
            let compared = [&means, before].map(Means::with_service_as_device);
            (alike && is_divisible(&compared, p99)).then_some(compared)
        }
        _ => None,
    };
    let (basis, means, before, parts) = match grown {
        Some([means, before]) => {
            let growth = means.growth(&before);
            (Basis::Increase, means, Some(before), growth)
        }
        None => (Basis::Total, means.clone(), before, means),
    };
    let mut verdict = verdict_of(&parts, interval.samples);
    if interval.requests == 0 {
        verdict = Verdict::NoRequests;
    } else if slower == Some(false) {
        verdict = Verdict::NotSlower;
    }
    let context = Context {
        victim,
        parties,
        device,
        means: &means,
        before: before.as_ref(),
    };
    Diagnosis {
        vm: victim.name.to_owned(),
        verdict,
        culprits: if verdict == Verdict::Others {
            context.culprits(&parts)
        } else {
            Vec::new()
        },
        basis,
        mean_ns: means.total() as u64,
        mean_before_ns: before.as_ref().map(|it| it.total() as u64),
        p99_ns: p99[0].map(|it| it.0),
        p99_before_ns: p99[1].map(|it| it.0),
        stalled_ns: device.stalled.0,
        hung: device.hung,
        unanswered: victim.now.unanswered,
        longest_io: device.longest.map(longest_io_facts),
        missed: victim.now.missed.clone(),
        device: None,
        reserved: victim.reserved,
        limited: false,
        limited_disks: Vec::new(),
        raise_disk_limits: Vec::new(),
        promises_unfit: false,
        findings: context.findings(&parts),
        gaps: context.gaps(),
    }
}

fn longest_io_facts(of: LongestIo) -> LongestIoFacts {
    LongestIoFacts {
        ns: of.took.0,
        vm: of.vm.map(str::to_owned),
        is_flush: of.is_flush,
    }
}

/// Returns true if what has grown since `before` says why a VM is slower: the mean has grown, or
/// causes have by as much as a tail that grew alone adds to it. Less may be a speck of time, all of
/// which would be blamed on one cause.
fn is_divisible([means, before]: &[Means; 2], p99: [Option<Nanos>; 2]) -> bool {
    let tail = match p99 {
        [Some(now), Some(before)] => now.since(before).0 as f64,
        _ => f64::INFINITY,
    };
    means.total() > before.total() * MEAN_GROWN || means.growth(before).total() >= TAIL * tail
}

/// Returns the main cause, all other VMs counting as one.
fn verdict_of(parts: &Means, samples: u64) -> Verdict {
    let candidates = [
        (Verdict::Others, parts.behind_others()),
        (Verdict::OwnLimit, parts.time(Cause::OwnLimit)),
        (Verdict::OwnLoad, parts.time(Cause::OwnLoad)),
        (Verdict::Device, parts.time(Cause::Device)),
        (Verdict::Service, parts.time(Cause::Service)),
        (Verdict::Policy, parts.time(Cause::Policy)),
        (Verdict::Reply, parts.time(Cause::Reply)),
    ];
    let largest = (candidates.into_iter()).fold((Verdict::Unknown, 0.0), |best, it| {
        if it.1 > best.1 { it } else { best }
    });
    if largest.1 <= parts.time(Cause::Unknown) {
        return Verdict::Unknown;
    }
    // A policy leaves the device idle for the next request of a VM that it has just served. Beside
    // others that are served, a VM waits for their sake, if these are more than an odd sample.
    let share_of_others = parts.behind_others() / parts.total();
    let for_others = samples >= SAMPLES_FEW && share_of_others >= FINDING_MIN;
    match largest.0 {
        Verdict::Policy if for_others => Verdict::Others,
        verdict => verdict,
    }
}

/// All that findings are made of.
struct Context<'a> {
    victim: &'a Victim<'a>,
    parties: &'a [Party<'a>],
    device: &'a DeviceFacts<'a>,
    means: &'a Means,
    before: Option<&'a Means>,
}

impl Context<'_> {
    fn party(&self, vm: VmId) -> Option<&Party<'_>> {
        self.parties.iter().find(|it| it.vm == vm)
    }

    fn name(&self, vm: VmId) -> String {
        self.party(vm).map_or("(removed)", |it| it.name).to_owned()
    }

    /// VMs that are to blame, the largest first.
    fn culprits(&self, parts: &Means) -> Vec<String> {
        let mut vms = parts.vms.clone();
        vms.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let largest = vms.first().map_or(0.0, |it| it.1);
        let named = vms
            .iter()
            .filter(|it| it.1 >= largest * NAMED_MIN && it.1 > 0.0);
        named.map(|it| self.name(it.0)).collect()
    }

    fn findings(&self, parts: &Means) -> Vec<Finding> {
        let total = parts.total();
        if total <= 0.0 {
            return Vec::new();
        }
        let of_vms = parts.vms.iter().map(|&(vm, time)| {
            let times = (
                time,
                self.means.behind(vm),
                self.before.map(|it| it.behind(vm)),
            );
            self.finding(Cause::Vm, Some(vm), times, total)
        });
        let of_causes = parts.causes.iter().map(|&(cause, time)| {
            let before = self.before.map(|it| it.time(cause));
            self.finding(cause, None, (time, self.means.time(cause), before), total)
        });
        let all = of_vms.chain(of_causes);
        let mut findings: Vec<_> = all.filter(|it| it.share >= FINDING_MIN).collect();
        findings.sort_by(|a, b| {
            let order = b.share.total_cmp(&a.share);
            order.then(a.cause.cmp(&b.cause)).then(a.vm.cmp(&b.vm))
        });
        findings
    }

    fn finding(
        &self,
        cause: Cause,
        vm: Option<VmId>,
        (part, mean, before): (f64, f64, Option<f64>),
        total: f64,
    ) -> Finding {
        let party = vm.and_then(|vm| self.party(vm));
        Finding {
            cause,
            vm: vm.map(|vm| self.name(vm)),
            share: part / total,
            mean_ns: mean as u64,
            before_ns: before.map(|it| it as u64),
            culprit: party.map(|party| self.culprit_facts(party)),
            confidence: self.confidence(cause),
            remedies: self.remedies(cause, party),
        }
    }

    fn confidence(&self, cause: Cause) -> Confidence {
        match cause {
            Cause::OwnLimit | Cause::Policy | Cause::Reply => return Confidence::High,
            Cause::Unknown => return Confidence::Low,
            Cause::Vm | Cause::OtherVms | Cause::OwnLoad | Cause::Device | Cause::Service => {}
        }
        let by_samples = match self.victim.now.interval.samples {
            0..SAMPLES_FEW => Confidence::Low,
            SAMPLES_FEW..SAMPLES_GOOD => Confidence::Medium,
            _ => Confidence::High,
        };
        match self.device.costs {
            CostSource::Assumed => by_samples.min(Confidence::Medium),
            CostSource::Learnt | CostSource::Profile => by_samples,
        }
    }

    fn remedies(&self, cause: Cause, party: Option<&Party>) -> Vec<Remedy> {
        match cause {
            Cause::Vm => {
                let active = party.filter(|it| requests(&it.traffic) > 0);
                let limit = active.map(|party| {
                    // A limit of nothing would stop the VM.
                    let half = |n: u64| ((self.per_s(n) / 2.0) as u64).max(n.min(1));
                    let Traffic {
                        bytes_read,
                        bytes_written,
                        ..
                    } = party.traffic;
                    Remedy::Limit {
                        vm: party.name.to_owned(),
                        bytes_per_s: half(bytes_read + bytes_written),
                        iops: half(requests(&party.traffic)),
                    }
                });
                limit.into_iter().chain(self.reservation()).collect()
            }
            Cause::OtherVms => self.reservation().into_iter().collect(),
            Cause::OwnLimit => vec![Remedy::RaiseLimit],
            Cause::OwnLoad => vec![Remedy::LessLoad],
            Cause::Device => vec![Remedy::CheckDevice],
            Cause::Policy => vec![Remedy::OtherPolicy],
            Cause::Service | Cause::Reply | Cause::Unknown => Vec::new(),
        }
    }

    /// Reservation of the victim's present rate, if it has none.
    fn reservation(&self) -> Option<Remedy> {
        let iops = self.per_s(self.victim.now.interval.requests).ceil() as u64;
        (!self.victim.reserved).then_some(Remedy::Reserve { iops })
    }

    /// Rate of something that was counted in the interval.
    fn per_s(&self, count: u64) -> f64 {
        let span = self.victim.now.span.as_secs_f64();
        if span > 0.0 { count as f64 / span } else { 0.0 }
    }

    fn culprit_facts(&self, party: &Party) -> CulpritFacts {
        let Traffic {
            reads,
            writes,
            flushes,
            bytes_read,
            bytes_written,
        } = party.traffic;
        let bytes = bytes_read + bytes_written;
        CulpritFacts {
            iops: self.per_s(requests(&party.traffic)),
            bytes_per_s: self.per_s(bytes),
            mean_size: bytes.checked_div(reads + writes).unwrap_or(0),
            mostly: if flushes > reads.max(writes) {
                Mostly::Flushes
            } else if bytes_written > bytes_read {
                Mostly::Writes
            } else {
                Mostly::Reads
            },
            limited: party.limited,
            background: party.background,
        }
    }

    fn gaps(&self) -> Vec<Gap> {
        let interval = &self.victim.now.interval;
        // Times that are divided by samples.
        let divided = [
            Class::Others,
            Class::OwnRequests,
            Class::Service,
            Class::SlowDevice,
            Class::Unknown,
        ];
        let divided = divided.iter().any(|&it| interval.time(it).0 > 0);
        let lacks_causes = self.victim.now.lacks_causes;
        let divided = divided && !lacks_causes;
        let samples = match interval.samples {
            0 if divided => Some(Gap::NoSamples),
            1..SAMPLES_FEW if divided => Some(Gap::FewSamples),
            _ => None,
        };
        let is_assumed = divided && self.device.costs == CostSource::Assumed;
        [
            lacks_causes.then_some(Gap::NoCauses),
            samples,
            self.before.is_none().then_some(Gap::NoBaseline),
            is_assumed.then_some(Gap::AssumedCosts),
            (!self.device.recorded).then_some(Gap::NoRecording),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn requests(traffic: &Traffic) -> u64 {
    traffic.reads + traffic.writes + traffic.flushes
}
