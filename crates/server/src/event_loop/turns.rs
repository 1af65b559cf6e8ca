//! Order in which clients are served: each client with bytes to parse gets a turn with a budget. A
//! client that stopped because its VM has no request slot or payload memory goes on when the engine
//! reports that there is some.

use tidegate_nbd::{Command, Request};

use super::client::Stall;
use super::slots::ClientRef;
use super::{Loop, Token};

/// What serving a client for a while came to.
pub(super) enum Served {
    /// All was parsed: receive more.
    Hungry,
    /// Its budget is used up.
    Again,
    /// It cannot go on before something is freed.
    Stalled(Stall),
    /// Nothing more is taken from it.
    Ended,
}

impl Loop {
    /// Gives a client that has something to parse a place among those that wait for their turn.
    pub(super) fn make_ready(&mut self, index: u32) {
        let Some(client) = self.clients.get(index) else {
            return;
        };
        if !client.ready {
            client.ready = true;
            self.ready.push_back(index);
        }
    }

    /// Serves the stalled clients that may go on, then gives each ready client one turn.
    pub(super) fn serve(&mut self) {
        self.serve_unblocked();
        for _ in 0..self.ready.len() {
            let index = self.ready.pop_front().expect("counted");
            let Some(client) = self.clients.get(index) else {
                continue;
            };
            client.ready = false;
            self.serve_client(index, false);
        }
    }

    /// Serves the stalled clients of VMs that have slots or memory again. The clients of a VM go in
    /// the order in which they stopped; the first that still finds too little ends the VM's turn,
    /// so that none behind it overtakes it.
    pub(super) fn serve_unblocked(&mut self) {
        while let Some(id) = self.engine.poll_unblocked() {
            let vm = self.vm_by_id[id.index()];
            for kind in 0..self.vms[vm].stalled.len() {
                while let Some(index) = self.vms[vm].stalled[kind].pop_front() {
                    let Some(client) = self.clients.get(index) else {
                        continue;
                    };
                    client.stall = None;
                    self.handed_in_late = true;
                    self.serve_client(index, true);
                    if self.vms[vm].stalled[kind].front() == Some(&index) {
                        break;
                    }
                }
            }
        }
    }

    /// Serves one client for a turn. With `first` the client was at the head of its VM's queue of
    /// stalled clients.
    fn serve_client(&mut self, index: u32, first: bool) {
        let Some(client) = self.clients.get(index) else {
            return;
        };
        if client.stall.is_some() || client.rx.receiving {
            return;
        }
        match self.take_requests(index, first) {
            Served::Hungry => self.touch(index),
            Served::Again => self.make_ready(index),
            Served::Ended => {}
            Served::Stalled(stall) => self.stall(index, stall),
        }
    }

    /// Handles a completed poll: the socket of a client that was stalled has bytes to receive, or
    /// was closed.
    pub(super) fn became_readable(&mut self, who: ClientRef) {
        let now = self.now;
        let Some(client) = self.clients.resolve(who) else {
            return;
        };
        client.rx.polling = false;
        // Only a client that is still stalled leaves these bytes waiting; any other receives them
        // at once.
        if matches!(client.stall, Some(Stall::Intake { .. })) {
            client.rx.drained = false;
            client.rx.next_since = Some(now);
        }
    }

    fn stall(&mut self, index: u32, stall: Stall) {
        let now = self.now;
        let client = self.clients.get(index).expect("it was just served");
        client.stall = Some(stall);
        let Stall::Intake { first } = stall else {
            return;
        };
        client.rx.since.get_or_insert(now);
        if client.rx.drained && !client.rx.polling {
            // A poll tells when bytes arrive while none are received, so that their wait counts as
            // latency.
            client.rx.polling = true;
            let who = ClientRef {
                index,
                generation: client.generation,
            };
            let token = Token::Readable(who).encode();
            self.ring.await_readable(client.file, token);
        }
        let held = client.rx.held.as_ref().expect("a request waits");
        let vm = self.device.vm_of(client.disk);
        let queue = &mut self.vms[vm].stalled[queue_of(held)];
        if first {
            queue.push_front(index);
        } else {
            queue.push_back(index);
        }
    }
}

/// Index into `Vm::stalled` for a request: writes and reads use separate payload
/// memory.
pub(super) fn queue_of(request: &Request) -> usize {
    usize::from(request.command != Command::Write)
}
