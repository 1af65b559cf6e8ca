//! Reader of TOML scenarios.

mod guests;
mod processors;

pub use guests::cpu;

use super::{DiskSpec, Host, Scenario, SchedulerSpec, keys};
use crate::machine::{CpuSet, PcpuId};
use crate::schedulers::SCHEDULERS;
use crate::spec::{ParamInfo, ParamKind, SchedulerInfo};
use tidegate_config::frame::FrameDraft;
use tidegate_config::keys::{KeyInfo, SectionInfo};
use tidegate_config::node::Value;
use tidegate_config::{ConfigErrors, Field, Loaded, Section, document};
use tidegate_core::time::Nanos;

/// Reads and checks a scenario; `file` is its name in messages.
///
/// `scheduler` replaces the scenario's scheduler; if both have the same name, the scenario's
/// parameters are kept.
///
/// # Errors
/// All mistakes, each with its line, the value found and the values allowed.
pub fn read(
    text: &str,
    file: &str,
    scheduler: Option<SchedulerSpec>,
) -> Result<Loaded<Scenario>, ConfigErrors> {
    document::read(text, file, |root| scenario_of(root, scheduler))
}

fn scenario_of(root: &Field<'_>, replacement: Option<SchedulerSpec>) -> Option<Scenario> {
    let mut section = Section::with_keys(root, &keys::SCENARIO)?;
    let frame = FrameDraft::read(&mut section, &keys::FRAME);
    let processors = processors::read(&mut section);
    let machine = processors.machine;
    // Without a valid host, pCPU lists are checked against the largest possible one.
    let all = machine.map_or(CpuSet::first_n(CpuSet::MAX_PCPUS), |m| {
        CpuSet::first_n(m.pcpus)
    });
    let disk = table(&mut section, "disk", Some(&keys::DISK), disk);
    let vms = guests::vms(&mut section, all);
    section.finish();
    // `?` only after `finish`: all mistakes are to be reported, not just the first.
    let own = processors.scheduler?;
    let scheduler = replacement.map_or(own, |other| own.replaced_by(other));
    let frame = frame.complete()?;
    Some(Scenario {
        frame,
        host: machine?,
        scheduler,
        driver: processors.driver?,
        disk: disk?,
        vms: vms?,
    })
}

/// Reads the table `key` with `read`; an absent table is read as an empty one. `info` lists its
/// keys; `None`: the keys that `read` takes.
fn table<T>(
    section: &mut Section<'_>,
    key: &'static str,
    info: Option<&'static SectionInfo>,
    read: impl FnOnce(Option<&mut Section<'_>>) -> Option<T>,
) -> Option<T> {
    let Some(field) = section.take(key) else {
        return read(None);
    };
    let mut inner = match info {
        Some(info) => Section::with_keys(&field, info)?,
        None => Section::open(&field)?,
    };
    let value = read(Some(&mut inner));
    inner.finish();
    value
}

/// Reads the pCPUs of the host from their table; without a table, the defaults.
pub fn host(section: Option<&mut Section<'_>>) -> Option<Host> {
    let Some(section) = section else {
        let pcpus = keys::PCPUS.default_number() as usize;
        return Some(Host {
            pcpus,
            per_socket: pcpus,
            switch_cost: Nanos(keys::CONTEXT_SWITCH.default_number()),
        });
    };
    let pcpus = section.number(&keys::PCPUS);
    let per_socket = section.number_if_any(&keys::PCPUS_PER_SOCKET);
    let switch_cost = section.number(&keys::CONTEXT_SWITCH);
    let pcpus = pcpus? as usize;
    Some(Host {
        pcpus,
        // One socket, unless its size is given.
        per_socket: per_socket?.map_or(pcpus, |n| n as usize),
        switch_cost: Nanos(switch_cost?),
    })
}

/// Reads a scheduler: its name, or a table with its name and parameters.
pub fn scheduler(field: &Field<'_>) -> Option<SchedulerSpec> {
    // The name alone: all parameters have their defaults.
    if let Value::Text(_) = field.node().value {
        return scheduler_info(field).map(SchedulerSpec::new);
    }
    let mut section = Section::open(field)?;
    let info = section
        .need("name", "name = \"credit2\"")
        .and_then(|field| scheduler_info(&field));
    // Without its scheduler, no parameter of a table is known.
    let info = info?;
    let mut spec = Some(SchedulerSpec::new(info));
    for param in info.params() {
        let value = section.read(param.name, param.default, |field| value(field, param));
        let both = spec.zip(value);
        spec = both.map(|(spec, value)| spec.with(param.name, value));
    }
    section.finish();
    spec
}

/// Reads the name of a scheduler; one of an earlier release gives a note.
fn scheduler_info(field: &Field<'_>) -> Option<&'static SchedulerInfo> {
    if let Value::Text(text) = &field.node().value
        && let Some(info) = SCHEDULERS.iter().find(|info| info.is_named(text))
    {
        if text != info.name {
            field.note_old_spelling(&format!("\"{}\"", info.name));
        }
        return Some(info);
    }
    let all: Vec<_> = SCHEDULERS.iter().map(|info| (info.name, *info)).collect();
    field.choice(&all)
}

/// Reads the value of a scheduler's parameter.
fn value(field: &Field<'_>, param: &ParamInfo) -> Option<u64> {
    match param.kind {
        ParamKind::Duration => {
            let range = Nanos(param.min)..=Nanos(param.max);
            field.duration(range).map(|span| span.0)
        }
        ParamKind::Count => field.count(param.min..=param.max),
        ParamKind::Flag => field.flag().map(u64::from),
        ParamKind::Part => field.thousandths().map(u64::from),
        ParamKind::Choice(words) => {
            let places: Vec<_> = words.iter().copied().zip(0..).collect();
            field.choice(&places)
        }
    }
}

/// Reads a duration that has a default.
fn time(section: &mut Section<'_>, key: &KeyInfo) -> Option<Nanos> {
    section.number(key).map(Nanos)
}

fn disk(section: Option<&mut Section<'_>>) -> Option<DiskSpec> {
    let Some(section) = section else {
        return Some(DiskSpec {
            io: keys::IO.default_number(),
            service: Nanos(keys::SERVICE.default_number()),
        });
    };
    let io = section.number(&keys::IO);
    let service = time(section, &keys::SERVICE);
    Some(DiskSpec {
        io: io?,
        service: service?,
    })
}

/// Reads a list of pCPUs such as `"0-1,4"`, for a host that has `all` pCPUs.
pub fn pcpus(field: &Field<'_>, all: CpuSet) -> Option<CpuSet> {
    let range = |range: &str| {
        let mut ends = range.trim().splitn(2, '-').map(|n| n.trim().parse::<u8>());
        let first = ends.next()?.ok()?;
        // A single number is a range of one.
        let last = ends.next().map_or(Some(first), Result::ok)?;
        let known = all.has(PcpuId(first)) && all.has(PcpuId(last));
        (first <= last && known).then(|| CpuSet::range(first, last))
    };
    let parts = field.text()?.split(',').map(range);
    let sets: Option<Vec<CpuSet>> = parts.collect();
    let set = sets.map(|sets| sets.into_iter().flat_map(CpuSet::iter).collect());
    if set.is_none() {
        let what = format!("{} is not a list of pCPUs of this host", field.describe());
        let last = all.len().saturating_sub(1);
        let allowed = format!("numbers from 0 to {last}, such as \"0-1,3\"");
        field.error(what, &allowed);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedulers::credit2::{self, RunQueues};
    use crate::schedulers::named;
    use crate::schedulers::{io_turns, isacs};

    const GOOD: &str = r#"
duration = "2 s"
warm_up = "500 ms"
[host.cpu]
pcpus = 4
context_switch = "2 us"
[host.cpu.scheduler]
name = "isacs"
run_queues = "core"
new_sample = "50 %"
[host.cpu.driver]
vcpus = 2
pinned = "0"
[[vm]]
name = "web"
count = 2
[vm.cpu]
vcpus = 2
pinned = "1-2"
busy_processes = 2
[vm.ping]
from = "client"
period = "7 ms"
[[vm]]
name = "client"
cpu = { pinned = "0,3" }
"#;

    /// Scenario [`GOOD`] in the spelling of the first format.
    const OLD: &str = r#"
duration = "2 s"
warm_up = "500 ms"
[host]
pcpus = 4
context_switch = "2 us"
[scheduler]
name = "isacs"
run_queues = "core"
new_sample = "50 %"
[driver]
vcpus = 2
pinned = "0"
[[vm]]
name = "web"
count = 2
vcpus = 2
pinned = "1-2"
hogs = 2
[vm.ping]
from = "client"
period = "7 ms"
[[vm]]
name = "client"
pinned = "0,3"
"#;

    #[test]
    fn a_good_scenario_is_what_it_says() {
        let scenario = read(GOOD, "s.toml", None).expect("good").config;
        let names: Vec<_> = scenario.vms.iter().map(|vm| vm.name.as_str()).collect();
        assert_eq!(names, ["web-1", "web-2", "client"]);
        let ping = scenario.vms[1].ping.expect("it answers");
        assert_eq!((ping.from, ping.period), (2, Nanos::from_millis(7)));
        assert_eq!(scenario.vms[0].cpu.pinned, CpuSet::range(1, 2));
        assert_eq!(scenario.vms[2].cpu.pinned.len(), 2);
        assert_eq!(scenario.scheduler.name(), "isacs");
        let params = isacs::Params::from_spec(&scenario.scheduler);
        assert_eq!(params.new_sample, 500);
        assert_eq!(params.credit2.run_queues, RunQueues::Core);
    }

    #[test]
    fn old_spellings_are_the_same_scenario_with_notes() {
        let new = read(GOOD, "s.toml", None).expect("good");
        let old = read(OLD, "s.toml", None).expect("good");
        assert_eq!(old.config, new.config);
        assert_eq!((new.notes.len(), new.warnings.len()), (0, 0));
        let said: Vec<String> = old.notes.iter().map(|note| note.what.clone()).collect();
        let of = |new: &str| format!("the old spelling of {new}");
        let cpu = "`scheduler` in [host.cpu]";
        let all = [
            "[host.cpu]",
            cpu,
            "[host.cpu.driver]",
            "[vm.cpu]",
            "`busy_processes`",
        ];
        assert_eq!(said, all.map(of));
    }

    #[test]
    fn an_old_name_of_a_scheduler_is_accepted_with_a_note() {
        let text =
            "duration = \"1 s\"\nhost.cpu.scheduler = \"credit2-io\"\n[[vm]]\nname = \"a\"\n";
        let loaded = read(text, "s.toml", None).expect("good");
        assert_eq!(loaded.config.scheduler.name(), "io-turns");
        assert_eq!(loaded.notes.len(), 1, "{:?}", loaded.notes);
        assert_eq!(loaded.notes[0].what, "the old spelling of \"io-turns\"");
    }

    #[test]
    fn an_old_table_beside_the_new_one_is_refused() {
        let said = |text: String| {
            let refused = read(&text, "s.toml", None).map(|_| ()).unwrap_err();
            refused.to_string()
        };
        let both = said(format!("scheduler = \"credit2\"\n{GOOD}"));
        assert!(
            both.contains("old section, although [host.cpu] is given as well"),
            "{both}"
        );
        let both = said(GOOD.replace("name = \"client\"", "name = \"client\"\nweight = 3"));
        assert!(both.contains("help: `weight` only in [vm.cpu]"), "{both}");
    }

    #[test]
    fn another_scheduler_instead_and_the_same_with_its_parameters() {
        let read = |name| {
            let spec = named(name);
            read(GOOD, "s.toml", spec).expect("good").config.scheduler
        };
        // The shared run-queue parameter carries over, so that results stay comparable.
        assert_eq!(read("credit2").name(), "credit2");
        let params = credit2::Params::from_spec(&read("credit2"));
        assert_eq!(
            (params.run_queues, params.looks_again),
            (RunQueues::Core, false)
        );
        assert_eq!(read("io-turns").name(), "io-turns");
        let params = io_turns::Params::from_spec(&read("io-turns")).credit2;
        assert_eq!(
            (params.run_queues, params.looks_again),
            (RunQueues::Core, true)
        );
        assert_eq!(Some(read("credit")), named("credit"));
        assert_ne!(Some(read("isacs")), named("isacs"));
        assert_eq!(read("isacs").name(), "isacs");
    }

    #[test]
    fn mistakes_are_told_with_what_would_be_right() {
        let said = |from: &str, to: &str| {
            assert!(GOOD.contains(from), "{from}");
            let text = GOOD.replacen(from, to, 1);
            let refused = read(&text, "s.toml", None).map(|_| ()).unwrap_err();
            refused.to_string()
        };
        let cpus = said("pinned = \"1-2\"", "pinned = \"1-4\"");
        assert!(
            cpus.contains("is not a list of pCPUs of this host"),
            "{cpus}"
        );
        assert!(cpus.contains("numbers from 0 to 3"), "{cpus}");
        let who = said("from = \"client\"", "from = \"cleint\"");
        assert!(who.contains("did you mean \"client\"?"), "{who}");
        let name = said("name = \"isacs\"", "name = \"isac\"");
        assert!(name.contains("did you mean \"isacs\"?"), "{name}");
        let key = said("vcpus = 2\npinned = \"0\"", "vcpu = 2");
        assert!(key.contains("did you mean `vcpus`?"), "{key}");
        let no_vm = read("duration = \"1 s\"", "s.toml", None).map(|_| ());
        let no_vm = no_vm.unwrap_err().to_string();
        assert!(no_vm.contains("no [[vm]] section"), "{no_vm}");
        assert!(no_vm.contains("[host.cpu] with scheduler"), "{no_vm}");
    }
}
