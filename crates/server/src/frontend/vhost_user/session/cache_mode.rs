//! Cache mode of a session's driver: told to the loop, and recorded for the next session.

use super::Device;
use crate::frontend::vhost_user::config_space::{CONFIG_WCE, FLUSH};

impl Device {
    /// Tells the loop whether writes must be durable when they are answered: without `FLUSH` there
    /// is no other way to make them so, and with `CONFIG_WCE` the driver decides.
    pub(super) fn put_cache_mode(&self) {
        let write_through = self.has(CONFIG_WCE) && self.cache.writeback() != Some(true);
        self.mailbox
            .set_stable_writes(!self.has(FLUSH) || write_through);
    }

    /// Records the cache mode for the next session. A mode in which fewer writes are durable is
    /// recorded only once the front-end has the answer to its message: until then the driver may
    /// count on the mode before.
    pub(super) fn keep_cache_mode(&self) {
        // The driver of a disk that is still with another daemon may know another mode.
        let is_settled = (self.user.as_ref()).is_none_or(|user| user.is_settled());
        if let Some(region) = &self.inflight
            && self.cache.writeback().is_some()
            && (self.cache.is_certain() || is_settled)
        {
            region.set_writeback(self.cache.writeback());
        }
    }

    /// Settles the cache mode of the driver that is about to use the disk.
    pub(super) fn settle_cache_mode(&mut self) {
        let arrival = self.user.as_mut().and_then(|user| user.take_arrival());
        if arrival.is_some_and(|arrival| self.cache.has_arrived(arrival)) {
            if let Some(region) = &self.inflight {
                region.set_writeback(self.cache.writeback());
            }
            self.put_cache_mode();
        }
        self.cache.is_used();
    }

    /// Notes that the driver has started anew, so that it reads the mode that its front-end shows.
    pub(super) fn driver_was_reset(&mut self) {
        if self.cache.driver_was_reset() {
            self.put_cache_mode();
        }
    }
}
