//! Reader of VMs and their workloads.

use super::{pcpus, time};
use crate::machine::CpuSet;
use crate::scenario::{CpuSpec, PingSpec, StreamSpec, VmSpec, WriteSpec, keys};
use tidegate_config::keys::{KeyInfo, SectionInfo};
use tidegate_config::node::Value;
use tidegate_config::{Field, Names, Section};
use tidegate_core::time::Nanos;

/// Reads all `[[vm]]` tables. A VM may name a later one as its sender, so names are read first.
pub(super) fn vms(section: &mut Section<'_>, all: CpuSet) -> Option<Vec<VmSpec>> {
    if !section.has("vm") {
        let example = "add a [[vm]] with name = \"web\" and busy_processes = 1 in [vm.cpu]";
        section.error("no [[vm]] section: at least one VM is required", example);
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
        // One VM without a count, or with a wrong one, which is reported later.
        before += vm_count(table).unwrap_or(1) as usize;
    }
    let mut taken = Names::default();
    let read = tables
        .iter()
        .map(|table| vm(table, all, &mut taken, &places));
    // All tables are read first, so that mistakes in later ones are reported too.
    let read: Vec<_> = read.collect();
    let mut specs = Vec::new();
    for found in read {
        let (spec, count) = found?;
        repeat(spec, count, &mut specs);
    }
    Some(specs)
}

/// Number of VMs that a table stands for, if it gives a valid `count`.
fn vm_count(table: &Field<'_>) -> Option<u64> {
    match table.find("count")?.node().value {
        Value::Integer(n) => u64::try_from(n).ok(),
        _ => None,
    }
}

/// Appends `count` copies of `spec`, named `NAME-1` and so on; without `count` only `spec` itself.
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
    let mut section = Section::with_keys(&field, &keys::VM)?;
    let name = section.unique_name(&keys::NAME, "VM", taken);
    let count = section.number_if_any(&keys::COUNT);
    let cpu = vm_cpu(&field, &mut section, all);
    // Names of keys in scenarios of earlier versions.
    section.renamed("primes", "work");
    let work = section.number_if_any(&keys::WORK_TIME);
    let ping = optional_table(&mut section, &keys::PING, &keys::PING_TABLE, |section| {
        ping(section, places)
    });
    let stream = optional_table(
        &mut section,
        &keys::STREAM,
        &keys::STREAM_TABLE,
        |section| stream(section, places),
    );
    let write = optional_table(&mut section, &keys::WRITE, &keys::WRITE_TABLE, write);
    section.finish();
    let spec = VmSpec {
        name: name?,
        cpu: cpu?,
        work: work?.map(Nanos),
        ping: ping?,
        stream: stream?,
        write: write?,
    };
    Some((spec, count?))
}

/// Keys of `[vm.cpu]` that older scenarios have in `[[vm]]` itself.
const CPU: [&str; 6] = ["vcpus", "weight", "cap", "pinned", "hogs", "busy_processes"];

/// Reads the vCPUs of the VM `vm`, whose keys are in `section`: from `[vm.cpu]`, or from the old
/// keys in `[[vm]]`.
fn vm_cpu(vm: &Field<'_>, section: &mut Section<'_>, all: CpuSet) -> Option<CpuSpec> {
    let old = CPU.map(|key| (key, section.take_old(key, "[vm.cpu]")));
    let Some(field) = section.field(&keys::CPU) else {
        // Unknown keys are reported by the `[[vm]]` section, so this section is not finished.
        return cpu(&mut Section::open(vm)?, all);
    };
    for (key, field) in old
        .iter()
        .filter_map(|(key, field)| Some((key, field.as_ref()?)))
    {
        let allowed = format!("`{key}` only in [vm.cpu]");
        field.error(
            "old place of a key, although [vm.cpu] is given as well",
            &allowed,
        );
    }
    let mut inner = Section::with_keys(&field, &keys::CPU_TABLE)?;
    let spec = cpu(&mut inner, all);
    inner.finish();
    spec
}

/// Reads the vCPU keys of a VM on a host with the pCPUs `all`.
pub fn cpu(section: &mut Section<'_>, all: CpuSet) -> Option<CpuSpec> {
    let vcpus = section.number(&keys::VCPUS);
    let weight = section.number(&keys::WEIGHT);
    let cap = section.number(&keys::CAP);
    let pinned = section.value(&keys::PINNED, all, |field| pcpus(field, all));
    section.renamed("hogs", "busy_processes");
    let busy_processes = section.number(&keys::BUSY_PROCESSES);
    Some(CpuSpec {
        vcpus: vcpus? as usize,
        weight: weight? as u32,
        cap: cap? as u32,
        pinned: pinned?,
        busy_processes: busy_processes? as usize,
    })
}

/// Reads an optional table with the keys `info`.
fn optional_table<T>(
    section: &mut Section<'_>,
    key: &KeyInfo,
    info: &'static SectionInfo,
    read: impl FnOnce(&mut Section<'_>) -> Option<T>,
) -> Option<Option<T>> {
    let Some(field) = section.field(key) else {
        return Some(None);
    };
    let mut inner = Section::with_keys(&field, info)?;
    let value = read(&mut inner);
    inner.finish();
    value.map(Some)
}

/// Reads the VM that sends, as its index.
fn from(section: &mut Section<'_>, places: &[(String, usize)]) -> Option<usize> {
    let field = section.field(&keys::FROM)?;
    let wanted = field.reference("VM", places.iter().map(|(name, _)| name.as_str()))?;
    let found = places.iter().find(|(name, _)| name == wanted);
    found.map(|&(_, place)| place)
}

fn ping(section: &mut Section<'_>, places: &[(String, usize)]) -> Option<PingSpec> {
    let from = from(section, places);
    let period = time(section, &keys::PERIOD);
    let jitter = time(section, &keys::JITTER);
    let count = section.number(&keys::PACKETS);
    let client = time(section, &keys::PING_CLIENT);
    let driver = time(section, &keys::PING_DRIVER);
    let guest = time(section, &keys::PING_GUEST);
    let process = section.number_if_any(&keys::PING_PROCESS);
    let burst = section.number(&keys::BURST);
    let vcpu = section.number(&keys::EVENT_VCPU);
    Some(PingSpec {
        from: from?,
        period: period?,
        jitter: jitter?,
        count: count?,
        client: client?,
        driver: driver?,
        guest: guest?,
        process: process?.map(Nanos),
        burst: burst?,
        vcpu: vcpu? as usize,
    })
}

fn stream(section: &mut Section<'_>, places: &[(String, usize)]) -> Option<StreamSpec> {
    let from = from(section, places);
    let chunk = section.number(&keys::CHUNK);
    // A window holds at least one chunk, or the stream would never send.
    let least = chunk.unwrap_or(keys::WINDOW.min);
    let key = keys::WINDOW.within(least, keys::WINDOW.max);
    let window = section.value(&key, least.max(keys::USUAL_WINDOW), |field| {
        field.number(&key)
    });
    let client = time(section, &keys::STREAM_CLIENT);
    let driver = time(section, &keys::CHUNK_DRIVER);
    let interrupt = time(section, &keys::INTERRUPT);
    let receive = time(section, &keys::RECEIVE);
    let acknowledge = time(section, &keys::ACKNOWLEDGE);
    let vcpu = section.number(&keys::EVENT_VCPU);
    Some(StreamSpec {
        from: from?,
        chunk: chunk?,
        window: window?,
        client: client?,
        driver: driver?,
        interrupt: interrupt?,
        receive: receive?,
        acknowledge: acknowledge?,
        vcpu: vcpu? as usize,
    })
}

fn write(section: &mut Section<'_>) -> Option<WriteSpec> {
    let file = section.number(&keys::FILE);
    let make = time(section, &keys::MAKE_PER_KIB);
    let dirty = section.number(&keys::DIRTY);
    let depth = section.number(&keys::DEPTH);
    let driver = time(section, &keys::IO_DRIVER);
    let interrupt = time(section, &keys::INTERRUPT);
    let vcpu = section.number(&keys::EVENT_VCPU);
    Some(WriteSpec {
        file: file?,
        make_per_kib: make?,
        dirty: dirty?,
        depth: depth?,
        driver: driver?,
        interrupt: interrupt?,
        vcpu: vcpu? as usize,
    })
}
