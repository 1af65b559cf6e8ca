//! The regulator that holds nothing back.

use crate::facts::Facts;
use crate::request::ReqId;
use crate::roles::{Gate, Regulator, Stage};

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
