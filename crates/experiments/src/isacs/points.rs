//! Cells by which the free parameters are found.

use super::free_parameters::FreeParameter;
use crate::fitted::Group;

/// Cell, with the parameter that it determines and the parameter's bounds.
pub(super) struct Point {
    pub(super) parameter: FreeParameter,
    pub(super) table: &'static str,
    pub(super) row: &'static str,
    pub(super) column: &'static str,
    pub(super) bounds: (u64, u64),
    /// `true` if the cell rises with the parameter.
    pub(super) rises: bool,
}

impl Point {
    /// Parameter and cell as they are named in `calibration.toml`.
    pub(super) fn group(&self) -> Group {
        let figure = format!("free.{}", self.parameter.key());
        let cell = format!("table {}, {}, {}", self.table, self.row, self.column);
        Group::new(&[&figure], &[&cell])
    }
}

const fn point(
    parameter: FreeParameter,
    [table, row, column]: [&'static str; 3],
    bounds: (u64, u64),
    rises: bool,
) -> Point {
    Point {
        parameter,
        table,
        row,
        column,
        bounds,
        rises,
    }
}

/// Cells in the order of the calibration.
pub(super) const POINTS: [Point; 9] = [
    point(
        FreeParameter::ReceiveNs,
        ["6", "credit2", "m1"],
        (1, 200_000),
        false,
    ),
    point(
        FreeParameter::PingUs,
        ["3", "credit2", "1"],
        (1, 5_000),
        true,
    ),
    point(
        FreeParameter::DiskNs,
        ["7", "credit2 zero", "i11c1"],
        (1_000, 20_000_000),
        false,
    ),
    point(
        FreeParameter::UrandomNs,
        ["7", "credit2 urandom", "i1c11"],
        (1, 100_000),
        false,
    ),
    point(
        FreeParameter::MixedDirtyKb,
        ["8", "credit2 zero", "m1"],
        (20_000, 4_000_000),
        true,
    ),
    point(
        FreeParameter::MixedUrandomNs,
        ["8", "credit2 urandom", "m1"],
        (1, 100_000),
        false,
    ),
    point(
        FreeParameter::InsideMs,
        ["section 5.4", "inside, six mixed VMs", "credit2"],
        (1, 400_000),
        true,
    ),
    point(
        FreeParameter::HybridMs,
        ["section 5.4", "neighbour, hybrid", "credit2"],
        (1, 400_000),
        true,
    ),
    point(
        FreeParameter::MixedMs,
        ["section 5.4", "neighbour, four mixed VMs", "credit2"],
        (1, 400_000),
        true,
    ),
];
