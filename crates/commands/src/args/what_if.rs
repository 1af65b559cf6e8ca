//! Options of `tidegate whatif`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

use super::value::{parse_policy, parse_time, whole};
use crate::completion;

/// Rules and examples of the command.
pub(super) const HELP: &str =
    "VMs that wait for answers are replayed with their think times, others at the times of their \
     requests; what is inferred about each is printed, and * marks what depends on it. With every \
     answer comes how well the recording's own policy reproduces the recording.\n\nExamples:
  tidegate sim examples/noisy-neighbour.toml --record noisy.tgrec
  tidegate whatif noisy.tgrec --policy fifo,mclock,slo
  tidegate whatif noisy.tgrec --objective \"bulk=limit.total=20 MB/s\"
  tidegate whatif noisy.tgrec --device nvme-1tb -o json | jq .reproduction
  tidegate whatif noisy.tgrec --choose --objective \"oltp=latency=20 ms\"";

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
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "choose")]
    pub(crate) report: Option<PathBuf>,
    /// Saturation profile of the device: a file of `tidegate profile`, or the name of a model of
    /// the catalogue [default: the profile of the recording, if it is of the catalogue]
    #[arg(long, value_name = "FILE", add = completion::models())]
    pub(crate) profile: Option<String>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
    /// Search policies, limits and parameters for what keeps all promises, and judge it on a part
    /// of the recording that was not searched
    #[arg(long)]
    pub(crate) choose: bool,
    /// Length of the search on an ordinary machine, such as "5 min": so many requests are
    /// simulated, whatever the machine
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = parse_time,
          requires = "choose")]
    pub(crate) budget: Nanos,
    /// Replays of the search at once, which changes no result [default: one for each core]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024), requires = "choose")]
    pub(crate) jobs: Option<u16>,
    /// Write the results to FILE in the JSON of fio, a job for each VM; with several policies a
    /// file for each, with its name before the ending
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) fio_json: Option<PathBuf>,
    /// Write the latencies of each VM and second to FILE as HdrHistograms; with several policies a
    /// file for each, with its name before the ending
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) hdr_log: Option<PathBuf>,
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
