//! The latency predictor: figure 3.3 of the thesis, steps 1 to 5.

use tidegate_base::time::Nanos;

/// So many bytes, by when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// R: bytes in all, read and written.
    pub bytes: u64,
    /// When it began.
    pub begun: Nanos,
    /// D: how long after that it is to be done.
    pub deadline: Nanos,
    /// Bytes of it that have moved so far.
    pub moved: u64,
}

impl Job {
    /// When it is to be done.
    pub fn due(&self) -> Nanos {
        Nanos(self.begun.0.saturating_add(self.deadline.0))
    }

    /// Bytes that are left.
    pub fn left(&self) -> u64 {
        self.bytes.saturating_sub(self.moved)
    }

    /// Bytes a second with which the rest ends in time, rounded up; 0 once its time is over, for
    /// then none does.
    pub fn needs(&self, now: Nanos) -> u64 {
        let time = self.due().since(now);
        let bytes = u128::from(self.left()) * u128::from(Nanos::SECOND.0);
        let rate = bytes.div_ceil(time.0.max(1).into());
        match time {
            Nanos::ZERO => 0,
            _ => u64::try_from(rate).unwrap_or(u64::MAX),
        }
    }

    /// L, at so many bytes a second: how long the rest takes, rounded up; [`Nanos::MAX`] at none.
    pub fn latency(&self, bytes_per_s: u64) -> Nanos {
        let nanos = u128::from(self.left()) * u128::from(Nanos::SECOND.0);
        match nanos {
            0 => Nanos::ZERO,
            _ if bytes_per_s == 0 => Nanos::MAX,
            _ => Nanos(u64::try_from(nanos.div_ceil(bytes_per_s.into())).unwrap_or(u64::MAX)),
        }
    }

    /// What comes of it at so many bytes a second.
    pub fn forecast(&self, now: Nanos, bytes_per_s: u64) -> Forecast {
        let latency = self.latency(bytes_per_s);
        let done = Nanos(now.0.saturating_add(latency.0));
        Forecast {
            done,
            early: self.due().since(done),
            late: done.since(self.due()),
        }
    }
}

/// When a job will be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forecast {
    /// When; [`Nanos::MAX`]: never, as things are.
    pub done: Nanos,
    /// So long before its deadline; zero when late.
    pub early: Nanos,
    /// So long after it; zero when in time.
    pub late: Nanos,
}
