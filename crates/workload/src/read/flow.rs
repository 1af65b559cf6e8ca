//! Reading who decides when a job's next request comes.

use super::value::{MOST_DEPTH, OPEN_DEPTH, times};
use crate::arrive::{Arrivals, Bursts, Spacing};
use crate::job::{Flow, Think};
use tidegate_config::{Field, Section};

/// Closed unless a rate makes it open.
pub(super) fn read(section: &mut Section<'_>) -> Option<Flow> {
    let rate = section.take("rate_iops");
    let spacing = section.take("rate_process");
    let bursts = section.take("bursts");
    let depth = section.take("iodepth");
    let think = section.take("thinktime");
    let blocks = section.take("thinktime_blocks");
    let iodepth = |default: u32| match &depth {
        Some(field) => field.count(1..=MOST_DEPTH).map(|n| n as u32),
        None => Some(default),
    };
    let without = |field: &Option<Field<'_>>, what: &str, allowed: &str| {
        if let Some(field) = field {
            field.error(what, allowed);
        }
        field.is_none()
    };
    let Some(rate) = rate else {
        let add = "add rate_iops = \"200 IOPS\", or leave it out";
        let lonely = without(&spacing, "there is no rate for it", add)
            & without(&bursts, "there is no rate for it", add);
        let think = match think {
            Some(field) => times(&field).and_then(|time| {
                let blocks = match &blocks {
                    Some(field) => field.count(1..=u32::MAX.into())?,
                    None => 1,
                };
                let blocks = blocks as u32;
                Some(Some(Think { time, blocks }))
            }),
            None => {
                let add = "add thinktime = \"2 ms\", or leave it out";
                without(&blocks, "there is no pause for it", add).then_some(None)
            }
        };
        let iodepth = iodepth(1);
        return lonely.then_some(Flow::Closed {
            iodepth: iodepth?,
            think: think?,
        });
    };
    let what = "a workload with a rate does not wait for its answers";
    let either = "leave out either this or rate_iops";
    let open = without(&think, what, either) & without(&blocks, what, either);
    let per_s = rate
        .rate()
        .and_then(|found| match (found.ops, found.bytes_per_s) {
            (Some(ops), None) if ops.norm.is_none() && ops.per_s <= 10_000_000 => Some(ops.per_s),
            _ => {
                rate.error(
                    format!("found {}", rate.describe()),
                    "requests a second up to 10 million, such as \"200 IOPS\"",
                );
                None
            }
        });
    let spacing = match spacing {
        Some(field) => field.choice(&[("linear", Spacing::Fixed), ("poisson", Spacing::Poisson)]),
        None => Some(Spacing::Fixed),
    };
    let bursts = match bursts {
        Some(field) => on_and_off(&field).map(Some),
        None => Some(None),
    };
    let iodepth = iodepth(OPEN_DEPTH);
    let arrivals = Arrivals {
        per_s: per_s? as f64,
        spacing: spacing?,
        bursts: bursts?,
    };
    open.then_some(Flow::Open {
        arrivals,
        iodepth: iodepth?,
    })
}

fn on_and_off(field: &Field<'_>) -> Option<Bursts> {
    let mut section = Section::of(field)?;
    let on = section.need("on", "on = \"1 s\"").and_then(|f| times(&f));
    let off = section.need("off", "off = \"4 s\"").and_then(|f| times(&f));
    section.finish();
    Some(Bursts { on: on?, off: off? })
}
