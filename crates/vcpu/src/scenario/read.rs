//! Reading a scenario from TOML.

mod guests;

pub use guests::cpu;

use super::{DiskSpec, Driver, Host, Scenario, SchedulerSpec};
use crate::credit2::RunQueues;
use crate::machine::{CpuSet, PcpuId};
use crate::{credit, credit2, io_turns, isacs};
use core::ops::RangeInclusive;
use tidegate_config::node::Value;
use tidegate_config::{ConfigErrors, Field, Loaded, Section, document};
use tidegate_core::time::Nanos;

/// The longest a scenario may last: a day.
const LONGEST: Nanos = Nanos::from_secs(24 * 3_600);
/// What a piece of work may take.
const WORK: RangeInclusive<Nanos> = Nanos(1)..=Nanos::from_secs(3_600);
/// vCPUs of a virtual machine.
const MOST_VCPUS: u64 = 128;

/// Reads and checks a scenario; `file` is its name in messages. With `scheduler` it is read as if
/// it said so; one that names the same keeps its parameters.
///
/// # Errors
/// Everything that is wrong with it, each mistake with its line, what was found and what is
/// allowed.
pub fn read(
    text: &str,
    file: &str,
    scheduler: Option<SchedulerSpec>,
) -> Result<Loaded<Scenario>, ConfigErrors> {
    document::read(text, file, |root| whole(root, scheduler))
}

fn whole(root: &Field<'_>, instead: Option<SchedulerSpec>) -> Option<Scenario> {
    let mut section = Section::of(root)?;
    let title = section.read("title", String::new(), |f| f.text().map(str::to_owned));
    let duration = section
        .need("duration", "how long it lasts: duration = \"10 s\"")
        .and_then(|field| field.duration(Nanos::from_millis(1)..=LONGEST));
    let warm_up = section.read("warm_up", Nanos::ZERO, |field| {
        let most = duration.unwrap_or(LONGEST).since(Nanos(1));
        field.duration(Nanos::ZERO..=most)
    });
    let until_done = section.read("until_done", false, Field::flag);
    let seed = section.read("seed", 1, |field| field.count(0..=u64::MAX));
    let host = table(&mut section, "host", host);
    let all = host.map_or(CpuSet::first_n(CpuSet::MOST), |h| CpuSet::first_n(h.pcpus));
    let scheduler = section
        .need("scheduler", "[scheduler] with name = \"credit2\"")
        .and_then(|field| scheduler(&field));
    let driver = table(&mut section, "driver", |section| driver(section, all));
    let disk = table(&mut section, "disk", disk);
    let vms = guests::vms(&mut section, all);
    section.finish();
    let own = scheduler?;
    let scheduler = instead.map_or(own, |other| own.replaced_by(other));
    Some(Scenario {
        title: title?,
        duration: duration?,
        until_done: until_done?,
        warm_up: warm_up?,
        seed: seed?,
        host: host?,
        scheduler,
        driver: driver?,
        disk: disk?,
        vms: vms?,
    })
}

/// What `read` makes of the table `key`; one that is not there is read as if it were empty.
fn table<T>(
    section: &mut Section<'_>,
    key: &'static str,
    read: impl FnOnce(Option<&mut Section<'_>>) -> Option<T>,
) -> Option<T> {
    let Some(field) = section.take(key) else {
        return read(None);
    };
    let mut inner = Section::of(&field)?;
    let value = read(Some(&mut inner));
    inner.finish();
    value
}

/// Reads what a machine is, of the table that says so; `None`: nothing does.
pub fn host(section: Option<&mut Section<'_>>) -> Option<Host> {
    let usual = Host {
        pcpus: 8,
        per_socket: 8,
        switch_cost: Nanos::ZERO,
    };
    let Some(section) = section else {
        return Some(usual);
    };
    let most = CpuSet::MOST as u64;
    let pcpus = section.read("pcpus", 8, |field| field.count(1..=most));
    let per_socket = section.read("pcpus_per_socket", pcpus.unwrap_or(most), |field| {
        field.count(1..=most)
    });
    let switch_cost = section.read("context_switch", Nanos::ZERO, |field| {
        field.duration(Nanos::ZERO..=Nanos::from_millis(1))
    });
    Some(Host {
        pcpus: pcpus? as usize,
        per_socket: per_socket? as usize,
        switch_cost: switch_cost?,
    })
}

/// Reads a scheduler: its name, or a table with its name and parameters.
pub fn scheduler(field: &Field<'_>) -> Option<SchedulerSpec> {
    let names = SchedulerSpec::NAMES.map(|name| (name, name));
    if let Value::Text(_) = field.node().value {
        return field.choice(&names).and_then(SchedulerSpec::named);
    }
    let mut section = Section::of(field)?;
    let name = section
        .need("name", "name = \"credit2\"")
        .and_then(|field| field.choice(&names));
    let spec = match name? {
        "credit" => credit_params(&mut section).map(SchedulerSpec::Credit),
        "isacs" => isacs_params(&mut section).map(SchedulerSpec::Isacs),
        "credit2-io" => io_turns_params(&mut section).map(SchedulerSpec::IoTurns),
        _ => {
            let usual = credit2::Params::default();
            credit2_params(&mut section, usual).map(SchedulerSpec::Credit2)
        }
    };
    section.finish();
    spec
}

fn time(
    section: &mut Section<'_>,
    key: &'static str,
    usual: Nanos,
    range: RangeInclusive<Nanos>,
) -> Option<Nanos> {
    section.read(key, usual, |field| field.duration(range))
}

fn credit_params(section: &mut Section<'_>) -> Option<credit::Params> {
    let usual = credit::Params::default();
    let (ms, second) = (Nanos::from_millis(1), Nanos::SECOND);
    let slice = time(section, "slice", usual.slice, ms..=second);
    let tick = time(section, "tick", usual.tick, ms..=second);
    let rate_limit = rate_limit(section, usual.rate_limit);
    Some(credit::Params {
        slice: slice?,
        tick: tick?,
        rate_limit: rate_limit?,
    })
}

fn rate_limit(section: &mut Section<'_>, usual: Nanos) -> Option<Nanos> {
    let most = Nanos::from_millis(500);
    time(section, "rate_limit", usual, Nanos::ZERO..=most)
}

fn credit2_params(section: &mut Section<'_>, usual: credit2::Params) -> Option<credit2::Params> {
    let (ms, second) = (Nanos::from_millis(1), Nanos::SECOND);
    let run_queues = section.choice(
        "run_queues",
        usual.run_queues,
        &[
            ("core", RunQueues::Core),
            ("socket", RunQueues::Socket),
            ("all", RunQueues::All),
        ],
    );
    let credit = time(section, "credit", usual.credit, ms..=second);
    let max_slice = time(section, "max_slice", usual.max_slice, ms..=second);
    let rate_limit = rate_limit(section, usual.rate_limit);
    let resist = usual.migrate_resist;
    let resist = time(section, "migrate_resist", resist, Nanos::ZERO..=second);
    let looks_again = section.read("looks_again", usual.looks_again, Field::flag);
    Some(credit2::Params {
        run_queues: run_queues?,
        looks_again: looks_again?,
        credit: credit?,
        max_slice: max_slice?,
        rate_limit: rate_limit?,
        migrate_resist: resist?,
    })
}

fn isacs_params(section: &mut Section<'_>) -> Option<isacs::Params> {
    let usual = isacs::Params::default();
    let credit2 = credit2_params(section, usual.credit2);
    let cutoff = time(section, "cutoff", usual.cutoff, Nanos(1)..=Nanos::SECOND);
    let new_sample = section.read("new_sample", usual.new_sample, Field::thousandths);
    let divisor = section.read("io_credit_divisor", usual.io_credit_divisor, |field| {
        field.count(1..=1_000_000_000)
    });
    let mut flag = |key, usual| section.read(key, usual, Field::flag);
    Some(isacs::Params {
        io_credit: flag("io_credit", usual.io_credit)?,
        concealing: flag("concealing", usual.concealing)?,
        cpu_boost: flag("cpu_boost", usual.cpu_boost)?,
        io_balance: flag("io_balance", usual.io_balance)?,
        keeps_debt: flag("keeps_debt", usual.keeps_debt)?,
        last_migrates: flag("last_migrates", usual.last_migrates)?,
        long_boost: flag("long_boost", usual.long_boost)?,
        io_credit_divisor: divisor?,
        credit2: credit2?,
        cutoff: cutoff?,
        new_sample: new_sample?,
    })
}

fn io_turns_params(section: &mut Section<'_>) -> Option<io_turns::Params> {
    let usual = io_turns::Params::default();
    let credit2 = credit2_params(section, usual.credit2);
    let second = Nanos::SECOND;
    let io_turn = time(section, "io_turn", usual.io_turn, Nanos(1_000)..=second);
    let limit = usual.io_rate_limit;
    let limit = time(section, "io_rate_limit", limit, Nanos::ZERO..=second);
    let lead = time(section, "lead", usual.lead, Nanos::ZERO..=second);
    Some(io_turns::Params {
        credit2: credit2?,
        io_turn: io_turn?,
        io_rate_limit: limit?,
        lead: lead?,
    })
}

fn driver(section: Option<&mut Section<'_>>, all: CpuSet) -> Option<Driver> {
    let Some(section) = section else {
        return Some(Driver {
            vcpus: 1,
            pinned: all,
        });
    };
    let vcpus = section.read("vcpus", 1, |field| field.count(1..=MOST_VCPUS));
    let pinned = section.read("pinned", all, |field| pcpus(field, all));
    Some(Driver {
        vcpus: vcpus? as usize,
        pinned: pinned?,
    })
}

fn disk(section: Option<&mut Section<'_>>) -> Option<DiskSpec> {
    let usual = DiskSpec {
        io: 512 << 10,
        service: Nanos::from_millis(1),
    };
    let Some(section) = section else {
        return Some(usual);
    };
    let io = section.read("io", usual.io, |field| field.bytes(1024..=64 << 20));
    let service = time(section, "service", usual.service, WORK);
    Some(DiskSpec {
        io: io?,
        service: service?,
    })
}

/// Reads pCPUs of the machine that has `all` of them, written like `"0-1,4"`.
pub fn pcpus(field: &Field<'_>, all: CpuSet) -> Option<CpuSet> {
    let part = |part: &str| {
        let mut ends = part.trim().splitn(2, '-').map(|n| n.trim().parse::<u8>());
        let first = ends.next()?.ok()?;
        let last = ends.next().map_or(Some(first), Result::ok)?;
        let known = all.has(PcpuId(first)) && all.has(PcpuId(last));
        (first <= last && known).then(|| CpuSet::range(first, last))
    };
    let parts = field.text()?.split(',').map(part);
    let sets: Option<Vec<CpuSet>> = parts.collect();
    let set = sets.map(|sets| sets.into_iter().flat_map(CpuSet::iter).collect());
    if set.is_none() {
        let what = format!("{} names no pCPUs of this machine", field.describe());
        let last = all.len().saturating_sub(1);
        let allowed = format!("numbers from 0 to {last}, such as \"0-1,3\"");
        field.error(what, &allowed);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
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
        let SchedulerSpec::Isacs(params) = scenario.scheduler else {
            panic!("{:?}", scenario.scheduler);
        };
        assert_eq!(params.new_sample, 500);
        assert_eq!(params.credit2.run_queues, RunQueues::Core);
    }

    #[test]
    fn another_scheduler_instead_and_the_same_with_its_parameters() {
        let read = |name| {
            let spec = SchedulerSpec::named(name);
            read(GOOD, "s.toml", spec).expect("good").config.scheduler
        };
        // On the same run-queues, or they would not be compared.
        let SchedulerSpec::Credit2(params) = read("credit2") else {
            panic!("{:?}", read("credit2"));
        };
        assert_eq!(
            (params.run_queues, params.looks_again),
            (RunQueues::Core, false)
        );
        let SchedulerSpec::IoTurns(params) = read("credit2-io") else {
            panic!("{:?}", read("credit2-io"));
        };
        let params = params.credit2;
        assert_eq!(
            (params.run_queues, params.looks_again),
            (RunQueues::Core, true)
        );
        assert_eq!(Some(read("credit")), SchedulerSpec::named("credit"));
        assert_ne!(Some(read("isacs")), SchedulerSpec::named("isacs"));
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
        assert!(cpus.contains("names no pCPUs of this machine"), "{cpus}");
        assert!(cpus.contains("numbers from 0 to 3"), "{cpus}");
        let who = said("from = \"client\"", "from = \"cleint\"");
        assert!(who.contains("did you mean \"client\"?"), "{who}");
        let name = said("name = \"isacs\"", "name = \"isac\"");
        assert!(name.contains("did you mean \"isacs\"?"), "{name}");
        let key = said("vcpus = 2\npinned = \"0\"", "vcpu = 2");
        assert!(key.contains("did you mean `vcpus`?"), "{key}");
        let nobody = read("duration = \"1 s\"", "s.toml", None).map(|_| ());
        let nobody = nobody.unwrap_err().to_string();
        assert!(nobody.contains("nobody wants to run"), "{nobody}");
        assert!(nobody.contains("[scheduler] with name"), "{nobody}");
    }
}
