//! Division of one request's time by what the device did meanwhile.

use super::costs::Costs;
use super::trail::Composition;
use tidegate_base::request::Op;
use tidegate_base::time::Nanos;

/// Sizes of requests, as powers of two, by which usual times are told apart.
const SIZES: usize = 32;
/// Multiple of the usual time beyond which the device counts as slow.
const SLOW: u64 = 3;
/// Multiple of an I/O's estimated time that its own service may take at most where the device has
/// other I/Os. A shortest time that is longer was never seen without neighbours.
const SERVICE_MAX: u64 = 4;

/// Parts of a span of a request's time; they add up to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Parts {
    /// The VM's own other requests.
    pub own: u64,
    /// Other VMs' requests.
    pub others: u64,
    /// The device, which ended less than it usually does.
    pub slow: u64,
    /// The rest: inside of the device the request's own service; before it nothing that is known.
    pub rest: u64,
}

/// Divides `time` by the I/Os of the VM and of others, in estimated times.
fn in_proportion(time: u64, own: u64, others: u64) -> (u64, u64) {
    match own.saturating_add(others) {
        0 => (0, 0),
        all => {
            let of_own = (u128::from(time) * u128::from(own) / u128::from(all)) as u64;
            (of_own, time - of_own)
        }
    }
}

/// Divides the time before the device. `known`: time of it behind a flush of the request's own
/// disk, and behind a disk that hung; `idle`: time in the rest in which the device had no I/O;
/// `ended`: I/Os that ended in the rest.
pub(super) fn of_wait(
    wait: u64,
    (own, slow): (u64, u64),
    idle: u64,
    ended: &Composition,
    vm: u32,
    costs: &Costs,
) -> Parts {
    let own = own.min(wait);
    let slow = slow.min(wait - own);
    let parts = of_unknown_wait(wait - own - slow, idle, ended, vm, costs);
    Parts {
        own: parts.own + own,
        slow: parts.slow + slow,
        ..parts
    }
}

/// Divides a wait by the I/Os that ended in it.
fn of_unknown_wait(wait: u64, idle: u64, ended: &Composition, vm: u32, costs: &Costs) -> Parts {
    if ended.total == 0 {
        // No I/O ended: the request did not wait for the device.
        return Parts {
            rest: wait,
            ..Parts::default()
        };
    }
    let explained = match costs.real(ended.total) {
        None => wait,
        Some(usual) => usual.saturating_mul(SLOW).min(wait),
    };
    let rest = (wait - explained).min(idle);
    let of_vm = ended.of(vm);
    let (own, others) = in_proportion(explained, of_vm, ended.total - of_vm);
    Parts {
        own,
        others,
        slow: wait - explained - rest,
        rest,
    }
}

/// Usual times of I/Os inside the device, by operation and size.
pub(super) struct UsualTimes {
    kinds: Box<[[Usual; SIZES]; 3]>,
}

#[derive(Clone, Copy)]
struct Usual {
    /// Median.
    median: u64,
    /// Shortest time of about the last minute; 0: none was seen.
    shortest: u64,
    /// Time until which the shortest one is up to date.
    raised: Nanos,
}

impl UsualTimes {
    pub(super) fn new() -> UsualTimes {
        let none = Usual {
            median: 0,
            shortest: 0,
            raised: Nanos::ZERO,
        };
        UsualTimes {
            kinds: Box::new([[none; SIZES]; 3]),
        }
    }

    fn kind(&mut self, op: Op, len: u32) -> &mut Usual {
        let kind = match op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Flush | Op::Discard | Op::WriteZeroes => 2,
        };
        &mut self.kinds[kind][len.max(1).ilog2() as usize]
    }

    /// Divides the time inside a device. `ended`: I/Os that ended meanwhile, the request's own
    /// among them; `is_serial`: the device serves one I/O after the other.
    pub(super) fn divide(
        &mut self,
        (op, len, vm): (Op, u32, u32),
        time: u64,
        ended: &Composition,
        is_serial: bool,
        costs: &Costs,
    ) -> Parts {
        let usual = *self.kind(op, len);
        let cost = match op {
            Op::Read | Op::Write => costs.of_data(op == Op::Write, false, len),
            // Known by its own entry alone.
            Op::Flush | Op::Discard | Op::WriteZeroes => ended.of(vm),
        };
        // The own entry may be one of a sequential I/O, which is shorter.
        let cost = match ended.of(vm) {
            0 => cost,
            of_vm => cost.min(of_vm),
        };
        let own = ended.of(vm) - cost.min(ended.of(vm));
        let others = ended.total - ended.of(vm);
        let service = if is_serial {
            costs.real(cost).unwrap_or(time)
        } else {
            usual.shortest.min(cost.saturating_mul(SERVICE_MAX))
        };
        let service = service.min(time);
        let load = costs.real(own + others).unwrap_or(0).min(time - service);
        let usual = usual.median.max(service);
        let rest = (time - load).min(usual.saturating_mul(SLOW).max(service));
        let (of_own, of_others) = in_proportion(load, own, others);
        Parts {
            own: of_own,
            others: of_others,
            slow: time - load - rest,
            rest,
        }
    }

    /// Learns the time of a request that had the device for `time`.
    pub(super) fn learn(&mut self, now: Nanos, op: Op, len: u32, time: u64) {
        let usual = self.kind(op, len);
        let time = time.max(1);
        if usual.median == 0 {
            (usual.median, usual.shortest, usual.raised) = (time, time, now);
            return;
        }
        let step = usual.median / 16 + 1;
        usual.median = time.clamp(usual.median.saturating_sub(step), usual.median + step);
        if time < usual.shortest {
            // Not at once: the shortest of all is an exception, such as a hit in a cache.
            usual.shortest -= (usual.shortest - time).div_ceil(4);
        }
        // One part in 64 a second: twice in 45 s.
        let since = now.since(usual.raised);
        if since >= Nanos::SECOND {
            let seconds = (since.0 / Nanos::SECOND.0).min(64);
            usual.shortest += usual.shortest / 64 * seconds;
            usual.raised = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trail::Trail;
    use super::*;
    use proptest::prelude::*;

    /// Composition of `own` I/Os of VM 0 and `others` of VM 1.
    fn ended(own: u32, others: u32, costs: &Costs) -> Composition {
        let mut trail = Trail::new();
        (0..own).for_each(|_| trail.data_ended(0, false, 1 << 30, 4096));
        (0..others).for_each(|_| trail.data_ended(1, false, 1 << 30, 4096));
        trail.composition(0, own + others, costs)
    }

    /// Costs of 100 for each I/O, of which the device needs twice as much.
    fn costs() -> Costs {
        let mut costs = Costs::constant(100);
        costs.learn_pace(Nanos(1), Nanos::ZERO, (2000, 1000, 10));
        costs
    }

    #[test]
    fn a_wait_is_divided_by_the_ios_that_ended_meanwhile() {
        let costs = costs();
        let none = (0, 0);
        let parts = of_wait(8000, none, 0, &ended(10, 30, &costs), 0, &costs);
        assert_eq!((parts.own, parts.others, parts.slow), (2000, 6000, 0));
        // Four I/Os usually take 800; more than three times that is no work of theirs.
        let parts = of_wait(1_000_000, none, 5000, &ended(1, 3, &costs), 0, &costs);
        assert_eq!((parts.own, parts.others), (600, 1800));
        assert_eq!((parts.slow, parts.rest), (992_600, 5000));
        let parts = of_wait(700, none, 0, &ended(0, 0, &costs), 0, &costs);
        assert_eq!(parts.rest, 700);
        // What is known of the wait is not asked of the trail.
        let parts = of_wait(9000, (600, 400), 0, &ended(10, 30, &costs), 0, &costs);
        assert_eq!((parts.own, parts.others, parts.slow), (2600, 6000, 400));
    }

    #[test]
    fn time_inside_a_device_is_own_service_others_and_slowness() {
        let costs = costs();
        let mut usual = UsualTimes::new();
        let read = (Op::Read, 4096, 0);
        let mut divide = |time, own, others| {
            let ended = ended(own, others, &costs);
            usual.learn(Nanos(1), Op::Read, 4096, 300);
            usual.divide(read, time, &ended, false, &costs)
        };
        assert_eq!(divide(300, 1, 0).rest, 300, "alone");
        // Ten I/Os of another take 2000 of the device.
        let parts = divide(2300, 1, 10);
        assert_eq!((parts.own, parts.others, parts.rest), (0, 2000, 300));
        let parts = divide(2300, 6, 5);
        assert_eq!((parts.own, parts.others), (1000, 1000));
        let parts = divide(1_000_000, 1, 1);
        assert_eq!((parts.others, parts.rest), (200, 900));
        assert_eq!(parts.slow, 998_900);
    }

    proptest! {
        #[test]
        fn parts_add_up(
            time in 0u64..1 << 50,
            known in (0u64..1 << 50, 0u64..1 << 50),
            idle in 0u64..1 << 50,
            own in 0u32..100,
            others in 0u32..100,
            is_serial in any::<bool>(),
            learnt in 0u64..1 << 50,
        ) {
            let costs = costs();
            let ended = ended(own, others, &costs);
            let sum = |parts: Parts| parts.own + parts.others + parts.slow + parts.rest;
            prop_assert_eq!(sum(of_wait(time, known, idle, &ended, 0, &costs)), time);
            let mut usual = UsualTimes::new();
            usual.learn(Nanos(1), Op::Read, 4096, learnt);
            let parts = usual.divide((Op::Read, 4096, 0), time, &ended, is_serial, &costs);
            prop_assert_eq!(sum(parts), time);
        }
    }
}
