//! Options of `top`.

use std::time::Duration;

use clap::{Args as ClapArgs, Parser, ValueEnum};

use super::objective_parts::PartArgs;
use super::value::parse_interval;
use crate::completion;

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Keys: arrows select a VM, Enter shows all about it, e changes its objective, m \
                  shows who delayed whom, t deadline transfers, < and > choose the column to sort \
                  by, r reverses, / filters, d goes through the devices, Space pauses, ? explains \
                  keys and columns, q quits.\n\n\
                  KEPT is the verdict on the objective since it was set, as in `vm list`; SHARE \
                  is the VM's part of the time that I/Os spend at the device; TREND is its IOPS, \
                  10 s a character, by its own highest value. Without a terminal use `tidegate \
                  stats` or `tidegate vm list -o json`.\n\nExamples:
  tidegate top
  tidegate top --device nvme0 --sort p99
  tidegate top --filter web --interval \"5 s\"
  ssh -t host tidegate top                  over a terminal of 80 columns, too"
)]
pub(crate) struct TopArgs {
    /// Show only this device and its VMs
    #[arg(short, long, value_name = "NAME", add = completion::devices())]
    pub(crate) device: Option<String>,
    /// Show only VMs whose name, device or objective contains this text, in any case
    #[arg(
        short,
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) filter: String,
    /// Column to sort VMs by: numbers with the highest first, missed promises first
    #[arg(short, long, value_enum, value_name = "COLUMN", default_value_t)]
    pub(crate) sort: SortColumn,
    /// Sort in the other order
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Time between two requests to the daemon
    #[arg(short, long, value_name = "TIME", default_value = "1 s", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Draw in ASCII (the default where the locale is not UTF-8)
    #[arg(long)]
    pub(crate) ascii: bool,
}

/// Column of `top` to sort VMs by.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub(crate) enum SortColumn {
    /// Name of the VM
    Vm,
    /// Name of its device
    Device,
    /// Objective, as text
    Objective,
    /// Attainment, the least first
    Kept,
    /// Requests per second
    Iops,
    /// Megabytes per second
    #[value(name = "mb/s", alias = "mbs")]
    MbPerS,
    /// Median latency
    P50,
    /// 99th percentile of latencies
    P99,
    /// Part of the time of I/Os at the device
    #[default]
    Share,
}

/// Objective of a VM as typed in `top`: the options of `vm set`.
#[derive(Debug, Parser)]
#[command(name = "vm set", no_binary_name = true, disable_help_flag = true)]
pub(crate) struct ObjectiveLine {
    #[command(flatten)]
    pub(crate) parts: PartArgs,
    /// Apply it even if it does not fit the device
    #[arg(long)]
    pub(crate) force: bool,
    /// Persist the change, so that it survives a restart; needs a [store]
    #[arg(long)]
    pub(crate) persist: bool,
}
