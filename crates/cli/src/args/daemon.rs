//! Options of the commands that ask a running daemon.

use std::time::Duration;

use clap::{ArgGroup, Args as ClapArgs, Subcommand};

use super::value::{parse_interval, parse_param, parse_weight, whole};

#[derive(Debug, Subcommand)]
pub(crate) enum VmCommand {
    /// All VMs in a table
    List,
    /// One VM: objective, disks, where its time goes
    Show {
        /// Its name
        name: String,
    },
    /// Change what a VM was promised, now
    #[command(
        override_usage = "tidegate vm set <NAME> <--PART VALUE>...",
        after_help = "What is not named stays as it is; \"none\" takes a part away. The \
                            change lasts until\nthe daemon ends: write it into the configuration \
                            to keep it.\n\nExamples:
  tidegate vm set oltp --reservation \"120 IOPS @ 16 KiB\" --latency \"30 ms\"
  tidegate vm set bulk --limit \"500 IOPS, 40 MB/s\" --burst \"2000 IOPS\" --burst-length \"10 s\"
  tidegate vm set bulk --limit none --weight 50"
    )]
    Set(Box<ObjectiveArgs>),
}

/// Parts of an objective. Rates are text such as `500 IOPS`, `120 IOPS @ 16 KiB`, `30 MB/s`,
/// `500 IOPS, 30 MB/s` or `none`; the daemon reads them as the configuration's.
#[derive(Debug, ClapArgs)]
#[command(group = ArgGroup::new("parts").required(true).multiple(true).args([
    "reservation", "limit", "limit_read", "limit_write", "burst", "burst_read", "burst_write",
    "burst_length", "target", "weight", "latency",
    "priority",
]))]
pub(crate) struct ObjectiveArgs {
    /// The VM's name
    pub(crate) name: String,
    /// A floor: what the VM gets when it asks
    #[arg(long, value_name = "RATE")]
    pub(crate) reservation: Option<String>,
    /// A cap on reads and writes together; "none" removes every limit
    #[arg(long, value_name = "RATE")]
    pub(crate) limit: Option<String>,
    /// A cap on reads
    #[arg(long, value_name = "RATE")]
    pub(crate) limit_read: Option<String>,
    /// A cap on writes
    #[arg(long, value_name = "RATE")]
    pub(crate) limit_write: Option<String>,
    /// What may pass above the limit for a while; "none" removes the burst
    #[arg(long, value_name = "RATE")]
    pub(crate) burst: Option<String>,
    /// A burst of reads
    #[arg(long, value_name = "RATE")]
    pub(crate) burst_read: Option<String>,
    /// A burst of writes
    #[arg(long, value_name = "RATE")]
    pub(crate) burst_write: Option<String>,
    /// How long a burst may last, such as "10 s"
    #[arg(long, value_name = "TIME")]
    pub(crate) burst_length: Option<String>,
    /// A rate to be held precisely
    #[arg(long, value_name = "RATE")]
    pub(crate) target: Option<String>,
    /// Share of what reservations leave, 1 to 10000; "none" goes back to the default
    #[arg(long, value_name = "N", value_parser = parse_weight)]
    pub(crate) weight: Option<u32>,
    /// Bound on each request's time, such as "30 ms"
    #[arg(long, value_name = "TIME")]
    pub(crate) latency: Option<String>,
    /// Class of I/O priority: realtime, "best-effort 0" to "best-effort 7", idle
    #[arg(long, value_name = "CLASS")]
    pub(crate) priority: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// All devices in a table
    List,
    /// One device: policy, depth, what is not enforced
    Show {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// All policies and the parts they are made of (asks no daemon)
    List,
    /// One policy or part: what it does, what it enforces, its parameters (asks no daemon)
    #[command(after_help = "Examples:
  tidegate policy show mclock
  tidegate policy show bd-edf                       a part
  tidegate policy show token-bucket+mclock          parts, combined freely")]
    Show {
        /// The name of a policy or of a part, or parts joined by +
        name: String,
    },
    /// Change the policy of a device, now; nothing pending is lost
    #[command(after_help = "Examples:
  tidegate policy set disk0 mclock
  tidegate policy set disk0 mclock --param \"cost_size=64 KiB\"
  tidegate policy set disk0 token-bucket+mclock     parts, combined freely")]
    Set {
        /// The device's name
        device: String,
        /// A policy's name, or REGULATOR+DISPATCHER, or CONTROLLER+REGULATOR+DISPATCHER
        policy: String,
        /// A parameter's value with its unit; may be given several times
        #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param)]
        params: Vec<(String, String)>,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatsArgs {
    /// Only this VM
    pub(crate) vm: Option<String>,
    /// Rates of each interval instead of totals, until interrupted
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Time between two looks, such as "500 ms"
    #[arg(long, value_name = "TIME", default_value = "1 s", value_parser = parse_interval,
          requires = "follow")]
    pub(crate) interval: Duration,
    /// End after so many intervals
    #[arg(long, value_name = "N", requires = "follow", value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) count: Option<u64>,
}
