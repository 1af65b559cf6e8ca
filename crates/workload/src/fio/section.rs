//! Conversion of a job file's section into a workload.

use super::section_options::Words;
use super::value::{self, Extent};
use super::{rates, requests};
use crate::spec::{COPIES_MAX, Flow, Mix, RegionError, SECTOR, Think, Workload};
use crate::time::TimeDistribution;
use tidegate_core::time::Nanos;
use tidegate_units::human::bytes_and_count;

/// Section of a job file: a VM with one workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Section {
    /// Name in the header.
    pub name: String,
    /// Line of the header, counted from 1.
    pub line: usize,
    /// Value of `description`.
    pub description: Option<String>,
    /// Time after the start during which requests do not count into results (`ramp_time`). The
    /// workload's runtime includes it.
    pub ramp_time: Nanos,
    /// Time at which this section's group, up to the next `stonewall`, begins.
    group: Nanos,
    /// Workload without its region and its bytes.
    workload: Workload,
    extents: Extents,
}

/// Region and amount of a workload, as far as they depend on the disk's size.
#[derive(Clone, PartialEq, Debug)]
struct Extents {
    /// Smallest request in bytes.
    unit: u64,
    offset: Extent,
    increment: Extent,
    size: Option<Extent>,
    /// Amount of data.
    work: Work,
}

#[derive(Clone, PartialEq, Debug)]
enum Work {
    /// No end by bytes (`time_based`).
    Endless,
    /// `io_size`, or the region if it is `None`, `loops` times.
    Bytes { of: Option<Extent>, loops: u64 },
}

impl Section {
    /// Returns the workload on a disk of `disk_size` bytes: percentages become bytes as in fio.
    /// Offsets in percent are rounded up to a multiple of the smallest request, sizes in percent
    /// down.
    ///
    /// # Errors
    /// If the region does not fit the disk.
    pub fn workload(&self, disk_size: u64) -> Result<Workload, RegionError> {
        // A last partial sector cannot be addressed.
        let disk_size = disk_size - disk_size % SECTOR;
        let Extents { unit, .. } = self.extents;
        // An offset beyond 2^64 becomes the last sector, which no disk has, so it is refused later.
        let last = u64::MAX - u64::MAX % SECTOR;
        let up = |bytes: u64| bytes.checked_next_multiple_of(unit).unwrap_or(last);
        let part = |extent| match extent {
            Extent::Bytes(bytes) => bytes,
            Extent::Percent(percent) => share(disk_size, percent),
        };
        let place = |extent| match extent {
            Extent::Bytes(bytes) => bytes,
            Extent::Percent(_) => up(part(extent)),
        };
        let offset = place(self.extents.offset);
        let rest = disk_size.saturating_sub(offset);
        let size = self.extents.size.map(|size| match size {
            Extent::Bytes(bytes) => bytes - bytes % SECTOR,
            Extent::Percent(_) => {
                let bytes = part(size).min(rest);
                bytes - bytes % unit
            }
        });
        let region = size.unwrap_or(rest);
        let io_size = match self.extents.work {
            Work::Endless => None,
            Work::Bytes { of, loops } => Some(match of {
                Some(Extent::Bytes(bytes)) => bytes,
                Some(Extent::Percent(percent)) => share(region, percent),
                // The rest of the region behind its last whole request is never reached.
                None => region - region % unit,
            })
            // At least 1: 0 bytes would mean no end. A region too small is refused below.
            .map(|bytes| bytes.max(1).saturating_mul(loops)),
        };
        let each = u64::from(self.workload.files.count) * SECTOR;
        let size = match self.workload.files.count {
            1 => size,
            // All files have the same size.
            _ => Some(region - region % each),
        };
        let workload = Workload {
            offset,
            offset_increment: place(self.extents.increment),
            size,
            io_size,
            ..self.workload.clone()
        };
        workload.region(0, disk_size)?;
        Ok(workload)
    }

    /// Returns the latest end of the workload, if it has a runtime.
    fn end(&self) -> Option<Nanos> {
        self.workload
            .runtime
            .map(|runtime| self.workload.start + runtime)
    }
}

/// Returns `percent` percent of `whole`, rounded down.
fn share(whole: u64, percent: u64) -> u64 {
    (u128::from(whole) * u128::from(percent) / 100) as u64
}

/// Reads a section's options and reports mistakes, with which the section must not be used.
/// `before` are the sections before it.
pub(super) fn build(name: &str, line: usize, words: &mut Words, before: &[Section]) -> Section {
    let rw = requests::rw(words);
    let sizes = requests::sizes(words, rw.mix);
    let mut workload = Workload {
        name: name.to_owned(),
        rw,
        sizes,
        ..Workload::default()
    };
    if let Some((_, own)) = words.text("name", "any text") {
        workload.name = own.to_owned();
    }
    // After `rw` and `sizes`, which decide between a shuffle and independent draws.
    workload.placement = requests::placement(words, &workload);
    if let Some(copies) = words.integer("numjobs", 1..=u64::from(COPIES_MAX)) {
        workload.numjobs = copies as u32;
    }
    (workload.fsync, workload.sync) = requests::durability(words);
    workload.files.count = requests::files(words, &workload);
    (workload.flow, workload.rw.mix) = flow(words, &workload);
    let times = times(words, before);
    (workload.start, workload.runtime) = (times.start, times.runtime);
    workload.number_ios = words.integer("number_ios", 0..=u64::MAX);
    workload.number_ios = workload.number_ios.filter(|&n| n > 0);
    let extents = extents(words, &workload, times.endless);
    workload.number_ios = match extents.work {
        // As in fio, `time_based` repeats the workload until its time is over.
        Work::Endless => None,
        Work::Bytes { loops, .. } => workload.number_ios.map(|n| n.saturating_mul(loops)),
    };
    Section {
        name: name.to_owned(),
        line,
        description: words
            .word("description")
            .and_then(|word| word.value.map(str::to_owned)),
        ramp_time: times.ramp,
        group: times.group,
        workload,
        extents,
    }
}

fn extents(words: &mut Words, workload: &Workload, endless: bool) -> Extents {
    // fio takes 0 as not given.
    let size = extent(words, "size", 1).filter(|&size| size != Extent::Bytes(0));
    let io_size = extent(words, "io_size", 1).filter(|&size| size != Extent::Bytes(0));
    if let (Some(Extent::Bytes(bytes)), Some(word)) = (size, words.word("size")) {
        let largest = workload.largest_request();
        // Percentages depend on the disk and are checked with it.
        if bytes < u64::from(largest) {
            let [size, largest] = [bytes, largest.into()].map(bytes_and_count);
            let what = format!("{size} hold no request of {largest}");
            words.error(&word, what, "at least the largest request");
        }
    }
    let loops = words.integer("loops", 1..=1_000_000).unwrap_or(1);
    if endless {
        for name in ["io_size", "number_ios", "loops"] {
            if let Some(word) = words.word(name) {
                words.note(&word, "of no effect with `time_based`, as in fio");
            }
        }
    }
    Extents {
        unit: u64::from(workload.smallest_request()),
        offset: extent(words, "offset", SECTOR).unwrap_or(Extent::Bytes(0)),
        increment: extent(words, "offset_increment", SECTOR).unwrap_or(Extent::Bytes(0)),
        size,
        work: if endless {
            Work::Endless
        } else {
            Work::Bytes { of: io_size, loops }
        },
    }
}

/// Reads a size in multiples of `step` bytes, or up to 100 percent.
fn extent(words: &mut Words, name: &str, step: u64) -> Option<Extent> {
    let help = "whole bytes such as 4096, 4k, 1m or 10g, or a percentage of the disk";
    let extent = words.parsed(name, help, value::extent)?;
    let word = words.word(name)?;
    match extent {
        Extent::Bytes(bytes) if bytes % step != 0 => {
            let what = format!("{} do not begin a sector", bytes_and_count(bytes));
            words.error(&word, what, "a multiple of 512");
            None
        }
        Extent::Percent(percent) if percent > 100 => {
            words.error(
                &word,
                format!("{percent}% is more than there is"),
                "0% to 100%",
            );
            None
        }
        _ => Some(extent),
    }
}

/// Reads the options of the loop: returns its flow, and the mix, which rates may determine.
fn flow(words: &mut Words, workload: &Workload) -> (Flow, Mix) {
    let depth = words.integer("iodepth", 1..=u64::from(COPIES_MAX));
    let mut iodepth = depth.unwrap_or(1) as u32;
    if let Some((engine, name)) = words.text("ioengine", "an engine's name") {
        let what = if !SYNC_ENGINES.contains(&name) {
            "ignored: the host's system calls are not simulated"
        } else if iodepth == 1 {
            "one request at a time"
        } else {
            // A synchronous engine waits for each request, whatever the depth.
            iodepth = 1;
            "a synchronous engine: `iodepth` has no effect, as in fio"
        };
        words.note(&engine, what);
    } else if let (2.., Some(word)) = (iodepth, words.word("iodepth")) {
        words.note(
            &word,
            "used as written; fio needs an asynchronous `ioengine` for it",
        );
    }
    let think = think(words);
    match rates::arrivals(words, workload) {
        None => (Flow::Closed { iodepth, think }, workload.rw.mix),
        Some((arrivals, mix)) => {
            if let (Some(_), Some(word)) = (think, words.word("thinktime")) {
                let what = "does not go with a rate: requests come when they are due";
                words.error(&word, what, "either `thinktime`, or `rate` or `rate_iops`");
            }
            (Flow::Open { arrivals, iodepth }, mix)
        }
    }
}

/// Engines of fio that wait for each request before they issue the next.
const SYNC_ENGINES: [&str; 6] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];

fn think(words: &mut Words) -> Option<Think> {
    let blocks = words.integer("thinktime_blocks", 1..=u64::from(u32::MAX));
    let time = words.time("thinktime", Nanos::from_micros(1))?;
    (time > Nanos::ZERO).then(|| Think {
        time: TimeDistribution::Fixed(time),
        blocks: blocks.unwrap_or(1) as u32,
    })
}

struct Times {
    group: Nanos,
    start: Nanos,
    ramp: Nanos,
    runtime: Option<Nanos>,
    /// True with `time_based`: only the runtime ends the workload.
    endless: bool,
}

fn times(words: &mut Words, before: &[Section]) -> Times {
    let seconds = |words: &mut Words, name| words.time(name, Nanos::SECOND).unwrap_or_default();
    let ramp = seconds(words, "ramp_time");
    let runtime = Some(seconds(words, "runtime")).filter(|&time| time > Nanos::ZERO);
    let mut endless = words.flag("time_based");
    if let (true, None, Some(word)) = (endless, runtime, words.word("time_based")) {
        endless = false;
        words.note(&word, "of no effect without `runtime`, as in fio");
    }
    let group = group(words, before);
    Times {
        group,
        start: group + delay(words),
        ramp,
        // fio counts the ramp on top of the runtime.
        runtime: runtime.map(|runtime| runtime + ramp),
        endless,
    }
}

fn delay(words: &mut Words) -> Nanos {
    match words.word("startdelay") {
        Some(word) if word.value.is_some_and(|text| text.contains(['-', ':'])) => {
            words.error(&word, "a range of delays is not supported", value::TIME);
            Nanos::ZERO
        }
        _ => words.time("startdelay", Nanos::SECOND).unwrap_or_default(),
    }
}

/// Returns the begin of the section's group: a `stonewall` begins a new one when all sections
/// before it have ended. A workload that is done before its runtime leaves its disk idle until
/// then, which costs no time to simulate.
fn group(words: &mut Words, before: &[Section]) -> Nanos {
    let group = before.last().map_or(Nanos::ZERO, |last| last.group);
    if before.is_empty() || !words.flag("stonewall") {
        return group;
    }
    let Some(word) = words.word("stonewall") else {
        return group;
    };
    let mut end = group;
    for section in before {
        let Some(time) = section.end() else {
            let what = format!("waits for [{}], whose end is not known", section.name);
            let help = "give the sections before it a `runtime`, or make a file of each group";
            words.error(&word, what, help);
            break;
        };
        end = end.max(time);
    }
    end
}
