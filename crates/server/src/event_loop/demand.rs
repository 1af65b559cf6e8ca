//! Demand of a thread for processor time: how long it ran or waited for a processor.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use tidegate_core::time::Nanos;

/// Thread whose demand is read once in a while.
#[derive(Debug)]
pub(super) struct Demand {
    /// `/proc/<pid>/task/<tid>/schedstat`: time on processors and time in run queues in
    /// nanoseconds, and a count.
    file: File,
    /// Sum of the two times when they were read last.
    last: u64,
}

impl Demand {
    /// Begins to observe the calling thread.
    ///
    /// # Errors
    /// Fails if the kernel keeps no statistics of threads (`CONFIG_SCHED_INFO`) or `/proc` is not
    /// mounted.
    pub(super) fn of_this_thread() -> io::Result<Demand> {
        let file = File::open("/proc/thread-self/schedstat")?;
        let mut demand = Demand { file, last: 0 };
        demand.last = demand.read()?;
        Ok(demand)
    }

    /// Returns the part of `elapsed`, the time since the last call, for which the thread ran or
    /// waited for a processor, in thousandths.
    ///
    /// # Errors
    /// If the file cannot be read, as after the thread has ended.
    pub(super) fn take(&mut self, elapsed: Nanos) -> io::Result<u32> {
        let now = self.read()?;
        let wanted = now.saturating_sub(std::mem::replace(&mut self.last, now));
        Ok((wanted.saturating_mul(1000) / elapsed.0.max(1)).min(1000) as u32)
    }

    fn read(&self) -> io::Result<u64> {
        // Three numbers of at most 20 digits.
        let mut text = [0; 64];
        let n = self.file.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(&text[..n]).map_err(io::Error::other)?;
        let mut times = text.split_ascii_whitespace().map(str::parse::<u64>);
        match (times.next(), times.next()) {
            (Some(Ok(ran)), Some(Ok(waited))) => Ok(ran + waited),
            _ => Err(io::Error::other("a schedstat of another form")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::clock;

    #[test]
    fn a_thread_that_works_wants_more_than_one_that_sleeps() {
        let mut demand = Demand::of_this_thread().expect("Linux keeps statistics");
        let began = clock();
        while clock().since(began) < Nanos::from_millis(50) {}
        let works = demand.take(clock().since(began)).expect("it runs");
        let began = clock();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let sleeps = demand.take(clock().since(began)).expect("it runs");
        assert!(works > 500 && works > sleeps, "{works} {sleeps}");
    }
}
