//! Metrics of the history itself.

use super::{Metric, Read, bytes, plain, seconds};
use crate::history::{Status, wall_ms};

pub(super) static HISTORY_METRICS: &[Metric<Status>] = &[
    bytes(
        "memory",
        "Memory for points of VMs and devices",
        Read::Gauge(|status| status.memory_bytes as f64),
    ),
    bytes(
        "files",
        "Size of the files of the history; 0 if it is kept in memory alone",
        Read::Gauge(|status| {
            status
                .files
                .as_ref()
                .map_or(0.0, |files| files.bytes as f64)
        }),
    ),
    seconds(
        "age",
        "Age of the oldest point; 0 while there is none",
        Read::Gauge(|status| {
            let oldest = status.oldest_ms.unwrap_or(u64::MAX);
            wall_ms().saturating_sub(oldest) as f64 / 1000.0
        }),
    ),
    plain(
        "failing",
        "1 while points cannot be written to files",
        Read::Gauge(|status| {
            let failing = status
                .files
                .as_ref()
                .is_some_and(|files| files.failing.is_some());
            f64::from(u8::from(failing))
        }),
    ),
    plain(
        "dropped",
        "Groups of blocks that were not written, because the disk failed or was too slow",
        Read::Counter(|status| {
            status
                .files
                .as_ref()
                .map_or(0.0, |files| files.dropped as f64)
        }),
    ),
    plain(
        "delayed",
        "Times that an event loop had to send its samples later; none is lost by that",
        Read::Counter(|status| status.delayed as f64),
    ),
];
