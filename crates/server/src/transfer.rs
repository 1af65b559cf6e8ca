//! Deadline transfers of served VMs: an amount of data and a deadline on the wall clock.
//!
//! The engine counts a transfer from the time at which this daemon started or resumed it, on the
//! monotonic clock. This module adds the part before a restart and the wall-clock times.

mod placements;
mod times;

use jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Transfer, TransferOutcome, TransferStatus};
use tidegate_units::human::bytes_and_count;

pub use placements::BegunPlacements;
pub(crate) use times::{after, before, between, span, to_the_millisecond};

/// Request for a deadline transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferOrder {
    /// R: bytes to be read and written in total.
    pub bytes: u64,
    /// Deadline.
    pub due: Due,
    /// Replaces a transfer of the VM that is still running.
    pub replace: bool,
    /// Maximum rate in bytes per second that the transfer may need; `None` for no maximum.
    pub most: Option<u64>,
    /// Time at which a cluster has placed it, in nanoseconds since 1970, which with the VM's name
    /// identifies the placement; `None`: it is an operator's.
    pub placed_ns: Option<u64>,
}

impl TransferOrder {
    /// Returns the rate in bytes per second that the transfer needs to end within `deadline`.
    pub fn needs(&self, deadline: Nanos) -> u64 {
        let transfer = Transfer {
            bytes: self.bytes,
            begun: Nanos::ZERO,
            // A deadline that has passed needs an infinite rate; 1 ns comes close without dividing
            // by 0.
            deadline: deadline.max(Nanos(1)),
            moved: 0,
        };
        transfer.required_bytes_per_s(Nanos::ZERO)
    }

    /// Returns the time that the transfer takes at a rate in bytes per second; [`Nanos::MAX`] at 0.
    pub fn takes(&self, bytes_per_s: u64) -> Nanos {
        let transfer = Transfer {
            bytes: self.bytes,
            begun: Nanos::ZERO,
            deadline: Nanos::MAX,
            moved: 0,
        };
        transfer.latency(bytes_per_s)
    }
}

/// Deadline of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Time after the beginning.
    In(Nanos),
    /// Point in time.
    At(Timestamp),
    /// Time that the device needs for the transfer beside its present VMs, and a tolerance on top
    /// of it in thousandths: equations 4.1 and 4.2 of PriDyn's thesis.
    Tolerance(u64),
}

impl Due {
    /// Returns the time from `now` to the deadline, 0 if it has passed; `None` for a tolerance,
    /// whose deadline follows from the device's speed, which only its event loop knows.
    pub fn span(&self, now: Timestamp) -> Option<Nanos> {
        match *self {
            Due::In(span) => Some(span),
            Due::At(due) => Some(between(now, due)),
            Due::Tolerance(_) => None,
        }
    }
}

/// Wall-clock part of a running transfer, which the engine does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Since {
    /// Beginning, to the millisecond; distinguishes the transfers of a VM.
    pub begun: Timestamp,
    /// Deadline.
    pub due: Timestamp,
    /// Bytes that had moved when this daemon started or resumed the transfer.
    pub moved: u64,
    /// Time by which the deadline had passed at that moment; 0 if it had not.
    pub overdue: Nanos,
    /// Time of its placement by a cluster, in nanoseconds since 1970; `None`: it is an operator's.
    pub placed_ns: Option<u64>,
}

/// Forecast of the time at which a transfer ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outlook {
    /// Neither the VM's bandwidth nor that of the device has been measured.
    Unknown,
    /// Never: the VM moves no data.
    Never,
    /// Time from now.
    In(Nanos),
}

/// Transfer that is running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunningTransfer {
    /// Wall-clock part.
    pub since: Since,
    /// State in the engine, which counts only what was left when this daemon resumed the transfer.
    pub status: TransferStatus,
    /// Forecast of the end at the present bandwidth.
    pub outlook: Outlook,
    /// Bandwidth of the whole device in bytes per second; 0 if it is not known.
    pub capacity: u64,
    /// True if the policy in force enforces deadlines.
    pub enforced: bool,
}

impl RunningTransfer {
    /// Returns R, the bytes in total.
    pub fn bytes(&self) -> u64 {
        self.status.transfer.bytes.saturating_add(self.since.moved)
    }

    /// Returns the bytes that have moved, at most [`RunningTransfer::bytes`].
    pub fn moved(&self) -> u64 {
        let moved = self.status.transfer.moved.saturating_add(self.since.moved);
        // The last request may overshoot the total.
        moved.min(self.bytes())
    }

    /// Returns the time by which the transfer ends before its deadline; 0 if it does not, `None`
    /// without a forecast.
    pub fn early(&self) -> Option<Nanos> {
        match self.outlook {
            Outlook::Unknown => None,
            // The deadline had passed when the daemon resumed the transfer.
            _ if self.since.overdue > Nanos::ZERO => Some(Nanos::ZERO),
            _ => Some(self.status.forecast.early),
        }
    }

    /// Returns the time by which the transfer misses its deadline; 0 if it does not, [`Nanos::MAX`]
    /// if it never ends, `None` without a forecast.
    pub fn late(&self) -> Option<Nanos> {
        let late = self.status.forecast.late.0;
        match self.outlook {
            Outlook::Unknown => None,
            Outlook::Never => Some(Nanos::MAX),
            // The engine counts from the resume, so the time that had passed before is added.
            Outlook::In(_) => Some(Nanos(late.saturating_add(self.since.overdue.0))),
        }
    }

    /// Returns the highest bandwidth in bytes per second that the transfer can hope for: that of
    /// the whole device, or of the VM if that is higher; 0 if neither is known.
    pub fn best_bandwidth(&self) -> u64 {
        self.capacity.max(self.status.bandwidth.unwrap_or(0))
    }

    /// Returns the time from now that the rest takes with the whole device; `None` if the bandwidth
    /// is not known.
    pub fn at_best(&self) -> Option<Nanos> {
        let best = self.best_bandwidth();
        (best > 0).then(|| self.status.transfer.latency(best))
    }

    /// Returns the state that the store keeps.
    pub fn to_persisted(&self) -> PersistedTransfer {
        PersistedTransfer {
            bytes: self.bytes(),
            moved: self.moved(),
            begun: self.since.begun,
            due: self.since.due,
            placed_ns: self.since.placed_ns,
        }
    }
}

/// Transfer that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedTransfer {
    /// Bytes in total.
    pub bytes: u64,
    /// Bytes that had moved.
    pub moved: u64,
    /// Beginning.
    pub begun: Timestamp,
    /// Deadline.
    pub due: Timestamp,
    /// End.
    pub ended: Timestamp,
    /// Time by which it ended before the deadline; 0 if late.
    pub early: Nanos,
    /// Time by which it ended after the deadline; 0 if in time.
    pub late: Nanos,
    /// Outcome in the engine.
    pub outcome: TransferOutcome,
    /// Time of its placement by a cluster, in nanoseconds since 1970; `None`: it is an operator's.
    pub placed_ns: Option<u64>,
}

impl EndedTransfer {
    /// Returns the result: cancelled, or met or missed by the lateness.
    pub fn result(&self) -> TransferResult {
        match (self.outcome, self.late) {
            (TransferOutcome::Cancelled, _) => TransferResult::Cancelled,
            (TransferOutcome::Done, Nanos::ZERO) => TransferResult::Met,
            (TransferOutcome::Done, _) => TransferResult::Missed,
        }
    }
}

/// Result of a transfer that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferResult {
    /// Done by its deadline.
    Met,
    /// Done after its deadline.
    Missed,
    /// Cancelled before it was done.
    Cancelled,
}

impl TransferResult {
    /// Returns `met`, `missed` or `cancelled`, as in the API and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            TransferResult::Met => "met",
            TransferResult::Missed => "missed",
            TransferResult::Cancelled => "cancelled",
        }
    }
}

/// Counts of a VM's ended transfers by result.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EndedTransfers {
    /// Done by their deadlines.
    pub met: u64,
    /// Done after their deadlines.
    pub missed: u64,
    /// Cancelled.
    pub cancelled: u64,
}

impl EndedTransfers {
    /// Adds one transfer.
    pub fn count(&mut self, result: TransferResult) {
        match result {
            TransferResult::Met => self.met += 1,
            TransferResult::Missed => self.missed += 1,
            TransferResult::Cancelled => self.cancelled += 1,
        }
    }

    /// Returns the sum over all results.
    pub fn total(&self) -> u64 {
        self.met + self.missed + self.cancelled
    }
}

/// Deadline transfers of a VM, counted since the daemon started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VmTransfers {
    /// Running transfer, if any.
    pub running: Option<RunningTransfer>,
    /// Transfer that ended last.
    pub last: Option<EndedTransfer>,
    /// Counts of ended transfers.
    pub ended: EndedTransfers,
    /// Placements by a cluster that have begun, also before the daemon was restarted.
    pub begun_placements: BegunPlacements,
}

/// Transfers of a VM as the store keeps them: the running one, if any, and placements that have
/// begun.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PersistedTransfers {
    /// Running transfer.
    pub running: Option<PersistedTransfer>,
    /// Placements by a cluster that have begun.
    pub begun_placements: BegunPlacements,
}

impl PersistedTransfers {
    /// Returns whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        *self == PersistedTransfers::default()
    }

    /// Serialises the transfers as JSON, for [`PersistedTransfers::read`].
    pub fn words(&self) -> String {
        let running = self.running;
        let mut words = running.map_or_else(|| json!({}), PersistedTransfer::to_json);
        if self.begun_placements != BegunPlacements::default() {
            words["begun_placements"] = self.begun_placements.as_slice().into();
        }
        words.to_string()
    }

    /// Parses the JSON that [`PersistedTransfers::words`] writes.
    ///
    /// # Errors
    /// If a field is missing or malformed, or a running transfer has no bytes left to move.
    pub fn read(text: &str) -> Result<PersistedTransfers, String> {
        let words: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let begun_placements = match &words["begun_placements"] {
            // Absent in what versions before it have written.
            Value::Null => BegunPlacements::default(),
            Value::Array(all) => {
                let all = all.iter().map(Value::as_u64);
                let all: Option<BegunPlacements> = all.collect();
                all.ok_or("\"begun_placements\" has something else than numbers")?
            }
            _ => return Err("\"begun_placements\" is no list".to_owned()),
        };
        let is_running =
            begun_placements == BegunPlacements::default() || words["bytes"] != Value::Null;
        let running = is_running.then(|| PersistedTransfer::from_json(&words));
        Ok(PersistedTransfers {
            running: running.transpose()?,
            begun_placements,
        })
    }
}

/// Running transfer as the store keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PersistedTransfer {
    /// Bytes in total.
    pub bytes: u64,
    /// Bytes that had moved.
    pub moved: u64,
    /// Beginning.
    pub begun: Timestamp,
    /// Deadline.
    pub due: Timestamp,
    /// Time of its placement by a cluster, in nanoseconds since 1970; `None`: it is an operator's.
    pub placed_ns: Option<u64>,
}

impl PersistedTransfer {
    fn to_json(self) -> Value {
        let mut words = json!({
            "bytes": self.bytes,
            "moved": self.moved,
            "begun": self.begun.to_string(),
            "due": self.due.to_string(),
        });
        if let Some(placed) = self.placed_ns {
            words["placed_ns"] = placed.into();
        }
        words
    }

    fn from_json(words: &Value) -> Result<PersistedTransfer, String> {
        let number = |key: &str| words[key].as_u64().ok_or(format!("{key:?} is no number"));
        let time = |key: &str| {
            let text = words[key].as_str().unwrap_or_default();
            let time = text.parse::<Timestamp>();
            time.map_err(|error| format!("{key:?} is no time: {error}"))
        };
        let kept = PersistedTransfer {
            bytes: number("bytes")?,
            moved: number("moved")?,
            begun: time("begun")?,
            due: time("due")?,
            // Absent in what versions before placements have written.
            placed_ns: match &words["placed_ns"] {
                Value::Null => None,
                _ => Some(number("placed_ns")?),
            },
        };
        // Also what keeps `bytes - moved` from underflowing when the transfer is resumed.
        if kept.moved < kept.bytes {
            Ok(kept)
        } else {
            Err(format!(
                "nothing is left to move of its {}",
                bytes_and_count(kept.bytes)
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::times::tests::{BEGUN, time};
    use super::*;

    fn running(transfer: PersistedTransfer) -> PersistedTransfers {
        PersistedTransfers {
            running: Some(transfer),
            ..PersistedTransfers::default()
        }
    }

    fn words(transfer: PersistedTransfer) -> String {
        running(transfer).words()
    }

    #[test]
    fn begun_placements_come_back_with_a_running_transfer_and_without_one() {
        let begun_placements = [7, u64::MAX].into_iter().collect();
        let ended = PersistedTransfers {
            running: None,
            begun_placements,
        };
        assert_eq!(
            ended.words(),
            "{\"begun_placements\":[7,18446744073709551615]}"
        );
        assert_eq!(PersistedTransfers::read(&ended.words()), Ok(ended));
        let both = PersistedTransfers {
            running: Some(PersistedTransfer {
                bytes: 9,
                moved: 7,
                begun: time(BEGUN),
                due: time(BEGUN),
                placed_ns: Some(7),
            }),
            ..ended
        };
        assert_eq!(PersistedTransfers::read(&both.words()), Ok(both));
        for (damaged, message) in [
            ("{}", "\"bytes\" is no number"),
            ("{\"begun_placements\":[]}", "\"bytes\" is no number"),
            ("{\"begun_placements\":7}", "is no list"),
            ("{\"begun_placements\":[-1]}", "something else than numbers"),
        ] {
            let error = PersistedTransfers::read(damaged).expect_err("damaged");
            assert!(error.contains(message), "{message}: {error}");
        }
    }

    #[test]
    fn what_is_kept_comes_back_as_it_was_and_what_is_damaged_does_not() {
        let kept = PersistedTransfer {
            bytes: u64::MAX,
            moved: 7,
            begun: time(BEGUN),
            due: time("2026-11-22T14:03:10.5Z"),
            placed_ns: None,
        };
        assert_eq!(PersistedTransfers::read(&words(kept)), Ok(running(kept)));
        let placed = PersistedTransfer {
            placed_ns: Some(u64::MAX),
            ..kept
        };
        assert_eq!(
            PersistedTransfers::read(&words(placed)),
            Ok(running(placed))
        );
        let misplaced = words(placed).replace("18446744073709551615}", "-1}");
        assert_eq!(
            PersistedTransfers::read(&misplaced),
            Err("\"placed_ns\" is no number".to_owned())
        );
        let words = words(kept);
        for (damaged, message) in [
            (
                words.replace("\"moved\":7", "\"moved\":\"7\""),
                "\"moved\" is no number",
            ),
            (words.replace("14:02", "25:02"), "\"begun\" is no time"),
            (words.replace("due", "duo"), "\"due\" is no time"),
            (
                words.replace("\"moved\":7", "\"moved\":18446744073709551615"),
                "nothing is left",
            ),
            ("{".to_owned(), "EOF"),
        ] {
            let error = PersistedTransfers::read(&damaged).expect_err("damaged");
            assert!(error.contains(message), "{message}: {error}");
        }
    }
}
