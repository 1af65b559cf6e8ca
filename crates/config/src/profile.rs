//! File format (TOML) of saturation profiles, as `tidegate profile` writes them.
//!
//! ```toml
//! version = 1
//! device = "hdd-7200-1tb"           # what was measured
//! depth = 32                        # requests outstanding at saturation
//! span = "1000204886016 B"          # how much of it was measured
//!
//! [[curve]]
//! op = "read"                       # or "write", or "mixed" with its reads
//! access = "random"                 # or "sequential"
//! points = [
//!   { size = "4 KiB", iops = 190.4, within_percent = 0.8, runs = 5 },
//! ]
//!
//! [[latency]]
//! op = "read"
//! access = "random"
//! size = "4 KiB"
//! points = [
//!   { depth = 1, iops = 78.2, mean = "12.8 ms", p50 = "12.6 ms", p99 = "21.3 ms", runs = 5 },
//! ]
//!
//! [[beside_writes]]                 # random 4 KiB reads, one at a time, beside such writes
//! access = "random"
//! size = "64 KiB"
//! points = [
//!   { depth = 1, p50 = "12.6 ms", p99 = "212 ms", reads = 2000 },
//! ]
//! ```
//!
//! Profiles of earlier builds have no `[[beside_writes]]`.

use std::fmt::Write as _;
use std::path::Path as FilePath;

use tidegate_core::profile::{
    Access, BesideWrites, Curve, CurveError, DepthPoint, Direction, Profile, TRUSTED_WITHIN_PERCENT,
};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;
use tidegate_units::{format_bytes, format_duration};

use crate::{ConfigErrors, Diagnostic, Field, Section, document};

/// Version of the format; no other is read.
pub const VERSION: u64 = 1;
/// Largest request size of a point: 1 GiB.
const SIZE_MAX: u64 = 1 << 30;
const DEPTH_MAX: u64 = 4096;
/// Maximum of `span` in bytes: 1 EiB.
const SPAN_MAX: u64 = 1 << 60;
const RUNS_MAX: u64 = 1_000_000;
const READS_MAX: u64 = 1_000_000_000;
const LATENCY_MAX: Nanos = Nanos(3_600 * 1_000_000_000);
const ACCESSES: [(&str, Access); 2] = [
    ("sequential", Access::Sequential),
    ("random", Access::Random),
];
const DIRECTIONS: [(&str, Direction); 2] = [("read", Direction::Read), ("write", Direction::Write)];

/// Measurements of a device, the content of a profile file.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Device measured, for people: a model's name or a path.
    pub device: String,
    /// Date of the measurement, for people; empty for a model.
    pub measured: String,
    /// Requests outstanding at saturation.
    pub depth: u32,
    /// Size in bytes of the part of the device that was measured; 0: not known.
    pub span: u64,
    /// Notes for readers of the figures.
    pub notes: Vec<String>,
    /// Rates at saturation, by mix and access pattern.
    pub curves: Vec<MeasuredCurve>,
    /// Latency by queue depth.
    pub latency: Vec<MeasuredDepth>,
    /// Latency of reads during saturating writes.
    pub beside_writes: Vec<MeasuredBeside>,
}

/// Latency of reads during saturating writes of one size at one depth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MeasuredBeside {
    /// Measured times.
    pub point: BesideWrites,
    /// Number of reads measured; 0: not known.
    pub reads: u64,
}

/// Rates at saturation by request size, for one mix and access pattern.
#[derive(Clone, PartialEq, Debug)]
pub struct MeasuredCurve {
    /// Mix of reads and writes.
    pub mix: Mix,
    /// Access pattern; mixes are random.
    pub access: Access,
    /// Rates by request size.
    pub points: Vec<MeasuredPoint>,
}

/// Mix of reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mix {
    /// Reads only or writes only.
    All(Direction),
    /// Share of reads in thousandths, 1 to 999.
    Reads(u32),
}

/// Rate at one request size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MeasuredPoint {
    /// Request size in bytes.
    pub size: u32,
    /// Requests a second at saturation: the mean over the runs.
    pub iops: f64,
    /// Half the width of the mean's 95 % confidence interval, in percent of the mean; not valid for
    /// fewer than two runs.
    pub within_percent: f64,
    /// Number of runs; 0: not known.
    pub runs: u32,
}

/// Latency at one queue depth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MeasuredDepth {
    /// Measured rate and times.
    pub point: DepthPoint,
    /// Half the width of the 95 % confidence interval of the rate, in percent. By Little's law,
    /// with a constant depth, the mean time has the same. Not valid for fewer than two runs.
    pub within_percent: f64,
    /// Number of runs; 0: not known.
    pub runs: u32,
}

/// Reason why measurements do not make a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProfileError {
    /// No curve for sequential or for random reads, or only one of the two for writes.
    Missing(&'static str),
    /// Invalid curve, by name.
    Curve(String, CurveError),
}

impl std::fmt::Display for ProfileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProfileError::Missing(what) => write!(f, "the profile has no curve of {what}"),
            ProfileError::Curve(name, error) => write!(f, "the curve of {name}: {error}"),
        }
    }
}

impl std::error::Error for ProfileError {}

impl Measured {
    /// Returns the profile that policies and plans use.
    ///
    /// # Errors
    /// If a required curve is missing or invalid.
    pub fn profile(&self) -> Result<Profile, ProfileError> {
        let all = |direction, access| self.curve(Mix::All(direction), access);
        let need = |curve: Option<Curve>, what| curve.ok_or(ProfileError::Missing(what));
        let reads = [
            need(
                all(Direction::Read, Access::Sequential)?,
                "sequential reads",
            )?,
            need(all(Direction::Read, Access::Random)?, "random reads")?,
        ];
        // Writes may be missing as a whole (`--read-only`), but not half of them.
        let writes = match (
            all(Direction::Write, Access::Sequential)?,
            all(Direction::Write, Access::Random)?,
        ) {
            (None, None) => None,
            (sequential, random) => Some([
                need(sequential, "sequential writes")?,
                need(random, "random writes")?,
            ]),
        };
        // Sequential mixes cannot occur: the profiler measures mixes with random requests only.
        let mut mixes = Vec::new();
        for of in &self.curves {
            if let (Mix::Reads(reads), Access::Random) = (of.mix, of.access) {
                mixes.extend(self.curve(of.mix, of.access)?.map(|curve| (reads, curve)));
            }
        }
        let latency = self.latency.iter().map(|at| at.point).collect();
        let profile = Profile::new(reads, writes, mixes, latency);
        Ok(profile
            .with_depth(self.depth)
            .with_beside_writes(self.beside_writes.iter().map(|at| at.point).collect())
            .with_imprecise(self.imprecise()))
    }

    /// Returns the names of points too uncertain to use, each with its confidence interval.
    pub fn imprecise(&self) -> Vec<String> {
        let of_curves = self.curves.iter().flat_map(|curve| {
            curve.points.iter().filter_map(|point| {
                let off = uncertainty(point.within_percent, point.runs)?;
                let size = format_bytes(point.size.into());
                Some(format!("{size} {} ({off})", curve.name()))
            })
        });
        let of_depths = self.latency.iter().filter_map(|at| {
            let off = uncertainty(at.within_percent, at.runs)?;
            let point = &at.point;
            let (size, depth) = (format_bytes(point.size.into()), point.depth);
            let kind = Mix::All(point.direction).with(point.access);
            Some(format!("{size} {kind} at depth {depth} ({off})"))
        });
        of_curves.chain(of_depths).collect()
    }

    fn curve(&self, mix: Mix, access: Access) -> Result<Option<Curve>, ProfileError> {
        let found = (self.curves.iter()).find(|of| of.mix == mix && of.access == access);
        let Some(found) = found else { return Ok(None) };
        let points: Vec<_> = found.points.iter().map(|p| (p.size, p.iops)).collect();
        match Curve::new(&points) {
            Ok(curve) => Ok(Some(curve)),
            Err(error) => Err(ProfileError::Curve(found.name(), error)),
        }
    }

    /// Iterates over latencies by depth, grouped by direction, access pattern and size.
    pub fn latency_by_kind(&self) -> impl Iterator<Item = &[MeasuredDepth]> {
        let kind = |at: &MeasuredDepth| (at.point.direction, at.point.access, at.point.size);
        self.latency.chunk_by(move |a, b| kind(a) == kind(b))
    }

    /// Returns the text of the profile's file.
    pub fn to_toml(&self) -> String {
        let mut text =
            String::from("# A device's saturation profile, as `tidegate profile` measured it.\n");
        // TOML's own quoting, because names may hold quotes and backslashes.
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "version = {VERSION}\ndevice = {}",
            quoted(&self.device)
        );
        if !self.measured.is_empty() {
            let _ = writeln!(text, "measured = {}", quoted(&self.measured));
        }
        let _ = writeln!(text, "depth = {}", self.depth);
        if self.span > 0 {
            let _ = writeln!(text, "span = \"{} B\"", self.span);
        }
        if !self.notes.is_empty() {
            let notes: Vec<_> = self.notes.iter().map(|note| quoted(note)).collect();
            let _ = writeln!(text, "notes = [{}]", notes.join(", "));
        }
        for curve in &self.curves {
            let _ = writeln!(text, "\n[[curve]]\nop = \"{}\"", op_word(curve.mix));
            if let Mix::Reads(thousandths) = curve.mix {
                let _ = writeln!(text, "reads_percent = {:.1}", f64::from(thousandths) / 10.0);
            }
            let access = word(&ACCESSES, curve.access);
            let _ = writeln!(text, "access = \"{access}\"\npoints = [");
            for point in &curve.points {
                let (size, iops) = (format_bytes(point.size.into()), point.iops);
                let (within, runs) = (point.within_percent, point.runs);
                let _ = writeln!(
                    text,
                    "  {{ size = \"{size}\", iops = {iops:.3}, within_percent = {within:.2}, \
                     runs = {runs} }},"
                );
            }
            text.push_str("]\n");
        }
        for group in self.latency_by_kind() {
            write_latency(&mut text, group);
        }
        let kind = |at: &MeasuredBeside| (at.point.access, at.point.size);
        for group in self.beside_writes.chunk_by(|a, b| kind(a) == kind(b)) {
            write_beside_writes(&mut text, group);
        }
        text
    }
}

/// Returns the uncertainty of a point as text if the point is too uncertain to use, and `None` if
/// it is precise enough. `within_percent` is half the width of the 95 % confidence interval, in
/// percent of the mean. A single run has no interval and is too uncertain. A point without both
/// figures (0) was written by hand or by an early version and is taken as precise.
pub fn uncertainty(within_percent: f64, runs: u32) -> Option<String> {
    match runs {
        1 => Some("1 run".to_owned()),
        _ if within_percent > TRUSTED_WITHIN_PERCENT => Some(format!("±{within_percent:.0} %")),
        _ => None,
    }
}

impl MeasuredCurve {
    /// Returns the curve's name, such as `random reads`.
    pub fn name(&self) -> String {
        self.mix.with(self.access)
    }
}

impl Mix {
    /// Returns a name for the mix with an access pattern: `random reads`, `random requests, 70 %
    /// reads`.
    pub fn with(self, access: Access) -> String {
        let access = word(&ACCESSES, access);
        match self {
            Mix::All(Direction::Read) => format!("{access} reads"),
            Mix::All(Direction::Write) => format!("{access} writes"),
            Mix::Reads(thousandths) => {
                format!(
                    "{access} requests, {} % reads",
                    f64::from(thousandths) / 10.0
                )
            }
        }
    }
}

fn write_latency(text: &mut String, group: &[MeasuredDepth]) {
    let Some(first) = group.first().map(|first| first.point) else {
        return;
    };
    let (op, access) = (
        word(&DIRECTIONS, first.direction),
        word(&ACCESSES, first.access),
    );
    let size = format_bytes(first.size.into());
    let _ = writeln!(
        text,
        "\n[[latency]]\nop = \"{op}\"\naccess = \"{access}\"\nsize = \"{size}\"\npoints = ["
    );
    for MeasuredDepth {
        point,
        within_percent: within,
        runs,
    } in group
    {
        let [mean, p50, p99] = [point.mean, point.p50, point.p99].map(format_duration);
        let (depth, iops) = (point.depth, point.iops);
        let _ = writeln!(
            text,
            "  {{ depth = {depth}, iops = {iops:.3}, mean = \"{mean}\", p50 = \"{p50}\", \
             p99 = \"{p99}\", within_percent = {within:.2}, runs = {runs} }},"
        );
    }
    text.push_str("]\n");
}

fn write_beside_writes(text: &mut String, group: &[MeasuredBeside]) {
    let Some(first) = group.first().map(|first| first.point) else {
        return;
    };
    let access = word(&ACCESSES, first.access);
    let size = format_bytes(first.size.into());
    let _ = writeln!(
        text,
        "\n[[beside_writes]]\naccess = \"{access}\"\nsize = \"{size}\"\npoints = ["
    );
    for MeasuredBeside { point, reads } in group {
        let [p50, p99] = [point.p50, point.p99].map(format_duration);
        let depth = point.depth;
        let _ = writeln!(
            text,
            "  {{ depth = {depth}, p50 = \"{p50}\", p99 = \"{p99}\", reads = {reads} }},"
        );
    }
    text.push_str("]\n");
}

fn word<T: Copy + PartialEq>(words: &[(&'static str, T)], of: T) -> &'static str {
    let found = words.iter().find(|word| word.1 == of);
    found.map_or("", |word| word.0)
}

fn op_word(mix: Mix) -> &'static str {
    match mix {
        Mix::All(direction) => word(&DIRECTIONS, direction),
        Mix::Reads(_) => "mixed",
    }
}

/// Returns the built-in profile of a model of the catalogue, if it has one.
///
/// # Panics
/// Never; a test parses all built-in profiles.
pub fn built_in(model: &str) -> Option<Measured> {
    let text = catalogue::profile(model)?;
    Some(parse(text, model).unwrap_or_else(|e| panic!("a built-in profile is wrong: {e}")))
}

/// Returns a built-in profile by its model's name, or the profile in a file. A name that contains a
/// slash or ends in `.toml` is a path, relative to `base`.
///
/// # Errors
/// If no profile has that name, or the file cannot be read or is wrong.
pub fn find(name: &str, base: &FilePath) -> Result<Measured, String> {
    if name.contains('/') || name.ends_with(".toml") {
        return load(&base.join(name));
    }
    built_in(name).ok_or_else(|| match catalogue::load(name) {
        Err(error) => {
            format!("{error}; give a measured profile by its path, NAME.toml")
        }
        Ok(_) => format!("{name} has no built-in profile"),
    })
}

/// Reads a profile's file.
///
/// # Errors
/// If the file cannot be read, or all of its mistakes.
pub fn load(path: &FilePath) -> Result<Measured, String> {
    let text = document::read_text(path)?;
    parse(&text, &path.display().to_string()).map_err(|errors| errors.to_string())
}

/// Reads a profile's text. `file` is its name in messages.
///
/// # Errors
/// All mistakes of the text.
pub fn parse(text: &str, file: &str) -> Result<Measured, ConfigErrors> {
    let loaded = document::read(text, file, read_measured)?;
    match loaded.config.profile() {
        Ok(_) => Ok(loaded.config),
        Err(error) => Err(ConfigErrors(vec![Diagnostic::error(format!(
            "{file}: {error}"
        ))])),
    }
}

fn known_version(field: &Field<'_>) -> Option<u64> {
    let version = field.count(0..=u64::MAX)?;
    if version != VERSION {
        let help = "use the Tidegate version that wrote the file, or measure again with `tidegate \
                    profile`";
        field.error(format!("unknown version {version} of the format"), help);
    }
    (version == VERSION).then_some(version)
}

fn read_measured(root: &Field<'_>) -> Option<Measured> {
    let mut section = Section::open(root)?;
    let version = section.need("version", "version = 1");
    let version = version.and_then(|field| known_version(&field));
    let text = |field: &Field<'_>| field.text().map(str::to_owned);
    let device = section
        .need("device", "what was measured: device = \"hdd-7200-1tb\"")
        .and_then(|field| text(&field));
    let measured = section.read("measured", String::new(), text);
    let depth = section
        .need("depth", "requests outstanding at saturation: depth = 32")
        .and_then(|field| field.count(1..=DEPTH_MAX));
    let span = section.read("span", 0, |field| field.bytes(1..=SPAN_MAX));
    let notes = section.read("notes", Vec::new(), |field| {
        let all: Vec<_> = field.elements()?.iter().map(text).collect();
        all.into_iter().collect()
    });
    let curves: Vec<_> = section.take_tables("curve").iter().map(curve).collect();
    let latency: Vec<_> = section.take_tables("latency").iter().map(latency).collect();
    let beside: Vec<_> = (section.take_tables("beside_writes").iter())
        .map(beside_writes)
        .collect();
    section.finish();
    // Only here: a file of another version still has its other mistakes reported.
    version?;
    Some(Measured {
        device: device?,
        measured: measured?,
        depth: u32::try_from(depth?).ok()?,
        span: span?,
        notes: notes?,
        curves: curves.into_iter().collect::<Option<_>>()?,
        latency: latency.into_iter().collect::<Option<Vec<_>>>()?.concat(),
        beside_writes: beside.into_iter().collect::<Option<Vec<_>>>()?.concat(),
    })
}

fn curve(field: &Field<'_>) -> Option<MeasuredCurve> {
    let mut section = Section::open(field)?;
    let words = [
        ("read", Some(Direction::Read)),
        ("write", Some(Direction::Write)),
        ("mixed", None),
    ];
    let op = section
        .need("op", "op = \"read\", \"write\" or \"mixed\"")
        .and_then(|field| field.choice(&words));
    let mix = match op {
        Some(Some(direction)) => Some(Mix::All(direction)),
        Some(None) => section
            .need(
                "reads_percent",
                "reads among the requests: reads_percent = 70",
            )
            .and_then(|field| field.decimal(0.1..=99.9))
            // Rounded to thousandths, of which the file shows one decimal.
            .map(|percent| Mix::Reads((percent * 10.0 + 0.5) as u32)),
        None => None,
    };
    let access = access(&mut section);
    let points = points(&mut section, point);
    section.finish();
    Some(MeasuredCurve {
        mix: mix?,
        access: access?,
        points: points?,
    })
}

fn access(section: &mut Section<'_>) -> Option<Access> {
    section
        .need("access", "access = \"sequential\" or \"random\"")
        .and_then(|field| field.choice(&ACCESSES))
}

fn points<T>(
    section: &mut Section<'_>,
    read: impl Fn(&mut Section<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let field = section.need("points", "a list of measured points, each in braces")?;
    let of = |field: &Field<'_>| {
        let mut section = Section::open(field)?;
        let point = read(&mut section);
        section.finish();
        point
    };
    let all: Vec<_> = field.elements()?.iter().map(of).collect();
    all.into_iter().collect()
}

fn size(section: &mut Section<'_>) -> Option<u32> {
    let size = section.need("size", "bytes of a request: size = \"4 KiB\"")?;
    size.bytes(1..=SIZE_MAX)
        .and_then(|bytes| u32::try_from(bytes).ok())
}

fn iops(section: &mut Section<'_>) -> Option<f64> {
    let iops = section.need("iops", "requests a second: iops = 190.4")?;
    // Never 0: rates are divisors in plans.
    iops.decimal(1e-6..=1e12)
}

fn point(section: &mut Section<'_>) -> Option<MeasuredPoint> {
    let (size, iops) = (size(section), iops(section));
    let (within_percent, runs) = certainty(section)?;
    Some(MeasuredPoint {
        size: size?,
        iops: iops?,
        within_percent,
        runs,
    })
}

/// Reads the uncertainty of a mean: half the width of its confidence interval in percent, and the
/// number of runs.
fn certainty(section: &mut Section<'_>) -> Option<(f64, u32)> {
    let within = section.read("within_percent", 0.0, |field| field.decimal(0.0..=1e6));
    let runs = section.read("runs", 0, |field| field.count(0..=RUNS_MAX));
    Some((within?, u32::try_from(runs?).ok()?))
}

fn outstanding(section: &mut Section<'_>) -> Option<u32> {
    let depth = section.need("depth", "requests outstanding: depth = 1")?;
    let depth = depth.count(1..=DEPTH_MAX)?;
    u32::try_from(depth).ok()
}

fn time(section: &mut Section<'_>, key: &'static str) -> Option<Nanos> {
    let field = section.need(key, "a time: \"12.8 ms\"")?;
    field.duration(Nanos::ZERO..=LATENCY_MAX)
}

fn beside_writes(field: &Field<'_>) -> Option<Vec<MeasuredBeside>> {
    let mut section = Section::open(field)?;
    let access = access(&mut section);
    let size = size(&mut section);
    let points = points(&mut section, |section| {
        let depth = outstanding(section);
        let (p50, p99) = (time(section, "p50"), time(section, "p99"));
        let reads = section.read("reads", 0, |field| field.count(0..=READS_MAX));
        Some((depth?, p50?, p99?, reads?))
    });
    section.finish();
    let (access, size) = (access?, size?);
    let of = |(depth, p50, p99, reads)| MeasuredBeside {
        point: BesideWrites {
            access,
            size,
            depth,
            p50,
            p99,
        },
        reads,
    };
    Some(points?.into_iter().map(of).collect())
}

fn latency(field: &Field<'_>) -> Option<Vec<MeasuredDepth>> {
    let mut section = Section::open(field)?;
    let direction = section
        .need("op", "op = \"read\" or \"write\"")
        .and_then(|field| field.choice(&DIRECTIONS));
    let access = access(&mut section);
    let size = size(&mut section);
    let points = points(&mut section, |section| {
        let depth = outstanding(section);
        let iops = iops(section);
        let mut time = |key| time(section, key);
        let (mean, p50, p99) = (time("mean"), time("p50"), time("p99"));
        let certainty = certainty(section);
        Some((depth?, iops?, mean?, p50?, p99?, certainty?))
    });
    section.finish();
    let (direction, access, size) = (direction?, access?, size?);
    let of = |(depth, iops, mean, p50, p99, (within_percent, runs))| MeasuredDepth {
        point: DepthPoint {
            direction,
            access,
            size,
            depth,
            iops,
            mean,
            p50,
            p99,
        },
        within_percent,
        runs,
    };
    Some(points?.into_iter().map(of).collect())
}

#[cfg(test)]
mod tests;
