//! Latencies of every VM and interval as a log of HdrHistograms.
//!
//! The format is that of HdrHistogram's `HistogramLogWriter`, version 1.3: a line for each interval
//! and tag with a histogram in its V2 encoding, compressed and in base64. Tags are names of VMs,
//! values are nanoseconds, the column of maxima is in milliseconds.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use tidegate_core::time::Nanos;
use tidegate_sim::report::Row;

use crate::atomic_file::Replacement;

/// Interval of the log if no other is given.
pub(super) const INTERVAL: Nanos = Nanos::from_secs(1);
/// Nanoseconds in the unit of the column of maxima.
const MILLISECOND_NS: f64 = 1e6;
/// Lines before the first interval. Virtual time begins at zero.
const HEAD: &str = "#[Histogram log format version 1.3]\n\
    #[StartTime: 0.000 (seconds since epoch)]\n\
    #[BaseTime: 0.000 (seconds since epoch)]\n\
    \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

/// File of the log, which replaces an older one once it is whole.
pub(super) struct LogFile {
    path: PathBuf,
    to: BufWriter<Replacement>,
    serializer: V2DeflateSerializer,
}

impl LogFile {
    /// Creates the file and writes its head.
    pub(super) fn create(path: &Path) -> Result<LogFile> {
        let mut to = BufWriter::new(Replacement::create(path)?);
        to.write_all(HEAD.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(LogFile {
            path: path.to_owned(),
            to,
            serializer: V2DeflateSerializer::new(),
        })
    }

    /// Appends the interval of a row; an interval without requests has no line.
    pub(super) fn add(&mut self, row: &Row) -> Result<()> {
        if row.latency.count() == 0 {
            return Ok(());
        }
        let cannot = || format!("cannot write {}", self.path.display());
        let histogram = row.latency.histogram();
        let mut encoded = Vec::new();
        self.serializer
            .serialize(histogram, &mut encoded)
            .with_context(cannot)?;
        // Commas and spaces separate; names of fio's jobs may have them.
        let tag = row.vm.replace(|c: char| c == ',' || c.is_whitespace(), "_");
        let line = format!(
            "Tag={tag},{:.3},{:.3},{:.3},{}\n",
            row.began_s,
            row.time_s - row.began_s,
            row.latency.longest().0 as f64 / MILLISECOND_NS,
            STANDARD.encode(&encoded)
        );
        self.to.write_all(line.as_bytes()).with_context(cannot)
    }

    /// Puts the file in its place.
    pub(super) fn finish(self) -> Result<()> {
        let whole = self.to.into_inner().map_err(|error| error.into_error());
        whole
            .with_context(|| format!("cannot write {}", self.path.display()))?
            .commit()
    }
}
