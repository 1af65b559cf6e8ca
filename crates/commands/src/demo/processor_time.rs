//! Time that the demo's threads ran, and waited for a processor: on a busy machine its requests
//! wait as well, so that what it measures is not what the policies do.

use std::fs;

use serde::Serialize;
use tidegate_units::human::duration;

/// Processor time of the demo's threads.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ProcessorTime {
    /// Time on a processor in nanoseconds.
    pub(super) ran_ns: u64,
    /// Time ready to run and without a processor, in nanoseconds.
    pub(super) waited_ns: u64,
}

impl ProcessorTime {
    /// Returns the times of all threads of this process that there are now, since each began; 0
    /// where the kernel does not count them.
    pub(super) fn now() -> ProcessorTime {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
        let mut sum = ProcessorTime::default();
        for task in tasks.flatten() {
            // A thread that ends meanwhile has no file any more.
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            sum.add(ProcessorTime::parse(&text));
        }
        sum
    }

    /// Reads the line of a thread: nanoseconds on a processor, nanoseconds of waiting, and a count.
    fn parse(schedstat: &str) -> ProcessorTime {
        let mut figures = schedstat
            .split_whitespace()
            .map(|figure| figure.parse().unwrap_or_default());
        let mut next = || figures.next().unwrap_or_default();
        ProcessorTime {
            ran_ns: next(),
            waited_ns: next(),
        }
    }

    /// Returns the times since an earlier call of [`ProcessorTime::now`], as long as no thread of
    /// then has ended.
    pub(super) fn since(self, before: ProcessorTime) -> ProcessorTime {
        ProcessorTime {
            ran_ns: self.ran_ns.saturating_sub(before.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
        }
    }

    pub(super) fn add(&mut self, other: ProcessorTime) {
        self.ran_ns = self.ran_ns.saturating_add(other.ran_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
    }

    /// Returns the warning that the machine was too busy for the results to count: threads waited
    /// at least half as long as they ran. `None`: it was not.
    pub(super) fn warning(self) -> Option<String> {
        let is_busy = self.waited_ns > 0 && self.waited_ns >= self.ran_ns / 2;
        is_busy.then(|| {
            format!(
                "warning: this machine was too busy for these figures to count: the demo ran for \
                 {} and waited for a processor for {}\n  help: run it while nothing else needs \
                 the processors",
                duration(self.ran_ns),
                duration(self.waited_ns)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_wait_half_as_long_as_they_run_are_warned_of() {
        let time = ProcessorTime::parse("5428840000 2714419999 31\n");
        assert_eq!(
            (time.ran_ns, time.waited_ns),
            (5_428_840_000, 2_714_419_999)
        );
        assert_eq!(time.warning(), None);
        let mut more = time;
        more.add(ProcessorTime::parse("0 1 1"));
        let warning = more.warning().expect("half of it");
        assert!(warning.contains("ran for 5.43 s"), "{warning}");
        assert_eq!(ProcessorTime::parse("").warning(), None);
        let since = more.since(time);
        assert_eq!((since.ran_ns, since.waited_ns), (0, 1));
    }

    #[test]
    fn the_times_of_this_process_are_counted() {
        let is_counted = std::path::Path::new("/proc/self/schedstat").exists();
        assert_eq!(ProcessorTime::now().ran_ns > 0, is_counted);
    }
}
