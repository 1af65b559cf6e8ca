//! Options of `explain` and `interference`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use tidegate_config::moment::Moment;

use super::value::parse_moment;
use crate::completion;

/// Rules and examples of `explain`.
pub(super) const EXPLAIN_HELP: &str = "\
Without --from and --to the slowest part of the last 15 minutes is found and
compared with what is usual for the VM: the quieter half of the hour before and
after. A span of up to five minutes is explained as a whole. Times are in steps of
10 s: \"now\", a time ago (-15m, \"15 min\"), a time of day (14:02), a date and time
(2026-11-28T14:02:00Z).

It needs the history, which is on by default and goes back 24 hours. Shares are of
the time of all requests, or of what a request took longer than usual. Who is to
blame is sampled; what cannot be said, it says.

If every request of that time was recorded (`tidegate record on`), the changes that
it suggests are tried on that recording, in the simulator: nothing is applied. The
daemon gives its recording to clients with the role `operate`. --recording names
another one, and --no-simulate leaves the simulation out.

Examples:
  tidegate explain oltp
  tidegate explain oltp --from 14:00 --to 14:05
  tidegate explain oltp --from -2h -o json | jq .diagnosis.findings
  tidegate explain oltp --no-simulate
  tidegate record dump --from 14:00 --to 14:05 slow.tgrec
  tidegate explain oltp --from 14:00 --to 14:05 --recording slow.tgrec
  tidegate interference             who delays whom on a device, since VMs came";

/// Rules and examples of `interference`.
pub(super) const INTERFERENCE_HELP: &str = "\
Each row divides the time of a VM's requests since the VM was added: held by its
own limit (LIMIT), behind other VMs (OTHERS), behind its own requests (OWN), with a
request that they were merged into (MERGED), deliberate waits of the policy (POLICY),
served by the device (DEVICE), waiting for a device that was slower than usual
(SLOW), without a known cause (UNKNOWN), until replies were sent (REPLY). Columns in
which no VM has anything are left out. BEHIND names the VMs that OTHERS are, the
largest first, as parts of the VM's time.

Examples:
  tidegate interference
  tidegate interference disk0 -o json | jq '.vms[] | {vm, behind}'
  tidegate explain oltp             one VM at one time, in words";

/// Options of `tidegate explain`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainArgs {
    /// VM name; one that was removed is known until its history ages out
    #[arg(add = completion::vms())]
    pub(crate) vm: String,
    /// Begin of the span [default: 15 minutes before its end]
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub(crate) from: Option<Moment>,
    /// End of the span [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub(crate) to: Option<Moment>,
    /// Leave out the simulation of what may help
    #[arg(long, conflicts_with_all = ["recording", "device", "profile", "allow_gaps"])]
    pub(crate) no_simulate: bool,
    /// Try what may help on this recording (`tidegate record dump`) [default: the daemon's own]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) recording: Option<PathBuf>,
    /// Device model for the simulation [default: that of the recording, if it has one]
    #[arg(long, value_name = "MODEL", add = completion::models())]
    pub(crate) device: Option<String>,
    /// Saturation profile for the simulation: a file of `tidegate profile`, or the name of a model
    /// of the catalogue [default: the profile of the recording, if it is of the catalogue]
    #[arg(long, value_name = "FILE", add = completion::models())]
    pub(crate) profile: Option<String>,
    /// Replay a recording with gaps: what its missing requests did is missing
    #[arg(long)]
    pub(crate) allow_gaps: bool,
}

/// Options of `tidegate interference`.
#[derive(Debug, ClapArgs)]
pub(crate) struct InterferenceArgs {
    /// Device name; optional if there is only one
    #[arg(add = completion::devices())]
    pub(crate) device: Option<String>,
}
