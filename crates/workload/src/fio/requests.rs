//! Options that determine requests: pattern, sizes, placement, files, durability.

use super::section_options::{Word, Words};
use super::value::{self, SIZE, triple};
use crate::spec::{Mix, Placement, REQUEST_MAX, Rw, SECTOR, SIZES_MAX, SizeShare, Sizes, Workload};
use tidegate_units::human::bytes_and_count;

/// Exponent of `zipf` without a figure, as in fio.
const ZIPF_THETA: f64 = 1.1;
/// H of `pareto` without a figure, as in fio.
const PARETO_H: f64 = 0.2;
/// Maximum number of sizes in a split, as in fio.
const SPLITS_MAX: usize = 64;

/// Reads `rw`, `rwmixread` and `rwmixwrite`.
pub(super) fn rw(words: &mut Words) -> Rw {
    let read = words.integer("rwmixread", 0..=100);
    let write = words.integer("rwmixwrite", 0..=100);
    // fio's default is 50. Of both options only the later one is left in `words`.
    let read_percent = read.or(write.map(|write| 100 - write)).unwrap_or(50) as u8;
    let mixed = Mix::ReadWrite { read_percent };
    let known = [
        ("read", Mix::Read, false),
        ("write", Mix::Write, false),
        ("trim", Mix::Trim, false),
        ("randread", Mix::Read, true),
        ("randwrite", Mix::Write, true),
        ("randtrim", Mix::Trim, true),
        ("rw", mixed, false),
        ("readwrite", mixed, false),
        ("randrw", mixed, true),
        ("trimwrite", Mix::TrimWrite, false),
        ("randtrimwrite", Mix::TrimWrite, true),
    ]
    .map(|(name, mix, random)| (name, Rw { mix, random }));
    // fio's default of `rw`, also used after an error so that reading goes on.
    let sequential_reads = known[0].1;
    match words.word("rw") {
        Some(word) if word.value.is_some_and(|text| text.contains(':')) => {
            let what = "an offset or a count after `rw` is not supported";
            words.error(&word, what, "the pattern alone");
            sequential_reads
        }
        _ => words.one_of("rw", &known).unwrap_or(sequential_reads),
    }
}

/// Reads `bs`, `bsrange` and `bssplit`, of which the last named here takes precedence, and
/// `blockalign`.
pub(super) fn sizes(words: &mut Words, mix: Mix) -> [Sizes; 3] {
    let mut sizes = Workload::default().sizes;
    let fixed = words.parsed("bs", SIZE, |text, kb| {
        triple(text, |part| value::integer(part, kb))
    });
    let ranges = words.parsed("bsrange", "two sizes, such as 1k-4k", |text, kb| {
        triple(text, |part| range(part, kb))
    });
    let splits = words.parsed(
        "bssplit",
        "sizes and percentages, such as 4k/60:64k/40",
        splits,
    );
    for i in 0..3 {
        let fixed = fixed.and_then(|sizes| sizes[i]);
        let range = ranges.and_then(|ranges| ranges[i]);
        let split = splits.as_ref().map(|splits| &splits[i]);
        if let Some(bytes) = fixed {
            if fits(bytes) {
                sizes[i] = Sizes::fixed(bytes as u32);
            } else {
                refuse(
                    words,
                    "bs",
                    format!("{}: {SIZE_RANGE}", bytes_and_count(bytes)),
                );
            }
        }
        if let Some((from, to)) = range {
            match spread(from, to) {
                Ok(spread) => sizes[i] = spread,
                Err(what) => refuse(words, "bsrange", what),
            }
        }
        if let Some(split) = split {
            match weigh(split) {
                Ok(weighed) => sizes[i] = weighed,
                Err(what) => refuse(words, "bssplit", what),
            }
        }
    }
    let align = words.parsed("ba", SIZE, |text, kb| {
        triple(text, |part| value::integer(part, kb))
    });
    // Sizes of operations that the mix does not have cannot contradict `ba`.
    for &i in mix.sizes_used() {
        let smallest = u64::from(sizes[i].smallest());
        let align = align.and_then(|align| align[i]);
        if align.is_some_and(|align| align != smallest) {
            let what = format!("only the smallest size, {smallest} here, is supported");
            refuse(words, "ba", what);
        }
    }
    sizes
}

fn refuse(words: &mut Words, name: &str, what: impl Into<String>) {
    if let Some(word) = words.word(name) {
        words.error(&word, what, "");
    }
}

fn fits(bytes: u64) -> bool {
    bytes > 0 && bytes <= u64::from(REQUEST_MAX) && bytes.is_multiple_of(SECTOR)
}

const SIZE_RANGE: &str = "sizes are multiples of 512 bytes up to 1 GiB";

/// Parses two sizes; returns the smaller first.
fn range(text: &str, kb_base: u64) -> Option<(u64, u64)> {
    let (a, b) = text.split_once(['-', ':'])?;
    let (a, b) = (
        value::integer(a.trim(), kb_base)?,
        value::integer(b.trim(), kb_base)?,
    );
    Some((a.min(b), a.max(b)))
}

/// Returns the sizes of a `bsrange` with the weights that fio's drawing gives them: uniform from
/// the smallest up to the sum of both, rounded down to a multiple of the smallest and limited to
/// the largest.
fn spread(from: u64, to: u64) -> Result<Sizes, String> {
    if !fits(from) || !fits(to) {
        return Err(format!("{from} to {to} bytes: {SIZE_RANGE}"));
    }
    // Multiples of `from` below the sum; `fits` keeps the sum below 2^31 bytes.
    let n = (from + to).div_ceil(from) - 1;
    if n > SIZES_MAX as u64 {
        return Err(format!("{n} sizes are more than {SIZES_MAX}"));
    }
    let mut shares: Vec<SizeShare> = vec![];
    for i in 1..=n {
        let bytes = (i * from).min(to) as u32;
        // Sums from the i-th multiple to the next are rounded down to it; the last interval is
        // shorter.
        let weight = (from.min(from + to - i * from) / SECTOR) as u32;
        match shares.last_mut() {
            Some(last) if last.bytes == bytes => last.weight += weight,
            _ => shares.push(SizeShare { bytes, weight }),
        }
    }
    Ok(Sizes(shares))
}

/// Entries of a split: bytes, and percentage if given.
type Split = Vec<(u64, Option<u64>)>;

/// Parses `bssplit` for reads, writes and trims: one list for all, one for reads and one for the
/// others, or three.
fn splits(text: &str, kb_base: u64) -> Option<[Split; 3]> {
    let mut lists = vec![];
    for list in text.split(',') {
        let mut split = vec![];
        for entry in list.trim().split(':').filter(|entry| !entry.is_empty()) {
            let (bytes, percent) = entry.split_once('/').unwrap_or((entry, ""));
            let percent = match percent.trim() {
                "" => None,
                // fio treats 0 % as not given.
                percent => Some(value::integer(percent, kb_base)?).filter(|&p| p > 0),
            };
            split.push((value::integer(bytes.trim(), kb_base)?, percent));
        }
        lists.push(split);
    }
    match <[Split; 3]>::try_from(lists) {
        Ok(three) => Some(three),
        Err(lists) => match &lists[..] {
            [one] => Some([(); 3].map(|()| one.clone())),
            [reads, others] => Some([reads.clone(), others.clone(), others.clone()]),
            _ => None,
        },
    }
}

/// Computes the weights of a split: entries without a percentage share what the others leave.
fn weigh(split: &Split) -> Result<Sizes, String> {
    if split.is_empty() || split.len() > SPLITS_MAX {
        return Err(format!(
            "{} sizes; there may be 1 to {SPLITS_MAX}",
            split.len()
        ));
    }
    if let Some((bytes, _)) = split.iter().find(|(bytes, _)| !fits(*bytes)) {
        return Err(format!("{}: {SIZE_RANGE}", bytes_and_count(*bytes)));
    }
    let given = split.iter().filter_map(|(_, percent)| *percent);
    // Saturates: percentages are not checked one by one, and a huge sum is refused below.
    let given = given.fold(0, u64::saturating_add);
    let open = split
        .iter()
        .filter(|(_, percent)| percent.is_none())
        .count() as u64;
    match (given, open) {
        (100, 0) | (0..=99, 1..) => {}
        (_, 0) => return Err(format!("the percentages add up to {given}, not to 100")),
        _ => {
            return Err(format!(
                "the percentages add up to {given} and leave nothing"
            ));
        }
    }
    let weight = |percent: Option<u64>| match percent {
        // Times the number of open entries, so that each of them gets a whole share of the rest.
        Some(percent) => percent * open.max(1),
        None => 100 - given,
    };
    let share = |&(bytes, percent): &(u64, Option<u64>)| SizeShare {
        bytes: bytes as u32,
        weight: weight(percent) as u32,
    };
    Ok(Sizes(split.iter().map(share).collect()))
}

/// Reads `random_distribution` and `norandommap`.
pub(super) fn placement(words: &mut Words, workload: &Workload) -> Placement {
    let each_by_itself = words.flag("norandommap");
    let spread = words.text("random_distribution", DISTRIBUTIONS);
    // A distribution repeats popular blocks, which a map of blocks done would forbid.
    if let Some((word, text)) = spread.filter(|(_, text)| *text != "random") {
        return distribution(words, &word, text).unwrap_or(Placement::Uniform);
    }
    // Sequential workloads have no places to draw.
    if each_by_itself || !workload.rw.random {
        return Placement::Uniform;
    }
    // fio's map has blocks of one size; with it, each block is visited once before any is again.
    if workload.single_size().is_some() {
        return Placement::Shuffle;
    }
    let split = ["bssplit", "bsrange", "bs"]
        .iter()
        .find_map(|name| words.word(name));
    if let Some(word) = split {
        let what = "requests of several sizes are each drawn by itself, as with `norandommap`";
        words.note(&word, what);
    }
    Placement::Uniform
}

const DISTRIBUTIONS: &str = "random, zipf:THETA, pareto:H or normal:DEVIATION";

fn distribution(words: &mut Words, word: &Word, text: &str) -> Option<Placement> {
    let (name, figure) = match text.split_once(':') {
        Some((name, figure)) => (name, Some(figure)),
        None => (text, None),
    };
    let (default, help) = match name {
        "zipf" => (Some(ZIPF_THETA), "zipf:THETA, above 0 up to 10, and not 1"),
        "pareto" => (Some(PARETO_H), "pareto:H, above 0 and below 1"),
        "normal" => (None, "normal:DEVIATION, in percent, above 0 and below 100"),
        _ => {
            words.error(word, format!("{text:?} is not supported"), DISTRIBUTIONS);
            return None;
        }
    };
    if figure.is_some_and(|figure| figure.contains(':')) {
        let what = "a centre of the distribution is not supported";
        words.error(word, what, help);
        return None;
    }
    // NaN fails every comparison below: an unreadable number is reported as out of range.
    let figure = figure.map_or(default, value::decimal).unwrap_or(f64::NAN);
    let (fine, placement) = match name {
        "zipf" => (
            figure > 0.0 && figure <= 10.0 && figure != 1.0,
            Placement::Zipf { theta: figure },
        ),
        "pareto" => (
            figure > 0.0 && figure < 1.0,
            Placement::Pareto { h: figure },
        ),
        _ => (
            figure > 0.0 && figure < 100.0,
            Placement::Normal {
                deviation_percent: figure,
            },
        ),
    };
    if !fine {
        words.error(word, format!("{text:?} is out of range"), help);
    }
    fine.then_some(placement)
}

/// Reads `fsync` or `fdatasync`, and `sync`; returns the writes between two flushes, and true if
/// every write is durable.
pub(super) fn durability(words: &mut Words) -> (u32, bool) {
    let every = |words: &mut Words, name| {
        let writes = words.integer(name, 0..=u64::from(u32::MAX));
        writes.unwrap_or(0) as u32
    };
    let (fsync, fdatasync) = (every(words, "fsync"), every(words, "fdatasync"));
    if fsync > 0 && fdatasync > 0 {
        refuse(
            words,
            "fdatasync",
            "does not go with `fsync`: both are flushes here",
        );
    }
    let ways = [
        ("none", false),
        ("0", false),
        ("sync", true),
        ("1", true),
        ("dsync", true),
    ];
    let sync = words.one_of("sync", &ways).unwrap_or(false);
    // At most one is above 0, unless an error was reported.
    (fsync.max(fdatasync), sync)
}

/// Reads `nrfiles` and `file_service_type`; returns the number of files. Supports only those orders
/// through several files that are equivalent to one large file.
pub(super) fn files(words: &mut Words, workload: &Workload) -> u32 {
    let count = words.integer("nrfiles", 1..=1 << 16).unwrap_or(1) as u32;
    let way = words.text("file_service_type", "sequential or random");
    let needed = if workload.rw.random {
        "random"
    } else {
        "sequential"
    };
    let given = way.as_ref().map(|(_, text)| *text);
    if count > 1
        // Other orders interleave the files, which a region without files cannot show.
        && given != Some(needed)
        && let Some(word) = words
            .word("file_service_type")
            .or_else(|| words.word("nrfiles"))
    {
        let what = format!(
            "{} through several files is not supported",
            given.unwrap_or("roundrobin, fio's default,")
        );
        let help = format!("file_service_type={needed}, or make a section of each file");
        words.error(&word, what, help);
    }
    count
}
