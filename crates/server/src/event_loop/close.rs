//! The ends of clients: one that leaves is answered first, one that vanished, broke a rule or is stuck
//! is not. See the states in [`client`](super::client).

use std::time::Instant;

use tidegate_core::time::Nanos;

use super::client::State;
use super::{Loop, Phase};
use crate::log_limit;

/// Time without progress after which a client is cut off while the daemon ends.
const STUCK_AT_END: Nanos = Nanos::from_secs(5);
/// Base time for one transfer of a client whose VM borrows payload memory while another VM waits
/// for some; the time of the bytes at [`PACE`] is added.
const PATIENCE: Nanos = Nanos::from_secs(2);
/// Least rate of such a transfer in bytes per second; a network of 100 Mbit/s is faster.
const PACE: u64 = 8 << 20;

impl Loop {
    /// The connection broke, or the client closed it without a word.
    pub(super) fn vanish(&mut self, index: u32, errno: Option<i32>) {
        let Some(client) = self.clients.get(index) else {
            return;
        };
        if client.state == State::Gone {
            return self.settle(index);
        }
        if log_limit::GONE.allows(Instant::now()) {
            let export = &self.device.disks[client.disk].disk.export;
            let why = errno.map_or("closed without a word".to_owned(), |e| {
                std::io::Error::from_raw_os_error(e).to_string()
            });
            let outstanding = client.outstanding;
            tracing::info!(%export, peer = %client.peer, outstanding, "client gone: {why}");
        }
        self.close(index);
    }

    /// Ends a connection at once. What is in flight for it goes on without an answer.
    pub(super) fn close(&mut self, index: u32) {
        let client = self.clients.get(index).expect("it is there");
        if client.state != State::Gone {
            client.state = State::Gone;
            self.ring.shut_down_socket(client.file);
            let id = client.engine;
            self.engine.handle_disconnect(self.now, id);
        }
        self.settle(index);
    }

    /// Lets a client go when the time has come.
    pub(super) fn settle(&mut self, index: u32) {
        let Some(client) = self.clients.get(index) else {
            return;
        };
        match client.state {
            State::Open => {}
            State::Leaving if client.is_quiet() => self.close(index),
            State::Leaving => {}
            State::Gone if client.rx.receiving || client.sending() => {}
            State::Gone => self.remove(index),
        }
    }

    fn remove(&mut self, index: u32) {
        let mut client = self.clients.remove(index);
        let vm = self.device.vm_of(client.disk);
        for queue in &mut self.vms[vm].stalled {
            queue.retain(|&stalled| stalled != index);
        }
        let payload = client.rx.payload.take().map(|(slot, _)| slot);
        for slot in payload.into_iter().chain(client.tx.queue) {
            self.forget(slot);
        }
        if let Some(heads) = client.tx.heads {
            self.plumbing.put(heads);
        }
        self.plumbing.put(client.rx.buffer);
        drop(self.ring.remove_file(client.file));
    }

    /// While the daemon ends, cuts off clients that make no progress in a payload or in taking
    /// replies. Before that, no client is cut off for being slow with memory of its VM's guaranteed
    /// part.
    pub(super) fn cut_off_stuck(&mut self) {
        let patience = STUCK_AT_END;
        if self.phase == Phase::Running {
            return;
        }
        for index in self.clients.indices() {
            let client = self.clients.get(index).expect("it is there");
            let what = if client.sending() && self.now.since(client.tx.moved) > patience {
                "takes none of its replies"
            } else if client.rx.payload.is_some()
                && client.rx.receiving
                && self.now.since(client.rx.moved) > patience
            {
                "stopped in the middle of a write"
            } else {
                continue;
            };
            if client.state != State::Gone {
                if log_limit::CUT_OFF.allows(Instant::now()) {
                    let export = &self.device.disks[client.disk].disk.export;
                    tracing::warn!(%export, peer = %client.peer, "client cut off: {what} for {patience}");
                }
                self.close(index);
            }
        }
    }

    /// Closes slow connections of VMs that borrow payload memory, while another VM waits for memory
    /// that was lent. Slow is a connection whose current payload or send takes longer than
    /// [`PATIENCE`] and [`PACE`] allow. The client may reconnect; no request is answered with an
    /// error.
    pub(super) fn close_overdue(&mut self) {
        if self.phase != Phase::Running || !self.engine.is_contended() {
            return;
        }
        for index in self.clients.indices() {
            let client = self.clients.get(index).expect("it is there");
            let vm = self.device.vm_of(client.disk);
            if client.state == State::Gone || !self.engine.holdings(self.vms[vm].id).borrows {
                continue;
            }
            let late = |began: Nanos, bytes: u64| {
                let takes = Nanos(bytes.saturating_mul(1_000_000_000) / PACE);
                self.now.since(began) > PATIENCE + takes
            };
            let payload = client.rx.payload.map(|(slot, _)| self.slots.get(slot).len);
            let what = if payload.is_some_and(|len| late(client.rx.began, len.into())) {
                "slow to send a write's payload"
            } else if client.sending() && late(client.tx.began, client.tx.began_bytes) {
                "slow to take its replies"
            } else {
                continue;
            };
            let export = &self.device.disks[client.disk].disk.export;
            tracing::warn!(
                %export,
                peer = %client.peer,
                "connection closed: {what} while its VM holds more than its part of the payload \
                 memory and another VM waits for some"
            );
            self.close(index);
        }
    }
}
