//! Request patterns of VMs, as vFair defines them (Lu et al., SoCC 2015, sections 4.1.1 and 4.2).
//!
//! A VM has two patterns. *t* is that of its own requests as they arrive. *t'*, blended, is that of
//! the same requests as the device gets them: the part of its sequences that remains between the
//! other VMs' requests.
//!
//! ```text
//!   VM 1 asks for        a0 a1 a2 a3 ...          t : sequential
//!   VM 2 asks for        x  y  z  ...
//!   the device gets      a0 x a1 y a2 z a3 ...    t': VM 1's are random, too (the paper, figure 7)
//!   ... or in turns      a0 a1 x y a2 a3 z ...    t': every other one of them is
//! ```
//!
//! Readings, where the paper leaves room:
//! - A request is sequential in t if it begins where one of its VM's last 32 ended: a guest that
//!   reads several files at once is sequential in each.
//! - A request is sequential in t' if it begins where one of the last 32 I/Os ended *since the
//!   device last served another VM*. The paper's figure counts a request as random after another
//!   VM's, because a disk's head has moved then. A VM's own streams do not blend each other: alone
//!   on the device its t' equals its t, and nothing is taken from it.
//! - Guest requests are counted in both, so that both have the same sizes. Of merged requests all
//!   but the first count as sequential; parts of a split request are not counted again.
//! - Requests without data (flushes, discards) count in neither, and end no sequence.
//! - A window is 30 ms of the engine's time, the same for all VMs, and counts 0.3 of the average.
//!   An empty window changes nothing, and one without reads (or writes) nothing about those. Before
//!   its first request a VM has [`Pattern::UNKNOWN`].
//!
//! A VM's state is 128 bytes, and its last ends 320, of which each request reads 64. Requests
//! allocate nothing. Windows end when a pattern is read or a request counted, so no timer is
//! needed.

use tidegate_base::request::{DeviceIo, Op, VmId};
use tidegate_base::sequential::{Ends, Run};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::{Direction, Pattern};
use tidegate_core::roles::{Event, Footprint, Interests};
use tidegate_core::view::{View, moved};

/// Length of a window.
pub const WINDOW: Nanos = Nanos::from_millis(30);
/// Weight of the newest window in the average.
const NEWEST_WEIGHT: f64 = 0.3;

/// Requests counted in a window.
#[derive(Clone, Copy, Debug)]
struct Window {
    bytes: u64,
    /// Requests by direction, read and write.
    requests: [u32; 2],
    sequential: [u32; 2],
}

impl Window {
    const EMPTY: Window = Window {
        bytes: 0,
        requests: [0; 2],
        sequential: [0; 2],
    };

    fn count(&mut self, direction: Direction, requests: u32, sequential: u32, bytes: u64) {
        let of = direction as usize;
        self.requests[of] = self.requests[of].saturating_add(requests);
        self.sequential[of] = self.sequential[of].saturating_add(sequential);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns the average with this window included.
    fn averaged(&self, before: &Pattern, first: bool) -> Pattern {
        let [reads, writes] = self.requests.map(f64::from);
        let all = reads + writes;
        let mix = |old: f64, new: f64| {
            if first {
                new
            } else {
                old + NEWEST_WEIGHT * (new - old)
            }
        };
        let part = |old: f64, of: usize| match self.requests[of] {
            0 => old,
            requests => mix(old, f64::from(self.sequential[of]) / f64::from(requests)),
        };
        Pattern {
            reads: mix(before.reads, reads / all),
            sequential_reads: part(before.sequential_reads, Direction::Read as usize),
            sequential_writes: part(before.sequential_writes, Direction::Write as usize),
            size: mix(before.size, self.bytes as f64 / all),
        }
    }
}

/// Patterns of one VM, in two cache lines: counts of the window, which requests change, and the
/// averages, which its end changes. `t` has index 0 in arrays, `t'` index 1.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct VmPatterns {
    /// End of the current window.
    until: Nanos,
    /// Requests that arrived, modulo 2^32.
    arrived: u32,
    /// Marks patterns that a window has filled.
    known: [bool; 2],
    windows: [Window; 2],
    patterns: [Pattern; 2],
}

const _: () = assert!(size_of::<VmPatterns>() == 128);

/// Index of t, the pattern of the VM's own requests.
const OWN: usize = 0;
/// Index of t', that of the same requests as the device gets them.
const BLENDED: usize = 1;

impl VmPatterns {
    const NEW: VmPatterns = VmPatterns {
        until: Nanos::ZERO,
        arrived: 0,
        known: [false; 2],
        windows: [Window::EMPTY; 2],
        patterns: [Pattern::UNKNOWN; 2],
    };

    #[inline]
    fn advance(&mut self, now: Nanos) {
        if now >= self.until {
            self.close_windows(now);
        }
    }

    fn close_windows(&mut self, now: Nanos) {
        for of in [OWN, BLENDED] {
            let window = &mut self.windows[of];
            if window.requests != [0; 2] {
                let is_first = !self.known[of];
                self.patterns[of] = window.averaged(&self.patterns[of], is_first);
                self.known[of] = true;
                *window = Window::EMPTY;
            }
        }
        self.until = Nanos((now.0 / WINDOW.0 + 1).saturating_mul(WINDOW.0));
    }
}

/// Observer of the requests of all VMs of a device. A policy part that needs patterns owns one and
/// passes on the events that it receives.
#[derive(Clone, Debug)]
pub struct Patterns {
    vms: Vec<VmPatterns>,
    /// Ends of each VM's last requests.
    streams: Vec<Ends>,
    run: Run,
}

impl Patterns {
    /// Events that [`Patterns::on_event`] needs.
    pub const INTERESTS: Interests = Interests::ARRIVED
        .union(Interests::MERGED)
        .union(Interests::STARTED)
        .union(Interests::VMS);

    /// Creates an observer with `vms` slots.
    pub fn new(vms: usize) -> Patterns {
        Patterns {
            vms: vec![VmPatterns::NEW; vms],
            streams: vec![Ends::NONE; vms],
            run: Run::NONE,
        }
    }

    /// Takes in an event of [`Patterns::INTERESTS`]; ignores all others.
    pub fn on_event(&mut self, view: &View, event: &Event) {
        match *event {
            Event::Arrived(request) | Event::Merged { by: request, .. } => {
                let (vm, op, addr, len) = view.queued(request).request();
                if moved(view, op, len) > 0 {
                    self.arrived(view.now(), vm, op, addr, len);
                }
            }
            Event::Started(io) if moved(view, io.op, io.len) > 0 => {
                self.started(view.now(), io);
            }
            Event::VmAdded(vm) => self.reset_vm(vm),
            _ => {}
        }
    }

    /// Counts a guest request that arrived and moves data.
    pub fn arrived(&mut self, now: Nanos, vm: VmId, op: Op, addr: u64, len: u32) {
        let of_vm = &mut self.vms[vm.index()];
        let stream = &mut self.streams[vm.index()];
        of_vm.advance(now);
        let sequential = stream.continues(addr);
        stream.push(of_vm.arrived.into(), addr + u64::from(len));
        of_vm.arrived = of_vm.arrived.wrapping_add(1);
        let window = &mut of_vm.windows[OWN];
        window.count(Direction::for_op(op), 1, sequential.into(), len.into());
    }

    /// Counts an I/O that went to the device and moves data.
    pub fn started(&mut self, now: Nanos, io: &DeviceIo) {
        let sequential = self.run.started(io);
        // Later parts of a request were counted with its first I/O.
        if io.first_ops > 0 {
            let of_vm = &mut self.vms[io.vm.index()];
            of_vm.advance(now);
            // Each request merged behind another one continues it.
            let merged = io.first_ops - 1;
            let window = &mut of_vm.windows[BLENDED];
            let sequential = merged + u32::from(sequential);
            let direction = Direction::for_op(io.op);
            window.count(direction, io.first_ops, sequential, io.first_bytes);
        }
    }

    /// Resets a slot for a new VM.
    pub fn reset_vm(&mut self, vm: VmId) {
        self.vms[vm.index()] = VmPatterns::NEW;
        self.streams[vm.index()] = Ends::NONE;
        self.run.end_run_of(vm);
    }

    /// Returns t, the pattern of a VM's requests, as of the last window that ended.
    pub fn own(&mut self, now: Nanos, vm: VmId) -> Pattern {
        self.vm_mut(now, vm).patterns[OWN]
    }

    /// Returns t', the pattern of a VM's requests as the device gets them. Equals t until an I/O of
    /// the VM went to the device.
    pub fn blended(&mut self, now: Nanos, vm: VmId) -> Pattern {
        let of_vm = self.vm_mut(now, vm);
        if of_vm.known[BLENDED] {
            of_vm.patterns[BLENDED]
        } else {
            of_vm.patterns[OWN]
        }
    }

    fn vm_mut(&mut self, now: Nanos, vm: VmId) -> &VmPatterns {
        let of_vm = &mut self.vms[vm.index()];
        of_vm.advance(now);
        of_vm
    }

    /// Returns the memory that a VM takes.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            vm: size_of::<VmPatterns>(),
            vm_cold: size_of::<Ends>(),
            ..Footprint::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::random::SplitMix64;
    use tidegate_base::request::{DiskId, IoId};
    use tidegate_base::sequential::REMEMBERED_ENDS;

    const VMS: usize = 3;

    fn vm(slot: usize) -> VmId {
        VmId::from_bits(slot as u64)
    }

    fn io(of: usize, op: Op, addr: u64, len: u32, ops: u32) -> DeviceIo {
        DeviceIo {
            id: IoId::from_bits(0),
            vm: vm(of),
            disk: DiskId::from_bits(0),
            op,
            addr,
            offset: addr,
            len,
            fua: false,
            keep_allocated: false,
            first_ops: ops,
            first_bytes: if ops > 0 { len.into() } else { 0 },
            whole_len: len,
            arrived: Nanos::ZERO,
        }
    }

    /// Complete history, searched as a whole each time.
    #[derive(Default)]
    struct History {
        /// Arrived requests: time, slot, operation, beginning, length.
        arrived: Vec<(u64, usize, Op, u64, u32)>,
        /// Started I/Os: time, slot, operation, beginning, length, guest requests served first.
        started: Vec<(u64, usize, Op, u64, u32, u32)>,
    }

    impl History {
        /// Requests with whether they are sequential: when, operation, bytes, how many, of which
        /// sequential.
        fn own(&self, of: usize) -> Vec<(u64, Op, u64, u32, u32)> {
            let mine: Vec<_> = self.arrived.iter().filter(|a| a.1 == of).collect();
            let last = |n: usize| &mine[n.saturating_sub(REMEMBERED_ENDS)..n];
            let all = mine
                .iter()
                .enumerate()
                .map(|(n, &&(at, _, op, addr, len))| {
                    let met = last(n).iter().any(|a| a.3 + u64::from(a.4) == addr);
                    (at, op, len.into(), 1, met.into())
                });
            all.collect()
        }

        fn blended(&self, of: usize) -> Vec<(u64, Op, u64, u32, u32)> {
            let all = self.started.iter().enumerate().filter(|(_, s)| s.1 == of);
            let counted = all.filter(|(_, s)| s.5 > 0);
            let of_io = |(n, &(at, _, op, addr, len, ops)): (usize, &(_, _, _, u64, u32, u32))| {
                let before = self.started[..n].iter().rev().take_while(|s| s.1 == of);
                let met = (before.take(REMEMBERED_ENDS)).any(|s| s.3 + u64::from(s.4) == addr);
                (at, op, u64::from(len), ops, ops - 1 + u32::from(met))
            };
            counted.map(of_io).collect()
        }

        /// Window by window until the one that `now` is in.
        fn pattern(requests: &[(u64, Op, u64, u32, u32)], now: u64) -> Option<Pattern> {
            let mut known: Option<Pattern> = None;
            for window in 0..now / WINDOW.0 {
                let of = requests.iter().filter(|r| r.0 / WINDOW.0 == window);
                let of: Vec<_> = of.collect();
                let sum = |of_op: Option<Op>, get: fn(&(u64, Op, u64, u32, u32)) -> u64| {
                    let wanted = of.iter().filter(|r| of_op.is_none_or(|op| op == r.1));
                    wanted.map(|r| get(r)).sum::<u64>() as f64
                };
                let all = sum(None, |r| r.3.into());
                if all == 0.0 {
                    continue;
                }
                let average = |get: fn(&Pattern) -> f64, new: f64| match &known {
                    Some(old) => 0.7 * get(old) + 0.3 * new,
                    None => new,
                };
                let sequential = |op, get: fn(&Pattern) -> f64| {
                    let of_op = sum(Some(op), |r| r.3.into());
                    let part = sum(Some(op), |r| r.4.into()) / of_op;
                    let old = known.as_ref().unwrap_or(&Pattern::UNKNOWN);
                    if of_op == 0.0 {
                        get(old)
                    } else {
                        average(get, part)
                    }
                };
                let next = Pattern {
                    reads: average(|p| p.reads, sum(Some(Op::Read), |r| r.3.into()) / all),
                    sequential_reads: sequential(Op::Read, |p| p.sequential_reads),
                    sequential_writes: sequential(Op::Write, |p| p.sequential_writes),
                    size: average(|p| p.size, sum(None, |r| r.2) / all),
                };
                known = Some(next);
            }
            known
        }
    }

    fn near(a: &Pattern, b: &Pattern) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + b.abs());
        close(a.reads, b.reads)
            && close(a.sequential_reads, b.sequential_reads)
            && close(a.sequential_writes, b.sequential_writes)
            && close(a.size, b.size)
    }

    #[test]
    fn patterns_are_those_of_the_whole_history() {
        for seed in 0..60 {
            let mut random = SplitMix64::new(seed);
            let (mut patterns, mut history) = (Patterns::new(VMS), History::default());
            let mut now = 0;
            for _ in 0..400 {
                // Often several in a window, sometimes windows without any.
                now += random.below(3) * random.below(40_000_000);
                let of = random.below(VMS as u64) as usize;
                let op = [Op::Read, Op::Write][random.below(2) as usize];
                let (addr, len) = (random.below(12) * 4096, 4096 << random.below(2));
                if random.below(2) == 0 {
                    patterns.arrived(Nanos(now), vm(of), op, addr, len);
                    history.arrived.push((now, of, op, addr, len));
                } else {
                    let ops = random.below(4) as u32;
                    patterns.started(Nanos(now), &io(of, op, addr, len, ops));
                    history.started.push((now, of, op, addr, len, ops));
                }
                let whose = random.below(VMS as u64) as usize;
                let own = History::pattern(&history.own(whose), now);
                let own = own.unwrap_or(Pattern::UNKNOWN);
                let blended = History::pattern(&history.blended(whose), now).unwrap_or(own);
                let seen = patterns.own(Nanos(now), vm(whose));
                assert!(near(&seen, &own), "seed {seed}: {seen:?} is not {own:?}");
                let seen = patterns.blended(Nanos(now), vm(whose));
                assert!(near(&seen, &blended), "seed {seed}: {seen:?}, {blended:?}");
            }
        }
    }

    /// VM 0 reads in sequence, VM 1 somewhere else; the device serves them by these turns. What
    /// part of VM 0's reads is sequential, asked for and blended.
    fn figure_7(turns: [u64; 2]) -> [f64; 2] {
        let mut patterns = Patterns::new(VMS);
        let mut place = 0;
        for round in 0..1000 {
            for _ in 0..turns[0] {
                patterns.arrived(Nanos(1), vm(0), Op::Read, place, 4096);
                patterns.started(Nanos(1), &io(0, Op::Read, place, 4096, 1));
                place += 4096;
            }
            for n in 0..turns[1] {
                let place = (1 << 40) + (round * turns[1] + n) * 8192;
                patterns.arrived(Nanos(1), vm(1), Op::Read, place, 4096);
                patterns.started(Nanos(1), &io(1, Op::Read, place, 4096, 1));
            }
        }
        let both = [patterns.own(WINDOW, vm(0)), patterns.blended(WINDOW, vm(0))];
        both.map(|pattern| pattern.sequential_reads)
    }

    #[test]
    fn requests_between_those_of_others_are_random_to_the_device() {
        let near = |seen: [f64; 2], expected: [f64; 2]| {
            let off = seen
                .iter()
                .zip(expected)
                .any(|(s, e)| (s - e).abs() > 0.002);
            assert!(!off, "{seen:?} is not {expected:?}");
        };
        near(figure_7([1, 0]), [1.0, 1.0]);
        near(figure_7([1, 1]), [1.0, 0.0]);
        near(figure_7([2, 2]), [1.0, 0.5]);
        near(figure_7([10, 1]), [1.0, 0.9]);
    }

    #[test]
    fn two_files_of_one_vm_blend_nothing() {
        let mut patterns = Patterns::new(VMS);
        for n in 0..1000 {
            let place = ((n % 2) << 40) + n / 2 * 4096;
            patterns.arrived(Nanos(1), vm(0), Op::Read, place, 4096);
            patterns.started(Nanos(1), &io(0, Op::Read, place, 4096, 1));
        }
        let (own, blended) = (patterns.own(WINDOW, vm(0)), patterns.blended(WINDOW, vm(0)));
        assert_eq!(own, blended);
        assert!(own.sequential_reads > 0.99);
    }

    #[test]
    fn a_slot_that_is_used_again_knows_nothing() {
        let mut patterns = Patterns::new(VMS);
        patterns.arrived(Nanos(1), vm(0), Op::Write, 0, 65536);
        patterns.started(Nanos(1), &io(0, Op::Write, 0, 65536, 1));
        assert_eq!(patterns.own(WINDOW, vm(0)).size, 65536.0);
        patterns.reset_vm(vm(0));
        assert_eq!(patterns.own(WINDOW, vm(0)), Pattern::UNKNOWN);
        patterns.started(WINDOW, &io(0, Op::Write, 65536, 65536, 1));
        let blended = patterns.blended(Nanos(2 * WINDOW.0), vm(0));
        assert_eq!(
            blended.sequential_writes, 0.0,
            "the one before was another VM's"
        );
    }
}
