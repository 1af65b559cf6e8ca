//! Carrier within one process, for tests: loses, delays and reorders messages by a seed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tidegate_core::time::Nanos;

use crate::name::Name;
use crate::transport::{Received, Transport, TransportStatus};

/// Faults of a network.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// Messages that are lost, in thousandths.
    pub lost_per_mille: u32,
    /// Longest delay of a message; each copy is delayed by up to this much, so messages overtake
    /// each other.
    pub delay_max: Nanos,
}

/// Network that carriers of one process share.
#[derive(Clone, Debug)]
pub struct Network(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: Pcg64Mcg,
    faults: Faults,
    is_up: bool,
    hosts: u32,
    on_the_way: Vec<(u32, Received)>,
}

impl Network {
    /// Creates a network without hosts.
    pub fn new(seed: u64, faults: Faults) -> Network {
        Network(Arc::new(Mutex::new(State {
            rng: Pcg64Mcg::seed_from_u64(seed),
            faults,
            is_up: true,
            hosts: 0,
            on_the_way: Vec::new(),
        })))
    }

    /// Connects a host.
    pub fn connect(&self, host: &Name) -> InProcess {
        let mut state = self.lock();
        state.hosts += 1;
        InProcess {
            network: self.clone(),
            host: host.clone(),
            number: state.hosts - 1,
            unsent: 0,
        }
    }

    /// Takes the network away with the messages on it, or brings it back.
    pub fn set_up(&self, is_up: bool) {
        let mut state = self.lock();
        state.is_up = is_up;
        state.on_the_way.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connection of one host to a [`Network`].
#[derive(Debug)]
pub struct InProcess {
    network: Network,
    host: Name,
    number: u32,
    unsent: u64,
}

impl Transport for InProcess {
    fn publish(&mut self, now: Nanos, array: &Name, message: &[u8]) {
        let mut state = self.network.lock();
        if !state.is_up {
            self.unsent += 1;
            return;
        }
        for to in (0..state.hosts).filter(|&to| to != self.number) {
            let is_lost = state.rng.next_u32() % 1000 < state.faults.lost_per_mille;
            let delay = state.rng.next_u64() % (state.faults.delay_max.0 + 1);
            if !is_lost {
                let received = Received {
                    array: array.as_str().to_owned(),
                    host: self.host.as_str().to_owned(),
                    at: now + Nanos(delay),
                    bytes: message.to_vec(),
                };
                state.on_the_way.push((to, received));
            }
        }
    }

    fn receive(&mut self, now: Nanos) -> Option<Received> {
        let mut state = self.network.lock();
        let here = state.on_the_way.iter().enumerate();
        let arrived = here.filter(|(_, (to, received))| *to == self.number && received.at <= now);
        let first = arrived.min_by_key(|(_, (_, received))| received.at)?.0;
        Some(state.on_the_way.remove(first).1)
    }

    fn status(&self) -> TransportStatus {
        TransportStatus {
            is_connected: self.network.lock().is_up,
            connections: 1,
            unsent: self.unsent,
            ..TransportStatus::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[test]
    fn messages_reach_all_others_late_out_of_order_and_some_of_them() {
        let faults = Faults {
            lost_per_mille: 250,
            delay_max: Nanos(100),
        };
        let network = Network::new(3, faults);
        let mut hosts = ["a", "b", "c"].map(|host| network.connect(&name(host)));
        for n in 0..200 {
            hosts[0].publish(Nanos(u64::from(n)), &name("san"), &[n]);
        }
        assert_eq!(hosts[0].receive(Nanos(1000)), None, "no echo");
        for host in &mut hosts[1..] {
            let arrived: Vec<Received> = std::iter::from_fn(|| host.receive(Nanos(1000))).collect();
            assert!((120..180).contains(&arrived.len()), "{}", arrived.len());
            assert!(arrived.is_sorted_by_key(|received| received.at));
            assert!(!arrived.is_sorted_by_key(|received| received.bytes[0]));
            assert_eq!((&*arrived[0].array, &*arrived[0].host), ("san", "a"));
        }
    }

    #[test]
    fn a_network_that_is_away_carries_nothing() {
        let network = Network::new(3, Faults::default());
        let mut hosts = ["a", "b"].map(|host| network.connect(&name(host)));
        hosts[0].publish(Nanos(1), &name("san"), &[1]);
        network.set_up(false);
        hosts[0].publish(Nanos(2), &name("san"), &[2]);
        assert!(!hosts[0].status().is_connected);
        assert_eq!(hosts[0].status().unsent, 1);
        network.set_up(true);
        assert_eq!(hosts[1].receive(Nanos(9)), None);
        hosts[0].publish(Nanos(3), &name("san"), &[3]);
        assert_eq!(hosts[1].receive(Nanos(9)).map(|it| it.bytes), Some(vec![3]));
    }
}
