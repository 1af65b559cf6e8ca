//! What is asked for: so many bytes, by when.

use tidegate_core::jobs::Job;
use tidegate_core::time::Nanos;

/// A job that looks for a host. Figure 5.7's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    bytes: u64,
    deadline: Nanos,
    /// [`u64::MAX`]: it takes all that it is given.
    limit: u64,
}

/// What is no job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// It has no bytes.
    #[error("a job of no bytes is done; it needs one byte at least")]
    NoBytes,
    /// It has no time.
    #[error("a job is to be done in no time; it needs a nanosecond at least")]
    NoTime,
    /// It does not take as much as it needs.
    #[error(
        "a job that takes {limit} bytes a second at most is late whatever it is given: it needs \
         {needs}"
    )]
    TooSlow {
        /// What it takes, in bytes a second.
        limit: u64,
        /// What it needs.
        needs: u64,
    },
}

impl Request {
    /// So many bytes, in this time from when it begins to run.
    ///
    /// # Errors
    /// Without bytes, or without time.
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

    /// The same, of somebody who takes so many bytes a second at most, whatever it is given.
    ///
    /// # Errors
    /// When it would be late with that.
    pub fn limited(self, limit: u64) -> Result<Request, RequestError> {
        let needs = self.rate();
        if limit < needs {
            Err(RequestError::TooSlow { limit, needs })
        } else {
            Ok(Request { limit, ..self })
        }
    }

    /// What it takes at most, in bytes a second; [`u64::MAX`]: all that it is given.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// R: bytes in all, read and written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// D: how long after its beginning it is to be done, and how long it may wait at most before
    /// that.
    pub fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// What it needs to be in time, in bytes a second, rounded up.
    pub fn rate(&self) -> u64 {
        needed(self.bytes, self.deadline)
    }

    /// The shortest deadline at so many bytes a second: `None` at none.
    pub(crate) fn deadline_at(&self, bytes_per_s: u64) -> Option<Nanos> {
        let latency = self.begun(Nanos::ZERO).latency(bytes_per_s);
        (latency < Nanos::MAX).then_some(latency)
    }

    /// As a job that begins now.
    pub fn begun(&self, now: Nanos) -> Job {
        Job {
            bytes: self.bytes,
            begun: now,
            deadline: self.deadline,
            moved: 0,
        }
    }
}

/// The bytes a second at which this many are through in this time, rounded up; [`u64::MAX`] where
/// there is no time.
///
/// A job is in time at a rate exactly where that is no less: latencies are rounded up to
/// nanoseconds, and times are whole numbers of them.
pub(crate) fn needed(bytes: u64, time: Nanos) -> u64 {
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
        let request = Request::new(10, Nanos::from_secs(3)).expect("it is one");
        assert_eq!(request.rate(), 4);
        assert_eq!(request.deadline_at(4), Some(Nanos(2_500_000_000)));
        assert_eq!(request.deadline_at(0), None);
    }

    proptest! {
        #[test]
        fn a_rate_is_enough_exactly_from_the_needed_one_on(
            bytes in 0_u64..1 << 45,
            time in 0_u64..1 << 42,
            by in 0_u64..3,
        ) {
            let needed = needed(bytes, Nanos(time));
            let job = Job { bytes, begun: Nanos::ZERO, deadline: Nanos(time), moved: 0 };
            let in_time = |rate| job.latency(rate) <= Nanos(time);
            if needed < u64::MAX {
                prop_assert!(in_time(needed + by));
            }
            if needed > by {
                prop_assert!(!in_time(needed - by - 1));
            }
        }
    }
}
