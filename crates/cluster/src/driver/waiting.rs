//! Transfers that wait: tried again, placed, started, discarded.

use tidegate_place::{Event, Placement};

use super::Cluster;
use crate::error::Error;
use crate::notice::{Notice, Started};
use crate::record::Transfer;

impl Cluster<'_> {
    /// Tries all transfers that wait on every host: hosts may have come.
    pub fn retry_waiting(&mut self) {
        self.pcos.retry_all(self.session.now);
        self.settle_waiting();
    }

    /// Tries all transfers that wait on every host, and saves.
    ///
    /// # Errors
    /// If the store fails.
    pub fn retry_and_save(&mut self) -> Result<(), Error> {
        self.retry_waiting();
        self.save()
    }

    /// Discards the transfers that have waited until their deadline.
    pub fn discard_overdue(&mut self) {
        self.pcos.handle_timeout(self.session.now);
        self.settle_waiting();
    }

    /// Records what came of those that waited, and notifies of it.
    pub(super) fn settle_waiting(&mut self) {
        while let Some(event) = self.pcos.poll_event() {
            let id = match &event {
                Event::Placed(placement) => placement.id,
                Event::Discarded(id) => *id,
            };
            let name = self.name_of(id).to_owned();
            let mut all = self.state.waiting.iter();
            let Some(at) = all.position(|transfer| transfer.name == name) else {
                continue;
            };
            let waited = self.state.waiting.remove(at);
            let notice = match event {
                Event::Discarded(_) => Notice::Discarded { transfer: name },
                Event::Placed(placement) => self.placed(waited, &placement),
            };
            if !self.session.just_looking {
                (self.session.notify)(notice);
            }
        }
    }

    fn placed(&mut self, transfer: Transfer, placement: &Placement) -> Notice {
        let (name, request) = (transfer.name.clone(), transfer.request().ok());
        let start = transfer.start && !self.session.just_looking;
        if request.is_some() {
            self.begin(transfer, placement);
        }
        let host = &self.state.hosts[placement.host.0];
        let started = match request.filter(|_| start) {
            None => Started::NotAsked,
            Some(request) => {
                let socket = host.socket.as_deref().unwrap_or_default();
                match self.session.daemons.start(socket, &name, &request) {
                    Ok(()) => Started::Yes,
                    Err(error) => Started::Failed(error.to_string()),
                }
            }
        };
        Notice::Placed {
            transfer: name,
            host: host.name.clone(),
            waited: placement.waited,
            class: placement.class,
            started,
        }
    }
}
