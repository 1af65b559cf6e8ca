//! Reader of a workload in a scenario or a configuration: fio's terms, with units.

mod flow;
mod guest;
pub mod keys;
mod replay;
mod value;

pub use value::{LARGEST_DISK, times};

use crate::guest::Files;
use crate::replay::Mode;
use crate::spec::{Flow, Mix, Placement, Rw, SizeShare, Sizes, Workload};
use keys::{LARGEST_REQUEST, OPEN_DEPTH, SECTOR};
use tidegate_config::Field;
use tidegate_config::Section;
use tidegate_config::keys::{KeyInfo, SectionInfo};
use tidegate_config::library::Library;
use tidegate_core::time::Nanos;
use value::{is_table, sectors, whole, whole_if_any};

/// Default size of a piece of a trace's request: 1 MiB.
const PIECE: u32 = 1 << 20;

/// Meaning of a word of `rw`.
#[derive(Clone, Copy, PartialEq)]
struct RwWord {
    kind: Kind,
    /// True if the addresses are random.
    random: bool,
}

impl RwWord {
    const fn sequential(kind: Kind) -> RwWord {
        let random = false;
        RwWord { kind, random }
    }

    const fn random(kind: Kind) -> RwWord {
        let random = true;
        RwWord { kind, random }
    }
}

/// Operations of a word of `rw`.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Write,
    Trim,
    Mixed,
    TrimWrite,
}

/// Reads workload number `index` (from 0) of its VM, whose disk has `disk` bytes if that is known.
/// `library` opens traces. `None`: a mistake was found and reported.
pub fn workload(
    field: &Field<'_>,
    index: usize,
    disk: Option<u64>,
    library: &dyn Library,
) -> Option<Workload> {
    let workload = parts(field, index, library)?;
    // Mistakes that show only when the parts are together.
    let mistakes = workload.check().err().map(|mistakes| mistakes.list);
    for mistake in mistakes.iter().flatten() {
        field.error(
            format!("{} is {}", mistake.field, mistake.found),
            mistake.allowed,
        );
    }
    // Copies differ in their offset: the last one may leave the disk although the first fits.
    let misfit =
        disk.and_then(|disk| (0..workload.numjobs).find_map(|n| workload.region(n, disk).err()));
    if let Some(error) = &misfit {
        field.error(
            error.to_string(),
            "a larger disk, or a smaller size and offset",
        );
    }
    (mistakes.is_none() && misfit.is_none()).then_some(workload)
}

fn parts(field: &Field<'_>, index: usize, library: &dyn Library) -> Option<Workload> {
    let mut section = Section::with_keys(field, &keys::WORKLOAD)?;
    let name = section.value(&keys::NAME, format!("job{}", index + 1), |field| {
        field.name()
    });
    let offset = whole(&mut section, &keys::OFFSET);
    let offset_increment = whole(&mut section, &keys::OFFSET_INCREMENT);
    let size = whole_if_any(&mut section, &keys::SIZE);
    let numjobs = section.number(&keys::NUMJOBS);
    let start = section.number(&keys::STARTDELAY);
    let runtime = section.number_if_any(&keys::RUNTIME);
    let sync = section.flag(&keys::SYNC);
    let deadline = section.value(&keys::DEADLINE, None, |field| {
        replay::deadline(field).map(Some)
    });
    let requests = match section.field(&keys::REPLAY) {
        Some(field) => read_replay(&mut section, &field, library),
        None => read_generated(&mut section),
    };
    // Before `?` returns early below, so that unknown keys are reported together with wrong values.
    section.finish();
    Some(Workload {
        name: name?,
        offset: offset?,
        offset_increment: offset_increment?,
        size: size?,
        numjobs: numjobs? as u32,
        start: Nanos(start?),
        runtime: runtime?.map(Nanos),
        sync: sync?,
        deadline: deadline?,
        ..requests?
    })
}

/// Reads the keys of a workload whose requests are drawn.
fn read_generated(section: &mut Section<'_>) -> Option<Workload> {
    let rw = rw(section);
    let sizes = sizes(section, 4096);
    let io_size = whole_if_any(section, &keys::IO_SIZE);
    let number_ios = section.number_if_any(&keys::NUMBER_IOS);
    let key = &keys::RANDOM_DISTRIBUTION;
    let placement = section.value(key, Placement::Uniform, placement);
    let flow = flow::read(section);
    let fsync = section.number(&keys::FSYNC);
    let count = section.number(&keys::NRFILES);
    let gap = whole(section, &keys::FILE_GAP);
    let page_cache = section.value(&keys::PAGE_CACHE, None, |field| {
        guest::page_cache(field).map(Some)
    });
    let copy_to = section.value(&keys::COPY_TO, None, |field| {
        guest::copy_to(field).map(Some)
    });
    Some(Workload {
        rw: rw?,
        sizes: sizes?,
        placement: placement?,
        flow: flow?,
        io_size: io_size?,
        number_ios: number_ios?,
        fsync: fsync? as u32,
        files: Files {
            count: count? as u32,
            gap: gap?,
        },
        page_cache: page_cache?,
        copy_to: copy_to?,
        ..Workload::default()
    })
}

/// Reads the keys of a workload that replays a trace; `trace` is the field that names it.
fn read_replay(
    section: &mut Section<'_>,
    trace: &Field<'_>,
    library: &dyn Library,
) -> Option<Workload> {
    let mut fine = true;
    // Each is reported; the rest is read all the same, to find all mistakes at once.
    for field in keys::DRAWN.iter().filter_map(|key| section.field(key)) {
        let allowed = "leave out either this or replay; a replay has limit and loop of its own";
        field.error("the trace says which requests come, and when", allowed);
        fine = false;
    }
    let sizes = sizes(section, PIECE);
    let replay = replay::replay(trace, library);
    let iodepth = section.field(&keys::IODEPTH);
    let replay = replay?;
    let iodepth = match (iodepth, replay.mode) {
        (Some(field), _) => field.number(&keys::IODEPTH)? as u32,
        // Times of the trace hold only below the depth, hence the depth of an open loop.
        (None, Mode::Timed(_)) => OPEN_DEPTH,
        (None, Mode::NextWhenDone | Mode::Thinking(_)) => 1,
    };
    fine.then_some(Workload {
        sizes: sizes?,
        flow: Flow::Closed {
            iodepth,
            think: None,
        },
        replay: Some(replay),
        ..Workload::default()
    })
}

fn rw(section: &mut Section<'_>) -> Option<Rw> {
    let word = section
        .need(
            keys::RW.name,
            "operations of the workload: rw = \"randread\"",
        )
        .and_then(|field| field.choice(&keys::RWS));
    let key = &keys::RWMIXREAD;
    let share = section.field(key);
    let read_percent = match &share {
        Some(field) => field.number(key),
        None => Some(key.default_number()),
    };
    let RwWord { kind, random } = word?;
    // fio ignores `rwmixread` then; here a key without effect is an error.
    if let (Some(field), false) = (&share, kind == Kind::Mixed) {
        field.error(
            "only a mix of reads and writes has a share of reads",
            "rw = \"randrw\" or \"rw\", or leave it out",
        );
        return None;
    }
    let mix = match kind {
        Kind::Read => Mix::Read,
        Kind::Write => Mix::Write,
        Kind::Trim => Mix::Trim,
        Kind::TrimWrite => Mix::TrimWrite,
        Kind::Mixed => Mix::ReadWrite {
            read_percent: read_percent? as u8,
        },
    };
    Some(Rw { mix, random })
}

/// Reads the sizes of reads, writes and discards: one size or several with weights, for all
/// operations or for each; `default` bytes if there are none.
fn sizes(section: &mut Section<'_>, default: u32) -> Option<[Sizes; 3]> {
    let (bs, split) = (section.field(&keys::BS), section.field(&keys::BSSPLIT));
    match (bs, split) {
        (None, None) => Some([(); 3].map(|()| Sizes::fixed(default))),
        (Some(field), None) => by_operation(&field, &keys::BS_TABLE, default, |field| {
            let bytes = sectors(field, &keys::BS)?;
            Some(Sizes::fixed(bytes as u32))
        }),
        (None, Some(field)) => by_operation(&field, &keys::BSSPLIT_TABLE, default, split_sizes),
        (Some(_), Some(field)) => {
            field.error("bs and bssplit together", "one of them");
            None
        }
    }
}

fn by_operation(
    field: &Field<'_>,
    info: &'static SectionInfo,
    default: u32,
    read: impl Fn(&Field<'_>) -> Option<Sizes>,
) -> Option<[Sizes; 3]> {
    if !is_table(field) {
        let all = read(field)?;
        return Some([all.clone(), all.clone(), all]);
    }
    let mut section = Section::with_keys(field, info)?;
    let mut read_key = |key: &KeyInfo| section.value(key, Sizes::fixed(default), &read);
    let sizes: Vec<Option<Sizes>> = info.keys.iter().map(&mut read_key).collect();
    section.finish();
    let sizes: Vec<Sizes> = sizes.into_iter().collect::<Option<_>>()?;
    sizes.try_into().ok()
}

/// Parses `"4 KiB/60 : 64 KiB/40"`.
fn split_sizes(field: &Field<'_>) -> Option<Sizes> {
    let text = field.text()?;
    let mut shares = Vec::new();
    for part in text.split(':') {
        let share = part.split_once('/').and_then(|(size, weight)| {
            let bytes = tidegate_units::parse_bytes(size.trim()).ok()?;
            let weight = weight.trim().parse().ok()?;
            let fits = bytes.is_multiple_of(SECTOR) && (SECTOR..=LARGEST_REQUEST).contains(&bytes);
            (fits && weight > 0).then_some(SizeShare {
                bytes: bytes as u32,
                weight,
            })
        });
        match share {
            Some(share) => shares.push(share),
            None => {
                field.error(
                    format!("{:?} is not a size with its share", part.trim()),
                    "\"4 KiB/60 : 64 KiB/40\": sizes from 512 B to 1 GiB in whole sectors, and \
                     how often each comes",
                );
                return None;
            }
        }
    }
    Some(Sizes(shares))
}

/// Reads `random`, `shuffle`, `zipf:1.1`, `pareto:0.9` or `normal:20`.
fn placement(field: &Field<'_>) -> Option<Placement> {
    let text = field.text()?;
    let (word, figure) = text.split_once(':').unwrap_or((text, ""));
    let figure = figure.trim().parse::<f64>().ok();
    let placement = match (word.trim(), figure) {
        ("random", None) if !text.contains(':') => Some(Placement::Uniform),
        ("shuffle", None) if !text.contains(':') => Some(Placement::Shuffle),
        // The generator divides by 1 - theta; fio refuses 1 too.
        ("zipf", Some(theta)) if theta > 0.0 && theta <= 10.0 && theta != 1.0 => {
            Some(Placement::Zipf { theta })
        }
        ("pareto", Some(h)) if h > 0.0 && h < 1.0 => Some(Placement::Pareto { h }),
        ("normal", Some(percent)) if percent > 0.0 && percent <= 100.0 => Some(Placement::Normal {
            deviation_percent: percent,
        }),
        _ => None,
    };
    if placement.is_none() {
        field.error(
            format!("found {}", field.describe()),
            "\"random\", \"shuffle\", \"zipf:1.1\" (above 0 to 10, not 1), \"pareto:0.9\" \
             (between 0 and 1) or \"normal:20\" (above 0 to 100, percent of the region)",
        );
    }
    placement
}
