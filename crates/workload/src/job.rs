//! A job: one stream of requests of one guest process, in fio's words.
//!
//! A job is plain data and complete; whoever reads one from a file has checked it with
//! [`Job::check`]. It knows nothing of time but spans of it.

mod check;

use crate::arrive::Arrivals;
use crate::deadline::Deadline;
use crate::guest::{CopyTo, Files, PageCache};
use crate::replay::Replay;
use crate::time::TimeDistribution;
use std::ops::Range;
use tidegate_core::time::Nanos;

/// fio's `rw`: which requests, and whether their addresses follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rw {
    /// Which operations.
    pub mix: Mix,
    /// Random addresses (`randread` ...), not sequential ones (`read` ...).
    pub random: bool,
}

/// Which operations a job issues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Only reads.
    Read,
    /// Only writes.
    Write,
    /// Only discards.
    Trim,
    /// Reads and writes, so many in a hundred of them reads (fio's `rwmixread`), each drawn by
    /// itself.
    ReadWrite {
        /// 0 to 100.
        read_percent: u8,
    },
    /// Each block discarded, then written (fio's `trimwrite` and `randtrimwrite`). The two count
    /// as one request, and its bytes once; its size is a write's.
    TrimWrite,
}

/// Sizes of one operation's requests, with their weights: 1 to 4096 of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes(pub Vec<SizeShare>);

/// One size and how often it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeShare {
    /// Bytes, from 512 to 1 GiB, in sectors of 512.
    pub bytes: u32,
    /// So often in the sum of all weights; at least 1.
    pub weight: u32,
}

impl Sizes {
    /// All of one size.
    pub fn fixed(bytes: u32) -> Sizes {
        Sizes(vec![SizeShare { bytes, weight: 1 }])
    }
}

/// fio's `random_distribution`: which blocks random requests fall on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Placement {
    /// All alike, each drawn by itself (fio's `norandommap`).
    Uniform,
    /// Each block once, in random order, then each once again in another (fio's default). All
    /// requests must have one size.
    Shuffle,
    /// Block `k` by popularity as `1 / k^theta`, popular blocks scattered over the region.
    Zipf {
        /// Above 0, not 1, up to 10.
        theta: f64,
    },
    /// As fio's `pareto:h`: the smaller, the more skewed.
    Pareto {
        /// Above 0 and below 1.
        h: f64,
    },
    /// A bell around the middle of the region.
    Normal {
        /// Standard deviation in percent of the region, above 0 to 100.
        deviation_percent: f64,
    },
}

/// Who decides when the next request comes.
#[derive(Clone, PartialEq, Debug)]
pub enum Flow {
    /// Closed loop: the answer to an earlier one.
    Closed {
        /// Requests kept outstanding, 1 to 65,536.
        iodepth: u32,
        /// A pause of the whole job after so many requests.
        think: Option<Think>,
    },
    /// Open loop: a process of its own, whether answers come or not.
    Open {
        /// When requests come.
        arrivals: Arrivals,
        /// Requests outstanding at most, 1 to 65,536; past it they wait inside the guest, and that
        /// wait counts into their latency.
        iodepth: u32,
    },
}

/// fio's `thinktime`.
#[derive(Clone, PartialEq, Debug)]
pub struct Think {
    /// How long: from the answer after which nothing of the job is outstanding.
    pub time: TimeDistribution,
    /// After so many requests (`thinktime_blocks`), at least 1.
    pub blocks: u32,
}

/// One stream of requests.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Which requests.
    pub rw: Rw,
    /// Sizes of reads, writes and discards. A request lies at a multiple of the smallest size
    /// of its operation (fio's `blockalign`), counted from the start of the region.
    pub sizes: [Sizes; 3],
    /// First byte of its region of the disk; a multiple of 512.
    pub offset: u64,
    /// Each copy's region begins so much later than the one before (`offset_increment`); a
    /// multiple of 512.
    pub offset_increment: u64,
    /// Bytes of its region, a multiple of 512 above 0; `None`: to the end of the disk.
    pub size: Option<u64>,
    /// Which blocks random requests fall on.
    pub placement: Placement,
    /// So many copies of it run, 1 to 65,536, each with a stream of its own.
    pub numjobs: u32,
    /// Who decides when the next request comes.
    pub flow: Flow,
    /// It ends with the request that makes it so many bytes, at least 1, each copy by itself;
    /// `None`: it goes on. (fio's default is `size`; see [`crate::fio`].)
    pub io_size: Option<u64>,
    /// It ends after so many requests, at least 1, each copy by itself (`number_ios`). Flushes
    /// after writes do not count.
    pub number_ios: Option<u64>,
    /// When it starts, counted from the arrival of its VM (`startdelay`).
    pub start: Nanos,
    /// It ends so long after its start; above 0.
    pub runtime: Option<Nanos>,
    /// A flush after so many writes; 0: none (`fsync`, `fdatasync`).
    pub fsync: u32,
    /// Every write is durable before it is answered (`sync=1`).
    pub sync: bool,
    /// The files it works on (`nrfiles`).
    pub files: Files,
    /// A page cache between it and its disk; `None`: each request reaches the disk as it is.
    pub page_cache: Option<PageCache>,
    /// Where what it reads is written.
    pub copy_to: Option<CopyTo>,
    /// The trace whose requests it asks for, instead of such as `rw` and the rest would have: they
    /// lie in its region, in pieces of `sizes`, of which each operation has one, and `flow`'s
    /// `iodepth` bounds the pieces outstanding.
    pub replay: Option<Replay>,
    /// By when it is to be done: all of its `io_size`, or each request of its trace, one after the
    /// other. Of a single copy, that moves as many bytes as it asks for.
    pub deadline: Option<Deadline>,
}

/// Sizes and addresses are whole sectors.
pub(crate) const SECTOR: u64 = 512;
/// The largest request.
pub(crate) const REQUEST_MAX: u32 = 1 << 30;
/// The most sizes an operation may have.
pub(crate) const SIZES_MAX: usize = 4096;
/// The most copies of a job, and the most requests one keeps outstanding.
pub(crate) const COPIES_MAX: u32 = 1 << 16;

/// fio's job without a single option: sequential reads of 4 KiB, one after the other, over the
/// whole disk. Unlike fio's it goes on until it is stopped, and random requests, if asked for,
/// are drawn each by itself.
impl Default for Job {
    fn default() -> Job {
        Job {
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
    /// The smallest size; 0 if there is none.
    pub fn smallest(&self) -> u32 {
        self.0.iter().map(|share| share.bytes).min().unwrap_or(0)
    }

    /// The largest size; 0 if there is none.
    pub fn largest(&self) -> u32 {
        self.0.iter().map(|share| share.bytes).max().unwrap_or(0)
    }

    /// The size of all requests, if they have but one.
    pub fn single(&self) -> Option<u32> {
        (self.smallest() == self.largest()).then(|| self.smallest())
    }

    /// The mean size of many requests, in bytes.
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
    /// Which of [`Job::sizes`] its requests take.
    pub(crate) fn sizes_used(self) -> &'static [usize] {
        match self {
            Mix::Read => &[0],
            Mix::Write | Mix::TrimWrite => &[1],
            Mix::Trim => &[2],
            Mix::ReadWrite { .. } => &[0, 1],
        }
    }
}

impl Job {
    /// The size of all requests, if they have but one.
    pub(crate) fn single_size(&self) -> Option<u32> {
        let mut used = self.rw.mix.sizes_used().iter();
        let first = self.sizes[*used.next()?].single()?;
        used.all(|&i| self.sizes[i].single() == Some(first))
            .then_some(first)
    }

    /// The smallest request, in bytes.
    pub(crate) fn smallest_request(&self) -> u32 {
        let used = self.rw.mix.sizes_used().iter();
        used.map(|&i| self.sizes[i].smallest()).min().unwrap_or(0)
    }

    /// The largest request, in bytes.
    pub(crate) fn largest_request(&self) -> u32 {
        let used = self.rw.mix.sizes_used().iter();
        used.map(|&i| self.sizes[i].largest()).max().unwrap_or(0)
    }

    /// The bytes that copy `copy` (from 0) works on, on a disk of `disk_size` bytes.
    ///
    /// # Errors
    /// When they, the journal or the copy do not lie on the disk, or they do not hold the job's
    /// largest request.
    pub fn region(&self, copy: u32, disk_size: u64) -> Result<Range<u64>, RegionError> {
        let disk_end = disk_size - disk_size % SECTOR;
        let from = self
            .offset_increment
            .saturating_mul(u64::from(copy))
            .saturating_add(self.offset);
        let to = match self.size {
            Some(size) => from.saturating_add(self.files.span(size)),
            None => disk_end.max(from),
        };
        let fits = to.max(self.beside(to - from)) <= disk_end;
        let (largest, parts) = self.largest_of_region();
        if fits && to - from >= largest.saturating_mul(u64::from(parts)) {
            Ok(from..to)
        } else {
            Err(self.misfit(from..to, disk_size))
        }
    }

    /// The last byte on the disk, plus one, that the journal or the copy of a region of
    /// `region` bytes takes up; 0 without either.
    fn beside(&self, region: u64) -> u64 {
        let journal = self.page_cache.and_then(|cache| cache.journal);
        let journal = journal.map_or(0, |j| j.offset.saturating_add(j.size));
        let copy = self.copy_to.map_or(0, |c| c.offset.saturating_add(region));
        journal.max(copy)
    }

    /// The largest request, and how many parts of the region are to hold it.
    fn largest_of_region(&self) -> (u64, u32) {
        match &self.replay {
            None => (self.largest_request().into(), 1),
            Some(replay) => (replay.largest(), replay.disks()),
        }
    }

    /// Why that is no region on a disk of this size.
    pub(crate) fn misfit(&self, region: Range<u64>, disk_size: u64) -> RegionError {
        let (largest, parts) = self.largest_of_region();
        RegionError {
            job: self.name.clone(),
            from: region.start,
            to: region.end,
            disk_size,
            largest,
            parts,
        }
    }
}

/// A job's region does not fit its disk.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "job {job:?}: bytes {from} to {to} must lie on the disk of {disk_size} bytes and hold a \
     request of {largest}{}",
    match parts {
        1 => String::new(),
        n => format!(" of each of its trace's {n} disks"),
    }
)]
pub struct RegionError {
    /// The job.
    pub job: String,
    /// First byte of its region.
    pub from: u64,
    /// One past the last one.
    pub to: u64,
    /// The disk's size.
    pub disk_size: u64,
    /// The job's largest request.
    pub largest: u64,
    /// Equal parts of the region that have to hold it: one for each disk of a trace.
    pub parts: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrive::{Bursts, Spacing};

    fn fields(job: &Job) -> Vec<String> {
        let mistakes = job.check().map_or_else(|found| found.list, |()| vec![]);
        mistakes.into_iter().map(|found| found.field).collect()
    }

    /// What `change` makes of a job that is right is wrong in `field` alone.
    fn wrong(field: &str, change: impl FnOnce(&mut Job)) {
        let mut job = Job::default();
        change(&mut job);
        assert_eq!(fields(&job), [field], "{job:?}");
    }

    #[test]
    fn a_job_is_fio_s_by_default() {
        let job = Job::default();
        assert_eq!(job.check(), Ok(()));
        assert_eq!((job.rw.mix, job.rw.random), (Mix::Read, false));
        assert!(job.sizes.iter().all(|sizes| sizes.single() == Some(4096)));
        let (iodepth, think) = (1, None);
        assert_eq!(job.flow, Flow::Closed { iodepth, think });
    }

    #[test]
    fn each_field_has_its_range() {
        let sizes = |bytes, weight| Sizes(vec![SizeShare { bytes, weight }]);
        wrong("name", |job| job.name.clear());
        wrong("rw.mix.read_percent", |job| {
            job.rw.mix = Mix::ReadWrite { read_percent: 101 };
        });
        wrong("sizes.read", |job| job.sizes[0] = Sizes(vec![]));
        wrong("sizes.read", |job| job.sizes[0] = sizes(0, 1));
        wrong("sizes.write", |job| job.sizes[1] = sizes(513, 1));
        wrong("sizes.trim", |job| job.sizes[2] = sizes((1 << 30) + 512, 1));
        wrong("sizes.read", |job| job.sizes[0] = sizes(512, 0));
        wrong("offset", |job| job.offset = 1);
        wrong("offset_increment", |job| job.offset_increment = 511);
        wrong("size", |job| job.size = Some(0));
        wrong("size", |job| job.size = Some(1000));
        wrong("numjobs", |job| job.numjobs = 0);
        wrong("numjobs", |job| job.numjobs = 65_537);
        wrong("io_size", |job| job.io_size = Some(0));
        wrong("number_ios", |job| job.number_ios = Some(0));
        wrong("runtime", |job| job.runtime = Some(Nanos::ZERO));
    }

    #[test]
    fn each_placement_has_its_range() {
        for theta in [0.0, -1.0, 1.0, 10.1, f64::NAN] {
            wrong("placement.theta", |job| {
                job.placement = Placement::Zipf { theta };
            });
        }
        for h in [0.0, 1.0, f64::NAN] {
            wrong("placement.h", |job| job.placement = Placement::Pareto { h });
        }
        for deviation_percent in [0.0, 100.1, f64::NAN] {
            wrong("placement.deviation_percent", |job| {
                job.placement = Placement::Normal { deviation_percent };
            });
        }
    }

    #[test]
    fn shuffling_takes_requests_of_one_size() {
        let mut job = Job {
            placement: Placement::Shuffle,
            ..Job::default()
        };
        job.rw.random = true;
        job.sizes[1] = Sizes::fixed(8192);
        assert_eq!(job.check(), Ok(()), "it only reads");
        job.rw.mix = Mix::ReadWrite { read_percent: 50 };
        assert_eq!(fields(&job), ["placement"]);
        job.sizes[0] = Sizes::fixed(8192);
        assert_eq!(job.check(), Ok(()));
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
            wrong(field, |job| job.flow = flow);
        }
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let job = Job {
            name: "bad".to_owned(),
            offset: 1,
            numjobs: 0,
            ..Job::default()
        };
        assert_eq!(
            job.check().unwrap_err().to_string(),
            "job \"bad\":\n  offset is 1; allowed: a multiple of 512 bytes\n  \
             numjobs is 0; allowed: 1 to 65536"
        );
    }

    #[test]
    fn each_copy_has_its_region() {
        let job = Job {
            offset: 4096,
            offset_increment: 8192,
            size: Some(16384),
            ..Job::default()
        };
        assert_eq!(job.region(0, 1 << 20), Ok(4096..20480));
        assert_eq!(job.region(2, 1 << 20), Ok(20480..36864));
        let to_the_end = Job { size: None, ..job };
        assert_eq!(to_the_end.region(1, 100_000), Ok(12288..99840));
    }

    #[test]
    fn a_region_off_the_disk_is_told_with_its_figures() {
        let job = Job {
            name: "big".to_owned(),
            size: Some(8192),
            ..Job::default()
        };
        assert_eq!(
            job.region(0, 8191).unwrap_err().to_string(),
            "job \"big\": bytes 0 to 8192 must lie on the disk of 8191 bytes and hold a request \
             of 4096"
        );
        let far = Job {
            offset: u64::MAX - 511,
            size: None,
            ..job.clone()
        };
        assert!(far.region(0, 1 << 30).is_err());
        let tiny = Job {
            size: Some(2048),
            ..job
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
