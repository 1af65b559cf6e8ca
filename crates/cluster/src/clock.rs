//! Wall clocks of the machines of a cluster: the comparison of a placer's own with those of others.
//!
//! All decisions depend on the time, and each placer goes by the clock of its machine. One that is
//! ahead would discard jobs that wait and count running ones as done; one that is behind would take
//! the progress of others for that of the future. So a placer commits nothing if
//!
//! - a stored time is ahead of its clock, or
//! - its clock differs from those of at least half of the daemons that have joined.

use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_core::time::Nanos;
use tidegate_units::human::duration;

/// Difference up to which two clocks count as equal. Synchronised machines differ by milliseconds,
/// and by less than a second while they begin to synchronise; what a decision loses by 5 s is less
/// than the shortest deadlines of transfers.
pub(crate) const TOLERANCE: Nanos = Nanos::from_secs(5);
/// Interval at which each daemon that has joined publishes its clock.
#[cfg(feature = "etcd")]
pub(crate) const PUBLISH_INTERVAL: Duration = Duration::from_secs(10);
/// Age of a published clock, beyond the tolerance, from which on it is stale, or the own clock is
/// ahead: twice the interval of publication, for one that is late.
const LARGEST_AGE: Nanos = Nanos::from_secs(20);
/// Time to wait for stale clocks to be published again, which tells the one from the other. Daemons
/// do so after etcd was away.
const STALE_WAIT: Duration = Duration::from_secs(20);
/// Pause between two looks at stale clocks.
const STALE_PAUSE: Duration = Duration::from_millis(250);

/// Wall clock of a host, as its daemon has published it under its lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedClock {
    /// Name of the host.
    pub host: String,
    /// Time since 1970-01-01 00:00 UTC at which it was published, by that clock.
    pub time: Nanos,
}

/// Record with a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimedRecord {
    /// Host with this name.
    Host(String),
    /// Deadline transfer with this name.
    Transfer(String),
    /// Last commit of the session itself.
    OwnCommit,
}

/// Latest time of a state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoredTime {
    pub(crate) time: Nanos,
    pub(crate) record: TimedRecord,
}

/// Reason why a placer's clock cannot be relied on. The messages say job, as the command does.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClockError {
    /// A stored time is ahead of the own clock.
    #[error(
        "{record} has a time that is {} after now: the clock of this machine is behind, or that \
         of another placer was ahead; nothing was changed",
        duration(ahead.0)
    )]
    StoredAhead {
        /// Record with the time.
        record: TimedRecord,
        /// Time by which it is ahead.
        ahead: Nanos,
    },
    /// The own clock is ahead of those of others.
    #[error(
        "the clock of this machine is {} ahead of that of {}; nothing was changed",
        duration(by.0),
        hosts.join(", ")
    )]
    Ahead {
        /// Least difference.
        by: Nanos,
        /// Hosts with other clocks.
        hosts: Vec<String>,
    },
    /// The own clock is behind those of others.
    #[error(
        "the clock of this machine is {} behind that of {}; nothing was changed",
        duration(by.0),
        hosts.join(", ")
    )]
    Behind {
        /// Least difference.
        by: Nanos,
        /// Hosts with other clocks.
        hosts: Vec<String>,
    },
}

impl fmt::Display for TimedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimedRecord::Host(name) => write!(f, "host {name:?}"),
            TimedRecord::Transfer(name) => write!(f, "job {name:?}"),
            TimedRecord::OwnCommit => f.write_str("the last change of this command"),
        }
    }
}

/// Reading of a clock that goes on with the monotonic clock of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    time: Nanos,
    read_at: Instant,
}

impl ClockReading {
    /// Creates a reading of `time` now.
    pub(crate) fn new(time: Nanos) -> ClockReading {
        let read_at = Instant::now();
        ClockReading { time, read_at }
    }

    /// Returns the present time by the clock that was read. Whatever has taken long since then,
    /// such as a load while etcd elects a leader, does not look like a difference of clocks.
    pub(crate) fn present(&self) -> Nanos {
        let elapsed = u64::try_from(self.read_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.time + Nanos(elapsed)
    }

    /// Returns whether `other`, a later reading, follows from this one within `most`.
    pub(crate) fn leads_to(&self, other: &ClockReading, most: Nanos) -> bool {
        let passed = other.read_at.saturating_duration_since(self.read_at);
        let passed = Nanos(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX));
        let expected = self.time + passed;
        let differs = other.time.since(expected).max(expected.since(other.time));
        passed <= most && differs <= most
    }
}

/// Checks that a stored time is not ahead of the present one.
///
/// # Errors
/// A stored time is ahead by more than [`TOLERANCE`].
pub(crate) fn check_stored(latest: Option<&StoredTime>, present: Nanos) -> Result<(), ClockError> {
    match latest {
        Some(StoredTime { time, record }) if *time > present + TOLERANCE => {
            Err(ClockError::StoredAhead {
                record: record.clone(),
                ahead: time.since(present),
            })
        }
        _ => Ok(()),
    }
}

/// Compares the own clock with published ones, which `read` returns. Waits for stale ones to be
/// published again if the result depends on them.
///
/// # Errors
/// The own clock differs from at least half of the others, or `read` fails.
pub(crate) fn check_published<E: From<ClockError>>(
    own: &ClockReading,
    mut read: impl FnMut() -> Result<Vec<PublishedClock>, E>,
) -> Result<(), E> {
    let first = read()?;
    let end = Instant::now() + STALE_WAIT;
    let mut clocks = first.clone();
    let first: BTreeMap<_, _> = first.into_iter().map(|it| (it.host, it.time)).collect();
    loop {
        let is_last = Instant::now() >= end;
        let compared = Compared::new(own.present(), &first, &clocks);
        if let Some(result) = compared.result(is_last) {
            return result.map_err(E::from);
        }
        thread::sleep(STALE_PAUSE);
        clocks = read()?;
    }
}

/// Published clocks compared with the own one.
#[derive(Default)]
struct Compared {
    /// Number of clocks that agree with the own one.
    agree: usize,
    /// Hosts that the own clock is behind of, and by how much.
    behind: Vec<(Nanos, String)>,
    /// Hosts that the own clock is ahead of, and by how much.
    ahead: Vec<(Nanos, String)>,
    /// Number of clocks that were published too long ago, by the own clock, to tell.
    stale: usize,
}

impl Compared {
    /// Compares the own time with clocks. One that was published since the `first` look is fresh.
    fn new(own: Nanos, first: &BTreeMap<String, Nanos>, clocks: &[PublishedClock]) -> Compared {
        let mut compared = Compared::default();
        for PublishedClock { host, time } in clocks {
            if *time > own + TOLERANCE {
                compared.behind.push((time.since(own), host.clone()));
            } else if own.since(*time) <= LARGEST_AGE + TOLERANCE {
                compared.agree += 1;
            } else if first.get(host) == Some(time) {
                compared.stale += 1;
            } else {
                compared.ahead.push((own.since(*time), host.clone()));
            }
        }
        compared
    }

    /// Returns the result; `None`: it depends on clocks that are stale yet, unless this is the
    /// `last` look, which leaves them out.
    fn result(self, is_last: bool) -> Option<Result<(), ClockError>> {
        let differ = self.behind.len() + self.ahead.len();
        let stale = if is_last { 0 } else { self.stale };
        // The daemon of the own machine has the same clock, so a tie says nothing for it.
        if differ > 0 && differ >= self.agree + stale {
            return Some(Err(self.error()));
        }
        (differ + stale == 0 || self.agree > differ + stale).then_some(Ok(()))
    }

    /// Returns the error, which names the hosts on the side on which most are.
    fn error(self) -> ClockError {
        let is_behind = self.behind.len() >= self.ahead.len();
        let differing = if is_behind { self.behind } else { self.ahead };
        let by = differing.iter().map(|(by, _)| *by).min();
        let by = by.unwrap_or_default();
        let name = |(_, host): (Nanos, String)| format!("host {host:?}");
        let hosts = differing.into_iter().map(name).collect();
        if is_behind {
            ClockError::Behind { by, hosts }
        } else {
            ClockError::Ahead { by, hosts }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos::from_secs(10_000);
    const HOUR: Nanos = Nanos::from_secs(3_600);

    fn clocks(times: &[(&str, Nanos)]) -> Vec<PublishedClock> {
        let clock = |(host, time): &(&str, Nanos)| PublishedClock {
            host: (*host).to_owned(),
            time: *time,
        };
        times.iter().map(clock).collect()
    }

    /// Compares with clocks that were seen before with the times of `first`.
    fn compare(
        first: &[(&str, Nanos)],
        times: &[(&str, Nanos)],
        is_last: bool,
    ) -> Option<Result<(), ClockError>> {
        let first = first.iter().map(|(host, time)| ((*host).to_owned(), *time));
        Compared::new(NOW, &first.collect(), &clocks(times)).result(is_last)
    }

    #[test]
    fn a_clock_that_most_others_contradict_is_wrong() {
        let (right, behind) = (Nanos::from_secs(9_990), Nanos(NOW.0 - HOUR.0));
        let ahead = NOW + HOUR;
        let text = |result: Option<Result<(), ClockError>>| {
            let error = result.expect("known").expect_err("differs");
            error.to_string()
        };
        assert_eq!(compare(&[], &[], false), Some(Ok(())), "nothing to compare");
        let all = [("a", right), ("b", NOW + TOLERANCE)];
        assert_eq!(compare(&all, &all, false), Some(Ok(())));
        // One that is ahead is so whenever it was published.
        let all = [("a", ahead), ("b", ahead), ("c", right)];
        assert_eq!(
            text(compare(&all, &all, false)),
            "the clock of this machine is 3600 s behind that of host \"a\", host \"b\"; nothing \
             was changed"
        );
        let all = [("a", ahead), ("b", right), ("c", right)];
        assert_eq!(compare(&all, &all, false), Some(Ok(())), "a is wrong");
        // The own daemon has the same clock.
        let all = [("own", right), ("b", ahead)];
        assert!(text(compare(&all, &all, false)).contains("behind"));
        // One that is behind may have been published long ago.
        let old = [("a", behind), ("b", behind)];
        assert_eq!(compare(&old, &old, false), None);
        assert_eq!(compare(&old, &old, true), Some(Ok(())), "not heard of");
        let fresh = [("a", behind + Nanos::SECOND), ("b", behind + Nanos::SECOND)];
        assert_eq!(
            text(compare(&old, &fresh, false)),
            "the clock of this machine is 3599 s ahead of that of host \"a\", host \"b\"; nothing \
             was changed"
        );
        let old = [("a", behind), ("b", behind), ("c", behind)];
        let one = [("a", fresh[0].1), ("b", behind), ("c", behind)];
        assert_eq!(compare(&old, &one, false), None, "the others may agree");
        let back = [("a", right), ("b", right)];
        assert_eq!(compare(&old, &back, false), Some(Ok(())), "etcd was away");
    }

    #[test]
    fn stale_clocks_are_read_again_until_they_tell() {
        let own = ClockReading::new(NOW);
        let behind = Nanos(NOW.0 - HOUR.0);
        let mut looks = 0_u64;
        let checked = check_published(&own, || {
            looks += 1;
            let time = behind + Nanos(looks);
            Ok::<_, ClockError>(clocks(&[("a", time)]))
        });
        assert!(
            matches!(checked, Err(ClockError::Ahead { .. })),
            "{checked:?}"
        );
        assert_eq!(looks, 2);
    }

    #[test]
    fn a_stored_time_may_be_ahead_by_the_tolerance() {
        let stored = |time| StoredTime {
            time,
            record: TimedRecord::Host("a".to_owned()),
        };
        assert_eq!(check_stored(None, NOW), Ok(()));
        assert_eq!(check_stored(Some(&stored(NOW + TOLERANCE)), NOW), Ok(()));
        let ahead = TOLERANCE + Nanos(1);
        let refused = check_stored(Some(&stored(NOW + ahead)), NOW);
        let record = TimedRecord::Host("a".to_owned());
        assert_eq!(refused, Err(ClockError::StoredAhead { record, ahead }));
    }

    #[test]
    fn a_clock_that_is_set_does_not_lead_on() {
        let first = ClockReading::new(NOW);
        let at = |time| ClockReading { time, ..first };
        assert!(first.leads_to(&first, Nanos::SECOND));
        for set in [NOW + HOUR, Nanos(NOW.0 - HOUR.0)] {
            assert!(!first.leads_to(&at(set), Nanos::SECOND));
        }
        let later = ClockReading {
            time: NOW + HOUR,
            read_at: first.read_at + Duration::from_secs(3_600),
        };
        assert!(!first.leads_to(&later, Nanos::SECOND), "too long ago");
        assert!(first.leads_to(&later, HOUR));
        assert!(first.present() >= NOW);
    }
}
