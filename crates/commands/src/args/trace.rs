//! Options of `tidegate trace`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum, ValueHint};
use tidegate_core::time::Nanos;
use tidegate_workload::replay::Factor;
use tidegate_workload::trace;

use super::simulator::PlotArgs;
use super::value::{parse_size, parse_time};

/// Commands of `tidegate trace`.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Summarise a trace: requests, sizes, rates, access pattern, footprint
    #[command(
        after_help = "An invalid record is an error that names its line or number; --skip-bad \
                      counts such records and shows the first. A trace without requests is an \
                      error.\n\nFormats:
  msr       Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
  disksim   arrival time (ns), device, first sector, sectors, 1 if it is a read
  vscsi     VMware's vSCSI binary, version 1 (CloudPhysics)
  blkparse  output of blkparse in its default format
  iolog     fio's I/O log, version 2 or 3
  biosnoop  output of bcc's biosnoop
  alibaba   device_id,opcode,offset,length,timestamp
  tencent   Timestamp,Offset,Size,IOType,VolumeID
  recording of `tidegate record dump` or `tidegate sim --record`

Examples:
  tidegate trace info websearch.disksim
  tidegate trace info usr_0.csv --skip-bad -o json | jq '.all.sequential'
  tidegate trace info io_traces.csv --disk 419"
    )]
    Info(TraceInfoArgs),
    /// Check a trace: times, bounds, alignment, duplicates, gaps
    #[command(after_help = "Checks:
  invalid      records that cannot be right
  empty        requests of no bytes
  backwards    requests that are earlier than the one before
  beyond-disk  requests that end beyond --disk-size
  unaligned    addresses or lengths not in whole blocks
  duplicate    requests that are there twice
  gap          times of --gap or longer without a request

Exits with 1 if anything was found.

Examples:
  tidegate trace lint usr_0.csv --disk-size \"200 GiB\" --block-size \"4 KiB\"
  tidegate trace lint usr_0.csv -o json | jq '.checks[] | select(.count > 0)'")]
    Lint(TraceLintArgs),
    /// Convert a trace to another format
    #[command(after_help = "Requests are written in the order of their times. \
                      What the format cannot say is counted: discards are left out, times are \
                      rounded down to its unit (msr 100 ns, disksim 1 ns, iolog and alibaba 1 us), \
                      and disksim has whole sectors.

Examples:
  tidegate trace convert sda.blkparse sda.iolog --as iolog
  tidegate trace convert io_traces.csv one.csv --as msr --disk 419")]
    Convert(TraceConvertArgs),
    /// Write a part of a trace
    #[command(after_help = "Times count from the first request of the trace.

Examples:
  tidegate trace cut usr_0.csv noon.csv --from 12h --to 13h
  tidegate trace cut io_traces.csv reads.csv --disk 419 --reads")]
    Cut(TraceCutArgs),
    /// Write a trace with other times, sizes or fewer requests
    #[command(after_help = "--count 1/10 keeps a tenth. With --by region it \
                      keeps all requests in every tenth region of the disk, chosen by a hash, so \
                      that reuse and locality stay; with --by request every tenth request. \
                      The same arguments give the same file.

Examples:
  tidegate trace scale usr_0.csv fast.csv --time 0.1
  tidegate trace scale usr_0.csv sample.csv --count 1/10 --by region")]
    Scale(TraceScaleArgs),
}

/// Options of `tidegate trace info`.
#[derive(Debug, ClapArgs)]
pub(crate) struct TraceInfoArgs {
    /// Trace file
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Draw the rate over time, the sizes and the heat of addresses
    #[arg(long)]
    pub(crate) plot: bool,
    #[command(flatten)]
    pub(crate) plots: PlotArgs,
    #[command(flatten)]
    pub(crate) read: TraceReadArgs,
}

/// Options of `tidegate trace lint`.
#[derive(Debug, ClapArgs)]
pub(crate) struct TraceLintArgs {
    /// Trace file
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Size of every disk, which no request may pass [default: not checked]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) disk_size: Option<u64>,
    /// Logical block size
    #[arg(long, value_name = "SIZE", default_value = "512 B", value_parser = parse_block)]
    pub(crate) block_size: u64,
    /// Shortest gap without requests that is reported
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = parse_time)]
    pub(crate) gap: Nanos,
    /// Format of the trace [default: detected]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<TraceFormat>,
    /// Only the requests of this disk of the trace
    #[arg(long, visible_alias = "volume", value_name = "NAME")]
    pub(crate) disk: Option<String>,
}

impl TraceLintArgs {
    /// Returns the options for reading: bad records are findings.
    pub(crate) fn read(&self) -> TraceReadArgs {
        TraceReadArgs {
            format: self.format,
            skip_bad: true,
            disk: self.disk.clone(),
        }
    }
}

/// Files of a command that reads a trace and writes another one.
#[derive(Debug, ClapArgs)]
pub(crate) struct TraceRewriteArgs {
    /// Trace file
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// File to write; an existing one is replaced once the new one is whole
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) read: TraceReadArgs,
}

/// Options of `tidegate trace convert`.
#[derive(Debug, ClapArgs)]
pub(crate) struct TraceConvertArgs {
    #[command(flatten)]
    pub(crate) files: TraceRewriteArgs,
    /// Format to write
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    pub(crate) written: WrittenFormat,
}

/// Options of `tidegate trace cut`.
#[derive(Debug, ClapArgs)]
pub(crate) struct TraceCutArgs {
    #[command(flatten)]
    pub(crate) files: TraceRewriteArgs,
    /// Time of the first request that is kept [default: the begin]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) from: Option<Nanos>,
    /// Time of the first request that is not kept [default: the end]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) to: Option<Nanos>,
    /// Only reads
    #[arg(long = "reads", conflicts_with = "write_only")]
    pub(crate) read_only: bool,
    /// Only writes
    #[arg(long = "writes")]
    pub(crate) write_only: bool,
    /// Format to write [default: that of the trace if it can be written, else msr]
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    pub(crate) written: Option<WrittenFormat>,
}

/// Options of `tidegate trace scale`.
#[derive(Debug, ClapArgs)]
pub(crate) struct TraceScaleArgs {
    #[command(flatten)]
    pub(crate) files: TraceRewriteArgs,
    /// Factor of the times: 0.5 is twice as fast
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor)]
    pub(crate) time: Option<f64>,
    /// Factor of addresses and lengths, which are extended to whole sectors
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor)]
    pub(crate) size: Option<f64>,
    /// Part of the requests that is kept
    #[arg(long, value_name = "N/M", value_parser = parse_share)]
    pub(crate) count: Option<(u32, u32)>,
    /// Unit that is kept or left out as a whole
    #[arg(
        long,
        value_enum,
        value_name = "UNIT",
        default_value = "region",
        requires = "count"
    )]
    pub(crate) by: SampleUnit,
    /// Size of a region
    #[arg(long, value_name = "SIZE", default_value = "1 MiB", value_parser = parse_region)]
    pub(crate) region: u64,
    /// Format to write [default: that of the trace if it can be written, else msr]
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    pub(crate) written: Option<WrittenFormat>,
}

/// Unit of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum SampleUnit {
    /// Regions of the disk
    Region,
    /// Single requests
    Request,
}

/// Format that can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum WrittenFormat {
    /// MSR Cambridge, CSV
    Msr,
    /// DiskSim ASCII, times in ns
    Disksim,
    /// fio's I/O log, version 3
    Iolog,
    /// Alibaba Cloud, CSV
    Alibaba,
}

impl WrittenFormat {
    /// Returns the format of the trace.
    pub(crate) fn format(self) -> trace::Format {
        match self {
            WrittenFormat::Msr => trace::Format::Msr,
            WrittenFormat::Disksim => trace::Format::DiskSim,
            WrittenFormat::Iolog => trace::Format::Iolog,
            WrittenFormat::Alibaba => trace::Format::Alibaba,
        }
    }
}

/// Parses a block size: a power of two from 512 B to 64 KiB.
fn parse_block(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    let fine = size.is_power_of_two() && (512..=65_536).contains(&size);
    fine.then_some(size)
        .ok_or_else(|| "a power of two from 512 B to 64 KiB".to_owned())
}

/// Parses the size of a region: at least a sector.
fn parse_region(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    let fine = size >= trace::SECTOR;
    fine.then_some(size)
        .ok_or_else(|| "512 B or more".to_owned())
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor = text.trim().parse().ok();
    factor
        .filter(|factor| Factor::RANGE.contains(factor))
        .ok_or_else(|| "a number from 0.000001 to 1000000".to_owned())
}

/// Parses a share such as `1/10`.
fn parse_share(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once('/').and_then(|(keep, of)| {
        let number = |text: &str| text.trim().parse::<u32>().ok();
        Some((number(keep)?, number(of)?))
    });
    parts
        .filter(|(keep, of)| *keep > 0 && keep <= of)
        .ok_or_else(|| "N/M with whole numbers, N from 1 to M, such as 1/10".to_owned())
}

/// Options for reading a trace.
#[derive(Debug, ClapArgs)]
pub(crate) struct TraceReadArgs {
    /// Format of the trace [default: detected]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<TraceFormat>,
    /// Skip invalid records, and report their number
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Only the requests of this disk of the trace
    #[arg(long, visible_alias = "volume", value_name = "NAME")]
    pub(crate) disk: Option<String>,
}

/// Format of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum TraceFormat {
    /// MSR Cambridge, CSV
    Msr,
    /// DiskSim ASCII, times in ns
    Disksim,
    /// VMware's vSCSI, binary
    Vscsi,
    /// Output of blkparse
    Blkparse,
    /// fio's I/O log, version 2 or 3
    Iolog,
    /// Output of biosnoop
    Biosnoop,
    /// Alibaba Cloud, CSV
    Alibaba,
    /// Tencent Cloud, CSV
    Tencent,
    /// Recording of Tidegate, binary
    Recording,
}

impl TraceReadArgs {
    /// Returns the options for the trace reader.
    pub(crate) fn options(&self) -> trace::Options {
        let format = self.format.map(|format| match format {
            TraceFormat::Msr => trace::Format::Msr,
            TraceFormat::Disksim => trace::Format::DiskSim,
            TraceFormat::Vscsi => trace::Format::Vscsi,
            TraceFormat::Blkparse => trace::Format::Blkparse,
            TraceFormat::Iolog => trace::Format::Iolog,
            TraceFormat::Biosnoop => trace::Format::Biosnoop,
            TraceFormat::Alibaba => trace::Format::Alibaba,
            TraceFormat::Tencent => trace::Format::Tencent,
            TraceFormat::Recording => trace::Format::Recording,
        });
        trace::Options {
            format,
            skip_bad: self.skip_bad,
            disk: self.disk.clone(),
        }
    }
}
