//! The regulator that holds nothing back.

use tidegate_base::request::ReqId;
use tidegate_core::facts::Facts;
use tidegate_core::part::{Honours, PartInfo};
use tidegate_core::roles::{Gate, Regulator, Stage};

/// What the registry knows of it.
pub(crate) static PART: PartInfo<dyn Regulator> = PartInfo {
    name: "open",
    summary: "holds nothing back",
    params: &[],
    honours: Honours::NONE,
    build: |_, _| Box::new(Open),
};

/// Holds nothing back.
#[derive(Debug, Default)]
pub struct Open;

impl Regulator for Open {
    fn stage(&self) -> Stage {
        Stage::Open
    }

    fn gate(&self, _facts: &Facts, _unit: ReqId) -> Gate {
        Gate::Pass
    }
}
