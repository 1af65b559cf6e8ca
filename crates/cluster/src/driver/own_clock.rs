//! Clock of a session, compared with those of others before anything that was decided by it is
//! stored.

use tidegate_core::time::Nanos;

use super::Cluster;
use crate::clock::{self, ClockReading, StoredTime, TimedRecord};
use crate::error::Error;
use crate::state::ClusterState;

/// Time for which a comparison with published clocks counts: they are read once a second at most by
/// a cluster that is kept.
const CHECK_INTERVAL: Nanos = Nanos::SECOND;

/// Clock of a session, and the times to which it is compared.
pub(super) struct OwnClock {
    /// Last reading, by which decisions are made.
    reading: ClockReading,
    /// Reading at the last comparison with published clocks; `None`: there was none.
    checked: Option<ClockReading>,
    /// Latest time of the state that decisions were made on.
    latest: Option<StoredTime>,
}

impl OwnClock {
    /// Creates the clock of a session that begins at `now`, with the loaded state.
    pub(super) fn new(reading: ClockReading, state: &ClusterState) -> OwnClock {
        OwnClock {
            reading,
            checked: None,
            latest: state.latest_time(),
        }
    }

    /// Goes on at a later reading.
    pub(super) fn set(&mut self, now: Nanos) {
        self.reading = ClockReading::new(now);
    }

    /// Replaces the times by those of a whole state.
    pub(super) fn look_at(&mut self, state: &ClusterState) {
        self.latest = state.latest_time();
    }

    /// Adds the times of a part of the state, which has changed. With a time that is ahead the
    /// `whole` state is looked at: its record may be gone.
    pub(super) fn look_at_part(&mut self, part: &ClusterState, whole: &ClusterState) {
        self.add(part.latest_time());
        if self.check_stored().is_err() {
            self.look_at(whole);
        }
    }

    /// Adds the time of a commit that was decided by the clock itself, which may be set back after
    /// it.
    pub(super) fn committed(&mut self, now: Nanos) {
        if self.latest.as_ref().is_none_or(|latest| latest.time < now) {
            let record = TimedRecord::OwnCommit;
            self.latest = Some(StoredTime { time: now, record });
        }
    }

    fn add(&mut self, time: Option<StoredTime>) {
        let latest = self.latest.take().into_iter().chain(time);
        self.latest = latest.max_by_key(|latest| latest.time);
    }

    fn check_stored(&self) -> Result<(), clock::ClockError> {
        clock::check_stored(self.latest.as_ref(), self.reading.present())
    }
}

impl Cluster<'_> {
    /// Checks the clock of the session.
    ///
    /// # Errors
    /// The clock, or another one that has stored something, is wrong; or the store cannot be read.
    pub(super) fn check_clock(&mut self) -> Result<(), Error> {
        self.clock.check_stored()?;
        let reading = self.clock.reading;
        let is_checked = |before: &ClockReading| before.leads_to(&reading, CHECK_INTERVAL);
        if self.clock.checked.as_ref().is_some_and(is_checked) {
            return Ok(());
        }
        let store = self.session.store;
        clock::check_published(&reading, || store.clocks().map_err(Error::from))?;
        self.clock.checked = Some(reading);
        Ok(())
    }
}
