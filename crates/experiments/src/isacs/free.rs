//! The figures that are free, and what was found for them.

use crate::ExperimentError;
use tidegate_core::time::Nanos;

/// Fixed work is this much shorter than the paper's: long beside all periods of the schedulers.
pub(super) const WORK_SHRINK: u64 = 20;

const CALIBRATION_TOML: &str = include_str!("../../../../experiments/isacs/calibration.toml");

/// The figures that are free, one an experiment, each found by one Credit2 cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Free(pub(super) [u64; Knob::ALL.len()]);

/// Which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Knob {
    /// What the client takes to send or receive a packet, in microseconds: table 3.
    PingUs,
    /// Bytes of a stream on their way, in KiB: table 5.
    WindowKib,
    /// What receiving a chunk takes a mixed guest, in nanoseconds: table 6.
    MixedReceiveNs,
    /// What the disk takes for an I/O, in nanoseconds: table 7, zeros.
    DiskNs,
    /// What making a KiB takes, in nanoseconds: table 7, urandom.
    UrandomNs,
    /// How much of a mixed guest's memory may be dirty, in KB: table 8, zeros.
    MixedDirtyKb,
    /// What making a KiB takes a mixed guest, in nanoseconds: table 8, urandom.
    MixedUrandomNs,
    /// Fixed work in milliseconds, all of it: section 5.4, inside.
    InsideMs,
    /// The same: the neighbour, hybrid.
    HybridMs,
    /// The same: the neighbour, mixed.
    MixedMs,
}

impl Knob {
    pub(super) const ALL: [Knob; 10] = [
        Knob::PingUs,
        Knob::WindowKib,
        Knob::MixedReceiveNs,
        Knob::DiskNs,
        Knob::UrandomNs,
        Knob::MixedDirtyKb,
        Knob::MixedUrandomNs,
        Knob::InsideMs,
        Knob::HybridMs,
        Knob::MixedMs,
    ];

    /// Its name in `calibration.toml`.
    pub(super) fn key(self) -> &'static str {
        match self {
            Knob::PingUs => "ping_us",
            Knob::WindowKib => "window_kib",
            Knob::MixedReceiveNs => "mixed_receive_ns",
            Knob::DiskNs => "disk_ns",
            Knob::UrandomNs => "urandom_ns",
            Knob::MixedDirtyKb => "mixed_dirty_kb",
            Knob::MixedUrandomNs => "mixed_urandom_ns",
            Knob::InsideMs => "inside_ms",
            Knob::HybridMs => "hybrid_ms",
            Knob::MixedMs => "mixed_ms",
        }
    }
}

impl Free {
    /// Those of `calibration.toml`.
    pub(super) fn read() -> Result<Free, ExperimentError> {
        let wrong = |what: String| ExperimentError::Data {
            file: "calibration.toml",
            what,
        };
        let root: toml::Table = CALIBRATION_TOML
            .parse()
            .map_err(|error: toml::de::Error| wrong(error.to_string()))?;
        let mut free = Free([0; Knob::ALL.len()]);
        for knob in Knob::ALL {
            let figure = root.get("free").and_then(|table| table.get(knob.key()));
            let figure = figure.and_then(toml::Value::as_integer);
            let figure = figure.and_then(|n| u64::try_from(n).ok());
            let missing = || wrong(format!("free.{} is a whole number", knob.key()));
            free.set(knob, figure.ok_or_else(missing)?);
        }
        Ok(free)
    }

    pub(super) fn get(&self, knob: Knob) -> u64 {
        self.0[knob as usize]
    }

    pub(super) fn set(&mut self, knob: Knob, value: u64) {
        self.0[knob as usize] = value;
    }

    pub(super) fn us(&self, knob: Knob) -> Nanos {
        Nanos::from_micros(self.get(knob))
    }

    /// Fixed work, as much shorter as it is than the paper's.
    pub(super) fn work(&self, knob: Knob) -> Nanos {
        Nanos::from_micros(self.get(knob) * 1_000 / WORK_SHRINK)
    }
}
