//! Reader of a workload's flow: closed or open loop.

use super::keys;
use super::value::times;
use crate::arrival_process::{Arrivals, Bursts};
use crate::spec::{Flow, Think};
use tidegate_config::{Field, Section};

/// Largest rate in requests a second: more than any disk serves, and far enough from the clock's
/// resolution of 1 ns.
const RATE_MAX: u64 = 10_000_000;

/// Keys of a workload's flow that are present.
struct Keys<'a> {
    depth: Option<Field<'a>>,
    spacing: Option<Field<'a>>,
    bursts: Option<Field<'a>>,
    think: Option<Field<'a>>,
    blocks: Option<Field<'a>>,
}

/// Reads the flow: an open loop if there is a rate, else a closed one.
pub(super) fn read(section: &mut Section<'_>) -> Option<Flow> {
    let rate = section.field(&keys::RATE_IOPS);
    let keys = Keys {
        spacing: section.field(&keys::RATE_PROCESS),
        bursts: section.field(&keys::BURSTS),
        depth: section.field(&keys::IODEPTH),
        think: section.field(&keys::THINKTIME),
        blocks: section.field(&keys::THINKTIME_BLOCKS),
    };
    match rate {
        Some(rate) => keys.open(&rate),
        None => keys.closed(),
    }
}

/// Reports the key as an error if it is present; returns true if it is absent.
fn report_if_present(field: &Option<Field<'_>>, what: &str, allowed: &str) -> bool {
    if let Some(field) = field {
        field.error(what, allowed);
    }
    field.is_none()
}

impl Keys<'_> {
    fn iodepth(&self, default: u32) -> Option<u32> {
        match &self.depth {
            // The key's range ends at 65536.
            Some(field) => field.number(&keys::IODEPTH).map(|n| n as u32),
            None => Some(default),
        }
    }

    /// Returns the flow of a workload without a rate.
    fn closed(&self) -> Option<Flow> {
        let (why, add) = (
            "there is no rate for it",
            "add rate_iops = \"200 IOPS\", or leave it out",
        );
        // `&` evaluates both sides, so that all mistakes are reported.
        let alone =
            report_if_present(&self.spacing, why, add) & report_if_present(&self.bursts, why, add);
        let think = self.think();
        let iodepth = self.iodepth(1);
        alone.then_some(Flow::Closed {
            iodepth: iodepth?,
            think: think?,
        })
    }

    /// Reads the pauses of a closed loop. `None`: a mistake was reported; `Some(None)`: no pauses.
    fn think(&self) -> Option<Option<Think>> {
        let Some(field) = &self.think else {
            let add = "add thinktime = \"2 ms\", or leave it out";
            return report_if_present(&self.blocks, "there is no pause for it", add)
                .then_some(None);
        };
        let time = times(field)?;
        let key = &keys::THINKTIME_BLOCKS;
        let blocks = match &self.blocks {
            Some(field) => field.number(key)?,
            None => key.default_number(),
        };
        let blocks = blocks as u32;
        Some(Some(Think { time, blocks }))
    }

    /// Returns the flow of a workload whose requests arrive at `rate`.
    fn open(&self, rate: &Field<'_>) -> Option<Flow> {
        let what = "a workload with a rate does not wait for its answers";
        let either = "leave out either this or rate_iops";
        // `&` evaluates both sides, so that all mistakes are reported.
        let open = report_if_present(&self.think, what, either)
            & report_if_present(&self.blocks, what, either);
        let per_s = per_second(rate);
        let spacing = match &self.spacing {
            Some(field) => field.choice(&keys::SPACINGS),
            None => Some(keys::SPACINGS[0].1),
        };
        let bursts = match &self.bursts {
            Some(field) => on_and_off(field).map(Some),
            None => Some(None),
        };
        let iodepth = self.iodepth(keys::OPEN_DEPTH);
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
}

/// Reads a rate in requests per second.
fn per_second(rate: &Field<'_>) -> Option<u64> {
    let found = rate.rate()?;
    match (found.ops, found.bytes_per_s) {
        // A norm scales a rate by the size of requests, which arrivals do not have.
        (Some(ops), None) if ops.norm.is_none() && ops.per_s <= RATE_MAX => Some(ops.per_s),
        _ => {
            rate.error(
                format!("found {}", rate.describe()),
                "requests a second up to 10 million, such as \"200 IOPS\"",
            );
            None
        }
    }
}

fn on_and_off(field: &Field<'_>) -> Option<Bursts> {
    let mut section = Section::with_keys(field, &keys::BURSTS_TABLE)?;
    let on = section.field(&keys::ON).and_then(|field| times(&field));
    let off = section.field(&keys::OFF).and_then(|field| times(&field));
    section.finish();
    Some(Bursts { on: on?, off: off? })
}
