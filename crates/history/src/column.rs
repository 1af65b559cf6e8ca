//! Columns of the history: what a point counts, with the unit and the rule by which points merge.
//!
//! The number of a column is its name on disk and is never given to another. A reader that does not
//! know a number passes over the column, and a column that a block lacks is zero, so columns may be
//! added without a new version of the format.
//!
//! Columns of [`Column::CLASSES`] and [`Column::Samples`] are kept *by window*, because a second of
//! a VM has too few samples for them: in blocks of fine points there is one value for a window.

use core::ops::{Index, IndexMut};

/// Unit of a column's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Microseconds. A sum over requests that overlap exceeds the time that has passed.
    Micros,
    /// Seconds that were judged.
    Seconds,
    /// Number of a bucket of latencies plus 1, 0 for none; see [`crate::latency`].
    Bucket,
}

/// Rule by which the values of two points become the value of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// Counts of what happened in the interval are added.
    Sum,
    /// The largest counts, of states at the ends of intervals.
    Max,
    /// Quantiles are computed anew from the merged histogram.
    Quantile,
}

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident = $id:literal $text:literal $unit:ident $merge:ident,)*) => {
        /// Column of the history.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Column { $($(#[$doc])* $name,)* }

        impl Column {
            /// Every column, in the order in which they are shown.
            pub const ALL: [Column; [$($id),*].len()] = [$(Column::$name),*];

            /// Number on disk, below 128.
            pub const fn id(self) -> u8 {
                match self { $(Column::$name => $id,)* }
            }

            /// Name in the API and in CSV.
            pub const fn name(self) -> &'static str {
                match self { $(Column::$name => $text,)* }
            }

            /// Unit of the values.
            pub const fn unit(self) -> Unit {
                match self { $(Column::$name => Unit::$unit,)* }
            }

            /// Rule by which points merge.
            pub const fn merge(self) -> Merge {
                match self { $(Column::$name => Merge::$merge,)* }
            }
        }
    };
}

columns! {
    /// Reads that succeeded.
    Reads = 0 "reads" Count Sum,
    /// Bytes of those reads.
    ReadBytes = 1 "read_bytes" Bytes Sum,
    /// Writes that succeeded.
    Writes = 2 "writes" Count Sum,
    /// Bytes of those writes.
    WriteBytes = 3 "write_bytes" Bytes Sum,
    /// Flushes, discards and zeroes that succeeded.
    Others = 4 "others" Count Sum,
    /// Bytes of those discards and zeroes.
    OtherBytes = 5 "other_bytes" Bytes Sum,
    /// Requests of all kinds that failed.
    Errors = 6 "errors" Count Sum,
    /// Time in which the VM's own limit or credits held its requests back.
    Regulated = 10 "regulated_us" Micros Sum,
    /// Time in which requests were ready while the device served others.
    Queued = 11 "queued_us" Micros Sum,
    /// Time in which requests waited as part of the one that they were merged into.
    MergedWait = 12 "merged_wait_us" Micros Sum,
    /// Time in which the device was left idle on purpose while requests waited.
    Deliberate = 13 "deliberate_us" Micros Sum,
    /// Time of requests with the device.
    AtDevice = 14 "device_us" Micros Sum,
    /// Time before admission, for want of a request slot or payload memory; a part of
    /// [`Column::Queued`].
    Admission = 15 "admission_us" Micros Sum,
    /// Median latency.
    P50 = 20 "p50" Bucket Quantile,
    /// 99th percentile of latencies.
    P99 = 21 "p99" Bucket Quantile,
    /// 99.9th percentile of latencies.
    P999 = 22 "p999" Bucket Quantile,
    /// Longest latency.
    Longest = 23 "max" Bucket Quantile,
    /// Requests that waited at the end of the interval.
    Pending = 30 "pending" Count Max,
    /// Device I/Os in flight at the end of the interval.
    InFlight = 31 "in_flight" Count Max,
    /// Seconds in which the reservation was kept.
    ReservationKept = 40 "reservation_kept_s" Seconds Sum,
    /// Seconds in which the reservation was missed.
    ReservationMissed = 41 "reservation_missed_s" Seconds Sum,
    /// Seconds of a missed reservation in which the medium stalled.
    ReservationStalled = 42 "reservation_stalled_s" Seconds Sum,
    /// Seconds in which the latency bound was kept.
    LatencyKept = 44 "latency_kept_s" Seconds Sum,
    /// Seconds in which the latency bound was missed.
    LatencyMissed = 45 "latency_missed_s" Seconds Sum,
    /// Seconds of a missed latency bound in which the medium stalled.
    LatencyStalled = 46 "latency_stalled_s" Seconds Sum,
    /// Seconds in which the target was kept.
    TargetKept = 48 "target_kept_s" Seconds Sum,
    /// Seconds in which the target was missed.
    TargetMissed = 49 "target_missed_s" Seconds Sum,
    /// Seconds of a missed target in which the medium stalled.
    TargetStalled = 50 "target_stalled_s" Seconds Sum,
    /// Seconds in which the limit was kept.
    LimitKept = 52 "limit_kept_s" Seconds Sum,
    /// Seconds in which the limit was missed.
    LimitMissed = 53 "limit_missed_s" Seconds Sum,
    /// Deadline transfers that were done in time.
    TransferKept = 56 "transfers_kept" Count Sum,
    /// Deadline transfers that were late.
    TransferMissed = 57 "transfers_missed" Count Sum,
    /// Missed seconds of all parts whose cause was the VM's own limit.
    MissedByOwnLimit = 60 "missed_by_own_limit_s" Seconds Sum,
    /// Missed seconds of all parts whose cause were other VMs.
    MissedByOthers = 61 "missed_by_others_s" Seconds Sum,
    /// Missed seconds of all parts whose cause was the device.
    MissedByDevice = 62 "missed_by_device_s" Seconds Sum,
    /// Missed seconds of all parts whose cause was the policy.
    MissedByPolicy = 63 "missed_by_policy_s" Seconds Sum,
    /// Time in which a device had I/Os in flight.
    Busy = 70 "busy_us" Micros Sum,
    /// Device I/Os that ended.
    Ios = 71 "ios" Count Sum,
    /// Device I/Os that failed.
    IoErrors = 72 "io_errors" Count Sum,
    /// Queue depth in force.
    Depth = 73 "depth" Count Max,
    /// Age of the oldest I/O with a device at the end of the interval.
    OldestIo = 74 "oldest_io_us" Micros Max,
    /// Time in stalls of 100 ms and more, in which a busy device ended no I/O.
    Stalled = 75 "stalled_us" Micros Sum,
    /// Time in which a device was left idle on purpose while requests waited.
    IdleOnPurpose = 76 "idle_on_purpose_us" Micros Sum,
    /// Time behind requests of other VMs, before the device or inside of it.
    BehindOthers = 80 "behind_others_us" Micros Sum,
    /// Time behind other requests of the VM itself, likewise.
    OwnRequests = 81 "own_requests_us" Micros Sum,
    /// Service by the device.
    Service = 82 "service_us" Micros Sum,
    /// Time in which the device ended far less than it usually does.
    SlowDevice = 83 "slow_device_us" Micros Sum,
    /// Time of waiting without a known cause.
    Unknown = 84 "unknown_us" Micros Sum,
    /// Time from the end of the last I/O until the reply was sent; no part of the latencies.
    Reply = 85 "reply_us" Micros Sum,
    /// Requests by whose samples the time above is divided.
    Samples = 86 "samples" Count Sum,
}

impl Column {
    /// Number of columns.
    pub const COUNT: usize = Column::ALL.len();

    /// Columns that say where the time of a VM's requests went: together their latencies.
    pub const CAUSES: [Column; 5] = [
        Column::Regulated,
        Column::Queued,
        Column::MergedWait,
        Column::Deliberate,
        Column::AtDevice,
    ];

    /// Columns that divide the time of [`Column::Queued`] and [`Column::AtDevice`] by what the
    /// requests waited for: together they are both, but for rounding.
    pub const CLASSES: [Column; 6] = [
        Column::Admission,
        Column::BehindOthers,
        Column::OwnRequests,
        Column::Service,
        Column::SlowDevice,
        Column::Unknown,
    ];

    /// Columns that are kept by window.
    pub const BY_WINDOW: [Column; 8] = [
        Column::Admission,
        Column::BehindOthers,
        Column::OwnRequests,
        Column::Service,
        Column::SlowDevice,
        Column::Unknown,
        Column::Reply,
        Column::Samples,
    ];

    /// Returns true if the column is kept by window.
    pub fn is_by_window(self) -> bool {
        Column::BY_WINDOW.contains(&self)
    }

    /// Columns of quantiles, each with its quantile in thousandths.
    pub const QUANTILES: [(Column, u64); 4] = [
        (Column::P50, 500),
        (Column::P99, 990),
        (Column::P999, 999),
        (Column::Longest, 1000),
    ];

    /// Returns the column of a number on disk; `None`: this build does not know it.
    pub fn of_id(id: u8) -> Option<Column> {
        Column::ALL.into_iter().find(|column| column.id() == id)
    }
}

/// A value for each column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Values([u64; Column::COUNT]);

impl Default for Values {
    fn default() -> Values {
        Values([0; Column::COUNT])
    }
}

impl Values {
    /// Adds what another point counted, by the rule of each column. Quantiles become those of the
    /// larger: an upper bound, until they are computed anew.
    pub fn merge(&mut self, other: &Values) {
        for column in Column::ALL {
            let (ours, theirs) = (&mut self[column], other[column]);
            *ours = match column.merge() {
                Merge::Sum => ours.saturating_add(theirs),
                Merge::Max | Merge::Quantile => (*ours).max(theirs),
            };
        }
    }

    /// Returns true if nothing was counted.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|&value| value == 0)
    }
}

impl Index<Column> for Values {
    type Output = u64;

    fn index(&self, column: Column) -> &u64 {
        &self.0[column as usize]
    }
}

impl IndexMut<Column> for Values {
    fn index_mut(&mut self, column: Column) -> &mut u64 {
        &mut self.0[column as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_different_for_every_column() {
        for (at, column) in Column::ALL.into_iter().enumerate() {
            assert_eq!(column as usize, at);
            assert!(column.id() < 0x80);
            assert_eq!(Column::of_id(column.id()), Some(column));
            let named = |other: &&Column| other.name() == column.name();
            assert_eq!(Column::ALL.iter().filter(named).count(), 1, "{column:?}");
        }
        assert_eq!(Column::of_id(9), None);
    }
}
