//! Thread of the exchange.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_core::time::Nanos;
use tidegate_exchange::array::PERIOD;
use tidegate_exchange::{Presence, Refusal, Transport};

use super::{Input, Member};
use crate::log_limit;
use crate::ring::clock;

/// Interval at which silence is noticed and heartbeats are due.
const TICK: Nanos = PERIOD;
/// Messages after which a turn goes on with reports and the end: one of each host of an array.
const MESSAGES_PER_TURN: usize = 256;

/// Returns the wall clock, in nanoseconds of Unix time.
pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // Before 1970 by its clock, a host has the first instance of all.
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// Work of the thread.
pub(super) struct Thread {
    transport: Box<dyn Transport>,
    members: Vec<Member>,
    was_connected: bool,
    last_error: String,
}

impl Thread {
    pub(super) fn new(transport: Box<dyn Transport>, members: Vec<Member>) -> Thread {
        Thread {
            transport,
            members,
            was_connected: false,
            last_error: String::new(),
        }
    }

    /// Works until it is told to end.
    pub(super) fn run(mut self, inputs: &Receiver<Input>) {
        let (mut tick_due, mut has_more) = (clock(), false);
        loop {
            let wait = if has_more {
                Duration::ZERO
            } else {
                Duration::from_nanos(tick_due.since(clock()).0)
            };
            match inputs.recv_timeout(wait) {
                Ok(Input::Share(array, share)) => {
                    let now = clock();
                    let rules = &mut self.members[array].rules;
                    let bytes = rules.share(now, unix_ns(), &share);
                    self.transport.publish(now, rules.array(), &bytes);
                }
                #[cfg(any(test, feature = "nats"))]
                // Before messages are taken, so that one that arrives later wakes again.
                Ok(Input::Wake(is_waiting)) => {
                    is_waiting.store(false, std::sync::atomic::Ordering::Release);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Input::Stop { withdraws }) => {
                    if withdraws {
                        self.withdraw();
                    }
                    return;
                }
                // Every loop has ended, and the daemon.
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = clock();
            has_more = self.receive(now);
            if tick_due <= now {
                tick_due = now + TICK;
                self.tick(now);
            }
        }
    }

    /// Takes messages that have arrived, up to [`MESSAGES_PER_TURN`]. Returns `true` if there may
    /// be more.
    fn receive(&mut self, now: Nanos) -> bool {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(received) = self.transport.receive(now) else {
                return false;
            };
            let of_array = |member: &&mut Member| member.rules.array().as_str() == received.array;
            let Some(member) = self.members.iter_mut().find(of_array) else {
                continue;
            };
            let before: Vec<Presence> = presences(member);
            match member.rules.receive(now, unix_ns(), &received) {
                Ok(Some(number)) => {
                    log_changes(member, &before);
                    member.inbox.put(&member.rules, &[number]);
                }
                Ok(None) => {}
                Err(reason) => log_refusal(member, &received.host, reason),
            }
        }
        true
    }

    /// Notices hosts that are silent, repeats reports of idle arrays and publishes the state.
    fn tick(&mut self, now: Nanos) {
        let status = self.transport.status();
        if status.is_connected != self.was_connected {
            self.was_connected = status.is_connected;
            if status.is_connected {
                tracing::info!("exchange: connected");
            } else {
                tracing::warn!(
                    "exchange: the server is away; hosts hold to their entitlements meanwhile"
                );
            }
        }
        if status.last_error != self.last_error && !status.last_error.is_empty() {
            // A server that refuses a login is asked again every second.
            tracing::warn!("exchange: {}", status.last_error);
        }
        self.last_error.clone_from(&status.last_error);
        for member in &mut self.members {
            let before: Vec<Presence> = presences(member);
            let silent = member.rules.tick(now);
            if !silent.is_empty() {
                log_changes(member, &before);
                member.inbox.put(&member.rules, &silent);
            }
            if let Some(bytes) = member.rules.heartbeat(now, unix_ns()) {
                self.transport.publish(now, member.rules.array(), &bytes);
            }
            member.published.put(now, &member.rules, status.clone());
        }
    }

    fn withdraw(&mut self) {
        for member in &mut self.members {
            let bytes = member.rules.withdraw(unix_ns());
            self.transport
                .publish(clock(), member.rules.array(), &bytes);
        }
    }
}

fn presences(member: &Member) -> Vec<Presence> {
    let peers = member.rules.peers().iter();
    peers.map(|peer| peer.presence).collect()
}

/// Logs hosts whose presence has changed.
fn log_changes(member: &Member, before: &[Presence]) {
    let array = member.rules.array();
    for (peer, before) in member.rules.peers().iter().zip(before) {
        let host = &peer.name;
        match (peer.presence, before) {
            (now, before) if now == *before => {}
            (Presence::Live, _) => tracing::info!(%array, %host, "exchange: the host is heard"),
            (Presence::Withdrawn, _) => {
                tracing::info!(%array, %host, "exchange: the host has withdrawn");
            }
            (Presence::Silent, _) => {
                let weight = peer.weight_max;
                tracing::warn!(
                    %array, %host, weight,
                    "exchange: the host is silent; its entitled weight is left to it"
                );
            }
        }
    }
}

fn log_refusal(member: &Member, host: &str, reason: Refusal) {
    // Reordering and late messages are no news of their own; they are counted.
    if matches!(reason, Refusal::Replayed | Refusal::Expired) {
        return;
    }
    let array = member.rules.array();
    if log_limit::MESSAGES_IGNORED.allows(std::time::Instant::now()) {
        // A host's name comes from a subject, which has no control characters.
        let host = host.escape_default();
        let reason = reason.word();
        tracing::warn!(%array, %host, reason, "exchange: a message is ignored");
    }
}
