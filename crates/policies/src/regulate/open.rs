//! Regulator that lets every request pass.

use tidegate_base::request::ReqId;
use tidegate_core::part::{Enforces, PartDescriptor};
use tidegate_core::roles::{Gate, Regulator, Stage};
use tidegate_core::view::View;

/// Description for the registry of policy parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Regulator> = PartDescriptor {
    name: "open",
    summary: "admits every request at once",
    params: &[],
    enforces: Enforces::NONE,
    build: |_, _| Box::new(Open),
};

/// Regulator that lets every request pass.
#[derive(Debug, Default)]
pub struct Open;

impl Regulator for Open {
    fn stage(&self) -> Stage {
        Stage::Open
    }

    fn gate(&self, _view: &View, _unit: ReqId) -> Gate {
        Gate::Pass
    }
}
