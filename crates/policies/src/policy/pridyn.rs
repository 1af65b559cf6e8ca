//! `pridyn`: jobs end in time by classes of priority, over CFQ.

use super::PolicyInfo;
use crate::control::job_priorities;
use crate::dispatch::cfq;
use crate::regulate::open;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "pridyn",
    summary: "jobs (so many bytes, by when) end in time by classes of priority, over CFQ",
    source: "Jain, Lakshmi: PriDyn, IEEE TSC 2014; Jain's thesis, chapters 3 and 4",
    about: "Forecasts every three seconds, and whenever a job begins or ends, when each VM's job will be \
            done. One that would be late has others' classes lowered, one a time, those with the most \
            time to spare first; then its own raised; and if even that is not enough nobody suffers for \
            it any longer. Without jobs it is cfq. For hard disks with jobs of minutes whose deadlines \
            differ; jobs much shorter than its interval are decided by a guess.",
    controller: Some(&job_priorities::PART),
    regulator: &open::PART,
    dispatcher: &cfq::PART,
    presets: &[],
};
