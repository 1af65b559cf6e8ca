//! Devices and processors of one machine together.

use crate::common::{good, near, refused, run, vm};
use proptest::prelude::*;
use tidegate_core::time::Nanos;
use tidegate_sim::report::{Report, VmCpuReport, VmReport};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;
use tidegate_vcpu::machine::CpuSet;

/// A flash disk, on a machine with these keys.
fn machine(keys: &str) -> String {
    format!(
        "duration = \"2 s\"\n[[device]]\nname = \"disk\"\nmodel = \"ssd-sata-300gb\"\n\
         policy = \"fifo\"\nmerge_limit = \"0 B\"\n{keys}\n"
    )
}

/// A VM that reads at this depth, and its part of the machine.
fn reader(name: &str, depth: u32, cpu: &str) -> String {
    let cpu = match cpu {
        "" => String::new(),
        keys => format!("cpu = {{ {keys} }}\n"),
    };
    format!(
        "[[vm]]\nname = \"{name}\"\ndisk = [{{ size = \"20 GiB\" }}]\n{cpu}[[vm.workload]]\n\
         rw = \"randread\"\nbs = \"4 KiB\"\n\
         iodepth = {depth}\n"
    )
}

/// Four pCPUs, one of them the driver domain's.
const FOUR: &str = "[host.cpu]\npcpus = 4\nscheduler = \"credit2\"\n[host.cpu.driver]\n\
                    pinned = \"0\"\nsubmit = \"10 us\"\ncomplete = \"7 us\"\n";
const STEPS: &str = "issue = \"3 us\", interrupt = \"4 us\", complete = \"5 us\"";

fn mean(vm: &VmReport) -> u64 {
    vm.rates.latency_mean_ns.expect("it was answered")
}

fn cpu(vm: &VmReport) -> VmCpuReport {
    vm.cpu.expect("it has vCPUs")
}

#[test]
fn a_request_takes_its_steps_and_no_more_where_nobody_wants_the_processors() {
    let workload = |cpu: &str| reader("a", 1, cpu);
    let without = run(&(machine("") + &workload("")));
    assert!(without.cpu.is_none() && without.vms[0].cpu.is_none());
    let steps = format!("pinned = \"1\", {STEPS}");
    let with = run(&(machine(FOUR) + &workload(&steps)));
    // The same requests are drawn, so the device takes as long.
    assert_eq!(mean(&with.vms[0]), mean(&without.vms[0]) + 29_000);
    let told = with.cpu.expect("it has processors");
    let rate = with.vms[0].rates.iops;
    near(told.driver_cpus.expect("it has one"), rate * 17e-6, 0.1);
    near(cpu(&with.vms[0]).cpus, rate * 12e-6, 0.1);
    near(cpu(&with.vms[0]).notified_per_s, rate, 0.1);
    assert_eq!(cpu(&with.vms[0]).wait_max_ns, Some(0));
    // Without a driver domain its steps are left out.
    let alone = FOUR.split("[host.cpu.driver]").next().expect("a beginning");
    let native = format!("{alone}driver = \"none\"\n");
    let native = run(&(machine(&native) + &workload(STEPS)));
    assert_eq!(mean(&native.vms[0]), mean(&without.vms[0]) + 12_000);
    assert_eq!(native.cpu.expect("it has processors").driver_cpus, None);
}

#[test]
fn a_process_of_the_host_takes_the_driver_domain_and_no_vm() {
    let workload = reader("a", 1, "").replace("[[vm", "[[background");
    let workload = workload + &reader("b", 1, "").replace("rw =", "startdelay = \"1900 ms\"\nrw =");
    let without = mean(vm(&run(&(machine("") + &workload)), "a"));
    let with = run(&(machine(FOUR) + &workload));
    assert_eq!(vm(&with, "a").cpu.map(|cpu| cpu.cpus), None);
    near(mean(vm(&with, "a")) as f64, without as f64 + 17_000.0, 0.5);
    let bare = FOUR.split("[host.cpu.driver]").next().expect("a beginning");
    let bare = run(&(machine(&format!("{bare}driver = \"none\"\n")) + &workload));
    near(mean(vm(&bare, "a")) as f64, without as f64, 0.5);
}

#[test]
fn many_requests_are_on_their_way_at_once() {
    let rates = |depth| {
        let report = run(&(machine(FOUR) + &reader("a", depth, STEPS)));
        let vm = &report.vms[0];
        // Little's law: all of them are somewhere.
        near(vm.rates.iops * mean(vm) as f64 / 1e9, f64::from(depth), 1.0);
        vm.rates.iops
    };
    assert!(rates(16) > 4.0 * rates(1));
}

/// Steps of 12 us a request are all that a tenth of a pCPU does, whatever the disk could.
#[test]
fn a_vm_capped_at_a_tenth_of_a_pcpu_does_what_that_is_enough_for() {
    for scheduler in ["credit2", "isacs"] {
        let four = FOUR.replace("credit2", scheduler);
        let at = |cap| {
            let cpu = format!("pinned = \"1\", cap = {cap}, {STEPS}");
            let report = run(&(machine(&four) + &reader("a", 32, &cpu)));
            (report.vms[0].rates.iops, cpu_of(&report))
        };
        let (free, all) = at(0);
        assert!(all > 0.2, "{all}: the cap would bind nothing");
        let (capped, had) = at(10);
        near(had, 0.1, 12.0);
        near(capped, had / 12e-6, 3.0);
        assert!(capped < free / 2.0, "{capped} of {free}");
    }
    fn cpu_of(report: &Report) -> f64 {
        cpu(&report.vms[0]).cpus
    }
}

#[test]
fn vms_on_pcpus_of_their_own_do_not_wait_and_those_that_share_do() {
    let two = |a: &str, b: &str| {
        let a = reader("a", 1, &format!("pinned = \"{a}\", {STEPS}"));
        let b = reader(
            "b",
            1,
            &format!("pinned = \"{b}\", busy_processes = 1, {STEPS}"),
        );
        let report = run(&(machine(FOUR) + &a + &b));
        (cpu(vm(&report, "a")), vm(&report, "a").rates.iops)
    };
    let (apart, alone) = two("1", "2");
    assert_eq!(apart.wait_max_ns, Some(0));
    let (shared, beside) = two("1", "1");
    assert!(shared.wait_max_ns > Some(100_000), "{shared:?}");
    assert!(beside < alone, "{beside} of {alone}");
}

/// A hog of its own VM keeps an answer from the process, not from the interrupt.
#[test]
fn a_hog_comes_with_its_vm_and_goes_with_it() {
    let cpu = format!("pinned = \"1\", busy_processes = 1, {STEPS}");
    let text = machine(FOUR) + &reader("a", 1, &cpu) + &reader("b", 1, "pinned = \"2\"");
    let stay = "name = \"a\"\narrives = \"500 ms\"\nleaves = \"1 s\"";
    let report = run(&text.replace("name = \"a\"", stay));
    // Within the 30 ms in which it begins.
    let had = vm(&report, "a").cpu.expect("it has vCPUs").cpus;
    assert!((0.235..=0.25).contains(&had), "{had}");
    let always = run(&text).vms[0].cpu.expect("it has vCPUs").cpus;
    assert!((0.985..=1.0).contains(&always), "{always}");
}

#[test]
fn a_vm_that_leaves_takes_what_it_has_on_processors_along() {
    let cpu = format!("pinned = \"1\", cap = 10, {STEPS}");
    let text = machine(FOUR) + &reader("a", 32, &cpu) + &reader("b", 4, "pinned = \"1\"");
    let gone = run(&text.replace("name = \"a\"", "name = \"a\"\nleaves = \"300 ms\""));
    let alone = run(&(machine(FOUR) + &reader("b", 4, "pinned = \"1\"")));
    // Its rate is that of the time in which it was there.
    near(vm(&gone, "a").rates.iops, 0.1 / 12e-6, 15.0);
    let rate = |report: &Report| vm(report, "b").rates.iops;
    assert!(
        rate(&run(&text)) < rate(&gone),
        "{} {}",
        rate(&run(&text)),
        rate(&gone)
    );
    assert!(rate(&gone) > 0.8 * rate(&alone));
}

#[test]
fn several_devices_share_the_processors() {
    let text =
        machine(FOUR) + "[[device]]\nname = \"other\"\nmodel = \"nvme-1tb\"\npolicy = \"fifo\"\n";
    let on = |device: &str, name: &str| {
        let on = format!("device = \"{device}\"\ndisk =");
        reader(name, 8, &format!("pinned = \"1\", {STEPS}")).replace("disk =", &on)
    };
    let both = run(&format!("{text}{}{}", on("disk", "a"), on("other", "b")));
    let alone = run(&format!("{text}{}", on("other", "b")));
    let rate = |report: &Report| vm(report, "b").rates.iops;
    assert!(
        rate(&both) < 0.9 * rate(&alone),
        "{} of {}",
        rate(&both),
        rate(&alone)
    );
    assert!(vm(&both, "a").rates.iops > 1000.0);
}

/// At one time vCPUs come before devices: what reaches the scheduler just when the device ends an
/// I/O is there when the device is given its next one.
#[test]
fn what_vcpus_have_done_comes_before_what_devices_end() {
    let text = |until: u64| {
        let disk = machine(FOUR).replace("\"fifo\"", "\"deadline\"\ndepth = 1");
        let steps = "issue = \"0 us\", interrupt = \"0 us\", complete = \"0 us\", pinned = \"1\"";
        let vm = |name: &str, rw: &str, start: u64| {
            let workload = format!("number_ios = 1\nstartdelay = \"{start} ns\"\nrw = \"{rw}\"");
            reader(name, 1, steps).replace("rw = \"randread\"", &workload)
        };
        // The disk serves a; b's write waits, which c's read goes before if it is there in time.
        disk + &vm("a", "read", 0) + &vm("b", "write", 1000) + &vm("c", "read", until)
    };
    let latency = |text: &str, name: &str| mean(vm(&run(text), name));
    // From a's first step on the driver domain to its last.
    let a = latency(&text(1_000_000), "a");
    let ends = a - 7_000;
    let just = text(ends - 10_000);
    let late = text(ends - 10_000 + 1);
    assert!(latency(&just, "b") > latency(&late, "b") + 50_000);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    for scheduler in ["credit", "credit2", "isacs"] {
        let four = FOUR.replace("credit2", scheduler);
        let cpu = format!("pinned = \"1-2\", vcpus = 2, busy_processes = 2, {STEPS}");
        let text = machine(&four) + &reader("a", 4, &cpu) + &reader("b", 4, &cpu);
        let bytes = |text: &str| serde_json::to_string(&run(text)).expect("plain data");
        assert_eq!(bytes(&text), bytes(&text));
        assert_ne!(bytes(&text), bytes(&format!("seed = 2\n{text}")));
    }
}

#[test]
fn what_is_said_of_processors_is_read_and_nothing_else() {
    let scenario = good(&(machine(FOUR) + &reader("a", 1, "weight = 512, pinned = \"1-2\"")));
    let host = scenario.cpu.expect("it has processors");
    assert_eq!((host.machine.pcpus, host.scheduler.name()), (4, "credit2"));
    let driver = host.driver.expect("it has one");
    assert_eq!((driver.submit, driver.cpu.pinned.len()), (Nanos(10_000), 1));
    let cpu = scenario.vms[0].cpu;
    assert_eq!((cpu.cpu.weight, cpu.cpu.pinned.len()), (512, 2));
    let said = |from: &str, to: &str| {
        let text = machine(FOUR) + &reader("a", 1, "pinned = \"1\"");
        assert!(text.contains(from), "{from}");
        refused(&text.replacen(from, to, 1))
    };
    let delay = said(
        "disk = [{ size = \"20",
        "delay = { submit = \"1 ms\" }\ndisk = [{ size = \"20",
    );
    assert!(
        delay.contains("no delay beside it") && delay.contains("vm \"a\": delay"),
        "{delay}"
    );
    let host = said("disk = [{ size = \"20", "host = 1\ndisk = [{ size = \"20");
    assert!(host.contains("is one machine"), "{host}");
    let pinned = said("pinned = \"1\"", "pinned = \"4\"");
    assert!(pinned.contains("numbers from 0 to 3"), "{pinned}");
    let name = said("scheduler = \"credit2\"", "scheduler = \"credti2\"");
    assert!(name.contains("did you mean \"credit2\"?"), "{name}");
    let driver = said("submit = \"10 us\"", "sumbit = \"10 us\"");
    assert!(driver.contains("did you mean `submit`?"), "{driver}");
    let alone = refused(&(machine("") + &reader("a", 1, "pinned = \"1\"")));
    assert!(alone.contains("no [host.cpu] section"), "{alone}");
    let mut elsewhere = good(&(machine(FOUR) + &reader("a", 1, "")));
    if let Some(driver) = elsewhere.cpu.as_mut().and_then(|cpu| cpu.driver.as_mut()) {
        driver.cpu.pinned = CpuSet::range(9, 9);
    }
    let homeless = elsewhere.check().expect_err("nowhere to run").to_string();
    assert!(
        homeless.contains("the driver domain: none of its pCPUs"),
        "{homeless}"
    );
    let none = said("[host.cpu]\n", "[host]\n[host.cup]\n");
    assert!(none.contains("did you mean `cpu`?"), "{none}");
}

/// Section 2.2 of vFair, figure 1(c). The paper has the synchronous reader lose 20 % with a pCPU
/// for each vCPU and 30 % with all on all, of which there are more the more VMs compete; costs are
/// those of a VM alone.
#[test]
fn a_synchronous_reader_loses_what_vfair_says_with_pcpus_of_its_own_and_more_among_hogs() {
    const TEXT: &str = include_str!("../../../../experiments/vfair/scenarios/virtualised.toml");
    let text = TEXT.replace("duration = \"12 s\"", "duration = \"4 s\"");
    let rates = |scenario: Scenario| {
        let mut world = World::new(scenario, None);
        world.run(&mut |_| {});
        let report = world.report();
        ["sync", "async"].map(|name| vm(&report, name).rates.iops)
    };
    let mut native = good(&text);
    native.cpu = None;
    let mut pinned = good(&text);
    let own = |p| CpuSet::range(p, p);
    let driver = pinned.cpu.as_mut().and_then(|cpu| cpu.driver.as_mut());
    driver.expect("it has one").cpu.pinned = own(0);
    for (vm, p) in pinned.vms.iter_mut().zip(1..) {
        vm.cpu.cpu.pinned = own(p);
    }
    let [native, other] = rates(native);
    let [alone, slowed] = rates(pinned);
    let [shared, _] = rates(good(&text));
    let less = |iops: f64| 100.0 * (1.0 - iops / native);
    assert!((less(alone) - 20.0).abs() < 2.0, "{}", less(alone));
    // Three vCPUs want to run on four pCPUs: nobody waits.
    near(shared, alone, 0.1);
    assert!(slowed < other, "{slowed} of {other}");
    let hogs = "[[vm]]\nname = \"hog\"\ncount = 4\ndisk = [{ size = \"1 MiB\" }]\n\
                cpu = { busy_processes = 1 }\n";
    let [among, _] = rates(good(&format!("{text}{hogs}")));
    assert!(
        less(among) > less(shared) + 5.0,
        "{} {}",
        less(among),
        less(shared)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever is there: no request is lost or answered twice, processors work no longer than
    /// there is time, and a VM alone is served no faster with them than without.
    #[test]
    fn requests_and_time_are_accounted_for(
        vms in prop::collection::vec(
            (1_u32..9, 1_usize..3, 0_usize..3, 0_u32..3, any::<bool>()),
            1..5,
        ),
        scheduler in prop::sample::select(vec!["credit", "credit2", "isacs"]),
        driver in prop::sample::select(vec!["\"none\"", "{ vcpus = 2 }", "{ pinned = \"0\" }"]),
        seed in 0_u64..1000,
    ) {
        let each = 100_u64;
        let mut text = machine(&format!(
            "[host.cpu]\npcpus = 3\ncontext_switch = \"1 us\"\nscheduler = \"{scheduler}\"\n\
             driver = {driver}\n"
        ));
        text = format!("seed = {seed}\nuntil_done = true\n{text}").replace("\"2 s\"", "\"600 s\"");
        for (n, (depth, vcpus, hogs, pinned, background)) in vms.iter().enumerate() {
            let cpu = format!("vcpus = {vcpus}, busy_processes = {hogs}, pinned = \"{pinned}\"");
            // Background processes never end, so at least the first has to be a VM.
            let background = *background && n > 0;
            let vm = reader(&format!("vm{n}"), *depth, if background { "" } else { &cpu });
            let vm = vm.replace("rw =", &format!("number_ios = {each}\nnumjobs = 2\nrw ="));
            text += &if background { vm.replace("[[vm", "[[background") } else { vm };
        }
        let mut world = World::new(good(&text), None);
        world.run(&mut |_| {});
        let report = world.report();
        prop_assert!(report.duration_s < 600.0, "all of it was done");
        prop_assert_eq!(report.requests, 2 * each * vms.len() as u64);
        let told = report.cpu.as_ref().expect("it has processors");
        prop_assert!(told.busy <= 3.0 + 1e-9, "{}", told.busy);
        let cpus: f64 = report.vms.iter().filter_map(|vm| vm.cpu).map(|cpu| cpu.cpus).sum();
        prop_assert!((told.busy - cpus - told.driver_cpus.unwrap_or(0.0)).abs() < 1e-9);
        let keys = ["[host", "pcpus", "context", "scheduler", "driver", "cpu ="];
        let is_bare = |line: &&str| !keys.iter().any(|key| line.starts_with(key));
        let bare = text.lines().filter(is_bare);
        let bare = run(&bare.map(|line| format!("{line}\n")).collect::<String>());
        prop_assert!(bare.cpu.is_none());
        prop_assert_eq!(bare.requests, report.requests);
        for (with, without) in report.vms.iter().zip(&bare.vms) {
            let slower = with.rates.iops <= without.rates.iops * 1.05;
            let rates = (with.rates.iops, without.rates.iops);
            prop_assert!(slower || vms.len() > 1, "{} {rates:?}", with.name);
        }
    }
}
