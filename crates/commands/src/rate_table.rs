//! Parts of the tables that show rates and latencies of VMs.

use tidegate_report::Align;

/// First columns of a table with a row for each VM and policy.
pub(crate) const BY_POLICY: [(&str, Align); 6] = [
    ("VM", Align::Left),
    ("POLICY", Align::Left),
    ("IOPS", Align::Right),
    ("MB/S", Align::Right),
    ("P50", Align::Right),
    ("P99", Align::Right),
];

/// Formats a rate of bytes in MB/s with two digits behind the point.
pub(crate) fn mb_per_s(bytes_per_s: f64) -> String {
    format!("{:.2}", bytes_per_s / 1e6)
}
