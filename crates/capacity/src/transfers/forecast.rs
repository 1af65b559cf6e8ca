//! Latency predictor: steps 1 to 5 of figure 3.3 of the thesis that the module
//! [`transfers`](super) cites.

use tidegate_base::time::Nanos;

/// Deadline transfer: an amount of data with a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// R: bytes to read and write in total.
    pub bytes: u64,
    /// Time of its start.
    pub begun: Nanos,
    /// D: time from the start until it is to be done.
    pub deadline: Nanos,
    /// Bytes moved so far.
    pub moved: u64,
}

impl Transfer {
    /// Returns the time at which the transfer is to be done.
    pub fn due_time(&self) -> Nanos {
        Nanos(self.begun.0.saturating_add(self.deadline.0))
    }

    /// Bytes still to move.
    pub fn bytes_left(&self) -> u64 {
        self.bytes.saturating_sub(self.moved)
    }

    /// Bytes per second with which the rest ends in time, rounded up; 0 once the deadline has
    /// passed, because no rate meets it any more.
    pub fn required_bytes_per_s(&self, now: Nanos) -> u64 {
        let time = self.due_time().since(now);
        let bytes = u128::from(self.bytes_left()) * u128::from(Nanos::SECOND.0);
        let rate = bytes.div_ceil(time.0.max(1).into());
        match time {
            Nanos::ZERO => 0,
            _ => u64::try_from(rate).unwrap_or(u64::MAX),
        }
    }

    /// L: time that the rest takes at a bandwidth, rounded up; [`Nanos::MAX`] at 0 bytes per
    /// second.
    pub fn latency(&self, bytes_per_s: u64) -> Nanos {
        // Bytes times nanoseconds per second; divided by bytes per second they are nanoseconds.
        let scaled_bytes = u128::from(self.bytes_left()) * u128::from(Nanos::SECOND.0);
        match scaled_bytes {
            0 => Nanos::ZERO,
            _ if bytes_per_s == 0 => Nanos::MAX,
            _ => {
                Nanos(u64::try_from(scaled_bytes.div_ceil(bytes_per_s.into())).unwrap_or(u64::MAX))
            }
        }
    }

    /// Forecasts the end of the transfer at a bandwidth.
    pub fn forecast(&self, now: Nanos, bytes_per_s: u64) -> Forecast {
        let latency = self.latency(bytes_per_s);
        let done = Nanos(now.0.saturating_add(latency.0));
        Forecast {
            done,
            early: self.due_time().since(done),
            late: done.since(self.due_time()),
        }
    }
}

/// Forecast of the end of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forecast {
    /// Time of the end; [`Nanos::MAX`]: never at this bandwidth.
    pub done: Nanos,
    /// Time by which the end precedes the deadline; zero if late.
    pub early: Nanos,
    /// Time by which the end exceeds the deadline; zero if in time.
    pub late: Nanos,
}
