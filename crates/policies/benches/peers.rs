//! CPU time that the exchange of shares among hosts takes on each of them: `cargo bench -p
//! tidegate-policies --bench peers`.
//!
//! One host under `vfair` has a VM with requests outstanding. Every period (30 ms) it takes in the
//! message of each other host, computes its shares and makes a message of its own. Prints
//! nanoseconds of this thread for each period, by the number of hosts: best of several rounds,
//! without the requests themselves.

use std::time::{Duration, Instant};

use tidegate_core::engine::Engine;
use tidegate_core::request::Request;
use tidegate_core::roles::PeerShare;
use tidegate_core::time::Nanos;
use tidegate_testkit::{config, connect_single_vm, policy};

const ROUNDS: u32 = 7;
const PERIODS: u32 = 2000;
const PERIOD: Nanos = Nanos::from_millis(30);

fn main() {
    println!("{:>6}{:>16}{:>16}", "hosts", "ns/period", "of 30 ms");
    for hosts in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        let best = (0..ROUNDS).map(|_| one_round(hosts)).min();
        let best = best.unwrap_or_default() / PERIODS;
        let part = best.as_secs_f64() / 0.030 * 100.0;
        println!("{hosts:>6}{:>16}{part:>14.4} %", best.as_nanos());
    }
}

/// Returns the time that the exchange takes in all periods of a round.
fn one_round(hosts: u32) -> Duration {
    let mut engine =
        Engine::new(config(32, 0), &policy("vfair")).expect("the configuration is in range");
    let client = connect_single_vm(&mut engine);
    let mut now = Nanos::ZERO;
    let mut took = Duration::ZERO;
    let mut own: Option<PeerShare> = None;
    for number in 0..PERIODS {
        // A guest that always has something outstanding competes.
        let request = Request::read(u64::from(number) << 12, 4096, u64::from(number));
        // Refused once a thousand wait, which is as good.
        let _ = engine.handle_request(now, client, request);
        while let Some(io) = engine.poll_dispatch(now) {
            engine.handle_completion(now, io.id, Ok(()));
        }
        while engine.poll_done().is_some() {}
        now += PERIOD;
        let begun = Instant::now();
        if let Some(share) = own {
            for host in 1..hosts {
                let number = u64::from(number);
                engine.handle_peer(now, host, &PeerShare { number, ..share });
            }
        }
        engine.handle_timeout(now);
        own = engine.poll_share().or(own);
        took += begun.elapsed();
    }
    assert!(own.is_some(), "no message in {PERIODS} periods");
    took
}
