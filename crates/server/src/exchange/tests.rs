use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use tidegate_core::engine::Engine;
use tidegate_core::roles::{HostWeight, PeerShare};
use tidegate_core::time::Nanos;
use tidegate_exchange::in_process::{Faults, Network};
use tidegate_exchange::options::{Login, NatsOptions};
use tidegate_exchange::{ArrayExchange, FixedEntitlements, Name, Presence, Update};
use tidegate_testkit::{config, policy};

use super::inbox::Inbox;
use super::*;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn exchange_config(host: &str) -> ExchangeConfig {
    let mut entitlements = FixedEntitlements::default();
    for (host, weight) in [("a", 100), ("b", 200)] {
        assert!(entitlements.add(name("san"), name(host), weight));
    }
    ExchangeConfig {
        cluster: name("east"),
        host: name(host),
        nats: NatsOptions {
            servers: Vec::new(),
            ca: None,
            certificate: None,
            login: Login::None,
        },
        entitlements,
        place: None,
    }
}

fn engine() -> Engine {
    Engine::new(config(32, 0), &policy("vfair")).expect("in range")
}

/// Host whose engine has no VMs, on a network of this process.
struct Host {
    exchange: Exchange,
    link: ExchangeLink,
    engine: Engine,
}

impl Host {
    fn new(network: &Network, host: &str) -> Host {
        let config = exchange_config(host);
        let transport = Box::new(network.connect(&name(host)));
        let array = name("san");
        let devices = [None, Some(&array)].into_iter();
        let (exchange, links) =
            Exchange::over(transport, &config, devices, sync_channel(INPUTS_MAX));
        let [none, link] = <[_; 2]>::try_from(links).expect("one for each device");
        assert!(none.is_none(), "the first device is no array");
        let mut host = Host {
            exchange: exchange.expect("there is an array"),
            link: link.expect("it is an array"),
            engine: engine(),
        };
        host.exchange.begin();
        host
    }

    /// Makes turns of a loop until the other host has this presence.
    fn until(&mut self, presence: Presence) -> ExchangeSnapshot {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            self.link.exchange(&mut self.engine, crate::ring::clock());
            let snapshot = self.link.snapshot();
            if snapshot.peers[0].presence == presence {
                return snapshot;
            }
            assert!(Instant::now() < until, "{snapshot:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn hosts_hear_each_other_fall_silent_and_withdraw() {
    let network = Network::new(1, Faults::default());
    let mut a = Host::new(&network, "a");
    let first = a.link.snapshot();
    assert!(first.is_cut_off && first.peers[0].presence == Presence::Silent);
    assert_eq!((first.weight_max, first.peers[0].weight_max), (100, 200));
    let mut b = Host::new(&network, "b");
    assert!(!a.until(Presence::Live).is_cut_off);
    b.until(Presence::Live);
    network.set_up(false);
    assert!(a.until(Presence::Silent).is_cut_off);
    network.set_up(true);
    a.until(Presence::Live);
    b.exchange.withdraw();
    let last = a.until(Presence::Withdrawn);
    assert!(!last.is_cut_off && last.peers[0].accepted > 0);
    assert_eq!(last.refused.iter().map(|(_, count)| count).sum::<u64>(), 0);
}

#[test]
fn a_daemon_that_ends_without_order_leaves_its_share_reserved() {
    let network = Network::new(1, Faults::default());
    let mut a = Host::new(&network, "a");
    let b = Host::new(&network, "b");
    a.until(Presence::Live);
    drop(b.exchange);
    a.until(Presence::Silent);
}

#[test]
fn wakes_leave_room_for_reports() {
    let (sender, inputs) = sync_channel(INPUTS_MAX);
    let waker = Waker::new(sender.clone());
    (0..1000).for_each(|_| waker.wake());
    for _ in 1..INPUTS_MAX {
        let sent = sender.try_send(Input::Share(0, PeerShare::IDLE));
        assert!(sent.is_ok(), "one wake is in the channel");
    }
    let Ok(Input::Wake(is_waiting)) = inputs.recv() else {
        panic!("the wake came first");
    };
    is_waiting.store(false, Ordering::Release);
    waker.wake();
    let last = inputs.try_iter().last();
    assert!(matches!(last, Some(Input::Wake(_))), "another one");
}

/// Transport on which hosts send faster than anybody can read.
struct Flood;

impl Transport for Flood {
    fn publish(&mut self, _now: Nanos, _array: &Name, _message: &[u8]) {}

    fn receive(&mut self, now: Nanos) -> Option<tidegate_exchange::Received> {
        Some(tidegate_exchange::Received {
            array: "san".to_owned(),
            host: "b".to_owned(),
            at: now,
            bytes: Vec::new(),
        })
    }

    fn status(&self) -> tidegate_exchange::TransportStatus {
        tidegate_exchange::TransportStatus::default()
    }
}

#[test]
fn a_flood_of_messages_does_not_keep_the_exchange_from_ending() {
    let config = exchange_config("a");
    let array = name("san");
    let channel = sync_channel(INPUTS_MAX);
    let (exchange, _links) = Exchange::over(
        Box::new(Flood),
        &config,
        [Some(&array)].into_iter(),
        channel,
    );
    let mut exchange = exchange.expect("there is an array");
    exchange.begin();
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        exchange.withdraw();
        ended.send(())
    });
    assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok(()));
}

#[cfg(not(feature = "nats"))]
#[test]
fn a_build_without_a_client_refuses_the_section_even_if_no_device_is_an_array() {
    let text = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
                [exchange]\ncluster = \"east\"\nhost = \"a\"\n\
                nats = [\"nats://127.0.0.1:4222\"]\n[[exchange.entitlement]]\n\
                array = \"san\"\nhost = \"a\"\nweight_max = 100\n";
    let read = crate::config::parse(text, "t.toml", std::path::Path::new("/etc/t"));
    let config = read.expect("sound").config;
    let error = Exchange::open(&config).expect_err("no client").to_string();
    assert!(error.contains("--features cluster"), "{error}");
}

#[test]
fn an_inbox_has_the_last_state_of_each_host_once() {
    let config = exchange_config("a");
    let names = [&config.cluster, &name("san"), &config.host];
    let mut rules = ArrayExchange::new(names, 1, &config.entitlements).expect("entitled");
    let inbox = Arc::new(Inbox::new(&rules));
    let names = [&config.cluster, &name("san"), &name("b")];
    let mut other = ArrayExchange::new(names, 1, &config.entitlements).expect("entitled");
    let mut engine = engine();
    let mut now = Nanos::from_secs(1);
    for weight in [10.0, 20.0, 30.0] {
        let share = PeerShare {
            weight,
            ..PeerShare::IDLE
        };
        let received = tidegate_exchange::Received {
            array: "san".to_owned(),
            host: "b".to_owned(),
            at: now,
            bytes: other.share(now, 1, &share),
        };
        assert_eq!(rules.receive(now, 1, &received), Ok(Some(0)));
        inbox.put(&rules, &[0]);
        now += Nanos::from_millis(30);
    }
    assert!(matches!(rules.update(0), Update::Share(share) if share.weight == 30.0));
    assert_eq!(rules.host_weight(), HostWeight::AtMost(100.0));
    assert_eq!(
        inbox.deliver(&mut engine, now),
        2,
        "the host's state and the weight"
    );
    assert_eq!(inbox.deliver(&mut engine, now), 0);
    inbox.repeat();
    assert_eq!(inbox.deliver(&mut engine, now), 2);
}
