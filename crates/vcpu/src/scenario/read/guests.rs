//! Reading virtual machines, and what they do.

use super::{MOST_VCPUS, WORK, pcpus, time};
use crate::machine::CpuSet;
use crate::scenario::{CpuSpec, PingSpec, StreamSpec, VmSpec, WriteSpec};
use tidegate_config::node::Value;
use tidegate_config::{Field, Names, Section};
use tidegate_core::time::Nanos;

/// Virtual machines that one table may stand for.
const MOST_VMS: u64 = 1_000;

/// All `[[vm]]`. A client may stand after those it serves, so names are read first.
pub(super) fn vms(section: &mut Section<'_>, all: CpuSet) -> Option<Vec<VmSpec>> {
    if !section.has("vm") {
        let example = "add a [[vm]] with name = \"web\" and busy_processes = 1 in [vm.cpu]";
        section.error("there is no [[vm]]: nobody wants to run", example);
    }
    let tables = section.take_tables("vm");
    let mut places = Vec::new();
    let mut before = 0;
    for table in &tables {
        let name = table
            .find("name")
            .and_then(|name| match &name.node().value {
                Value::Text(name) => Some(name.clone()),
                _ => None,
            });
        places.push((name.unwrap_or_default(), before));
        before += counted(table).unwrap_or(1) as usize;
    }
    let mut taken = Names::default();
    let read = tables
        .iter()
        .map(|table| vm(table, all, &mut taken, &places));
    // All of them are read, for what is wrong with the later ones too.
    let read: Vec<_> = read.collect();
    let mut specs = Vec::new();
    for found in read {
        let (spec, count) = found?;
        repeat(spec, count, &mut specs);
    }
    Some(specs)
}

/// How many virtual machines a table stands for, if it says so and well.
fn counted(table: &Field<'_>) -> Option<u64> {
    match table.find("count")?.node().value {
        Value::Integer(n) => u64::try_from(n).ok(),
        _ => None,
    }
}

/// `count` of them, called `name-1` and so on.
fn repeat(spec: VmSpec, count: Option<u64>, all: &mut Vec<VmSpec>) {
    let Some(count) = count else {
        return all.push(spec);
    };
    all.extend((1..=count).map(|n| VmSpec {
        name: format!("{}-{n}", spec.name),
        ..spec.clone()
    }));
}

fn vm(
    field: &Field<'_>,
    all: CpuSet,
    taken: &mut Names,
    places: &[(String, usize)],
) -> Option<(VmSpec, Option<u64>)> {
    let field = field.labelled("vm");
    let mut section = Section::of(&field)?;
    let name = section.own_name("VM", "web", taken);
    let count = section.read("count", None, |f| f.count(1..=MOST_VMS).map(Some));
    let cpu = vm_cpu(&mut section, all);
    section.renamed("primes", "work");
    let work = section.read("work", None, |f| f.duration(WORK).map(Some));
    let ping = part(&mut section, "ping", |section| ping(section, places));
    let stream = part(&mut section, "stream", |section| stream(section, places));
    let write = part(&mut section, "write", write);
    section.finish();
    let spec = VmSpec {
        name: name?,
        cpu: cpu?,
        work: work?,
        ping: ping?,
        stream: stream?,
        write: write?,
    };
    Some((spec, count?))
}

/// Keys of `[vm.cpu]` that stood in `[[vm]]` itself once.
const CPU: [&str; 6] = ["vcpus", "weight", "cap", "pinned", "hogs", "busy_processes"];

/// The vCPUs of a virtual machine: `[vm.cpu]`, or its keys in `[[vm]]` itself.
fn vm_cpu(section: &mut Section<'_>, all: CpuSet) -> Option<CpuSpec> {
    let old = CPU.map(|key| (key, section.take_old(key, "[vm.cpu]")));
    let table = section.take("cpu");
    let Some(field) = table else {
        return cpu(section, all);
    };
    for (key, field) in old
        .iter()
        .filter_map(|(key, field)| Some((key, field.as_ref()?)))
    {
        let allowed = format!("`{key}` in [vm.cpu] alone");
        field.error(
            "the old place of a key of [vm.cpu], which is given, too",
            &allowed,
        );
    }
    let mut inner = Section::of(&field)?;
    let spec = cpu(&mut inner, all);
    inner.finish();
    spec
}

/// Reads what a virtual machine has of a machine with the pCPUs `all`, of the table that says so.
pub fn cpu(section: &mut Section<'_>, all: CpuSet) -> Option<CpuSpec> {
    let usual = CpuSpec::default();
    let vcpus = section.read("vcpus", 1, |f| f.count(1..=MOST_VCPUS));
    let weight = section.read("weight", u64::from(usual.weight), |f| f.count(1..=65_535));
    let cap = section.read("cap", 0, |f| f.count(0..=100 * CpuSet::MOST as u64));
    let pinned = section.read("pinned", all, |f| pcpus(f, all));
    section.renamed("hogs", "busy_processes");
    let busy_processes = section.read("busy_processes", 0, |f| f.count(0..=1_000));
    Some(CpuSpec {
        vcpus: vcpus? as usize,
        weight: weight? as u32,
        cap: cap? as u32,
        pinned: pinned?,
        busy_processes: busy_processes? as usize,
    })
}

/// A table that need not be there.
fn part<T>(
    section: &mut Section<'_>,
    key: &'static str,
    read: impl FnOnce(&mut Section<'_>) -> Option<T>,
) -> Option<Option<T>> {
    let Some(field) = section.take(key) else {
        return Some(None);
    };
    let mut inner = Section::of(&field)?;
    let value = read(&mut inner);
    inner.finish();
    value.map(Some)
}

/// The virtual machine that sends.
fn from(section: &mut Section<'_>, places: &[(String, usize)]) -> Option<usize> {
    let field = section.need("from", "who sends: from = \"client\"")?;
    let wanted = field.reference("VM", places.iter().map(|(name, _)| name.as_str()))?;
    let found = places.iter().find(|(name, _)| name == wanted);
    found.map(|&(_, place)| place)
}

fn cost(section: &mut Section<'_>, key: &'static str, usual_us: u64) -> Option<Nanos> {
    time(section, key, Nanos::from_micros(usual_us), WORK)
}

fn ping(section: &mut Section<'_>, places: &[(String, usize)]) -> Option<PingSpec> {
    let from = from(section, places);
    let (us, hour) = (Nanos::from_micros(1), Nanos::from_secs(3_600));
    let period = time(section, "period", Nanos::from_millis(10), us..=hour);
    let jitter = time(section, "jitter", Nanos::ZERO, Nanos::ZERO..=hour);
    let count = section.read("count", 1_000, |field| field.count(1..=10_000_000));
    let client = cost(section, "client", 10);
    let driver = cost(section, "driver", 10);
    let guest = cost(section, "guest", 30);
    Some(PingSpec {
        from: from?,
        period: period?,
        jitter: jitter?,
        count: count?,
        client: client?,
        driver: driver?,
        guest: guest?,
    })
}

fn stream(section: &mut Section<'_>, places: &[(String, usize)]) -> Option<StreamSpec> {
    let from = from(section, places);
    let chunk = section.read("chunk", 128 << 10, |field| field.bytes(1..=64 << 20));
    let least = chunk.unwrap_or(1);
    let window = section.read("window", least.max(4 << 20), |field| {
        field.bytes(least..=1 << 40)
    });
    let client = cost(section, "client", 20);
    let driver = cost(section, "driver", 20);
    let interrupt = cost(section, "interrupt", 10);
    let receive = cost(section, "receive", 20);
    let acknowledge = cost(section, "acknowledge", 2);
    Some(StreamSpec {
        from: from?,
        chunk: chunk?,
        window: window?,
        client: client?,
        driver: driver?,
        interrupt: interrupt?,
        receive: receive?,
        acknowledge: acknowledge?,
    })
}

fn write(section: &mut Section<'_>) -> Option<WriteSpec> {
    let file = section
        .need("file", "how large it is: file = \"5 GB\"")
        .and_then(|field| field.bytes(1..=1 << 50));
    let make = time(section, "make_per_kib", Nanos::from_micros(1), WORK);
    let dirty = section.read("dirty", 400_000_000, |field| field.bytes(1..=1 << 50));
    let depth = section.read("depth", 32, |field| field.count(1..=1 << 16));
    let driver = cost(section, "driver", 20);
    let interrupt = cost(section, "interrupt", 10);
    Some(WriteSpec {
        file: file?,
        make_per_kib: make?,
        dirty: dirty?,
        depth: depth?,
        driver: driver?,
        interrupt: interrupt?,
    })
}
