//! Options of the parts of an objective.

use clap::Args as ClapArgs;

use super::value::parse_weight;

#[derive(Debug, Default, ClapArgs)]
pub(crate) struct PartArgs {
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
    /// The group of VMs that it shares one weight with; "none" takes it out
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// The group's weight, 1 to 10000; "none" goes back to the default
    #[arg(long, value_name = "N", value_parser = parse_weight)]
    pub(crate) group_weight: Option<u32>,
    /// Bound on each request's time, such as "30 ms"
    #[arg(long, value_name = "TIME")]
    pub(crate) latency: Option<String>,
    /// Class of I/O priority: realtime, "best-effort 0" to "best-effort 7", idle
    #[arg(long, value_name = "CLASS")]
    pub(crate) priority: Option<String>,
    /// Reads among its requests, such as "70 %": what plans reckon with
    #[arg(long, value_name = "PERCENT")]
    pub(crate) expect_reads: Option<String>,
    /// How its requests lie: random, sequential, "40 % sequential"
    #[arg(long, value_name = "ACCESS")]
    pub(crate) expect_access: Option<String>,
    /// How long its requests are, such as "16 KiB"
    #[arg(long, value_name = "SIZE")]
    pub(crate) expect_size: Option<String>,
}
