//! Section 2.2 and figure 1: a synchronous reader beside an asynchronous one under Linux's CFQ.

use super::run::Run;
use super::setup::{Case, Change, Disk, Key};
use super::{Cells, Figure, PAPER, RunResults};

pub(super) const FIGURE_1: Figure = Figure {
    name: "figure 1",
    keys,
    cells,
    ..Figure::BARE
};

/// Outstanding requests of the asynchronous reader in part a, of [`SMALL`] bytes.
const OUTSTANDING: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Request size in part a, in bytes.
const SMALL: u32 = 4 << 10;
/// Request sizes of the asynchronous reader in part b, in bytes, with [`PART_B_OUTSTANDING`]
/// outstanding.
const SIZES: [u32; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
/// Outstanding requests of the asynchronous reader in part b.
const PART_B_OUTSTANDING: u32 = 8;

fn key(outstanding: u32, size: u32) -> Key {
    // The scenario names its own disk, so the disk of the key has no effect.
    Key::new(Case::Motivation, Disk::Ssd, "cfq").with(Change::Last {
        depth: outstanding,
        bytes: size,
    })
}

/// Part c: both readers in VMs, whose vCPUs have a pCPU each or share all pCPUs.
pub(super) fn in_vms(pinned: bool) -> Key {
    let key = Key::new(Case::Virtualised, Disk::Ssd, "cfq");
    if pinned {
        key.with(Change::Pinned)
    } else {
        key
    }
}

/// Key of the run that changes nothing but the virtualisation delay.
pub(super) fn virtualised() -> Key {
    Key::new(Case::Motivation, Disk::Ssd, "cfq").with(Change::Virtualised)
}

/// Runs of figure 1a: the asynchronous reader with 1 to 32 outstanding requests of 4 KiB.
pub(super) fn by_outstanding() -> [(u32, Key); 6] {
    OUTSTANDING.map(|n| (n, key(n, SMALL)))
}

/// Runs of figure 1b: the asynchronous reader with 8 outstanding requests of 4 to 128 KiB.
pub(super) fn by_size() -> [(u32, Key); 6] {
    SIZES.map(|size| (size, key(PART_B_OUTSTANDING, size)))
}

/// Run that figure 1c is compared with: 8 outstanding requests of 4 KiB, without a hypervisor.
pub(super) fn native() -> Key {
    key(PART_B_OUTSTANDING, SMALL)
}

fn keys() -> Vec<Key> {
    let mut keys: Vec<Key> = by_outstanding().map(|(_, key)| key).to_vec();
    keys.extend(by_size().map(|(_, key)| key));
    keys.extend([virtualised(), in_vms(true), in_vms(false)]);
    keys
}

/// Throughput of the asynchronous reader in the paper's unit, 4 KiB per second.
pub(super) fn async_4k_per_s(run: &Run) -> Option<f64> {
    Some(run.bytes_per_s("async")? / f64::from(SMALL))
}

fn cells(results: &RunResults<'_>) -> Cells {
    let table = results.reference.table("figure 1", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let run = results.run_for(match labels.first()?.as_str() {
            "4 KiB, 1 outstanding" => key(1, SMALL),
            "4 KiB, 32 outstanding" => key(32, SMALL),
            "8 outstanding, 4 KiB" => key(PART_B_OUTSTANDING, SMALL),
            "8 outstanding, 128 KiB" => key(PART_B_OUTSTANDING, 128 << 10),
            _ => return None,
        })?;
        match column {
            "sync_iops" => run.iops("sync"),
            "async_4k_per_s" => async_4k_per_s(run),
            _ => None,
        }
    }))
}
