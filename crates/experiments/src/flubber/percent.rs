//! The paper's claims in percent: who takes so much less time than under what.

use crate::frame::Claims;
use crate::said::Said;
use crate::{Cell, Reference};

/// A claim holds when ours is at most so many points short of it.
const POINTS: f64 = 5.0;

/// A claim in percent: its path among the reference's claims, and the two cells it compares, as
/// table, row and column; the second is the one it improves on.
type Percent = (&'static str, [&'static str; 3], [&'static str; 3]);

const PERCENTAGES: &[Percent] = &[
    (
        "vs_cfq.seq_read",
        ["3", "read/seq_read", "flubber"],
        ["3", "read/seq_read", "cfq"],
    ),
    (
        "vs_cfq.rnd_read",
        ["3", "read/rnd_read", "flubber"],
        ["3", "read/rnd_read", "cfq"],
    ),
    (
        "vs_edf_read.seq_read",
        ["3", "read/seq_read", "flubber"],
        ["3", "read/seq_read", "edf_credit"],
    ),
    (
        "vs_edf_read.rnd_read",
        ["3", "read/rnd_read", "flubber"],
        ["3", "read/rnd_read", "edf_credit"],
    ),
    (
        "vs_cfq.seq_write",
        ["3", "write/seq_write", "flubber"],
        ["3", "write/seq_write", "cfq"],
    ),
    (
        "vs_cfq.rnd_write",
        ["3", "write/rnd_write", "flubber"],
        ["3", "write/rnd_write", "cfq"],
    ),
    (
        "vs_cfq.mixed_seq_write",
        ["4", "flubber", "seq_write_s"],
        ["4", "cfq", "seq_write_s"],
    ),
    (
        "vs_cfq.mixed_rnd_rw",
        ["4", "flubber", "rnd_rw_s"],
        ["4", "cfq", "rnd_rw_s"],
    ),
    (
        "vs_cfq.mixed_server_throughput",
        ["4", "flubber", "server_avg_iops"],
        ["4", "cfq", "server_avg_iops"],
    ),
    (
        "background_vs_cfq_priority.seq_read",
        ["5", "read/seq_read", "flubber"],
        ["5", "read/seq_read", "cfq_priority"],
    ),
    (
        "background_vs_cfq_priority.rnd_read",
        ["5", "read/rnd_read", "flubber"],
        ["5", "read/rnd_read", "cfq_priority"],
    ),
    (
        "background_vs_cfq_priority.backup_slower_at_most",
        ["5", "read/backup", "flubber"],
        ["5", "read/backup", "cfq_priority"],
    ),
    (
        "background_vs_cfq_priority.seq_write",
        ["5", "write/seq_write", "flubber"],
        ["5", "write/seq_write", "cfq_priority"],
    ),
    (
        "background_vs_cfq_priority.rnd_write",
        ["5", "write/rnd_write", "flubber"],
        ["5", "write/rnd_write", "cfq_priority"],
    ),
    (
        "background_vs_cfq_priority.backup_in_write",
        ["5", "write/backup", "flubber"],
        ["5", "write/backup", "cfq_priority"],
    ),
    (
        "background_vs_edf.seq_read",
        ["5", "read/seq_read", "flubber"],
        ["5", "read/seq_read", "edf_credit"],
    ),
    (
        "background_vs_edf.rnd_read",
        ["5", "read/rnd_read", "flubber"],
        ["5", "read/rnd_read", "edf_credit"],
    ),
    (
        "background_vs_edf.backup",
        ["5", "read/backup", "flubber"],
        ["5", "read/backup", "edf_credit"],
    ),
    (
        "background_vs_edf.seq_write",
        ["5", "write/seq_write", "flubber"],
        ["5", "write/seq_write", "edf_credit"],
    ),
    (
        "background_vs_edf.rnd_write",
        ["5", "write/rnd_write", "flubber"],
        ["5", "write/rnd_write", "edf_credit"],
    ),
];

/// Those claims, from the cells they are about.
pub(super) fn claims(reference: &Reference, cells: &[Cell]) -> Claims {
    let find = |[table, row, column]: &[&str; 3]| {
        let here =
            |cell: &&Cell| cell.table == *table && cell.row == *row && cell.column == *column;
        cells.iter().find(here)
    };
    let mut claims = Vec::new();
    for (path, ours, other) in PERCENTAGES {
        let (Some(ours), Some(other)) = (find(ours), find(other)) else {
            continue;
        };
        let claimed = reference.figure(&format!("claims_pct.{path}"))?;
        let who = match other.table.as_str() {
            "4" => &other.row,
            _ => &other.column,
        };
        let what = match other.table.as_str() {
            "4" => format!("the mixed case's {}", other.column),
            "5" => format!("{} beside a backup", other.row),
            _ => other.row.clone(),
        };
        let less = 100.0 * (1.0 - ours.ours / other.ours);
        let (claim, gain, holds) = match *path {
            p if p.ends_with("at_most") => {
                let claim = format!("{what} takes at most {claimed} % longer than under {who}");
                (claim, -less, -less <= claimed + POINTS)
            }
            p if p.ends_with("throughput") => {
                let gain = 100.0 * (ours.ours / other.ours - 1.0);
                let claim = format!("{what} is {claimed} % above that under {who}");
                (claim, gain, gain >= claimed - POINTS)
            }
            _ => {
                let claim = format!("{what} takes {claimed} % less time than under {who}");
                (claim, less, less >= claimed - POINTS)
            }
        };
        let said = Said::new(
            claim,
            holds,
            format!("it is {gain:.1} %: {:.1} and {:.1}", ours.ours, other.ours),
        );
        claims.push(said);
    }
    Ok(claims)
}
