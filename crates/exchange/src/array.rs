//! State of the exchange of one array on one host.
//!
//! Rules:
//! - **Freshness goes by the receiver's clock.** A message counts from its arrival on, for
//!   [`EXPIRY`]. The sender's time is compared with nothing: clocks of hosts differ, and one that
//!   was set back would silence its host. It is kept for diagnosis ([`PeerState::skew_ns`]).
//! - **Order goes by the sender's numbers.** Of an instance (one run of a daemon) only a higher
//!   sequence number counts; of a host only the latest instance. An earlier instance is believed
//!   again only after [`RESTART_SILENCE`] without any message, for a host that restarted with its
//!   clock set back.
//! - **A silent host keeps its entitlement.** Without a message for [`EXPIRY`], and before its
//!   first one, a host is assumed to compete with all the weight that it is entitled to: it may be
//!   alive and only cut off, and its guests were promised that part of the array. A host that
//!   stops in order withdraws, and has nothing.
//! - **A host that hears no other** takes its own entitlement as its weight, whatever its VMs have:
//!   all hosts do the same then, and together have the array once.
//! - **A host without VMs that compete** has no reports. It repeats its last one every
//!   [`HEARTBEAT`], so that it is not taken for silent. A host whose event loop is stuck repeats
//!   nothing.

use tidegate_core::roles::{HostWeight, PeerShare};
use tidegate_core::time::Nanos;

use crate::entitlements::Entitlements;
use crate::message::{Body, Message, MessageError};
use crate::name::Name;
use crate::transport::Received;

/// Interval at which hosts report, the same on all of them: measurements are summed by the period.
pub const PERIOD: Nanos = Nanos::from_millis(30);
/// Time after its arrival for which a message counts: ten periods.
pub const EXPIRY: Nanos = Nanos(10 * PERIOD.0);
/// Interval at which a host without VMs that compete repeats its report.
pub const HEARTBEAT: Nanos = Nanos::from_millis(90);
/// Silence after which an earlier instance of a host is believed.
pub const RESTART_SILENCE: Nanos = Nanos::from_secs(10);
/// Tolerance of a comparison of weights, which are sums of quotients.
const ROUNDING: f64 = 1.0 + 1e-6;

/// Presence of another host at an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// Messages of the host arrive.
    Live,
    /// No message for [`EXPIRY`], or none yet: it is assumed to use its entitlement.
    Silent,
    /// The host has stopped in order.
    Withdrawn,
}

impl Presence {
    /// Returns the word for the presence.
    pub fn word(self) -> &'static str {
        match self {
            Presence::Live => "live",
            Presence::Silent => "silent",
            Presence::Withdrawn => "withdrawn",
        }
    }
}

/// Reason for which a message is ignored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    /// Not of the format.
    Malformed,
    /// Another version of the format.
    Version,
    /// Message of another cluster.
    Cluster,
    /// About another array than its subject says.
    Array,
    /// From another host than its subject says.
    Sender,
    /// From a host without an entitlement.
    UnknownHost,
    /// From another process under this host's name.
    OwnName,
    /// From an earlier instance of its host.
    OldInstance,
    /// Overtaken by a later message, or a repetition.
    Replayed,
    /// Taken too long after its arrival.
    Expired,
    /// Claims more weight than its host is entitled to.
    Entitlement,
}

impl Refusal {
    /// All reasons, in the order in which they are shown.
    pub const ALL: [Refusal; 11] = [
        Refusal::Malformed,
        Refusal::Version,
        Refusal::Cluster,
        Refusal::Array,
        Refusal::Sender,
        Refusal::UnknownHost,
        Refusal::OwnName,
        Refusal::OldInstance,
        Refusal::Replayed,
        Refusal::Expired,
        Refusal::Entitlement,
    ];

    /// Returns the word for the reason, for a label of a metric.
    pub fn word(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::Version => "version",
            Refusal::Cluster => "cluster",
            Refusal::Array => "array",
            Refusal::Sender => "sender",
            Refusal::UnknownHost => "unknown_host",
            Refusal::OwnName => "own_name",
            Refusal::OldInstance => "old_instance",
            Refusal::Replayed => "replayed",
            Refusal::Expired => "expired",
            Refusal::Entitlement => "entitlement",
        }
    }

    fn index(self) -> usize {
        Refusal::ALL
            .iter()
            .position(|reason| *reason == self)
            .expect("all reasons are listed")
    }
}

/// State to set in the engine.
#[derive(Clone, Copy, PartialEq, Debug)]
// A place for each host is made once; boxed reports would be allocated 33 times a second each.
#[allow(clippy::large_enum_variant)]
pub enum Update {
    /// For [`Engine::handle_peer`](tidegate_core::engine::Engine::handle_peer).
    Share(PeerShare),
    /// For [`DeviceMut::assume_peer`](tidegate_core::engine::DeviceMut::assume_peer).
    Silent(f64),
}

/// Another host at the array.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerState {
    /// Name of the host.
    pub name: Name,
    /// Largest sum of weights that it may claim.
    pub weight_max: u32,
    /// Presence.
    pub presence: Presence,
    /// Sum of weights in its last message; 0 before the first.
    pub weight: f64,
    /// Time of arrival of its last message that counted; `None` before the first.
    pub heard_at: Option<Nanos>,
    /// Clock of this host less that of the sender as the last message arrived, its delay included,
    /// in nanoseconds.
    pub skew_ns: i64,
    /// Messages that counted.
    pub accepted: u64,
    instance: u64,
    sequence: u64,
    share: PeerShare,
}

/// Exchange of one array on one host.
#[derive(Debug)]
pub struct ArrayExchange {
    cluster: Name,
    array: Name,
    host: Name,
    instance: u64,
    sequence: u64,
    weight_max: u32,
    peers: Vec<PeerState>,
    own: PeerShare,
    sent_at: Option<Nanos>,
    refused: [u64; Refusal::ALL.len()],
}

/// Error of a host that is not entitled to an array.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("host {host} has no entitlement on array {array}")]
pub struct NotEntitled {
    host: Name,
    array: Name,
}

impl ArrayExchange {
    /// Creates the exchange of `host`, whose process started at `instance`, in nanoseconds of Unix
    /// time. All other hosts are silent at first.
    ///
    /// # Errors
    /// If the host has no entitlement on the array.
    pub fn new(
        [cluster, array, host]: [&Name; 3],
        instance: u64,
        entitlements: &dyn Entitlements,
    ) -> Result<ArrayExchange, NotEntitled> {
        let mut hosts = entitlements.of_array(array);
        let Some(weight_max) = hosts.remove(host) else {
            let (host, array) = (host.clone(), array.clone());
            return Err(NotEntitled { host, array });
        };
        let peer = |(name, weight_max)| PeerState {
            name,
            weight_max,
            presence: Presence::Silent,
            weight: 0.0,
            heard_at: None,
            skew_ns: 0,
            accepted: 0,
            instance: 0,
            sequence: 0,
            share: PeerShare::IDLE,
        };
        Ok(ArrayExchange {
            cluster: cluster.clone(),
            array: array.clone(),
            host: host.clone(),
            instance,
            sequence: 0,
            weight_max,
            peers: hosts.into_iter().map(peer).collect(),
            own: PeerShare::IDLE,
            sent_at: None,
            refused: [0; Refusal::ALL.len()],
        })
    }

    /// Returns the name of the array.
    pub fn array(&self) -> &Name {
        &self.array
    }

    /// Returns the largest sum of weights that this host may claim.
    pub fn weight_max(&self) -> u32 {
        self.weight_max
    }

    /// Returns the sum of weights in the last report of this host.
    pub fn weight(&self) -> f64 {
        self.own.weight
    }

    /// Returns the other hosts, ordered by name. A host's index is its number in the engine, and
    /// stays.
    pub fn peers(&self) -> &[PeerState] {
        &self.peers
    }

    /// Returns how many messages were ignored for a reason.
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason.index()]
    }

    /// Returns the state to set for a host.
    ///
    /// # Panics
    /// If there is no host with this number.
    pub fn update(&self, peer: u32) -> Update {
        let peer = &self.peers[peer as usize];
        match peer.presence {
            Presence::Live => Update::Share(peer.share),
            Presence::Silent => Update::Silent(peer.weight_max.into()),
            Presence::Withdrawn => Update::Silent(0.0),
        }
    }

    /// Returns the rule for the weights of this host.
    pub fn host_weight(&self) -> HostWeight {
        let weight = f64::from(self.weight_max);
        if self.is_cut_off() {
            HostWeight::Fixed(weight)
        } else {
            HostWeight::AtMost(weight)
        }
    }

    /// Returns `true` if no other host is heard, although at least one has not withdrawn.
    pub fn is_cut_off(&self) -> bool {
        let is = |presence| move |peer: &PeerState| peer.presence == presence;
        !self.peers.iter().any(is(Presence::Live)) && self.peers.iter().any(is(Presence::Silent))
    }

    /// Packs the report of a period that has ended.
    pub fn share(&mut self, now: Nanos, unix_ns: u64, share: &PeerShare) -> Vec<u8> {
        self.own = *share;
        self.pack_own(now, unix_ns)
    }

    /// Packs the last report again, if it is one without weight and due again.
    pub fn heartbeat(&mut self, now: Nanos, unix_ns: u64) -> Option<Vec<u8>> {
        let is_due = self.sent_at.is_none_or(|at| at + HEARTBEAT <= now);
        (self.own.weight == 0.0 && is_due).then(|| self.pack_own(now, unix_ns))
    }

    /// Packs the withdrawal of this host, which stops in order.
    pub fn withdraw(&mut self, unix_ns: u64) -> Vec<u8> {
        self.pack(unix_ns, Body::Withdrawal)
    }

    fn pack_own(&mut self, now: Nanos, unix_ns: u64) -> Vec<u8> {
        self.sent_at = Some(now);
        self.pack(unix_ns, Body::Share(Box::new(self.own)))
    }

    fn pack(&mut self, unix_ns: u64, body: Body) -> Vec<u8> {
        self.sequence += 1;
        let message = Message {
            cluster: self.cluster.clone(),
            array: self.array.clone(),
            host: self.host.clone(),
            instance: self.instance,
            sequence: self.sequence,
            sent_unix_ns: unix_ns,
            body,
        };
        message.encode()
    }

    /// Takes a message that has arrived. Returns the number of the host whose state it changed;
    /// `None` for a message that this process sent itself.
    ///
    /// # Errors
    /// If the message is ignored, which is counted.
    pub fn receive(
        &mut self,
        now: Nanos,
        unix_ns: u64,
        received: &Received,
    ) -> Result<Option<u32>, Refusal> {
        let taken = self.take(now, unix_ns, received);
        if let Err(reason) = taken {
            self.refused[reason.index()] += 1;
        }
        taken
    }

    fn take(
        &mut self,
        now: Nanos,
        unix_ns: u64,
        received: &Received,
    ) -> Result<Option<u32>, Refusal> {
        let message = Message::decode(&received.bytes).map_err(|error| match error {
            MessageError::Version(_) => Refusal::Version,
            MessageError::Malformed(_) => Refusal::Malformed,
        })?;
        if message.cluster != self.cluster {
            return Err(Refusal::Cluster);
        }
        if message.array != self.array || received.array != self.array.as_str() {
            return Err(Refusal::Array);
        }
        // A carrier that lets each host publish to its own subject alone has checked the sender.
        if message.host.as_str() != received.host {
            return Err(Refusal::Sender);
        }
        if message.host == self.host {
            let is_echo = message.instance == self.instance;
            return if is_echo {
                Ok(None)
            } else {
                Err(Refusal::OwnName)
            };
        }
        let number = self.peers.iter().position(|peer| peer.name == message.host);
        let number = number.ok_or(Refusal::UnknownHost)?;
        if received.at + EXPIRY < now {
            return Err(Refusal::Expired);
        }
        let peer = &mut self.peers[number];
        peer.check_order(&message, received.at)?;
        let share = match message.body {
            Body::Share(share) if share.weight > f64::from(peer.weight_max) * ROUNDING => {
                return Err(Refusal::Entitlement);
            }
            Body::Share(share) => Some(*share),
            Body::Withdrawal => None,
        };
        peer.accepted += 1;
        peer.instance = message.instance;
        peer.sequence = message.sequence;
        peer.heard_at = Some(received.at);
        peer.skew_ns = (unix_ns as i64).wrapping_sub(message.sent_unix_ns as i64);
        peer.weight = share.map_or(0.0, |share| share.weight);
        peer.presence = match share {
            Some(_) => Presence::Live,
            None => Presence::Withdrawn,
        };
        // The engine orders by a number as well, which does not fall when a host restarts.
        peer.share = PeerShare {
            number: peer.accepted,
            ..share.unwrap_or(PeerShare::IDLE)
        };
        Ok(Some(number as u32))
    }

    /// Finds hosts that have become silent by `now`, and returns their numbers.
    pub fn tick(&mut self, now: Nanos) -> Vec<u32> {
        let mut silent = Vec::new();
        for (number, peer) in self.peers.iter_mut().enumerate() {
            let is_late = peer.heard_at.is_none_or(|at| at + EXPIRY < now);
            if peer.presence == Presence::Live && is_late {
                peer.presence = Presence::Silent;
                silent.push(number as u32);
            }
        }
        silent
    }
}

impl PeerState {
    /// Checks that a message is later than those that counted.
    fn check_order(&self, message: &Message, at: Nanos) -> Result<(), Refusal> {
        let Some(heard_at) = self.heard_at else {
            return Ok(());
        };
        if message.instance < self.instance && at < heard_at + RESTART_SILENCE {
            return Err(Refusal::OldInstance);
        }
        if message.instance == self.instance && message.sequence <= self.sequence {
            return Err(Refusal::Replayed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entitlements::FixedEntitlements;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn exchange(host: &str, instance: u64) -> ArrayExchange {
        let mut entitled = FixedEntitlements::default();
        for (host, weight) in [("a", 100), ("b", 200), ("c", 300)] {
            assert!(entitled.add(name("san"), name(host), weight));
        }
        // Arrays do not share entitlements.
        assert!(entitled.add(name("other"), name("d"), 100));
        let names = ["east", "san", host].map(name);
        ArrayExchange::new([&names[0], &names[1], &names[2]], instance, &entitled)
            .expect("entitled")
    }

    fn share(weight: f64) -> PeerShare {
        PeerShare {
            weight,
            ..PeerShare::IDLE
        }
    }

    fn received(host: &str, at: Nanos, bytes: Vec<u8>) -> Received {
        Received {
            array: "san".to_owned(),
            host: host.to_owned(),
            at,
            bytes,
        }
    }

    const T: Nanos = Nanos::from_secs(5);

    #[test]
    fn a_host_without_an_entitlement_has_no_exchange() {
        let names = ["east", "san", "d"].map(name);
        let none = FixedEntitlements::default();
        let refused = ArrayExchange::new([&names[0], &names[1], &names[2]], 1, &none);
        let error = refused.expect_err("no entitlement").to_string();
        assert_eq!(error, "host d has no entitlement on array san");
    }

    #[test]
    fn all_hosts_are_silent_until_they_are_heard_and_after_they_were() {
        let (mut a, mut b) = (exchange("a", 1), exchange("b", 1));
        assert_eq!(a.update(0), Update::Silent(200.0));
        assert_eq!(a.update(1), Update::Silent(300.0));
        assert_eq!(a.host_weight(), HostWeight::Fixed(100.0));
        let bytes = b.share(T, 7, &share(50.0));
        assert_eq!(a.receive(T, 9, &received("b", T, bytes)), Ok(Some(0)));
        let expected = PeerShare {
            number: 1,
            ..share(50.0)
        };
        assert_eq!(a.update(0), Update::Share(expected));
        assert_eq!((a.peers()[0].skew_ns, a.peers()[0].weight), (2, 50.0));
        assert_eq!(a.host_weight(), HostWeight::AtMost(100.0));
        assert_eq!(a.tick(T + EXPIRY), [0_u32; 0]);
        assert_eq!(a.tick(T + EXPIRY + Nanos(1)), [0]);
        assert_eq!(a.update(0), Update::Silent(200.0));
        assert!(a.is_cut_off());
        assert_eq!(a.tick(T + EXPIRY + Nanos(2)), [0_u32; 0], "once");
    }

    #[test]
    fn a_host_that_withdraws_has_nothing_until_it_is_back() {
        let mut a = exchange("a", 1);
        for (host, number) in [("b", 0), ("c", 1)] {
            let mut other = exchange(host, 1);
            let late = other.share(T, 7, &share(9.0));
            let bytes = other.withdraw(7);
            assert_eq!(a.receive(T, 9, &received(host, T, bytes)), Ok(Some(number)));
            assert_eq!(a.update(number), Update::Silent(0.0));
            let overtaken = a.receive(T, 9, &received(host, T, late));
            assert_eq!(overtaken, Err(Refusal::Replayed));
        }
        assert_eq!(a.tick(T + Nanos::from_secs(60)), [0_u32; 0]);
        assert_eq!(
            a.host_weight(),
            HostWeight::AtMost(100.0),
            "alone, and not cut off"
        );
        let bytes = exchange("b", 2).share(T, 7, &share(9.0));
        assert_eq!(a.receive(T, 9, &received("b", T, bytes)), Ok(Some(0)));
        assert!(matches!(a.update(0), Update::Share(share) if share.number == 2));
    }

    #[test]
    fn what_does_not_count_is_ignored_and_counted_by_reason() {
        let mut a = exchange("a", 5);
        let mut b = exchange("b", 5);
        let first = b.share(T, 7, &share(200.0));
        let second = b.share(T, 7, &share(150.0));
        let ours = received("b", T, second.clone());
        assert_eq!(a.receive(T, 9, &ours), Ok(Some(0)));
        let mut other_version = second.clone();
        other_version[4] = 9;
        let late = b.share(T, 7, &share(1.0));
        let changed = |change: fn(&mut Message)| {
            let mut message = Message::decode(&late).expect("packed");
            change(&mut message);
            message.encode()
        };
        let other_cluster = changed(|message| message.cluster = name("west"));
        let stranger = changed(|message| message.host = name("z"));
        let cases = [
            (received("b", T, b"TGSH".to_vec()), Refusal::Malformed),
            (received("b", T, other_version), Refusal::Version),
            (received("b", T, other_cluster), Refusal::Cluster),
            (
                Received {
                    array: "other".to_owned(),
                    ..ours.clone()
                },
                Refusal::Array,
            ),
            (received("c", T, late.clone()), Refusal::Sender),
            (received("z", T, stranger), Refusal::UnknownHost),
            (
                received("a", T, exchange("a", 6).share(T, 7, &share(1.0))),
                Refusal::OwnName,
            ),
            (
                received("b", T, exchange("b", 4).share(T, 7, &share(1.0))),
                Refusal::OldInstance,
            ),
            (ours, Refusal::Replayed),
            (received("b", T, first), Refusal::Replayed),
            (
                received("b", Nanos(T.0 - EXPIRY.0 - 1), late),
                Refusal::Expired,
            ),
            (
                received("b", T, b.share(T, 7, &share(200.1))),
                Refusal::Entitlement,
            ),
        ];
        let mut expected = [0; Refusal::ALL.len()];
        for (message, reason) in cases {
            let before = a.update(0);
            assert_eq!(a.receive(T, 9, &message), Err(reason));
            assert_eq!(a.update(0), before, "{reason:?}");
            expected[reason.index()] += 1;
        }
        for reason in Refusal::ALL {
            let counted = (a.refused(reason), reason.word());
            assert_eq!(counted, (expected[reason.index()], reason.word()));
            assert!(counted.0 > 0);
        }
        // A message of this process itself is none of another host.
        let own = a.share(T, 7, &share(1.0));
        assert_eq!(a.receive(T, 9, &received("a", T, own)), Ok(None));
    }

    #[test]
    fn a_host_whose_clock_was_set_back_is_heard_after_ten_seconds_of_silence() {
        let mut a = exchange("a", 1);
        let bytes = exchange("b", 1000).share(T, 7, &share(1.0));
        assert_eq!(a.receive(T, 9, &received("b", T, bytes)), Ok(Some(0)));
        let mut earlier = exchange("b", 900);
        let mut at = |at: Nanos| {
            let bytes = earlier.share(at, 7, &share(2.0));
            a.receive(at, 9, &received("b", at, bytes))
        };
        let end = T + RESTART_SILENCE;
        assert_eq!(at(Nanos(end.0 - 1)), Err(Refusal::OldInstance));
        assert_eq!(at(end), Ok(Some(0)));
        assert_eq!(at(end), Ok(Some(0)), "and from then on");
    }

    #[test]
    fn a_host_without_load_repeats_its_report_and_one_with_load_does_not() {
        let mut a = exchange("a", 1);
        let first = a.heartbeat(T, 7).expect("due at the start");
        assert_eq!(a.heartbeat(Nanos(T.0 + HEARTBEAT.0 - 1), 7), None);
        let second = a.heartbeat(T + HEARTBEAT, 7).expect("due again");
        let mut b = exchange("b", 1);
        for bytes in [first, second] {
            assert_eq!(b.receive(T, 9, &received("a", T, bytes)), Ok(Some(0)));
        }
        a.share(T, 7, &share(3.0));
        assert_eq!(
            a.heartbeat(T + Nanos::from_secs(9), 7),
            None,
            "its loop is stuck"
        );
        assert_eq!(a.weight(), 3.0);
        a.share(T, 7, &share(0.0));
        assert!(a.heartbeat(T + HEARTBEAT, 7).is_some());
    }
}
