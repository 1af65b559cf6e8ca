//! Free parameters of the model, with their calibrated values.

use crate::ExperimentError;
use tidegate_core::time::Nanos;

/// Factor by which fixed work is shorter than in the paper; it remains long compared with all
/// periods of the schedulers.
pub(super) const WORK_SHRINK: u64 = 20;

const CALIBRATION_TOML: &str = include_str!("../../../../experiments/isacs/calibration.toml");

/// Values of the free parameters, in the order of [`Knob::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FreeParameters(pub(super) [u64; Knob::ALL.len()]);

/// Free parameter; each is found by one Credit2 cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Knob {
    /// CPU time of the client for sending or receiving a packet, in microseconds: table 3.
    PingUs,
    /// Bytes of a stream in flight, in KiB: table 5.
    WindowKib,
    /// CPU time of a mixed guest for receiving a chunk, in nanoseconds: table 6.
    MixedReceiveNs,
    /// Service time of the disk for an I/O, in nanoseconds: table 7, zeros.
    DiskNs,
    /// CPU time of making a KiB, in nanoseconds: table 7, urandom.
    UrandomNs,
    /// Dirty memory limit of a mixed guest, in KB: table 8, zeros.
    MixedDirtyKb,
    /// CPU time of a mixed guest for making a KiB, in nanoseconds: table 8, urandom.
    MixedUrandomNs,
    /// Total fixed work in milliseconds: section 5.4, inside.
    InsideMs,
    /// Total fixed work in milliseconds: section 5.4, neighbour, hybrid.
    HybridMs,
    /// Total fixed work in milliseconds: section 5.4, neighbour, mixed.
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

    /// Name in `calibration.toml`.
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

impl FreeParameters {
    /// Reads the values of `calibration.toml`.
    pub(super) fn read() -> Result<FreeParameters, ExperimentError> {
        let wrong = |what: String| ExperimentError::Data {
            file: "calibration.toml",
            what,
        };
        let root: toml::Table = CALIBRATION_TOML
            .parse()
            .map_err(|error: toml::de::Error| wrong(error.to_string()))?;
        let mut free = FreeParameters([0; Knob::ALL.len()]);
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

    /// Fixed work, shortened by [`WORK_SHRINK`].
    pub(super) fn work(&self, knob: Knob) -> Nanos {
        // Milliseconds are multiplied first, so that the division loses less than a microsecond.
        Nanos::from_micros(self.get(knob) * 1_000 / WORK_SHRINK)
    }
}
