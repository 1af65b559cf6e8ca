//! Options of `tidegate whatif`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use tidegate_policies::policy::PolicySpec;

use super::value::parse_policy;
use crate::completion;

/// Rules and examples of the command.
pub(super) const HELP: &str =
    "VMs that wait for answers are replayed with their think times, others at the times of their \
     requests; what is inferred about each is printed, and * marks what depends on it. With every \
     answer comes how well the recording's own policy reproduces the recording.\n\nExamples:
  tidegate sim examples/noisy-neighbour.toml --record noisy.tgrec
  tidegate whatif noisy.tgrec --policy fifo,mclock,slo
  tidegate whatif noisy.tgrec --objective \"bulk=limit.total=20 MB/s\"
  tidegate whatif noisy.tgrec --device nvme-1tb -o json | jq .reproduction";

/// Options of `tidegate whatif`.
#[derive(Debug, ClapArgs)]
pub(crate) struct WhatIfArgs {
    /// Recording (`tidegate record dump`, `tidegate sim --record`)
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) recording: PathBuf,
    /// Policies to try, each for the whole recording [default: the recording's own]
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = parse_policy, add = completion::policies())]
    pub(crate) policies: Vec<PolicySpec>,
    /// Another part of a VM's objective, such as "etcd=latency=10 ms"; may be repeated
    #[arg(long = "objective", value_name = "VM=PART=VALUE", value_parser = parse_part)]
    pub(crate) objectives: Vec<ObjectivePart>,
    /// Device model [default: that of the recording, if it has one]
    #[arg(long, value_name = "MODEL", add = completion::models())]
    pub(crate) device: Option<String>,
    /// Write results, and each VM over time under each policy, to FILE as a page for a browser
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    /// Replay a recording from which requests are missing
    #[arg(long)]
    pub(crate) allow_gaps: bool,
}

/// Part of the objective of a VM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ObjectivePart {
    /// Name of the VM.
    pub(crate) vm: String,
    /// Path of the part, such as `limit.write`.
    pub(crate) part: String,
    /// Value as typed.
    pub(crate) value: String,
}

/// Parses `VM=PART=VALUE`.
fn parse_part(text: &str) -> Result<ObjectivePart, String> {
    let mut parts = text.splitn(3, '=').map(str::trim);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(vm), Some(part), Some(value)) if !vm.is_empty() && !part.is_empty() => {
            Ok(ObjectivePart {
                vm: vm.to_owned(),
                part: part.to_owned(),
                value: value.to_owned(),
            })
        }
        _ => Err("write VM=PART=VALUE, such as \"etcd=latency=10 ms\" or \
                  \"backup=limit.write=40 MB/s\""
            .to_owned()),
    }
}
