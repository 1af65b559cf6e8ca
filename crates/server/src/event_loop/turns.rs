//! Whose requests are taken next: each client that has sent some has its turn, with a budget; who was
//! stopped for lack of room or memory goes first once some is free.

use super::Loop;
use super::client::Stall;

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

    /// Gives each ready client, stalled ones first, its turn.
    pub(super) fn serve(&mut self) {
        if std::mem::take(&mut self.freed) {
            self.serve_stalled();
        }
        for _ in 0..self.ready.len() {
            let index = self.ready.pop_front().expect("counted");
            let Some(client) = self.clients.get(index) else {
                continue;
            };
            client.ready = false;
            self.serve_client(index, false);
        }
    }

    /// Who has waited longest for memory takes first. While that one does not get what it wants
    /// nobody behind it gets any: many short requests would pass over a long one for ever.
    fn serve_stalled(&mut self) {
        let mut refused = false;
        for _ in 0..self.stalled.len() {
            let index = self.stalled.pop_front().expect("counted");
            let Some(client) = self.clients.get(index) else {
                continue;
            };
            let Some(stall) = client.stall.take() else {
                continue;
            };
            let wanted = client.rx.held;
            let waited_for_memory = stall == Stall::Memory;
            self.memory_waiters -= u32::from(waited_for_memory);
            let first = waited_for_memory && !refused;
            self.serve_client(index, first);
            // Only a first one's refusal says that there is too little.
            refused |= first
                && self
                    .clients
                    .get(index)
                    .is_some_and(|c| c.stall == Some(Stall::Memory) && c.rx.held == wanted);
        }
    }

    /// `first`: those who wait for memory longer are behind this one.
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
            Served::Stalled(stall) => {
                let client = self.clients.get(index).expect("it was just served");
                client.stall = Some(stall);
                self.memory_waiters += u32::from(stall == Stall::Memory);
                self.stalled.push_back(index);
            }
        }
    }
}
