//! Regulator that lets every request pass.

use tidegate_base::request::ReqId;
use tidegate_core::facts::Facts;
use tidegate_core::part::{Honours, PartInfo};
use tidegate_core::roles::{Gate, Regulator, Stage};

/// Description for the registry of policy parts.
pub(crate) static PART: PartInfo<dyn Regulator> = PartInfo {
    name: "open",
    summary: "holds nothing back",
    params: &[],
    honours: Honours::NONE,
    build: |_, _| Box::new(Open),
};

/// Regulator that lets every request pass.
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
