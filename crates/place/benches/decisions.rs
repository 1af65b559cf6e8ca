//! Duration of placement decisions in a data centre of 1,000 hosts: `cargo bench -p
//! tidegate-place`.
//!
//! Prints percentiles of CPU time per decision: for an arriving transfer, and for an update of a
//! host with all placements that follow. The first numeric argument is the number of arrivals per
//! second.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use tidegate_place::data_centre::{self, Decision, Observer, Spec, Strategy};

/// Observer that measures the CPU time of this thread, so that other threads do not count.
struct Clock {
    begun: Duration,
    counted: bool,
    arrivals: Vec<Duration>,
    updates: Vec<Duration>,
}

impl Observer for Clock {
    fn begin(&mut self, counted: bool) {
        self.counted = counted;
        self.begun = cpu();
    }

    fn end(&mut self, decision: Decision) {
        let took = cpu() - self.begun;
        match decision {
            _ if !self.counted => {}
            Decision::Arrival => self.arrivals.push(took),
            Decision::Update => self.updates.push(took),
        }
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() {
    let rate = std::env::args().find_map(|text| text.parse::<f64>().ok());
    let spec = Spec {
        // An overload, with long lists of waiting requests.
        arrivals_per_s: rate.unwrap_or(100.0),
        ..Spec::default()
    };
    let mut clock = Clock {
        begun: cpu(),
        counted: false,
        arrivals: Vec::new(),
        updates: Vec::new(),
    };
    let begun = Instant::now();
    let report = data_centre::simulate(&spec, Strategy::Pcos, &mut clock);
    println!("{report:#?}");
    for (name, times) in [
        ("arrival", &mut clock.arrivals),
        ("update", &mut clock.updates),
    ] {
        times.sort_unstable();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
        println!(
            "{name:<8} {:>8} decisions: half {:?}, 99 % {:?}, 99.9 % {:?}, longest {:?}",
            times.len(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
    println!("{:.1} s in all", begun.elapsed().as_secs_f64());
}
