//! Workload of one guest process: a stream of requests, described in fio's terms.
//!
//! A [`Workload`] is plain data; readers of files check it with [`Workload::check`]. It contains
//! durations but no points in time.

mod check;

use crate::arrival_process::Arrivals;
use crate::deadline::Deadline;
use crate::guest::{CopyTo, Files, PageCache};
use crate::replay::Replay;
use crate::time::TimeDistribution;
use std::ops::Range;
use tidegate_core::time::Nanos;
use tidegate_units::human::bytes_and_count;

/// Operations and address order of a workload (fio's `rw`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rw {
    /// Operations.
    pub mix: Mix,
    /// True for random addresses (`randread` ...), false for sequential ones (`read` ...).
    pub random: bool,
}

/// Operations that a workload issues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Only reads.
    Read,
    /// Only writes.
    Write,
    /// Only discards.
    Trim,
    /// Reads and writes, each request drawn independently.
    ReadWrite {
        /// Reads in a hundred requests (fio's `rwmixread`), 0 to 100.
        read_percent: u8,
    },
    /// Each block is discarded, then written (fio's `trimwrite` and `randtrimwrite`). Both count as
    /// one request with the bytes of one; its size is a write's.
    TrimWrite,
}

impl Mix {
    /// Returns true if there are discards among the operations.
    pub(crate) fn has_discards(self) -> bool {
        matches!(self, Mix::Trim | Mix::TrimWrite)
    }
}

/// Sizes of the requests of one operation, with their weights: 1 to 4096 of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes(pub Vec<SizeShare>);

/// Request size with its weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeShare {
    /// Size in bytes, a multiple of 512 up to 1 GiB.
    pub bytes: u32,
    /// Weight relative to the sum of all weights, at least 1.
    pub weight: u32,
}

impl Sizes {
    /// Creates sizes that are all `bytes`.
    pub fn fixed(bytes: u32) -> Sizes {
        Sizes(vec![SizeShare { bytes, weight: 1 }])
    }
}

/// Distribution of random requests over blocks (fio's `random_distribution`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Placement {
    /// Uniform, each request drawn independently (fio's `norandommap`).
    Uniform,
    /// Permutation: each block once in random order, then each once again in another order (fio's
    /// default). All requests must have one size.
    Shuffle,
    /// Zipf: the k-th most popular block has probability proportional to `1 / k^theta`. Popular
    /// blocks are scattered over the region.
    Zipf {
        /// Exponent, above 0 up to 10, not 1.
        theta: f64,
    },
    /// Pareto as fio's `pareto:h`.
    Pareto {
        /// Skew, above 0 and below 1; the smaller, the more skewed.
        h: f64,
    },
    /// Normal distribution around the middle of the region.
    Normal {
        /// Standard deviation in percent of the region, above 0 to 100.
        deviation_percent: f64,
    },
}

/// Event that triggers the next request.
#[derive(Clone, PartialEq, Debug)]
pub enum Flow {
    /// Closed loop: the reply to an earlier request triggers the next one.
    Closed {
        /// Requests kept outstanding, 1 to 65,536.
        iodepth: u32,
        /// Pause of the whole workload after a number of requests.
        think: Option<Think>,
    },
    /// Open loop: an arrival process that does not depend on replies.
    Open {
        /// Arrival process.
        arrivals: Arrivals,
        /// Maximum number of requests outstanding, 1 to 65,536. Further requests wait inside the
        /// guest, which counts into their latency.
        iodepth: u32,
    },
}

/// Pauses of a closed loop (fio's `thinktime`).
#[derive(Clone, PartialEq, Debug)]
pub struct Think {
    /// Duration, from the reply after which nothing of the workload is outstanding.
    pub time: TimeDistribution,
    /// Requests between two pauses (`thinktime_blocks`), at least 1.
    pub blocks: u32,
}

/// Workload of one process: a stream of requests.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// Name in messages and results.
    pub name: String,
    /// Operations and address order.
    pub rw: Rw,
    /// Sizes of reads, writes and discards. A request begins at a multiple of the smallest size of
    /// its operation (fio's `blockalign`), counted from the begin of the region.
    pub sizes: [Sizes; 3],
    /// First byte of the region on the disk; a multiple of 512.
    pub offset: u64,
    /// Distance between the begins of two copies' regions (`offset_increment`); a multiple of 512.
    pub offset_increment: u64,
    /// Size of the region in bytes, a multiple of 512 above 0; `None`: to the end of the disk.
    pub size: Option<u64>,
    /// Distribution of random requests over blocks.
    pub placement: Placement,
    /// Number of copies, 1 to 65,536, each with its own stream.
    pub numjobs: u32,
    /// Event that triggers the next request.
    pub flow: Flow,
    /// Bytes after which each copy ends, at least 1; `None`: no such end. (fio's default is `size`;
    /// see [`crate::fio`].)
    pub io_size: Option<u64>,
    /// Requests after which each copy ends, at least 1 (`number_ios`). Flushes after writes do not
    /// count.
    pub number_ios: Option<u64>,
    /// Start, counted from the arrival of the VM (`startdelay`).
    pub start: Nanos,
    /// Time after its start at which the workload ends; above 0.
    pub runtime: Option<Nanos>,
    /// Writes between two flushes (`fsync`, `fdatasync`); 0: no flushes.
    pub fsync: u32,
    /// True if every write is durable before the reply (`sync=1`).
    pub sync: bool,
    /// Files of the workload (`nrfiles`).
    pub files: Files,
    /// Page cache of the guest; `None`: requests go to the disk unchanged.
    pub page_cache: Option<PageCache>,
    /// Place to which the data that is read is copied.
    pub copy_to: Option<CopyTo>,
    /// Trace whose requests are issued instead of drawn ones. They lie in the region, in pieces of
    /// `sizes`, of which each operation has one; the `iodepth` of `flow` limits the pieces
    /// outstanding.
    pub replay: Option<Replay>,
    /// Deadline of the whole `io_size`, or of each request of a trace that is replayed request by
    /// request. Allowed for a single copy that moves as many bytes as it requests.
    pub deadline: Option<Deadline>,
}

/// Unit of sizes and addresses in bytes.
pub(crate) const SECTOR: u64 = 512;
/// Largest request in bytes.
pub(crate) const REQUEST_MAX: u32 = 1 << 30;
/// Maximum number of sizes of an operation.
pub(crate) const SIZES_MAX: usize = 4096;
/// Maximum number of copies of a workload; 1 to 65536 in messages.
pub(crate) const COPIES_MAX: u32 = 1 << 16;
/// Maximum number of requests that a copy keeps outstanding; 1 to 65536 in messages.
pub(crate) const IODEPTH_MAX: u32 = 1 << 16;
/// Maximum number of files of a copy; 1 to 65536 in messages.
pub(crate) const FILES_MAX: u32 = 1 << 16;

/// Workload of fio without options: sequential reads of 4 KiB, one after the other, over the whole
/// disk. Unlike fio's it has no end, and random requests, if chosen, are drawn independently.
impl Default for Workload {
    fn default() -> Workload {
        Workload {
            name: "job".to_owned(),
            rw: Rw {
                mix: Mix::Read,
                random: false,
            },
            sizes: std::array::from_fn(|_| Sizes::fixed(4096)),
            offset: 0,
            offset_increment: 0,
            size: None,
            placement: Placement::Uniform,
            numjobs: 1,
            flow: Flow::Closed {
                iodepth: 1,
                think: None,
            },
            io_size: None,
            number_ios: None,
            start: Nanos::ZERO,
            runtime: None,
            fsync: 0,
            sync: false,
            files: Files::ONE,
            page_cache: None,
            copy_to: None,
            replay: None,
            deadline: None,
        }
    }
}

impl Sizes {
    /// Returns the smallest size in bytes; 0 if there is none.
    pub fn smallest(&self) -> u32 {
        self.0.iter().map(|share| share.bytes).min().unwrap_or(0)
    }

    /// Returns the largest size in bytes; 0 if there is none.
    pub fn largest(&self) -> u32 {
        self.0.iter().map(|share| share.bytes).max().unwrap_or(0)
    }

    /// Returns the size in bytes if all requests have the same.
    pub fn single(&self) -> Option<u32> {
        (self.smallest() == self.largest()).then(|| self.smallest())
    }

    /// Returns the mean size in bytes, by weight.
    pub fn mean(&self) -> f64 {
        let (mut bytes, mut weights) = (0.0, 0.0);
        for share in &self.0 {
            bytes += f64::from(share.bytes) * f64::from(share.weight);
            weights += f64::from(share.weight);
        }
        bytes / weights
    }
}

impl Mix {
    /// Returns the indices of [`Workload::sizes`] that the operations use.
    pub(crate) fn sizes_used(self) -> &'static [usize] {
        match self {
            Mix::Read => &[0],
            // fio takes the size of a write for both halves of `trimwrite`.
            Mix::Write | Mix::TrimWrite => &[1],
            Mix::Trim => &[2],
            Mix::ReadWrite { .. } => &[0, 1],
        }
    }
}

impl Workload {
    /// Returns the size in bytes if requests of all operations have the same.
    pub(crate) fn single_size(&self) -> Option<u32> {
        let mut used = self.rw.mix.sizes_used().iter();
        let first = self.sizes[*used.next()?].single()?;
        used.all(|&i| self.sizes[i].single() == Some(first))
            .then_some(first)
    }

    /// Returns the smallest request in bytes.
    pub(crate) fn smallest_request(&self) -> u32 {
        let used = self.rw.mix.sizes_used().iter();
        used.map(|&i| self.sizes[i].smallest()).min().unwrap_or(0)
    }

    /// Returns the largest request in bytes.
    pub(crate) fn largest_request(&self) -> u32 {
        let used = self.rw.mix.sizes_used().iter();
        used.map(|&i| self.sizes[i].largest()).max().unwrap_or(0)
    }

    /// Returns the bytes of the region of copy `copy` (from 0), on a disk of `disk_size` bytes.
    ///
    /// # Errors
    /// If the region, the journal or the destination of a copy exceeds the disk, or the region is
    /// smaller than the largest request.
    pub fn region(&self, copy: u32, disk_size: u64) -> Result<Range<u64>, RegionError> {
        // A last partial sector cannot be addressed.
        let disk_end = disk_size - disk_size % SECTOR;
        // Saturates: an offset beyond 64 bits is behind the end of every disk, and refused below.
        let from = self
            .offset_increment
            .saturating_mul(u64::from(copy))
            .saturating_add(self.offset);
        let to = match self.size {
            Some(size) => from.saturating_add(self.files.span(size)),
            // Never before `from`, so that the length below does not wrap; an empty region is
            // refused.
            None => disk_end.max(from),
        };
        let fits = to.max(self.journal_or_copy_end(to - from)) <= disk_end;
        let (largest, parts) = self.largest_of_region();
        if fits && to - from >= largest.saturating_mul(u64::from(parts)) {
            Ok(from..to)
        } else {
            Err(self.region_error(from..to, disk_size))
        }
    }

    /// Returns the end on the disk of the journal, or of the copy of a region of `region` bytes; 0
    /// without either.
    fn journal_or_copy_end(&self, region: u64) -> u64 {
        let journal = self.page_cache.and_then(|cache| cache.journal);
        let journal = journal.map_or(0, |journal| journal.end(self.files.count));
        let copy = self.copy_to.map_or(0, |c| c.offset.saturating_add(region));
        journal.max(copy)
    }

    /// Returns the largest request in bytes, and the number of parts of the region that must each
    /// hold it.
    fn largest_of_region(&self) -> (u64, u32) {
        match &self.replay {
            None => (self.largest_request().into(), 1),
            Some(replay) => (replay.largest(), replay.disks()),
        }
    }

    /// Returns the error of a region that does not fit a disk of this size.
    pub(crate) fn region_error(&self, region: Range<u64>, disk_size: u64) -> RegionError {
        let (largest, parts) = self.largest_of_region();
        RegionError {
            workload: self.name.clone(),
            from: region.start,
            to: region.end,
            disk_size,
            largest,
            parts,
        }
    }
}

/// Refusal of a region that does not fit its disk.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "workload {workload:?}: its region, {} to {}, must lie on the disk of {} and hold a request of \
     {}{}",
    bytes_and_count(*from),
    bytes_and_count(*to),
    bytes_and_count(*disk_size),
    bytes_and_count(*largest),
    match parts {
        1 => String::new(),
        n => format!(" of each of its trace's {n} disks"),
    }
)]
pub struct RegionError {
    /// Name of the workload.
    pub workload: String,
    /// First byte of the region.
    pub from: u64,
    /// End of the region (exclusive).
    pub to: u64,
    /// Size of the disk in bytes.
    pub disk_size: u64,
    /// Largest request of the workload in bytes.
    pub largest: u64,
    /// Number of equal parts of the region that must each hold it: one per disk of a trace.
    pub parts: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrival_process::{Bursts, Spacing};

    fn fields(workload: &Workload) -> Vec<String> {
        let mistakes = workload
            .check()
            .map_or_else(|found| found.list, |()| vec![]);
        mistakes.into_iter().map(|found| found.field).collect()
    }

    /// Asserts that `change` makes a correct workload wrong in `field` alone.
    fn wrong(field: &str, change: impl FnOnce(&mut Workload)) {
        let mut workload = Workload::default();
        change(&mut workload);
        assert_eq!(fields(&workload), [field], "{workload:?}");
    }

    #[test]
    fn a_job_is_fio_s_by_default() {
        let workload = Workload::default();
        assert_eq!(workload.check(), Ok(()));
        assert_eq!((workload.rw.mix, workload.rw.random), (Mix::Read, false));
        assert!(
            workload
                .sizes
                .iter()
                .all(|sizes| sizes.single() == Some(4096))
        );
        let (iodepth, think) = (1, None);
        assert_eq!(workload.flow, Flow::Closed { iodepth, think });
    }

    #[test]
    fn each_field_has_its_range() {
        let sizes = |bytes, weight| Sizes(vec![SizeShare { bytes, weight }]);
        wrong("name", |workload| workload.name.clear());
        wrong("rw.mix.read_percent", |workload| {
            workload.rw.mix = Mix::ReadWrite { read_percent: 101 };
        });
        wrong("sizes.read", |workload| workload.sizes[0] = Sizes(vec![]));
        wrong("sizes.read", |workload| workload.sizes[0] = sizes(0, 1));
        wrong("sizes.write", |workload| workload.sizes[1] = sizes(513, 1));
        wrong("sizes.trim", |workload| {
            workload.sizes[2] = sizes((1 << 30) + 512, 1)
        });
        wrong("sizes.read", |workload| workload.sizes[0] = sizes(512, 0));
        wrong("offset", |workload| workload.offset = 1);
        wrong("offset_increment", |workload| {
            workload.offset_increment = 511
        });
        wrong("size", |workload| workload.size = Some(0));
        wrong("size", |workload| workload.size = Some(1000));
        wrong("numjobs", |workload| workload.numjobs = 0);
        wrong("numjobs", |workload| workload.numjobs = 65_537);
        wrong("io_size", |workload| workload.io_size = Some(0));
        wrong("number_ios", |workload| workload.number_ios = Some(0));
        wrong("runtime", |workload| workload.runtime = Some(Nanos::ZERO));
    }

    #[test]
    fn each_placement_has_its_range() {
        for theta in [0.0, -1.0, 1.0, 10.1, f64::NAN] {
            wrong("placement.theta", |workload| {
                workload.placement = Placement::Zipf { theta };
            });
        }
        for h in [0.0, 1.0, f64::NAN] {
            wrong("placement.h", |workload| {
                workload.placement = Placement::Pareto { h }
            });
        }
        for deviation_percent in [0.0, 100.1, f64::NAN] {
            wrong("placement.deviation_percent", |workload| {
                workload.placement = Placement::Normal { deviation_percent };
            });
        }
    }

    #[test]
    fn shuffling_takes_requests_of_one_size() {
        let mut workload = Workload {
            placement: Placement::Shuffle,
            ..Workload::default()
        };
        workload.rw.random = true;
        workload.sizes[1] = Sizes::fixed(8192);
        assert_eq!(workload.check(), Ok(()), "it only reads");
        workload.rw.mix = Mix::ReadWrite { read_percent: 50 };
        assert_eq!(fields(&workload), ["placement"]);
        workload.sizes[0] = Sizes::fixed(8192);
        assert_eq!(workload.check(), Ok(()));
    }

    #[test]
    fn each_flow_has_its_range() {
        let second = TimeDistribution::Fixed(Nanos::SECOND);
        let closed = |iodepth, blocks, time| Flow::Closed {
            iodepth,
            think: Some(Think { time, blocks }),
        };
        let open = |per_s, on| Flow::Open {
            iodepth: 1,
            arrivals: Arrivals {
                per_s,
                spacing: Spacing::Poisson,
                bursts: Some(Bursts { on, off: second }),
            },
        };
        let backwards = TimeDistribution::Uniform {
            from: Nanos::SECOND,
            to: Nanos::ZERO,
        };
        for (field, flow) in [
            ("flow.iodepth", closed(0, 1, second)),
            ("flow.iodepth", closed(65_537, 1, second)),
            ("flow.think.blocks", closed(1, 0, second)),
            ("flow.think.time.from", closed(1, 1, backwards)),
            ("flow.arrivals.per_s", open(0.0, second)),
            ("flow.arrivals.bursts.on.from", open(1.0, backwards)),
            (
                "flow.arrivals.bursts.on",
                open(1.0, TimeDistribution::Fixed(Nanos(999))),
            ),
        ] {
            wrong(field, |workload| workload.flow = flow);
        }
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let workload = Workload {
            name: "bad".to_owned(),
            offset: 1,
            numjobs: 0,
            ..Workload::default()
        };
        assert_eq!(
            workload.check().unwrap_err().to_string(),
            "workload \"bad\":\n  offset is 1; allowed: a multiple of 512 bytes\n  \
             numjobs is 0; allowed: 1 to 65536"
        );
    }

    #[test]
    fn each_copy_has_its_region() {
        let workload = Workload {
            offset: 4096,
            offset_increment: 8192,
            size: Some(16384),
            ..Workload::default()
        };
        assert_eq!(workload.region(0, 1 << 20), Ok(4096..20480));
        assert_eq!(workload.region(2, 1 << 20), Ok(20480..36864));
        let to_the_end = Workload {
            size: None,
            ..workload
        };
        assert_eq!(to_the_end.region(1, 100_000), Ok(12288..99840));
    }

    #[test]
    fn a_region_off_the_disk_is_told_with_its_figures() {
        let workload = Workload {
            name: "big".to_owned(),
            size: Some(8192),
            ..Workload::default()
        };
        assert_eq!(
            workload.region(0, 8191).unwrap_err().to_string(),
            "workload \"big\": its region, 0 B to 8 KiB, must lie on the disk of 8191 B and hold a \
             request of 4 KiB"
        );
        let far = Workload {
            offset: u64::MAX - 511,
            size: None,
            ..workload.clone()
        };
        assert!(far.region(0, 1 << 30).is_err());
        let tiny = Workload {
            size: Some(2048),
            ..workload
        };
        assert!(tiny.region(0, 1 << 30).is_err());
    }

    #[test]
    fn the_mean_size_is_weighted() {
        let share = |bytes, weight| SizeShare { bytes, weight };
        let sizes = Sizes(vec![share(4096, 3), share(8192, 1)]);
        assert_eq!(sizes.mean(), 5120.0);
        assert_eq!(sizes.single(), None);
    }
}
