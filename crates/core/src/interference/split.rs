//! Division of one request's time by what the device did meanwhile.

use super::costs::Costs;
use super::trail::Composition;
use tidegate_base::request::Op;
use tidegate_base::time::Nanos;

/// Sizes of requests, as powers of two, by which usual times are told apart.
const SIZES: usize = 32;
/// Multiple of the usual time beyond which the device counts as slow.
const SLOW: u64 = 3;
/// Multiple of the usual time from which on the surplus is put down to writes in the device's cache
/// where these are few, or where it is not known how long requests take after writes: rotation and
/// luck make shorter ones.
const DISTURBED: u64 = 2;
/// Requests over which their mean time is formed.
const MEAN_REQUESTS: u64 = 64;
/// Multiple of the mean as which a request counts in it at most: a stall is not usual, a read that
/// waits for a program of flash is.
const MEAN_MAX: u64 = 16;
/// Divisor of the device's time: writes that took more of it than this part are many.
const MANY: u64 = 8;
/// Multiple of an I/O's estimated time that its own service may take at most where the device has
/// other I/Os. A shortest time that is longer counts only if it was seen while the device had
/// little to do: it may be that of I/Os with neighbours.
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

/// Divides a wait before the device; the second part is behind writes in the device's cache.
/// `idle`: time in which the device had no I/O meanwhile; `ended`: I/Os that ended meanwhile;
/// `cached`: writes that had ended shortly before it went to the device.
pub(super) fn of_wait(
    wait: u64,
    idle: u64,
    ended: &Composition,
    cached: &Cached,
    vm: u32,
    costs: &Costs,
) -> [Parts; 2] {
    if ended.total == 0 {
        // No I/O ended: the request did not wait for the device.
        let rest = Parts {
            rest: wait,
            ..Parts::default()
        };
        return [rest, Parts::default()];
    }
    let usual = costs.real(ended.total);
    let in_cache = usual.map_or(0, |usual| behind_cached(wait, usual, &cached.writes, costs));
    let left = wait - in_cache;
    let explained = usual.map_or(left, |usual| usual.saturating_mul(SLOW).min(left));
    let rest = (left - explained).min(idle);
    let of_vm = ended.of(vm);
    let (own, others) = in_proportion(explained, of_vm, ended.total - of_vm);
    let waits = Parts {
        own,
        others,
        slow: left - explained - rest,
        rest,
    };
    [waits, by_vms(in_cache, &cached.writes, vm)]
}

/// Returns the part of a time that is put down to writes in the device's cache. `usual`: time that
/// what the device is known to have done usually takes.
fn behind_cached(time: u64, usual: u64, cached: &Composition, costs: &Costs) -> u64 {
    if time <= usual.saturating_mul(DISTURBED) {
        return 0;
    }
    let all = costs.real(cached.total).unwrap_or(0);
    all.min(time.saturating_sub(usual))
}

/// Divides a time among a VM and others in proportion to their I/Os.
fn by_vms(time: u64, composition: &Composition, vm: u32) -> Parts {
    let of_vm = composition.of(vm);
    let (own, others) = in_proportion(time, of_vm, composition.total - of_vm);
    Parts {
        own,
        others,
        ..Parts::default()
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
    shortest: Shortest,
    /// Shortest time of those in which the device had little to do.
    quiet: Shortest,
    /// Mean of the time that no I/O which ended meanwhile explains, where few writes had ended
    /// before.
    clean: Mean,
    /// Mean of that time after many writes.
    after_writes: Mean,
}

/// Shortest time of about the last minute.
#[derive(Clone, Copy, Default)]
struct Shortest {
    /// 0: none was seen.
    ns: u64,
    /// Time until which it is up to date.
    raised: Nanos,
}

impl Shortest {
    fn learn(&mut self, now: Nanos, time: u64) {
        if self.ns == 0 {
            (self.ns, self.raised) = (time, now);
            return;
        }
        if time < self.ns {
            // Not at once: the shortest of all is an exception, such as a hit in a cache.
            self.ns -= (self.ns - time).div_ceil(4);
        }
        // One part in 64 a second: twice in 45 s.
        let since = now.since(self.raised);
        if since >= Nanos::SECOND {
            let seconds = (since.0 / Nanos::SECOND.0).min(64);
            self.ns += self.ns / 64 * seconds;
            self.raised = now;
        }
    }
}

/// Mean time of the last requests.
#[derive(Clone, Copy, Default)]
struct Mean {
    ns: u64,
    /// Requests of which it is the mean, up to [`MEAN_REQUESTS`].
    requests: u64,
}

impl Mean {
    /// Adds a request. Returns its time as it counts.
    fn learn(&mut self, time: u64) -> u64 {
        let time = match self.requests {
            0 => time,
            _ => time.min(self.ns.saturating_mul(MEAN_MAX)),
        };
        self.requests = (self.requests + 1).min(MEAN_REQUESTS);
        self.ns = self.ns - self.ns / self.requests + time / self.requests;
        time
    }
}

impl Usual {
    /// Returns the part of a time in the device that is behind writes in its cache, and learns from
    /// it. `net`: time that no I/O which ended meanwhile explains; `service`: that which the
    /// request's own I/O takes at least.
    fn behind_writes(&mut self, net: u64, service: u64, cached: &Cached, costs: &Costs) -> u64 {
        let (are_many, clean) = (cached.are_many(), self.clean.ns);
        let mean = if are_many {
            &mut self.after_writes
        } else {
            &mut self.clean
        };
        let time = mean.learn(net);
        if !are_many || clean == 0 {
            return behind_cached(net, service.max(clean), &cached.writes, costs);
        }
        let more = self.after_writes.ns.saturating_sub(clean);
        let part = u128::from(time) * u128::from(more) / u128::from(self.after_writes.ns.max(1));
        (part as u64).min(costs.real(cached.writes.total).unwrap_or(0))
    }
}

/// Writes that ended shortly before a request went to the device.
pub(super) struct Cached {
    pub writes: Composition,
    /// Estimated time of all I/Os that ended then.
    pub all: u64,
}

impl Cached {
    /// Returns whether writes are a good part of what the device did.
    fn are_many(&self) -> bool {
        self.writes.total > self.all / MANY
    }
}

impl UsualTimes {
    pub(super) fn new() -> UsualTimes {
        let none = Usual {
            median: 0,
            shortest: Shortest::default(),
            quiet: Shortest::default(),
            clean: Mean::default(),
            after_writes: Mean::default(),
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

    /// Divides the time inside a device, and learns how long requests take there without and with
    /// writes before them; the second part is behind such writes, of which the device may still
    /// have some in its cache. `ended`: I/Os that ended meanwhile, the request's own among them;
    /// `cached`: writes that had ended shortly before; `is_serial`: the device serves one I/O after
    /// the other.
    pub(super) fn divide(
        &mut self,
        (op, len, vm): (Op, u32, u32),
        time: u64,
        ended: &Composition,
        cached: &Cached,
        is_serial: bool,
        costs: &Costs,
    ) -> [Parts; 2] {
        let usual = self.kind(op, len);
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
            let known = cost.saturating_mul(SERVICE_MAX).max(usual.quiet.ns);
            usual.shortest.ns.min(known)
        };
        let service = service.min(time);
        let load = costs.real(own + others).unwrap_or(0).min(time - service);
        let in_cache = usual.behind_writes(time - load, service, cached, costs);
        let left = time - load - in_cache;
        let usual = usual.median.max(service);
        let rest = left.min(usual.saturating_mul(SLOW).max(service));
        let (of_own, of_others) = in_proportion(load, own, others);
        let inside = Parts {
            own: of_own,
            others: of_others,
            slow: left - rest,
            rest,
        };
        [inside, by_vms(in_cache, &cached.writes, vm)]
    }

    /// Learns the time of a request that had the device for `time`. `is_quiet`: the device had
    /// little to do when it came.
    pub(super) fn learn(&mut self, now: Nanos, (op, len): (Op, u32), time: u64, is_quiet: bool) {
        let usual = self.kind(op, len);
        let time = time.max(1);
        usual.shortest.learn(now, time);
        if is_quiet {
            usual.quiet.learn(now, time);
        }
        if usual.median == 0 {
            usual.median = time;
        }
        let step = usual.median / 16 + 1;
        usual.median = time.clamp(usual.median.saturating_sub(step), usual.median + step);
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

    /// Writes of VM 1 that had ended before, and nothing else.
    fn cached(writes: u32, costs: &Costs) -> Cached {
        let mut trail = Trail::new();
        (0..writes).for_each(|_| trail.data_ended(1, true, 1 << 30, 4096));
        let writes = trail.writes(0, writes, costs);
        Cached {
            all: writes.total,
            writes,
        }
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
        let of_wait = |time, idle, own, others| {
            let ended = ended(own, others, &costs);
            let [parts, in_cache] = of_wait(time, idle, &ended, &cached(0, &costs), 0, &costs);
            assert_eq!(in_cache, Parts::default());
            parts
        };
        let parts = of_wait(8000, 0, 10, 30);
        assert_eq!((parts.own, parts.others, parts.slow), (2000, 6000, 0));
        // Four I/Os usually take 800; more than three times that is no work of theirs.
        let parts = of_wait(1_000_000, 5000, 1, 3);
        assert_eq!((parts.own, parts.others), (600, 1800));
        assert_eq!((parts.slow, parts.rest), (992_600, 5000));
        let parts = of_wait(700, 0, 0, 0);
        assert_eq!(parts.rest, 700);
    }

    #[test]
    fn time_inside_a_device_is_own_service_others_and_slowness() {
        let costs = costs();
        let mut usual = UsualTimes::new();
        let read = (Op::Read, 4096, 0);
        let mut divide = |time, own, others| {
            let ended = ended(own, others, &costs);
            usual.learn(Nanos(1), (Op::Read, 4096), 300, false);
            let none = cached(0, &costs);
            let [inside, in_cache] = usual.divide(read, time, &ended, &none, false, &costs);
            assert_eq!(in_cache, Parts::default());
            inside
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

    #[test]
    fn a_shortest_time_far_above_the_cost_counts_if_the_device_had_little_to_do() {
        let costs = costs();
        let read = (Op::Read, 4096, 0);
        // A device of many dies: an I/O takes 3000, of which it ends 30 in that time. Two others
        // that go beside it do not make it longer.
        for (is_quiet, service) in [(false, 400), (true, 3000)] {
            let mut usual = UsualTimes::new();
            usual.learn(Nanos(1), (Op::Read, 4096), 3000, is_quiet);
            let ended = ended(1, 20, &costs);
            let none = cached(0, &costs);
            let [inside, _] = usual.divide(read, 3100, &ended, &none, false, &costs);
            assert_eq!((inside.rest, inside.others), (service, 3100 - service));
        }
    }

    #[test]
    fn time_that_no_io_explains_is_behind_writes_before_it() {
        let costs = costs();
        // Writes of VM 1 that usually take 2000.
        let writes = cached(10, &costs);
        let own = ended(1, 0, &costs);
        let read = (Op::Read, 4096, 0);
        let mut usual = UsualTimes::new();
        usual.learn(Nanos(1), (Op::Read, 4096), 300, false);
        let mut divide = |time| usual.divide(read, time, &own, &writes, false, &costs);
        let [inside, in_cache] = divide(600);
        assert_eq!((inside.rest, in_cache.others), (600, 0), "luck");
        let [inside, in_cache] = divide(1500);
        assert_eq!((inside.rest, in_cache.others), (300, 1200));
        // A stall is longer than all that is in the cache.
        let [inside, in_cache] = divide(100_000);
        assert_eq!((inside.rest, in_cache.others), (900, 2000));
        assert_eq!(inside.slow, 97_100);
        // A wait in which four I/Os of another VM ended, which usually take 800.
        let waited_for = ended(0, 4, &costs);
        let [waits, in_cache] = of_wait(1600, 0, &waited_for, &writes, 0, &costs);
        assert_eq!((waits.others, in_cache.others), (1600, 0));
        let [waits, in_cache] = of_wait(2500, 0, &waited_for, &writes, 0, &costs);
        assert_eq!((waits.others, in_cache.others), (800, 1700));
    }

    #[test]
    fn writes_before_a_request_account_for_what_requests_take_longer_on_average() {
        let costs = costs();
        let own = ended(1, 0, &costs);
        let mut usual = UsualTimes::new();
        let mut sums = [[0; 2]; 2];
        for n in 0..400u64 {
            // Without writes 300 on average, and 450 after writes: each time differs by luck.
            let after_writes = n >= 200;
            let time = if after_writes { 450 } else { 300 } + n % 5 * 50 - 100;
            let cached = cached(if after_writes { 10 } else { 0 }, &costs);
            let read = (Op::Read, 4096, 0);
            let [inside, in_cache] = usual.divide(read, time, &own, &cached, false, &costs);
            usual.learn(Nanos(n), (Op::Read, 4096), time, false);
            let sums = &mut sums[usize::from(after_writes)];
            sums[0] += inside.rest;
            sums[1] += in_cache.others;
        }
        // The first few are longer than the one before them.
        assert!(sums[0][0] > 199 * 300 && sums[0][1] == 0, "{sums:?}");
        let behind = sums[1][1] as f64 / (200.0 * 150.0);
        assert!((0.8..1.1).contains(&behind), "{sums:?}");
    }

    #[test]
    fn a_few_long_requests_after_writes_are_behind_the_writes() {
        let costs = costs();
        let own = ended(1, 0, &costs);
        let mut usual = UsualTimes::new();
        let mut behind = 0;
        for n in 0..600u64 {
            // One in 25 waits for a program of flash.
            let after_writes = n >= 200;
            let time = if after_writes && n % 25 == 0 {
                2100
            } else {
                300
            };
            let cached = cached(if after_writes { 10 } else { 0 }, &costs);
            let read = (Op::Read, 4096, 0);
            let [_, in_cache] = usual.divide(read, time, &own, &cached, false, &costs);
            usual.learn(Nanos(n), (Op::Read, 4096), time, false);
            behind += in_cache.others;
        }
        // A long one counts in the mean by which it is divided, which is therefore above the usual.
        let part = behind as f64 / (16.0 * 1800.0);
        assert!((0.8..1.2).contains(&part), "{part}");
    }

    proptest! {
        #[test]
        fn parts_add_up(
            time in 0u64..1 << 50,
            idle in 0u64..1 << 50,
            own in 0u32..100,
            others in 0u32..100,
            is_serial in any::<bool>(),
            is_quiet in any::<bool>(),
            learnt in 0u64..1 << 50,
        ) {
            let costs = costs();
            let ended = ended(own, others, &costs);
            let sum = |parts: [Parts; 2]| {
                let sums = parts.map(|it| it.own + it.others + it.slow + it.rest);
                sums[0] + sums[1]
            };
            let cached = cached(others, &costs);
            prop_assert_eq!(sum(of_wait(time, idle, &ended, &cached, 0, &costs)), time);
            let mut usual = UsualTimes::new();
            usual.learn(Nanos(1), (Op::Read, 4096), learnt, is_quiet);
            let read = (Op::Read, 4096, 0);
            let parts = usual.divide(read, time, &ended, &cached, is_serial, &costs);
            prop_assert_eq!(sum(parts), time);
        }
    }
}
