//! The ends of clients: one that leaves is answered first, one that vanished, broke a rule or is stuck
//! is not. See the states in [`client`](super::client).

use tidegate_core::time::Nanos;

use super::client::{Stall, State};
use super::{Loop, Phase};

/// A client that takes (or gives) nothing for so long is cut off.
const STUCK: Nanos = Nanos::from_secs(60);
/// The same while the daemon ends.
const STUCK_AT_END: Nanos = Nanos::from_secs(5);

impl Loop {
    /// The connection broke, or the client closed it without a word.
    pub(super) fn vanish(&mut self, index: u32, errno: Option<i32>) {
        let Some(client) = self.clients.get(index) else {
            return;
        };
        if client.state == State::Gone {
            return self.settle(index);
        }
        let export = &self.device.disks[client.disk].disk.export;
        let why = errno.map_or("closed without a word".to_owned(), |e| {
            std::io::Error::from_raw_os_error(e).to_string()
        });
        let outstanding = client.outstanding;
        tracing::info!(%export, peer = %client.peer, outstanding, "client gone: {why}");
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
        if client.stall == Some(Stall::Memory) {
            self.memory_waiters -= 1;
        }
        let payload = client.rx.payload.take().map(|(slot, _)| slot);
        for slot in payload
            .into_iter()
            .chain(client.rx.waiting)
            .chain(client.tx.queue)
        {
            self.forget(slot);
        }
        if let Some(heads) = client.tx.heads {
            self.plumbing.put(heads);
        }
        self.plumbing.put(client.rx.buffer);
        self.ring.remove_file(client.file);
        self.freed = true;
    }

    /// Ends clients that take none of their replies, or stop within a payload.
    pub(super) fn cut_off_stuck(&mut self) {
        let patience = if self.phase == Phase::Running {
            STUCK
        } else {
            STUCK_AT_END
        };
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
                let export = &self.device.disks[client.disk].disk.export;
                tracing::warn!(%export, peer = %client.peer, "client cut off: {what} for {patience}");
                self.close(index);
            }
        }
    }
}
