//! Placement request: number of bytes and a deadline.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Transfer;

/// Transfer that needs a host (input of figure 5.7 of Jain's thesis).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    bytes: u64,
    deadline: Nanos,
    /// Largest rate that the transfer can use, in bytes per second; [`u64::MAX`]: unlimited.
    limit: u64,
}

/// Invalid request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// Transfer of 0 bytes.
    #[error("the size is 0 bytes; it must be at least 1 byte")]
    NoBytes,
    /// Deadline of 0.
    #[error("the deadline is 0; it must be at least 1 ns")]
    NoTime,
    /// Rate limit below the rate needed to meet the deadline.
    #[error("the limit of {limit} B/s is below the {needs} B/s that the deadline needs")]
    TooSlow {
        /// Limit in bytes per second.
        limit: u64,
        /// Needed rate in bytes per second.
        needs: u64,
    },
}

impl Request {
    /// Creates a request for `bytes`, to be moved within `deadline` of the start.
    ///
    /// # Errors
    /// `bytes` or `deadline` is 0.
    pub fn new(bytes: u64, deadline: Nanos) -> Result<Request, RequestError> {
        match (bytes, deadline) {
            (0, _) => Err(RequestError::NoBytes),
            (_, Nanos::ZERO) => Err(RequestError::NoTime),
            (bytes, deadline) => Ok(Request {
                bytes,
                deadline,
                limit: u64::MAX,
            }),
        }
    }

    /// Declares that the transfer can use at most `limit` bytes per second.
    ///
    /// # Errors
    /// The limit is below the needed rate.
    pub fn limited(self, limit: u64) -> Result<Request, RequestError> {
        let needs = self.rate();
        if limit < needs {
            Err(RequestError::TooSlow { limit, needs })
        } else {
            Ok(Request { limit, ..self })
        }
    }

    /// Largest rate that the transfer can use, in bytes per second; [`u64::MAX`]: unlimited.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Total bytes, read and written (R).
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Maximum duration from the start (D). A request that waits longer than this for a host is
    /// discarded.
    pub fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Rate needed to meet the deadline, in bytes per second, rounded up.
    pub fn rate(&self) -> u64 {
        needed(self.bytes, self.deadline)
    }

    /// Shortest deadline that `bytes_per_s` meets; `None` if that is 0.
    pub(crate) fn deadline_at(&self, bytes_per_s: u64) -> Option<Nanos> {
        let latency = self.start_at(Nanos::ZERO).latency(bytes_per_s);
        (latency < Nanos::MAX).then_some(latency)
    }

    /// Returns the transfer that starts at `now`.
    pub fn start_at(&self, now: Nanos) -> Transfer {
        Transfer {
            bytes: self.bytes,
            begun: now,
            deadline: self.deadline,
            moved: 0,
        }
    }
}

/// Rate in bytes per second that moves `bytes` in `time`, rounded up; [`u64::MAX`] if `time` is 0.
///
/// A transfer is in time exactly at rates of at least this value, because latencies are rounded up
/// to nanoseconds and times are whole nanoseconds.
pub(crate) fn needed(bytes: u64, time: Nanos) -> u64 {
    // 128 bits: bytes times nanoseconds exceed 64 bits from 18 GB on.
    let nanos = u128::from(bytes) * u128::from(Nanos::SECOND.0);
    match (bytes, time) {
        (0, _) => 0,
        (_, Nanos::ZERO) => u64::MAX,
        (_, time) => u64::try_from(nanos.div_ceil(time.0.into())).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_has_bytes_and_time() {
        assert_eq!(Request::new(0, Nanos::SECOND), Err(RequestError::NoBytes));
        assert_eq!(Request::new(1, Nanos::ZERO), Err(RequestError::NoTime));
        let request = Request::new(10, Nanos::from_secs(3)).expect("valid");
        assert_eq!(request.rate(), 4);
        assert_eq!(request.deadline_at(4), Some(Nanos(2_500_000_000)));
        assert_eq!(request.deadline_at(0), None);
    }

    proptest! {
        #[test]
        fn the_needed_rate_is_the_lowest_that_meets_the_deadline(
            bytes in 0_u64..1 << 45,
            time in 0_u64..1 << 42,
            by in 0_u64..3,
        ) {
            let needed = needed(bytes, Nanos(time));
            let transfer = Transfer { bytes, begun: Nanos::ZERO, deadline: Nanos(time), moved: 0 };
            let in_time = |rate| transfer.latency(rate) <= Nanos(time);
            if needed < u64::MAX {
                prop_assert!(in_time(needed + by));
            }
            if needed > by {
                prop_assert!(!in_time(needed - by - 1));
            }
        }
    }
}
