//! Duration of decisions by the number of hosts: `cargo bench -p tidegate-place --bench hosts`.
//!
//! Each host runs 20 transfers of an hour, and two requests for each host wait. Then transfers
//! arrive, end and report progress at random. Prints percentiles of the CPU time of each decision,
//! with the placements that follow from it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_core::time::Nanos;
use tidegate_place::{
    Bandwidth, Event, HostId, HostSpec, Outcome, Pcos, Placement, Request, RequestId, Update,
    WAITING_CAPACITY,
};

const MB: u64 = 1_000_000;
/// Transfers on each host at the beginning.
const PER_HOST: usize = 20;
/// Decisions of each kind.
const DECISIONS: usize = 20_000;
/// Time between two decisions: 100 decisions of each kind a second.
const PAUSE: Nanos = Nanos(3_333_333);

/// Pseudo-random numbers (xorshift), the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Data centre with the transfers that run and how long decisions took.
struct Bench {
    pcos: Pcos,
    now: Nanos,
    random: Random,
    running: Vec<(HostId, RequestId)>,
    arrivals: Vec<Duration>,
    ends: Vec<Duration>,
    progress: Vec<Duration>,
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Bench {
    fn new(hosts: usize) -> Bench {
        let mut pcos = Pcos::new(WAITING_CAPACITY);
        // 400 MB/s with 20 transfers or more.
        let lost: Vec<u64> = (0..21).map(|others| others * 5 * MB).collect();
        let bandwidth = Bandwidth::new(500 * MB, &lost).expect("it leaves some");
        for _ in 0..hosts {
            pcos.add_host(Nanos::ZERO, HostSpec::new(bandwidth.clone()));
        }
        let mut bench = Bench {
            pcos,
            now: Nanos::ZERO,
            random: Random(0x9e37_79b9_7f4a_7c15),
            running: Vec::new(),
            arrivals: Vec::new(),
            ends: Vec::new(),
            progress: Vec::new(),
        };
        let mut waiting = 0;
        while bench.running.len() < hosts * PER_HOST || waiting < 2 * hosts {
            // Beyond the 20th, hosts have no room for what needs 30 MB/s.
            let is_full = bench.running.len() >= hosts * PER_HOST;
            let rate = if is_full {
                30 * MB
            } else {
                10 * MB + bench.random.below(8 * MB)
            };
            waiting += usize::from(bench.request(rate));
        }
        bench
    }

    /// Requests a host for a transfer that needs `rate` for an hour; returns true if it waits.
    fn request(&mut self, rate: u64) -> bool {
        let request = Request::new(rate * 3_600, Nanos::from_secs(3_600)).expect("valid");
        let begun = cpu();
        let answer = self.pcos.request(self.now, request);
        self.arrivals.push(cpu() - begun);
        let waits = matches!(answer.outcome, Outcome::Waiting);
        if let Outcome::Placed(placement) = answer.outcome {
            self.add(&placement);
        }
        self.take_events();
        waits
    }

    fn add(&mut self, placement: &Placement) {
        self.running.push((placement.host, placement.id));
    }

    fn take_events(&mut self) {
        while let Some(event) = self.pcos.poll_event() {
            if let Event::Placed(placement) = event {
                self.add(&placement);
            }
        }
    }

    fn end(&mut self) {
        let who = self.random.below(self.running.len() as u64) as usize;
        let (host, id) = self.running.swap_remove(who);
        let ended = &[id];
        let begun = cpu();
        let none = Update::default();
        self.pcos.update(self.now, host, &Update { ended, ..none });
        self.ends.push(cpu() - begun);
        self.take_events();
    }

    /// Reports the progress of all transfers of a host.
    fn report(&mut self, hosts: usize) {
        let host = HostId(self.random.below(hosts as u64) as usize);
        let view = self.pcos.host(host).expect("it is there");
        let moved = view.running().iter().map(|running| {
            let transfer = running.vm.transfer.expect("each has one");
            (running.id, transfer.moved)
        });
        let moved: Vec<_> = moved.collect();
        let moved = moved.as_slice();
        let begun = cpu();
        let none = Update::default();
        self.pcos.update(self.now, host, &Update { moved, ..none });
        self.progress.push(cpu() - begun);
        self.take_events();
    }
}

fn percentile(times: &mut [Duration], part: f64) -> f64 {
    times.sort_unstable();
    let at = ((times.len() - 1) as f64 * part) as usize;
    times[at].as_secs_f64() * 1e6
}

fn main() {
    println!(
        "{:>7}{:>9}{:>9}  {:<10}{:>10}{:>10}{:>10}",
        "hosts", "running", "waiting", "decision", "half, us", "99 %, us", "all, us"
    );
    for hosts in [10, 100, 1_000, 10_000] {
        let mut bench = Bench::new(hosts);
        bench.arrivals.clear();
        for _ in 0..DECISIONS {
            bench.now += PAUSE;
            let rate = 5 * MB + bench.random.below(20 * MB);
            bench.request(rate);
            bench.now += PAUSE;
            bench.end();
            bench.now += PAUSE;
            bench.report(hosts);
        }
        let (running, waiting) = (bench.running.len(), bench.pcos.waiting().count());
        for (name, times) in [
            ("arrival", &mut bench.arrivals),
            ("end", &mut bench.ends),
            ("progress", &mut bench.progress),
        ] {
            println!(
                "{hosts:>7}{running:>9}{waiting:>9}  {name:<10}{:>10.1}{:>10.1}{:>10.1}",
                percentile(times, 0.5),
                percentile(times, 0.99),
                percentile(times, 1.0)
            );
        }
    }
}
