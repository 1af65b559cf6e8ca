//! Time of a VM's requests by cause: cumulative, and between two moments.

use super::row::{Attribution, CULPRITS, Culprit, PhaseTimes};
use tidegate_base::request::{Account, VmId};
use tidegate_base::time::Nanos;

/// Classes of a request's time. Every moment from its arrival to its reply is in one of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Before it was taken: its VM had no request slot or payload memory left.
    Admission,
    /// Held by the VM's own limit or credits.
    OwnLimit,
    /// Behind other VMs and background processes, before the device and inside of it.
    Others,
    /// Behind other requests of the VM itself, before the device and inside of it.
    OwnRequests,
    /// Waiting as a part of the request that it was merged into.
    MergedWait,
    /// While the dispatcher left the device idle on purpose.
    Deliberate,
    /// Service by the device.
    Service,
    /// While the device ended far less than it usually does: it stalled, flushed its cache or
    /// collected garbage, or the disk hung.
    SlowDevice,
    /// Waiting without a known cause: the device was idle, or too little was sampled.
    Unknown,
    /// From the end of the last I/O until the reply was sent.
    Reply,
}

/// Number of classes.
pub const CLASSES: usize = Class::ALL.len();

impl Class {
    /// All classes, in the order of a request's life.
    pub const ALL: [Class; 10] = [
        Class::Admission,
        Class::OwnLimit,
        Class::Others,
        Class::OwnRequests,
        Class::MergedWait,
        Class::Deliberate,
        Class::Service,
        Class::SlowDevice,
        Class::Unknown,
        Class::Reply,
    ];

    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Admission => "admission",
            Class::OwnLimit => "own_limit",
            Class::Others => "others",
            Class::OwnRequests => "own_requests",
            Class::MergedWait => "merged_wait",
            Class::Deliberate => "deliberate",
            Class::Service => "service",
            Class::SlowDevice => "slow_device",
            Class::Unknown => "unknown",
            Class::Reply => "reply",
        }
    }
}

/// Counters of a VM's time since it was added. What happened in an interval is the difference of
/// two of them: [`Interval::between`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VmTimes {
    /// Requests that succeeded.
    pub requests: u64,
    /// Time of these requests by stage, exact.
    pub account: Account,
    /// Time from the end of the last I/O until the reply was sent; the engine does not know it, so
    /// a driver that does adds it.
    pub reply: Nanos,
    /// Division of the waits and of the device's time, by samples.
    pub attribution: Attribution,
}

/// VM behind which another one's requests were in an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CulpritTime {
    /// VM or background process.
    pub vm: VmId,
    /// Time before the device.
    pub waited: Nanos,
    /// Time inside the device.
    pub inside: Nanos,
}

impl CulpritTime {
    /// Time before the device and inside of it.
    pub fn total(&self) -> Nanos {
        self.waited + self.inside
    }
}

/// Time before the device of classes whose time is before the device and inside of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WaitTimes {
    /// Part of [`Class::OwnRequests`].
    pub own: Nanos,
    /// Part of [`Class::SlowDevice`].
    pub slow: Nanos,
    /// Part of [`Interval::unnamed`].
    pub unnamed: Nanos,
}

/// Time of a VM's requests that were answered in an interval, by class and by culprit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    /// Requests that succeeded.
    pub requests: u64,
    /// Requests of these that were sampled.
    pub samples: u64,
    /// Time by class, in the order of [`Class::ALL`]. Exact but for the division among
    /// [`Class::Others`], [`Class::OwnRequests`], [`Class::Service`], [`Class::SlowDevice`] and
    /// [`Class::Unknown`], which is that of the samples.
    pub times: [Nanos; CLASSES],
    /// Parts of [`Class::Others`], the largest first.
    pub culprits: Vec<CulpritTime>,
    /// Part of [`Class::Others`] of VMs that are not named.
    pub unnamed: Nanos,
    /// Parts before the device; [`Interval::culprits`] have their own.
    pub waits: WaitTimes,
}

/// Sampled times of one phase in an interval, and their scale to the exact time.
struct Phase {
    own: u64,
    slow: u64,
    rest: u64,
    unnamed: u64,
    named: [u64; CULPRITS],
    /// Exact time of all requests.
    exact: u64,
}

impl Phase {
    /// Takes the differences of a phase. `time`: time of a culprit in the phase.
    fn between(
        before: &Attribution,
        after: &Attribution,
        exact: u64,
        phase: impl Fn(&Attribution) -> PhaseTimes,
        time: impl Fn(&Culprit) -> Nanos,
    ) -> Phase {
        let (old, new) = (phase(before), phase(after));
        let mut unnamed = new.others.since(old.others).0;
        // The time of an entry that was used anew has joined the others': what it had before the
        // interval is none of the interval's.
        for gone in before.culprits.iter().filter(|it| it.vm.is_some()) {
            if !after.culprits.iter().any(|it| is_same(it, gone)) {
                unnamed = unnamed.saturating_sub(time(gone).0);
            }
        }
        let named = after.culprits.map(|culprit| {
            let was = before.culprits.iter().find(|it| is_same(it, &culprit));
            let was = was.map_or(Nanos::ZERO, &time);
            time(&culprit).since(was).0
        });
        Phase {
            own: new.own.since(old.own).0,
            slow: new.slow.since(old.slow).0,
            rest: new.rest.since(old.rest).0,
            unnamed,
            named,
            exact,
        }
    }

    /// Scales the sampled times to the exact one, in whole nanoseconds that add up to it; what is
    /// left by rounding is added to the rest. Without samples all of it is the rest.
    fn scaled(self) -> Phase {
        let named = self.named.iter().map(|&it| u128::from(it)).sum::<u128>();
        let single = [self.own, self.slow, self.rest, self.unnamed];
        let sampled = named + single.map(u128::from).iter().sum::<u128>();
        let scale = |time: u64| match sampled {
            0 => 0,
            sampled => (u128::from(time) * u128::from(self.exact) / sampled) as u64,
        };
        let scaled = Phase {
            own: scale(self.own),
            slow: scale(self.slow),
            rest: 0,
            unnamed: scale(self.unnamed),
            named: self.named.map(scale),
            exact: self.exact,
        };
        let named: u64 = scaled.named.iter().sum();
        let rest = scaled.exact - scaled.own - scaled.slow - scaled.unnamed - named;
        Phase { rest, ..scaled }
    }
}

fn is_same(a: &Culprit, b: &Culprit) -> bool {
    a.vm.is_some() && (a.vm, a.entry) == (b.vm, b.entry)
}

impl Interval {
    /// Takes the difference of two counters of one VM. Counters that went back, because the VM was
    /// removed and added again, count as no time.
    pub fn between(before: &VmTimes, after: &VmTimes) -> Interval {
        let (old, new) = (&before.attribution, &after.attribution);
        let exact =
            |stage: fn(&Account) -> Nanos| stage(&after.account).since(stage(&before.account));
        let queued = exact(|it| it.queued).0;
        let waits = Phase::between(old, new, queued, |it| it.waited, |it| it.waited).scaled();
        let device = exact(|it| it.device).0;
        let inside = Phase::between(old, new, device, |it| it.inside, |it| it.inside).scaled();
        let mut culprits: Vec<CulpritTime> = (new.culprits.iter().zip(waits.named))
            .zip(inside.named)
            .filter_map(|((culprit, waited), inside)| {
                Some(CulpritTime {
                    vm: culprit.vm?,
                    waited: Nanos(waited),
                    inside: Nanos(inside),
                })
            })
            .filter(|culprit| culprit.total() > Nanos::ZERO)
            .collect();
        // VMs break ties, so that the order is one on every machine.
        culprits.sort_by_key(|it| (core::cmp::Reverse(it.total()), it.vm));
        let unnamed = Nanos(waits.unnamed + inside.unnamed);
        let named = culprits
            .iter()
            .fold(Nanos::ZERO, |sum, it| sum + it.total());
        let times = Class::ALL.map(|class| match class {
            Class::Admission => exact(|it| it.admission),
            Class::OwnLimit => exact(|it| it.regulated),
            Class::Others => named + unnamed,
            Class::OwnRequests => Nanos(waits.own + inside.own),
            Class::MergedWait => exact(|it| it.merged_wait),
            Class::Deliberate => exact(|it| it.deliberate),
            Class::Service => Nanos(inside.rest),
            Class::SlowDevice => Nanos(waits.slow + inside.slow),
            Class::Unknown => Nanos(waits.rest),
            Class::Reply => after.reply.since(before.reply),
        });
        Interval {
            requests: after.requests.saturating_sub(before.requests),
            samples: new.samples.saturating_sub(old.samples),
            times,
            culprits,
            unnamed,
            waits: WaitTimes {
                own: Nanos(waits.own),
                slow: Nanos(waits.slow),
                unnamed: Nanos(waits.unnamed),
            },
        }
    }

    /// Time of a class.
    pub fn time(&self, class: Class) -> Nanos {
        self.times[class as usize]
    }

    /// Time of all classes.
    pub fn total(&self) -> Nanos {
        self.times.iter().fold(Nanos::ZERO, |sum, &it| sum + it)
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Row;
    use super::*;
    use proptest::prelude::*;

    fn vm(n: u64) -> VmId {
        VmId::from_bits(n)
    }

    fn times(row: &Row, queued: u64, device: u64) -> VmTimes {
        VmTimes {
            account: Account {
                queued: Nanos(queued),
                device: Nanos(device),
                ..Account::default()
            },
            attribution: row.attribution,
            ..VmTimes::default()
        }
    }

    #[test]
    fn an_interval_has_the_culprits_of_its_own_time() {
        let mut row = Row::default();
        row.add(vm(1), 500, 0);
        row.end_sample();
        let before = times(&row, 5000, 0);
        row.add(vm(2), 30, 10);
        row.add(vm(1), 10, 0);
        row.end_sample();
        let interval = Interval::between(&before, &times(&row, 5400, 100));
        let of = |culprit: &CulpritTime| (culprit.vm, culprit.waited.0, culprit.inside.0);
        let culprits: Vec<_> = interval.culprits.iter().map(of).collect();
        assert_eq!(culprits, [(vm(2), 300, 100), (vm(1), 100, 0)]);
        assert_eq!(interval.samples, 1);
        assert_eq!(interval.time(Class::Others), Nanos(500));
        // No samples: the waits' cause is not known.
        let none = Interval::between(&times(&row, 0, 0), &times(&row, 7, 5));
        assert_eq!(
            (none.time(Class::Unknown), none.time(Class::Service)),
            (Nanos(7), Nanos(5))
        );
    }

    #[test]
    fn an_entry_that_was_used_anew_brings_no_old_time_into_an_interval() {
        let mut row = Row::default();
        for n in 0..CULPRITS as u64 {
            row.add(vm(n), 100, 0);
        }
        let before = times(&row, 800, 0);
        row.add(vm(20), 1000, 0);
        row.end_sample();
        let interval = Interval::between(&before, &times(&row, 1800, 0));
        assert_eq!(interval.time(Class::Others), Nanos(1000));
        assert_eq!(
            (interval.culprits[0].vm, interval.unnamed),
            (vm(20), Nanos::ZERO)
        );
    }

    proptest! {
        /// Classes share the time of all requests: nothing is left out or counted twice.
        #[test]
        fn classes_add_up_to_the_time_of_the_requests(
            samples in prop::collection::vec((0u64..30, 0u64..1 << 40, 0u64..1 << 40), 0..60),
            at in 0usize..60,
            stages in prop::array::uniform6(0u64..1 << 50),
            reply in 0u64..1 << 40,
        ) {
            let mut row = Row::default();
            let mut before = VmTimes::default();
            for (n, &(culprit, waited, inside)) in samples.iter().enumerate() {
                if n == at {
                    before = times(&row, 3, 4);
                }
                row.add(vm(culprit), waited, inside);
                row.attribution.waited.own += Nanos(waited / 3);
                row.attribution.inside.rest += Nanos(inside / 5);
                row.end_sample();
            }
            let mut after = before;
            after.account.add(stages);
            after.reply += Nanos(reply);
            after.attribution = row.attribution;
            let interval = Interval::between(&before, &after);
            prop_assert_eq!(interval.total().0, stages.iter().sum::<u64>() + reply);
            let named = interval.culprits.iter().map(|it| it.total().0).sum::<u64>();
            prop_assert_eq!(named + interval.unnamed.0, interval.time(Class::Others).0);
            // Time in the queue is all time before the device, and no more.
            let waited = interval.culprits.iter().map(|it| it.waited.0).sum::<u64>();
            let WaitTimes { own, slow, unnamed } = interval.waits;
            let queued = waited + (own + slow + unnamed + interval.time(Class::Unknown)).0;
            prop_assert_eq!(queued, after.account.queued.since(before.account.queued).0);
        }
    }
}
