//! Cache mode that a driver counts on: with a write-back cache it flushes, otherwise each write has
//! to be durable when it is answered.
//!
//! ```text
//!   GET_CONFIG, before queues run --> shown      disk was here: the driver has read it
//!   SET_CONFIG, record of requests --> certain   disk has arrived: the mode that came with it,
//!                                                or open until SET_CONFIG or a reset
//! ```
//!
//! A front-end reads the configuration for itself, also for a driver that migrates here later. Such
//! a driver does not read the mode again, and QEMU does not set the one that it knows.

use serde::{Deserialize, Serialize};

use crate::backing::Arrival;

/// Cache mode of the driver, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct CacheMode {
    /// True for a write-back cache; `None` if the driver may know a mode that was set before this
    /// session.
    writeback: Option<bool>,
    /// Mode that the front-end shows to a driver that starts anew; `None` if this session has not
    /// told it one.
    shown: Option<bool>,
    /// True once the mode is the driver's, not only what a front-end has read.
    is_certain: bool,
    /// True from the arrival of a driver whose mode is unknown until it sets the mode or starts
    /// anew. Each write is durable meanwhile.
    is_open: bool,
}

impl CacheMode {
    /// Returns the mode, true for a write-back cache; `None` if it is unknown.
    pub(super) fn writeback(&self) -> Option<bool> {
        self.writeback
    }

    /// Returns true once the mode is the driver's, not only what a front-end has read.
    pub(super) fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Notes that the driver is about to use the disk: the mode that is known is its.
    pub(super) fn is_used(&mut self) {
        self.is_certain = self.writeback.is_some();
    }

    /// Notes that the driver has started anew, so that it reads the mode that its front-end shows.
    /// Returns false if this session has shown it none.
    pub(super) fn driver_was_reset(&mut self) -> bool {
        if self.shown.is_some() {
            (self.writeback, self.is_open) = (self.shown, false);
        }
        self.shown.is_some()
    }

    /// Notes that a front-end has read the mode while no queue ran. A driver that starts then knows
    /// it; one that runs may know another, from an earlier session.
    pub(super) fn was_read(&mut self) {
        if !self.is_open {
            self.writeback.get_or_insert(true);
            self.shown = self.writeback;
        }
    }

    /// Notes that the driver has set the mode.
    pub(super) fn was_set(&mut self, writeback: bool) {
        *self = CacheMode {
            writeback: Some(writeback),
            shown: Some(writeback),
            is_certain: true,
            is_open: false,
        };
    }

    /// Notes the mode that an earlier session has recorded, if it did. A front-end that connects
    /// again does not ask for the mode, which its driver knows.
    pub(super) fn was_recorded(&mut self, before: Option<bool>) {
        self.writeback = match (self.writeback, before) {
            (Some(now), Some(before)) => Some(now && before),
            (now, before) => now.or(before),
        };
        self.shown = self.shown.and(self.writeback);
        self.is_certain |= before.is_some();
        self.is_open &= self.writeback.is_none();
    }

    /// Notes that the disk has arrived with a driver. Returns false if it is the one that is known:
    /// a migration was cancelled.
    pub(super) fn has_arrived(&mut self, arrival: Arrival) -> bool {
        if !self.is_certain {
            self.writeback = arrival.writeback;
            self.is_open = arrival.writeback.is_none();
        }
        !self.is_certain
    }
}
