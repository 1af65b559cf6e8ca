//! Attainment of a device's VMs as the store keeps it: JSON, one document per device.
//!
//! ```text
//!   { "version": 1, "at": seconds since 1970,
//!     "vms": { name: [ { "part", "promise", counts, minutes, hours } ] } }
//! ```
//!
//! Time while the daemon was down appears in the history as minutes and hours without a verdict.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidegate_core::attainment::{Part, PartRecord};
use tidegate_core::time::Nanos;

/// Name of this state in the store, beside the learnt states of the device.
pub(crate) const STORED_AS: &str = "attainment";
const VERSION: u32 = 1;

/// Attainment of VMs by their names.
pub(crate) type Records = Vec<(String, Vec<PartRecord>)>;

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    /// Seconds since 1970.
    at: i64,
    vms: BTreeMap<String, Vec<StoredPart>>,
}

#[derive(Serialize, Deserialize)]
struct StoredPart {
    part: String,
    promise: u64,
    kept_s: u64,
    missed_s: [u32; 4],
    stalled_s: u32,
    asked_less_s: u64,
    requests: u64,
    late: u64,
    worst_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_missed_ago_s: Option<u32>,
    minutes: Vec<(u32, u32, u32)>,
    hours: Vec<(u32, u32, u32)>,
}

impl StoredPart {
    fn from_record(record: &PartRecord) -> StoredPart {
        StoredPart {
            part: record.part.name().to_owned(),
            promise: record.promise,
            kept_s: record.kept_s,
            missed_s: record.missed_s,
            stalled_s: record.stalled_s,
            asked_less_s: record.asked_less_s,
            requests: record.requests,
            late: record.late,
            worst_ns: record.worst.0,
            last_missed_ago_s: record.last_missed_ago_s,
            minutes: record.minutes.clone(),
            hours: record.hours.clone(),
        }
    }

    /// Returns the record of the part; `None` if this build does not know the part.
    fn record(self) -> Option<PartRecord> {
        Some(PartRecord {
            part: Part::named(&self.part)?,
            promise: self.promise,
            kept_s: self.kept_s,
            missed_s: self.missed_s,
            stalled_s: self.stalled_s,
            asked_less_s: self.asked_less_s,
            requests: self.requests,
            late: self.late,
            worst: Nanos(self.worst_ns),
            last_missed_ago_s: self.last_missed_ago_s,
            minutes: self.minutes,
            hours: self.hours,
        })
    }
}

/// Serialises the attainment of VMs; `at` is the time of the snapshot.
pub(crate) fn to_bytes(records: &Records, at: Timestamp) -> Vec<u8> {
    let vms = records.iter().map(|(vm, parts)| {
        let parts = parts.iter().map(StoredPart::from_record).collect();
        (vm.clone(), parts)
    });
    let stored = Stored {
        version: VERSION,
        at: at.as_second(),
        vms: vms.collect(),
    };
    assert_eq!(
        stored.vms.len(),
        records.len(),
        "a VM has two records, of which one would be lost"
    );
    serde_json::to_vec(&stored).expect("numbers and text become JSON")
}

/// Parses the output of [`to_bytes`]. Returns the records and their age in seconds at `now`.
///
/// # Errors
/// If the bytes are not such JSON, or were written by a newer version.
pub(crate) fn from_bytes(bytes: &[u8], now: Timestamp) -> Result<(Records, u32), String> {
    let stored: Stored = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if stored.version != VERSION {
        return Err(format!(
            "version {} is not supported, this daemon reads version {VERSION}",
            stored.version
        ));
    }
    // A clock that was set back meanwhile gives the age 0.
    let ago = now.as_second().saturating_sub(stored.at).max(0);
    let records = stored.vms.into_iter().map(|(vm, parts)| {
        // Parts that this build does not know are left out, so that the others survive.
        let parts = parts.into_iter().filter_map(StoredPart::record).collect();
        (vm, parts)
    });
    Ok((records.collect(), u32::try_from(ago).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_with_the_time_that_passed() {
        let record = PartRecord {
            part: Part::Latency,
            promise: u64::MAX,
            kept_s: 1 << 40,
            missed_s: [1, 2, 3, 4],
            stalled_s: 5,
            asked_less_s: 6,
            requests: 7,
            late: 8,
            worst: Nanos(u64::MAX),
            last_missed_ago_s: Some(9),
            minutes: vec![(0, 60, 1)],
            hours: vec![(23, 3600, 36)],
        };
        let records = vec![("db".to_owned(), vec![record])];
        let at = Timestamp::from_second(1_700_000_000).expect("a time");
        let bytes = to_bytes(&records, at);
        let later = Timestamp::from_second(1_700_000_090).expect("a time");
        assert_eq!(from_bytes(&bytes, later), Ok((records.clone(), 90)));
        let before = Timestamp::from_second(1_600_000_000).expect("a time");
        assert_eq!(from_bytes(&bytes, before), Ok((records, 0)));
        let newer = String::from_utf8(bytes).expect("JSON");
        let newer = newer.replace("\"version\":1", "\"version\":2");
        assert!(from_bytes(newer.as_bytes(), at).is_err_and(|why| why.contains("version 2")));
        assert!(from_bytes(b"{", at).is_err());
    }
}
