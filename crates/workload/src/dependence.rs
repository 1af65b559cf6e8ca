//! Inference of how a VM issued its requests, from their arrivals and ends.
//!
//! A replay at recorded times overstates how a synchronous VM suffers from a slow disk, because the
//! VM would have asked for less; a replay that always waits invents dependences. So each VM is
//! judged by its own requests:
//!
//! ```text
//!   arrivals, ends --> chains: each arrival follows the end that has waited longest for one
//!                  --> evidence: outstanding requests, think times, latencies
//!                  --> closed loop: chains with think times; open loop: times of arrivals
//! ```
//!
//! A *chain* is a thread of the guest as the requests show it: a request comes a think time after
//! the end of the chain's last one. There are as many chains as requests were outstanding at most.
//!
//! Sources: Mesnier et al., "//TRACE: Parallel trace replay with approximate causal events", FAST
//! 2007; Haghdoost et al., "On the accuracy and scalability of intensive I/O workload replay",
//! FAST 2017.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidegate_core::time::Nanos;

/// Requests below which nothing is beyond doubt, and times are kept unless requests follow ends at
/// once.
const FEWEST: usize = 20;
/// Requests below which nothing is inferred.
const FEWEST_AT_ONCE: usize = 5;
/// Most chains of a closed loop; a VM with more outstanding requests is taken for an open loop.
pub const CHAINS_MAX: usize = 256;
/// Think time, as a part of the mean latency, up to which a VM asks at once: nine in ten think
/// times are at most so long. Up to the second part that is beyond doubt.
const SHORT: f64 = 0.1;
const SHORT_CERTAIN: f64 = 0.02;
/// Correlation of latencies with the think times behind them, up to which arrivals follow a clock:
/// a late end then leaves less time to the next arrival.
const CLOCK_CORRELATION: f64 = -0.5;
/// Variation of gaps between arrivals, as a part of the variation of latencies, up to which
/// arrivals follow a clock beyond doubt.
const CLOCK_VARIATION: f64 = 0.25;
/// Rate of arrivals while many requests are outstanding, as a part of that while few are, up to
/// which arrivals depend on ends.
const RATE_CLOSED: f64 = 0.75;
/// Share of the time, and number of arrivals, that a rate must have to count.
const LEVEL_TIME: f64 = 0.02;
const LEVEL_ARRIVALS: u64 = 10;

/// Arrival and end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Time of the arrival.
    pub arrived: Nanos,
    /// Time of the end, not before the arrival.
    pub done: Nanos,
}

/// Request of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Index of the request.
    pub request: usize,
    /// Time from the end of the chain's last request; of the first, from the time 0.
    pub think: Nanos,
}

/// Reason for an inference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// Too few requests to infer anything.
    TooFew,
    /// Arrivals follow ends at once: the depth is full nearly always.
    AtOnce,
    /// Arrivals get rarer the more requests are outstanding.
    RarerWhenBusy,
    /// Think times do not depend on latencies.
    SteadyThinkTime,
    /// Arrivals are as regular as those of a clock, whatever latencies are, or think times make up
    /// for latencies.
    Clock,
    /// Arrivals come as often with many requests outstanding as with few.
    AsOftenWhenBusy,
    /// More requests were outstanding than there are chains.
    TooDeep,
}

impl Evidence {
    /// Returns the reason in words.
    pub const fn text(self) -> &'static str {
        match self {
            Evidence::TooFew => "too few requests to infer from",
            Evidence::AtOnce => "requests follow ends at once",
            Evidence::RarerWhenBusy => "requests come rarer while more are outstanding",
            Evidence::SteadyThinkTime => "think times do not depend on latencies",
            Evidence::Clock => "late ends do not make the next requests late",
            Evidence::AsOftenWhenBusy => "requests come as often while more are outstanding",
            Evidence::TooDeep => "more than 256 requests outstanding",
        }
    }
}

/// Inference about a VM.
#[derive(Clone, PartialEq, Debug)]
pub struct Inference {
    /// True if requests wait for ends: the VM is replayed by chains. False if they come at their
    /// times.
    pub closed: bool,
    /// Reason.
    pub evidence: Evidence,
    /// True if the requests leave no doubt.
    pub certain: bool,
    /// Largest number of requests outstanding at once.
    pub depth: usize,
    /// Median time between an end and the arrival that follows it in its chain; `None`: no arrival
    /// follows an end.
    pub think: Option<Nanos>,
    /// Chains, in the order of their first requests.
    pub chains: Vec<Vec<Link>>,
}

impl Inference {
    /// Returns the same judgement about other requests of the VM, which must be sorted by arrival,
    /// with their own chains. A part of a recording may have too few requests to be judged.
    #[must_use]
    pub fn about(&self, requests: &[Span]) -> Inference {
        let chains = chains(requests);
        let thinks = think_times(&chains);
        Inference {
            depth: chains.len(),
            think: thinks.get(thinks.len() / 2).copied(),
            chains,
            ..*self
        }
    }
}

/// Iterates over the requests that follow others in their chains, each behind the one before: the
/// first request of a chain follows no end.
fn links(chains: &[Vec<Link>]) -> impl Iterator<Item = &[Link]> + Clone {
    chains.iter().flat_map(|chain| chain.windows(2))
}

/// Returns all think times, ascending.
fn think_times(chains: &[Vec<Link>]) -> Vec<Nanos> {
    let mut thinks: Vec<Nanos> = links(chains).map(|two| two[1].think).collect();
    thinks.sort_unstable();
    thinks
}

/// Judges a VM by its requests, which must be sorted by arrival.
pub fn infer(requests: &[Span]) -> Inference {
    let chains = chains(requests);
    let depth = chains.len();
    let thinks = think_times(&chains);
    let enough = requests.len() >= FEWEST;
    let (closed, evidence, certain) = if depth > CHAINS_MAX {
        (false, Evidence::TooDeep, false)
    } else if requests.len() >= FEWEST_AT_ONCE && are_short(&thinks, requests, SHORT) {
        let certain = enough && are_short(&thinks, requests, SHORT_CERTAIN);
        (true, Evidence::AtOnce, certain)
    } else if !enough {
        (false, Evidence::TooFew, false)
    } else if is_regular(requests) {
        (false, Evidence::Clock, true)
    } else {
        let pairs = links(&chains).map(|two| {
            let before = &requests[two[0].request];
            let latency = before.done.since(before.arrived).0 as f64;
            (latency, two[1].think.0 as f64)
        });
        let found = correlation(pairs).unwrap_or(0.0);
        match rate_ratio(requests, depth) {
            _ if found <= CLOCK_CORRELATION => (false, Evidence::Clock, false),
            Some(ratio) if ratio > RATE_CLOSED => (false, Evidence::AsOftenWhenBusy, false),
            _ if depth > 1 => (true, Evidence::RarerWhenBusy, false),
            _ => (true, Evidence::SteadyThinkTime, false),
        }
    };
    Inference {
        closed,
        evidence,
        certain,
        depth,
        think: thinks.get(thinks.len() / 2).copied(),
        chains,
    }
}

/// Returns true if nine think times in ten are at most this part of the mean latency.
fn are_short(thinks: &[Nanos], requests: &[Span], part: f64) -> bool {
    let sum: u128 = (requests.iter())
        .map(|it| u128::from(it.done.since(it.arrived).0))
        .sum();
    let mean = sum / requests.len().max(1) as u128;
    let high = thinks.get(thinks.len() * 9 / 10);
    high.is_some_and(|think| think.0 as f64 <= mean as f64 * part)
}

/// Returns true if arrivals vary far less than latencies do.
fn is_regular(requests: &[Span]) -> bool {
    let gaps = requests.windows(2);
    let gaps = variation(gaps.map(|two| two[1].arrived.since(two[0].arrived)));
    let latencies = variation(requests.iter().map(|it| it.done.since(it.arrived)));
    gaps < latencies * CLOCK_VARIATION
}

/// Returns the coefficient of variation of times; 0 if all of them are 0.
fn variation(times: impl Iterator<Item = Nanos> + Clone) -> f64 {
    let count = times.clone().count() as f64;
    let mean = times.clone().map(|time| time.0 as f64).sum::<f64>() / count;
    let square = |time: Nanos| (time.0 as f64 - mean) * (time.0 as f64 - mean);
    let variance = times.map(square).sum::<f64>() / count;
    if mean > 0.0 {
        libm::sqrt(variance) / mean
    } else {
        0.0
    }
}

/// Puts the requests into chains.
fn chains(requests: &[Span]) -> Vec<Vec<Link>> {
    let mut chains: Vec<Vec<Link>> = Vec::new();
    // Chains by the end of their last request, those that are idle for longest first.
    let mut ends: BinaryHeap<Reverse<(Nanos, usize)>> = BinaryHeap::new();
    for (index, request) in requests.iter().enumerate() {
        let idle = ends.peek().copied();
        let idle = idle.filter(|Reverse((end, _))| *end <= request.arrived);
        let (chain, think) = match idle {
            Some(Reverse((end, chain))) => {
                ends.pop();
                (chain, request.arrived.since(end))
            }
            None => {
                chains.push(Vec::new());
                (chains.len() - 1, request.arrived)
            }
        };
        chains[chain].push(Link {
            request: index,
            think,
        });
        ends.push(Reverse((request.done, chain)));
    }
    chains
}

/// Returns the rate of arrivals while at least half the depth is outstanding, as a part of the rate
/// while less is; `None` if one of them is not known. Times at the full depth do not count: no
/// arrival can be seen there, whatever the VM is.
fn rate_ratio(requests: &[Span], depth: usize) -> Option<f64> {
    let mut ends: Vec<Nanos> = requests.iter().map(|it| it.done).collect();
    ends.sort_unstable();
    let first = requests.first()?.arrived;
    let (mut now, mut outstanding, mut ended) = (first, 0usize, 0usize);
    // Time and arrivals while few and while many are outstanding.
    let mut levels = [(0u64, 0u64); 2];
    let many = |outstanding: usize| usize::from(outstanding * 2 >= depth);
    for request in requests {
        while ended < ends.len() && ends[ended] <= request.arrived && outstanding > 0 {
            if outstanding < depth {
                levels[many(outstanding)].0 += ends[ended].since(now).0;
            }
            (now, outstanding, ended) = (ends[ended].max(now), outstanding - 1, ended + 1);
        }
        if outstanding < depth {
            let level = &mut levels[many(outstanding)];
            level.0 += request.arrived.since(now).0;
            level.1 += 1;
        }
        (now, outstanding) = (request.arrived, outstanding + 1);
    }
    let span = requests.last()?.arrived.since(first).0 as f64;
    let rate = |(time, arrivals): (u64, u64)| {
        let known = time as f64 >= span * LEVEL_TIME && arrivals >= LEVEL_ARRIVALS;
        (known && time > 0).then(|| arrivals as f64 / time as f64)
    };
    // A level that is visited and has no arrivals has a rate of nearly zero.
    let [few, busy] = levels;
    let busy = match rate(busy) {
        None if busy.0 as f64 >= span * LEVEL_TIME => 0.0,
        rate => rate?,
    };
    Some(busy / rate(few)?)
}

/// Returns the correlation coefficient of pairs (Pearson); `None` if one side does not vary.
fn correlation(pairs: impl Iterator<Item = (f64, f64)> + Clone) -> Option<f64> {
    let count = pairs.clone().count() as f64;
    let (sum_x, sum_y) = (pairs.clone()).fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        let (x, y) = (x - mean_x, y - mean_y);
        (xx, yy, xy) = (xx + x * x, yy + y * y, xy + x * y);
    }
    let product = libm::sqrt(xx) * libm::sqrt(yy);
    (product > 0.0).then(|| xy / product)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::random::SplitMix64;

    const MS: u64 = 1_000_000;

    /// Simulates `workers` that each think and then wait for a latency.
    fn closed(workers: usize, think: fn(&mut SplitMix64) -> u64) -> Vec<Span> {
        let mut rng = SplitMix64::new(7);
        let mut ready: BinaryHeap<Reverse<u64>> = (0..workers).map(|_| Reverse(0)).collect();
        let mut spans = Vec::new();
        for _ in 0..2000 {
            let Reverse(at) = ready.pop().expect("a worker");
            let done = at + MS + rng.below(9 * MS);
            let (arrived, ended) = (Nanos(at), Nanos(done));
            spans.push(Span {
                arrived,
                done: ended,
            });
            ready.push(Reverse(done + think(&mut rng)));
        }
        spans.sort_by_key(|span| span.arrived);
        spans
    }

    /// Simulates arrivals by a clock, with latencies that do not depend on each other.
    fn open(gap: fn(&mut SplitMix64) -> u64) -> Vec<Span> {
        let mut rng = SplitMix64::new(9);
        let mut at = 0;
        let mut span = || {
            at += gap(&mut rng);
            let done = Nanos(at + MS + rng.below(9 * MS));
            let arrived = Nanos(at);
            Span { arrived, done }
        };
        (0..2000).map(|_| span()).collect()
    }

    /// Draws an exponentially distributed time, in integers: the mean times a logarithm.
    fn exponential(rng: &mut SplitMix64, mean: u64) -> u64 {
        let uniform = (rng.below(1 << 40) + 1) as f64 / (1u64 << 40) as f64;
        (-libm::log(uniform) * mean as f64) as u64
    }

    #[test]
    fn closed_loops_that_ask_at_once_are_certain() {
        for workers in [1, 2, 8, 64] {
            let found = infer(&closed(workers, |_| 0));
            assert!(
                found.closed && found.certain,
                "{workers}: {:?}",
                found.evidence
            );
            assert_eq!((found.depth, found.think), (workers, Some(Nanos::ZERO)));
            let links: usize = found.chains.iter().map(Vec::len).sum();
            assert_eq!(links, 2000);
        }
    }

    #[test]
    fn closed_loops_that_think_are_told_by_their_think_times() {
        let one = infer(&closed(1, |rng| exponential(rng, 20 * MS)));
        assert_eq!(
            (one.closed, one.evidence),
            (true, Evidence::SteadyThinkTime)
        );
        let think = one.think.expect("there are some").0;
        assert!(
            (12 * MS..16 * MS).contains(&think),
            "median {think}, expected 13.9 ms"
        );
        for workers in [3, 8, 32] {
            let many = infer(&closed(workers, |rng| exponential(rng, 20 * MS)));
            assert_eq!(
                (many.closed, many.evidence),
                (true, Evidence::RarerWhenBusy),
                "{workers}"
            );
        }
    }

    #[test]
    fn open_loops_keep_their_times() {
        let clock = infer(&open(|_| 20 * MS));
        assert_eq!((clock.closed, clock.evidence), (false, Evidence::Clock));
        assert!(clock.certain);
        // A clock with several requests outstanding.
        let fast = infer(&open(|_| 3 * MS));
        assert_eq!((fast.closed, fast.evidence), (false, Evidence::Clock));
        for mean in [2, 5, 20] {
            let gap: fn(&mut SplitMix64) -> u64 = match mean {
                2 => |rng| exponential(rng, 2 * MS),
                5 => |rng| exponential(rng, 5 * MS),
                _ => |rng| exponential(rng, 20 * MS),
            };
            let poisson = infer(&open(gap));
            assert!(!poisson.closed, "{mean}: {:?}", poisson.evidence);
            assert!(!poisson.certain && poisson.depth > 1, "{mean}");
        }
    }

    #[test]
    fn few_requests_and_very_deep_queues_are_not_judged() {
        let few = closed(1, |rng| exponential(rng, 20 * MS))[..10].to_vec();
        assert_eq!(infer(&few).evidence, Evidence::TooFew);
        let at_once = infer(&closed(1, |_| 0)[..10]);
        assert!(at_once.closed && !at_once.certain, "{:?}", at_once.evidence);
        assert_eq!(infer(&[]).depth, 0);
        let all_at_once = Span {
            arrived: Nanos(5),
            done: Nanos(9),
        };
        let deep = infer(&[all_at_once; 300]);
        assert_eq!((deep.closed, deep.evidence), (false, Evidence::TooDeep));
    }

    #[test]
    fn chains_follow_the_end_that_waits_longest() {
        let span = |arrived, done| Span {
            arrived: Nanos(arrived),
            done: Nanos(done),
        };
        let all = [
            span(0, 10),
            span(2, 6),
            span(11, 20),
            span(12, 30),
            span(25, 26),
        ];
        let chains = chains(&all);
        let link = |request, think| Link {
            request,
            think: Nanos(think),
        };
        assert_eq!(
            chains,
            [
                vec![link(0, 0), link(3, 2)],
                vec![link(1, 2), link(2, 5), link(4, 5)]
            ]
        );
    }
}
