//! Section 2.2 and figure 1: a synchronous reader beside an asynchronous one under Linux's CFQ.

use super::run::Run;
use super::setup::{Case, Change, Disk, Key};
use super::{Cells, Claims, Figure, Found, PAPER};
use crate::said::Said;

pub(super) const FIGURE_1: Figure = Figure {
    name: "figure 1",
    keys,
    cells,
    claims,
    ..Figure::BARE
};

/// Requests that the asynchronous one has outstanding in part a, of [`SMALL`] bytes.
const OUTSTANDING: [u32; 6] = [1, 2, 4, 8, 16, 32];
const SMALL: u32 = 4 << 10;
/// Bytes of its requests in part b, of which it has [`SOME`] outstanding.
const SIZES: [u32; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
const SOME: u32 = 8;

fn key(outstanding: u32, size: u32) -> Key {
    // The scenario has a disk of its own.
    Key::new(Case::Motivation, Disk::Ssd, "cfq").with(Change::Last(outstanding, size))
}

/// Part c: both in VMs, whose vCPUs have a pCPU each, or all of them share all.
fn in_vms(pinned: bool) -> Key {
    let key = Key::new(Case::Virtualised, Disk::Ssd, "cfq");
    match pinned {
        true => key.with(Change::Pinned),
        false => key,
    }
}

/// Nothing else is changed but how long requests are on their way.
fn virtualised() -> Key {
    Key::new(Case::Motivation, Disk::Ssd, "cfq").with(Change::Virtualised)
}

fn keys() -> Vec<Key> {
    let mut keys: Vec<Key> = OUTSTANDING.map(|n| key(n, SMALL)).to_vec();
    keys.extend(SIZES.map(|size| key(SOME, size)));
    keys.extend([virtualised(), in_vms(true), in_vms(false)]);
    keys
}

/// What the paper counts of the asynchronous one: units of 4 KiB.
fn units(run: &Run) -> Option<f64> {
    Some(run.bytes_per_s("async")? / f64::from(SMALL))
}

fn cells(found: &Found<'_>) -> Cells {
    let table = found.reference.table("figure 1", 1)?;
    Ok(table.cells(PAPER.name, |labels, column| {
        let run = found.of(match labels.first()?.as_str() {
            "4 KiB, 1 outstanding" => key(1, SMALL),
            "4 KiB, 32 outstanding" => key(32, SMALL),
            "8 outstanding, 4 KiB" => key(SOME, SMALL),
            "8 outstanding, 128 KiB" => key(SOME, 128 << 10),
            _ => return None,
        })?;
        match column {
            "sync_iops" => run.iops("sync"),
            "async_4k_per_s" => units(run),
            _ => None,
        }
    }))
}

/// What a series of runs gives both.
fn series(found: &Found<'_>, keys: &[Key]) -> Option<[Vec<f64>; 2]> {
    let runs: Option<Vec<&Run>> = keys.iter().map(|key| found.of(*key)).collect();
    let runs = runs?;
    let sync: Option<Vec<f64>> = runs.iter().map(|run| run.iops("sync")).collect();
    let other: Option<Vec<f64>> = runs.iter().map(|run| units(run)).collect();
    Some([sync?, other?])
}

fn listed(figures: &[f64]) -> String {
    let figures: Vec<String> = figures.iter().map(|x| format!("{x:.0}")).collect();
    figures.join(", ")
}

fn claims(found: &Found<'_>) -> Claims {
    let falls = |all: &[f64]| all.windows(2).all(|two| two[1] <= two[0]);
    let rises = |all: &[f64]| all.windows(2).all(|two| two[1] >= two[0]);
    let mut claims = Vec::new();
    let parts = [
        (
            "the more the asynchronous one has outstanding, the more it gets and the less the synchronous one",
            OUTSTANDING.map(|n| key(n, SMALL)),
        ),
        (
            "the larger the asynchronous one's requests, the more it moves and the less the synchronous one gets",
            SIZES.map(|size| key(SOME, size)),
        ),
    ];
    for (claim, keys) in parts {
        let Some([sync, other]) = series(found, &keys) else {
            continue;
        };
        claims.push(Said::new(
            claim,
            falls(&sync) && rises(&other),
            format!(
                "the synchronous one gets {} IOPS, the asynchronous one {} times 4 KiB",
                listed(&sync),
                listed(&other)
            ),
        ));
    }
    claims.extend(penalty(found)?);
    Ok(claims)
}

/// Of a hundred requests, so many more or less are still what the paper has in part c.
const NEAR: f64 = 5.0;

/// Part c. What processors take of a request is calibrated on a VM alone; these are predictions.
fn penalty(found: &Found<'_>) -> Claims {
    let cases = [
        (true, "a pCPU for each vCPU", "pinned_vcpus"),
        (false, "all vCPUs on all pCPUs", "shared_pcpus"),
    ];
    let mut claims = Vec::new();
    let mut others = Vec::new();
    for (pinned, phrase, figure) in cases {
        let figure = format!("virtualisation_penalty_pct.{figure}");
        let theirs = found.reference.figure(&figure)?;
        let keys = [key(SOME, SMALL), in_vms(pinned), virtualised()];
        let Some([sync, other]) = series(found, &keys) else {
            continue;
        };
        let less = |run: usize| 100.0 * (1.0 - sync[run] / sync[0]);
        claims.push(Said::new(
            format!("virtualised, with {phrase}, the synchronous one gets {theirs:.0} % less"),
            (less(1) - theirs).abs() <= NEAR,
            format!(
                "it gets {:.0} % less ({:.0} after {:.0} IOPS), and {:.0} % less where requests are on their way \
                 for as long and take no processor",
                less(1),
                sync[1],
                sync[0],
                less(2)
            ),
        ));
        others.push(other);
    }
    if others.is_empty() {
        return Ok(claims);
    }
    let more = others.iter().all(|other| other[1] >= other[0]);
    let detail = |other: &Vec<f64>| format!("{:.0} IOPS after {:.0}", other[1], other[0]);
    let details: Vec<String> = others.iter().map(detail).collect();
    claims.push(Said::new(
        "virtualised, the asynchronous one gets more",
        more,
        format!("it gets {}", details.join(" and ")),
    ));
    Ok(claims)
}
