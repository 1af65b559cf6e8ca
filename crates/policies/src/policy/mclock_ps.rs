//! `mclock-ps`: mClock's proportional share alone, as vFair's evaluation built its rival.

use super::PolicyInfo;
use crate::dispatch::cost::CostBy;
use crate::dispatch::sfq;
use crate::regulate::open;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "mclock-ps",
    summary: "mClock's shares alone: a request counts one for every 16 KiB",
    source: "Gulati et al.: mClock, OSDI 2010; as PS(mClock) in Lu et al., \"vFair\", SoCC 2015",
    about: "What is left of mClock where no VM has a reservation or a limit: of the VMs that \
            wait, the one goes that had least for its weight, and a request counts one for every \
            16 KiB it begins, whatever it costs the device. It is there to be compared with; \
            for shares by what requests cost take sfq with cost = \"device-time\", for floors \
            and caps mclock.",
    controller: None,
    regulator: &open::PART,
    dispatcher: &sfq::PART,
    presets: &[("cost", CostBy::SizeClasses.word())],
};
