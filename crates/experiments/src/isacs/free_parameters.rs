//! Free parameters of the ISACS model, with their calibrated values. Tables and sections are those
//! of the paper that the module [`isacs`](super) names.
//!
//! A guest of section 5.4 does a fixed amount of work, either *inside* the group of I/O-bound VMs
//! or as a *neighbour* of it; *hybrid* neighbours alternate between CPU and I/O, and *mixed* guests
//! do both at a time.

use crate::ExperimentError;
use tidegate_core::time::Nanos;

/// Factor by which fixed work is shorter than in the paper; it remains long compared with all
/// periods of the schedulers.
pub(super) const WORK_SHRINK: u64 = 20;

pub(super) const CALIBRATION_TOML: &str =
    include_str!("../../../../experiments/isacs/calibration.toml");

/// Calibrated values of the free parameters, in the order of [`FreeParameter::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Calibration(pub(super) [u64; FreeParameter::ALL.len()]);

/// Free parameter; each is found by one Credit2 cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FreeParameter {
    /// CPU time of a guest for receiving a chunk, in nanoseconds: table 6.
    ReceiveNs,
    /// CPU time of the client for sending or receiving a packet, in microseconds: table 3.
    PingUs,
    /// Service time of the disk for an I/O, in nanoseconds: table 7, zeros.
    DiskNs,
    /// CPU time of making a KiB, in nanoseconds: table 7, urandom.
    UrandomNs,
    /// Dirty memory limit of a mixed guest, in kB (1000 bytes): table 8, zeros.
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

impl FreeParameter {
    pub(super) const ALL: [FreeParameter; 9] = [
        FreeParameter::ReceiveNs,
        FreeParameter::PingUs,
        FreeParameter::DiskNs,
        FreeParameter::UrandomNs,
        FreeParameter::MixedDirtyKb,
        FreeParameter::MixedUrandomNs,
        FreeParameter::InsideMs,
        FreeParameter::HybridMs,
        FreeParameter::MixedMs,
    ];

    /// Name in `calibration.toml`.
    pub(super) fn key(self) -> &'static str {
        match self {
            FreeParameter::PingUs => "ping_us",
            FreeParameter::ReceiveNs => "receive_ns",
            FreeParameter::DiskNs => "disk_ns",
            FreeParameter::UrandomNs => "urandom_ns",
            FreeParameter::MixedDirtyKb => "mixed_dirty_kb",
            FreeParameter::MixedUrandomNs => "mixed_urandom_ns",
            FreeParameter::InsideMs => "inside_ms",
            FreeParameter::HybridMs => "hybrid_ms",
            FreeParameter::MixedMs => "mixed_ms",
        }
    }
}

impl Calibration {
    /// Reads the values of `calibration.toml`.
    pub(super) fn read() -> Result<Calibration, ExperimentError> {
        let wrong = |what: String| ExperimentError::Data {
            file: "calibration.toml".into(),
            what,
        };
        let root: toml::Table = CALIBRATION_TOML
            .parse()
            .map_err(|error: toml::de::Error| wrong(error.to_string()))?;
        let mut free = Calibration([0; FreeParameter::ALL.len()]);
        for parameter in FreeParameter::ALL {
            let figure = root
                .get("free")
                .and_then(|table| table.get(parameter.key()));
            let figure = figure.and_then(toml::Value::as_integer);
            let figure = figure.and_then(|n| u64::try_from(n).ok());
            let missing = || {
                let key = parameter.key();
                wrong(format!("free.{key} is missing or not a whole number"))
            };
            free.set(parameter, figure.ok_or_else(missing)?);
        }
        Ok(free)
    }

    pub(super) fn get(&self, parameter: FreeParameter) -> u64 {
        self.0[parameter as usize]
    }

    pub(super) fn set(&mut self, parameter: FreeParameter, value: u64) {
        self.0[parameter as usize] = value;
    }

    pub(super) fn us(&self, parameter: FreeParameter) -> Nanos {
        Nanos::from_micros(self.get(parameter))
    }

    /// Fixed work, shortened by [`WORK_SHRINK`].
    pub(super) fn work(&self, parameter: FreeParameter) -> Nanos {
        // Milliseconds are multiplied first, so that the division loses less than a microsecond.
        Nanos::from_micros(self.get(parameter) * 1_000 / WORK_SHRINK)
    }
}
