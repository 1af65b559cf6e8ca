//! Simulation from outside: results compared with arithmetic that is independent of its code.

use crate::common::{DISK, good, near, run, run_with_rows, vm};
use tidegate_core::time::Nanos;
use tidegate_sim::report::Report;
use tidegate_sim::world::World;

/// A latency that there is.
fn ns(latency: Option<u64>) -> u64 {
    latency.expect("something was answered")
}

/// A VM with one job of these words.
pub(crate) fn with(name: &str, workload: &str) -> String {
    format!(
        "[[vm]]\nname = \"{name}\"\ndisk = [{{ size = \"10 GiB\" }}]\n[[vm.workload]]\n{workload}\n"
    )
}

fn alone(workload: &str) -> String {
    DISK.to_owned() + &with("a", workload)
}

#[test]
fn the_same_scenario_and_seed_give_the_same_bytes() {
    let text = format!(
        "seed = 7\n{DISK}{}{}",
        with(
            "a",
            "rw = \"randrw\"\nrate_iops = \"30 IOPS\"\nrate_process = \"poisson\""
        ),
        with(
            "b",
            "rw = \"randread\"\niodepth = 4\nrandom_distribution = \"zipf:1.2\""
        ),
    );
    let bytes = |text: &str| {
        let (report, rows) = run_with_rows(text);
        serde_json::to_string(&(report, rows)).expect("plain data")
    };
    assert_eq!(bytes(&text), bytes(&text));
    assert_ne!(bytes(&text), bytes(&text.replace("seed = 7", "seed = 8")));
}

#[test]
fn the_engine_tells_of_a_vm_while_it_is_there() {
    let text = alone("rw = \"randread\"");
    let text = text.replace(
        "disk =",
        "arrives = \"2500 ms\"\nleaves = \"5500 ms\"\ndisk =",
    );
    let mut world = World::new(good(&text), None);
    let mut answered = Vec::new();
    while world.now() < Nanos::from_secs(7) {
        world.step(&mut |_| {});
        let served = world.served(0);
        answered.push(served.map(|(engine, vm)| engine.vms().vm_stats(vm).total_ops() > 0));
    }
    let there = Some(true);
    assert_eq!(answered, [None, None, there, there, there, None, None]);
    assert!(world.served(1).is_none(), "there is one VM");
}

#[test]
fn what_a_vm_asks_for_does_not_depend_on_its_neighbours() {
    let open = "rw = \"randread\"\nrate_iops = \"10 IOPS\"\nrate_process = \"poisson\"";
    let by_itself = run(&alone(open));
    let beside = format!("{DISK}{}{}", with("z", "rw = \"write\""), with("a", open));
    let beside = run(&beside);
    // Those still outstanding at the end are the only difference.
    let ops = |report, name| vm(report, name).rates.iops * 60.0;
    near(ops(&beside, "a"), ops(&by_itself, "a"), 0.5);
}

#[test]
fn a_device_that_is_left_waiting_says_how_often_and_with_what_success() {
    let waits = |policy: &str| {
        let policy = format!("policy = {policy}");
        let disk = DISK.replace("policy = \"fifo\"", &policy);
        // One reads on where it was after a moment's thought, one anywhere.
        let stream = with("a", "rw = \"read\"\nthinktime = \"1 ms\"");
        let report = run(&format!("{disk}{stream}{}", with("b", "rw = \"randread\"")));
        report.devices[0].waits
    };
    assert_eq!(waits("\"fifo\""), None);
    let waits = waits("{ regulator = \"open\", dispatcher = \"bd-edf\" }");
    let waits = waits.expect("it waits");
    assert!(waits.succeeded > 1000, "{waits:?}");
    assert!(waits.succeeded <= waits.begun, "{waits:?}");
}

#[test]
fn a_closed_loop_keeps_its_depth_outstanding() {
    for depth in [1, 4, 16] {
        let report = run(&alone(&format!("rw = \"randread\"\niodepth = {depth}")));
        let rates = &vm(&report, "a").rates;
        // Little's law.
        let outstanding = rates.iops * ns(rates.latency_mean_ns) as f64 / 1e9;
        near(outstanding, f64::from(depth), 2.0);
        near(report.devices[0].depth, 1.0, 0.5);
    }
}

#[test]
fn copies_of_a_job_run_side_by_side() {
    let report = run(&alone("rw = \"randread\"\nnumjobs = 6"));
    let rates = &vm(&report, "a").rates;
    near(
        rates.iops * ns(rates.latency_mean_ns) as f64 / 1e9,
        6.0,
        2.0,
    );
}

#[test]
fn a_guest_that_thinks_follows_the_response_time_law() {
    let report = run(&alone(
        "rw = \"randread\"\nnumjobs = 3\nthinktime = \"200 ms\"",
    ));
    let rates = &vm(&report, "a").rates;
    // N = X (R + Z).
    let n = rates.iops * (ns(rates.latency_mean_ns) as f64 / 1e9 + 0.2);
    near(n, 3.0, 2.0);
}

#[test]
fn a_pause_comes_after_so_many_requests_and_their_answers() {
    let workload = "rw = \"read\"\niodepth = 4\nthinktime = \"1 s\"\nthinktime_blocks = 10";
    let report = run(&alone(workload));
    // Ten sequential reads take a few milliseconds, the pause a second: sixty times ten at most.
    let ops = vm(&report, "a").rates.iops * 60.0;
    assert!((590.0..=600.0).contains(&ops), "{ops}");
}

#[test]
fn an_open_loop_comes_at_its_rate_whatever_the_disk_does() {
    let fixed = run(&alone("rw = \"randread\"\nrate_iops = \"20 IOPS\""));
    // The last one may be on its way.
    let ops = vm(&fixed, "a").rates.iops * 60.0;
    assert!((1199.0..=1200.5).contains(&ops), "{ops}");
    let poisson = "rw = \"randread\"\nrate_iops = \"20 IOPS\"\nrate_process = \"poisson\"";
    let poisson = run(&alone(poisson));
    near(vm(&poisson, "a").rates.iops, 20.0, 10.0);
}

#[test]
fn a_flush_takes_no_arrival_from_the_writes_of_an_open_loop() {
    let report = run(&alone(
        "rw = \"randwrite\"\nrate_iops = \"20 IOPS\"\nfsync = 4",
    ));
    let rates = &vm(&report, "a").rates;
    let writes = rates.write_iops * 60.0;
    assert!((1199.0..=1200.5).contains(&writes), "{writes}");
    near(rates.iops * 60.0, writes * 1.25, 0.1);
}

#[test]
fn bursts_come_in_their_time_and_nothing_between() {
    let workload =
        "rw = \"randread\"\nrate_iops = \"40 IOPS\"\nbursts = { on = \"1 s\", off = \"4 s\" }";
    let (_, rows) = run_with_rows(&alone(workload));
    for (second, row) in rows.iter().enumerate() {
        match second % 5 {
            0 => assert!(
                row.rates.iops >= 38.0,
                "second {second}: {}",
                row.rates.iops
            ),
            // The last requests of a burst are answered just after it.
            1 => assert!(row.rates.iops <= 2.0, "second {second}: {}", row.rates.iops),
            _ => assert_eq!(row.rates.iops, 0.0, "second {second}"),
        }
    }
}

#[test]
fn waiting_inside_the_guest_counts_into_the_latency_of_an_open_loop() {
    // More than the disk can do: each second leaves more behind, and the last ones have waited
    // for almost as long as the backlog takes.
    let report = run(&alone(
        "rw = \"randread\"\nrate_iops = \"200 IOPS\"\niodepth = 8",
    ));
    let rates = &vm(&report, "a").rates;
    let backlog_s = (200.0 - rates.iops) * 60.0 / 200.0;
    near(ns(rates.latency_max_ns) as f64 / 1e9, backlog_s, 5.0);
    // On average half of that, nearly all of it inside the guest.
    near(
        vm(&report, "a").waits.guest_ns as f64 / 1e9,
        backlog_s / 2.0,
        5.0,
    );
}

#[test]
fn virtualisation_adds_its_delay_to_each_request() {
    let workload = "rw = \"randread\"";
    let bare = run(&alone(workload));
    let delayed = alone(workload).replace(
        "[[vm.workload]]",
        "[vm.delay]\nsubmit = \"2 ms\"\ncomplete = { distribution = \"uniform\", from = \"1 ms\", \
         to = \"3 ms\" }\n[[vm.workload]]",
    );
    let delayed = run(&delayed);
    near(vm(&delayed, "a").waits.guest_ns as f64, 4e6, 2.0);
    assert_eq!(vm(&bare, "a").waits.guest_ns, 0);
    let mean = |report| ns(vm(report, "a").rates.latency_mean_ns) as f64;
    near(mean(&delayed) - mean(&bare), 4e6, 20.0);
}

#[test]
fn a_job_ends_when_it_has_done_its_bytes() {
    let report = run(&alone(
        "rw = \"write\"\nbs = \"64 KiB\"\nio_size = \"1 MiB\"\nfsync = 4",
    ));
    let (rates, time) = (&vm(&report, "a").rates, vm(&report, "a").time_s);
    assert!(time < 2.0, "{time}");
    near(rates.write_iops * time, 16.0, 0.01);
    near(rates.iops * time, 20.0, 0.01);
    near(rates.write_bytes_per_s * time, f64::from(1 << 20), 0.01);
}

#[test]
fn jobs_start_and_end_in_their_time() {
    let workload = "rw = \"randread\"\nstartdelay = \"10 s\"\nruntime = \"20 s\"";
    let (_, rows) = run_with_rows(&alone(workload));
    for (second, row) in rows.iter().enumerate() {
        let expected = (10..30).contains(&second);
        // The last answer may come after the end.
        let late = second == 30;
        assert!(
            late || (row.rates.iops > 0.0) == expected,
            "second {second}"
        );
    }
}

#[test]
fn vms_come_and_go() {
    let text = format!(
        "{DISK}{}{}",
        with("stays", "rw = \"randread\"\niodepth = 4"),
        with("guest", "rw = \"randread\"\niodepth = 4")
            .replace("disk =", "arrives = \"20 s\"\nleaves = \"40 s\"\ndisk ="),
    );
    let (report, rows) = run_with_rows(&text);
    let mut alone_iops = 0.0;
    for row in &rows {
        let guest_is_there = row.time_s > 20.0 && row.time_s <= 40.0;
        match row.vm.as_str() {
            "guest" => assert_eq!(row.rates.iops > 0.0, guest_is_there, "{}", row.time_s),
            _ if guest_is_there => assert!(row.rates.iops < 0.7 * alone_iops),
            _ => alone_iops = row.rates.iops,
        }
    }
    // Its rate is that of the time in which it was there.
    let there = |row: &&tidegate_sim::report::Row| row.vm == "guest";
    let answered: f64 = rows.iter().filter(there).map(|row| row.rates.iops).sum();
    near(vm(&report, "guest").rates.iops * 20.0, answered, 1e-6);
    // Requests that were taken away with their VM are no errors.
    assert_eq!(vm(&report, "guest").rates.errors, 0);
}

#[test]
fn a_job_that_was_to_start_after_its_vm_left_never_does() {
    let words = "rw = \"randread\"\nstartdelay = \"20 s\"";
    let text = alone(words).replace("disk =", "leaves = \"10 s\"\ndisk =");
    assert_eq!(run(&text).requests, 0);
}

#[test]
fn objectives_change_at_run_time() {
    let text = DISK.replace("fifo", "limit")
        + &with("a", "rw = \"read\"\niodepth = 4")
        + "[[event]]\nat = \"30 s\"\nvm = \"a\"\nobjective = { limit = \"10 IOPS\" }\n";
    let (_, rows) = run_with_rows(&text);
    for row in &rows {
        match row.time_s {
            t if t <= 30.0 => assert!(row.rates.iops > 100.0, "{t}"),
            t => assert!(row.rates.iops <= 11.0, "{t}: {}", row.rates.iops),
        }
    }
}

#[test]
fn an_event_leaves_what_it_does_not_name_as_the_one_before_did() {
    let text = DISK.replace("fifo", "limit")
        + &with("a", "rw = \"read\"\niodepth = 4")
        // Out of order: time decides.
        + "[[event]]\nat = \"20 s\"\nvm = \"a\"\nobjective = { weight = 7 }\n"
        + "[[event]]\nat = \"10 s\"\nvm = \"a\"\nobjective = { limit = \"10 IOPS\" }\n";
    let (_, rows) = run_with_rows(&text);
    assert!(rows[5].rates.iops > 100.0);
    assert!(rows[55].rates.iops <= 11.0, "{}", rows[55].rates.iops);
}

#[test]
fn an_event_for_a_counted_vm_is_for_all_of_them() {
    let vms = with("a", "rw = \"read\"").replace("disk =", "count = 3\ndisk =");
    let text = DISK.replace("fifo", "limit")
        + &vms
        + "[[event]]\nat = \"0 s\"\nvm = \"a\"\nobjective = { limit = \"10 IOPS\" }\n";
    let report = run(&text);
    for name in ["a-1", "a-2", "a-3"] {
        near(vm(&report, name).rates.iops, 10.0, 2.0);
    }
}

#[test]
fn policies_change_under_load_and_nothing_is_lost() {
    let text = DISK.to_owned()
        + &with("a", "rw = \"randread\"\niodepth = 16")
        + &with("b", "rw = \"randwrite\"\niodepth = 16")
        + "[[event]]\nat = \"20 s\"\npolicy = \"mclock\"\n"
        + "[[event]]\nat = \"40 s\"\npolicy = \"limit\"\n";
    let report = run(&text);
    assert_eq!(report.devices[0].policy, "limit");
    for name in ["a", "b"] {
        let rates = &vm(&report, name).rates;
        // Whatever was lost would be missing here for the rest of the time.
        near(
            rates.iops * ns(rates.latency_mean_ns) as f64 / 1e9,
            16.0,
            3.0,
        );
    }
}

#[test]
fn requests_the_engine_has_no_room_for_wait_and_are_served() {
    let text = alone("rw = \"randread\"\niodepth = 64").replace(
        "depth = 1",
        "depth = 1\nmax_requests_per_vm = 4\nmax_requests = 5",
    );
    let report = run(&(text + &with("b", "rw = \"randread\"\niodepth = 8")));
    for (name, depth) in [("a", 64.0), ("b", 8.0)] {
        let rates = &vm(&report, name).rates;
        near(
            rates.iops * ns(rates.latency_mean_ns) as f64 / 1e9,
            depth,
            6.0,
        );
    }
}

#[test]
fn nothing_is_counted_during_the_warm_up() {
    // All of it happens in the first ten seconds.
    let workload = "rw = \"randread\"\nruntime = \"9 s\"";
    let report = run(&format!("warm_up = \"10 s\"\n{}", alone(workload)));
    assert_eq!(vm(&report, "a").rates.iops, 0.0);
    assert_eq!(report.devices[0].busy, 0.0);
    assert!(report.requests > 0);
}

#[test]
fn rows_add_up_to_the_report() {
    let text = alone("rw = \"randrw\"\niodepth = 8");
    let (report, rows) = run_with_rows(&text);
    let total: f64 = rows.iter().map(|row| row.rates.iops).sum();
    near(total, vm(&report, "a").rates.iops * 60.0, 1e-6);
    let longest = rows.iter().map(|row| row.rates.latency_max_ns).max();
    assert_eq!(longest, Some(vm(&report, "a").rates.latency_max_ns));
    // Keeping rows changes nothing.
    let without = run(&text);
    let json = |report| serde_json::to_string(report).expect("plain data");
    assert_eq!(json(&report), json(&without));
}

#[test]
fn devices_do_not_see_each_other() {
    let second = "[[device]]\nname = \"other\"\nmodel = \"hdd-7200-1tb\"\npolicy = \"fifo\"\n";
    let (a, b) = (with("a", "rw = \"randread\""), with("b", "rw = \"write\""));
    let on = |text: &str, device: &str| {
        text.replace("disk =", &format!("device = \"{device}\"\ndisk ="))
    };
    let both = run(&format!(
        "{DISK}{second}{}{}",
        on(&a, "disk"),
        on(&b, "other")
    ));
    let one = run(&(DISK.to_owned() + &a));
    assert_eq!(vm(&both, "a").rates.iops, vm(&one, "a").rates.iops);
    assert_eq!(both.devices[0].iops, one.devices[0].iops);
    assert!(vm(&both, "b").rates.iops > 0.0);
}

#[test]
fn a_reservation_that_does_not_fit_is_reported_broken() {
    // So deep that the device's blocking time does not explain what it gets.
    let greedy = with("a", "rw = \"randread\"\niodepth = 32").replace(
        "[[vm.workload]]",
        "[vm.objective]\nreservation = \"500 IOPS\"\n[[vm.workload]]",
    );
    let report = run(&(DISK.replace("fifo", "mclock") + &greedy));
    let promise = &vm(&report, "a").promises[0];
    assert_eq!(promise.kept, Some(false), "{promise:?}");
    let modest = greedy.replace("500 IOPS", "20 IOPS");
    let report = run(&(DISK.replace("fifo", "mclock") + &modest));
    let promise = &vm(&report, "a").promises[0];
    assert_eq!(promise.kept, Some(true), "{promise:?}");
    assert!(promise.detail.contains("in all"), "{promise:?}");
}

#[test]
fn a_scenario_that_ends_when_its_jobs_are_done_is_as_long_as_they_take() {
    let mut scenario = good(&alone("rw = \"randread\"\nnumber_ios = 100"));
    scenario.frame.until_done = true;
    scenario.frame.duration = Nanos::from_secs(100_000);
    let mut world = World::new(scenario, None);
    world.run(&mut |_| {});
    let report = world.report();
    let rates = &vm(&report, "a").rates;
    near(rates.iops * report.duration_s, 100.0, 1e-6);
    // One after the other: the time is the sum of theirs.
    near(
        report.duration_s,
        100.0 * ns(rates.latency_mean_ns) as f64 / 1e9,
        0.01,
    );
}

#[test]
fn a_world_can_be_left_in_the_middle() {
    let mut world = World::new(good(&alone("rw = \"randwrite\"\niodepth = 32")), None);
    world.step(&mut |_| {});
    // An engine that is dropped with requests inside panics.
    drop(world);
}

/// A VM that gets all it was promised while it asks, on a policy that gives it the whole disk.
fn promised(objective: &str) -> String {
    let vm = with("a", "rw = \"randread\"\niodepth = 4");
    let words = format!("[vm.objective]\n{objective}\n[[vm.workload]]");
    DISK.replace("fifo", "mclock") + &vm.replace("[[vm.workload]]", &words)
}

fn only_promise(text: &str) -> tidegate_sim::report::Promise {
    let report = run(text);
    let promises = &vm(&report, "a").promises;
    assert_eq!(promises.len(), 1, "{promises:?}");
    promises[0].clone()
}

#[test]
fn a_second_that_the_warm_up_cuts_is_not_judged() {
    let promise = only_promise(&format!(
        "warm_up = \"9600 ms\"\n{}",
        promised("reservation = \"40 IOPS\"")
    ));
    assert_eq!(promise.detail, "in all 50 s");
    let promise = only_promise(&format!(
        "warm_up = \"10 s\"\n{}",
        promised("reservation = \"40 IOPS\"")
    ));
    assert_eq!(promise.detail, "in all 50 s");
}

#[test]
fn a_vm_that_leaves_is_promised_nothing_more() {
    let text = promised("reservation = \"40 IOPS\"");
    // In the middle of a second, and at its end while an I/O is with the device.
    for leaves in ["30500 ms", "30 s"] {
        let text = text.replace(
            "disk = [{ size = \"10",
            &format!("leaves = \"{leaves}\"\ndisk = [{{ size = \"10"),
        );
        let promise = only_promise(&text);
        assert_eq!(promise.kept, Some(true), "{promise:?}");
    }
}

#[test]
fn each_promise_is_judged_while_it_was_in_force() {
    // So deep that the device's blocking time does not explain what it gets.
    let text = promised("reservation = \"40 IOPS\"").replace("iodepth = 4", "iodepth = 32")
        + "[[event]]\nat = \"30500 ms\"\nvm = \"a\"\nobjective = { reservation = \"500 IOPS\" }\n\
           [[event]]\nat = \"40 s\"\nvm = \"a\"\n\
           objective = { reservation = \"none\", latency = \"10 s\" }\n";
    let report = run(&text);
    let found: Vec<_> = (vm(&report, "a").promises.iter())
        .map(|p| {
            (
                p.what.as_str(),
                p.kept,
                p.detail.split([',', ';']).next().unwrap_or(""),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("reservation 40 IOPS", Some(true), "in all 30 s"),
            ("reservation 500 IOPS", Some(false), "missed in 10 of 10 s"),
            ("latency 10 s", Some(true), "in all 10 s"),
        ]
    );
}

#[test]
fn who_fills_the_engine_does_not_keep_others_out() {
    // The first one would take every place again as soon as it is free.
    let text = alone("rw = \"randread\"\niodepth = 64").replace(
        "depth = 1",
        "depth = 1\nmax_requests = 8\nmax_requests_per_vm = 8",
    ) + &with("b", "rw = \"randread\"\niodepth = 8\nstartdelay = \"1 s\"");
    let report = run(&text);
    let iops = |name| vm(&report, name).rates.iops;
    near(iops("b"), iops("a"), 10.0);
}

#[test]
fn a_scenario_that_ends_with_its_jobs_ends_at_once_and_time_never_goes_back() {
    for workload in [
        "rw = \"randread\"\nnumber_ios = 100\nruntime = \"20 s\"",
        "rw = \"randread\"\nnumber_ios = 10\nthinktime = \"10 s\"\nthinktime_blocks = 10",
        "rw = \"randread\"\nrate_iops = \"1 IOPS\"\nruntime = \"1500 ms\"\nstartdelay = \"1 s\"",
        "rw = \"randwrite\"\nfsync = 5\nnumber_ios = 10\nrate_iops = \"10 IOPS\"",
    ] {
        let mut scenario = good(&alone(workload));
        scenario.frame.until_done = true;
        let mut times = Vec::new();
        let mut world = World::new(scenario, Some(Nanos::SECOND));
        world.run(&mut |row| times.push(row.time_s));
        let report = world.report();
        assert!(times.is_sorted(), "{workload}: {times:?}");
        assert!(report.duration_s < 3.0, "{workload}: {}", report.duration_s);
        let expected = report.duration_s.ceil() as usize;
        assert_eq!(times.len(), expected, "{workload}: {times:?}");
        let counted = vm(&report, "a").rates.iops * vm(&report, "a").time_s;
        near(counted, report.requests as f64, 1e-6);
    }
}

#[test]
fn jobs_that_end_within_the_warm_up_leave_a_report_of_zeros() {
    let mut scenario = good(&format!(
        "warm_up = \"20 s\"\n{}",
        alone("rw = \"randread\"\nnumber_ios = 100")
    ));
    scenario.frame.until_done = true;
    let mut world = World::new(scenario, None);
    world.run(&mut |_| {});
    let report = world.report();
    assert!(report.duration_s < 2.0, "{}", report.duration_s);
    let device = &report.devices[0];
    assert_eq!([device.iops, device.busy, device.depth], [0.0; 3]);
    assert_eq!(vm(&report, "a").rates.latency_max_ns, None);
}

#[test]
fn who_waits_too_long_at_the_end_was_not_served_in_time() {
    let text = promised("latency = \"100 ms\"\nlimit = \"1 IOPS\"").replace("mclock", "limit");
    // Its file says that no policy enforces a latency yet.
    let scenario = crate::common::read(&text).expect("good").config;
    let mut world = World::new(scenario, None);
    world.run(&mut |_| {});
    let report = world.report();
    let promise = &vm(&report, "a").promises[0];
    // Three are late from the first second on, and nothing in time comes after the very first one.
    assert_eq!(
        (promise.judged_s, promise.missed_s),
        (60, 60),
        "{promise:?}"
    );
    assert_eq!(promise.cause, Some("own_limit"));
    assert_eq!(promise.kept, Some(false));
}

#[test]
fn who_has_left_is_answered_no_more() {
    // The first read takes longer than its VM stays.
    let delay = "[vm.delay]\ncomplete = \"1 s\"\n[[vm.workload]]";
    for text in [
        alone("rw = \"randread\"").replace("disk =", "leaves = \"1 ms\"\ndisk ="),
        (alone("rw = \"randread\"").replace("[[vm.workload]]", delay))
            .replace("disk =", "leaves = \"900 ms\"\ndisk ="),
    ] {
        let report = run(&text);
        assert_eq!(report.requests, 0);
        assert!(report.devices[0].iops > 0.0);
        assert_eq!(vm(&report, "a").waits.guest_ns, 0);
    }
}

#[test]
fn a_guest_that_syncs_waits_for_what_it_wrote() {
    let scenario = |flush: bool| {
        alone(&format!(
            "rw = \"write\"\nbs = \"16 KiB\"\nsize = \"1 GiB\"\nnumber_ios = 100\nfsync = 10\n\
             [vm.workload.page_cache]\nmerge_limit = \"44 KiB\"\nflush = {flush}\n\
             journal = {{ offset = \"2 GiB\", size = \"1 MiB\", requests = 2 }}\n"
        ))
        .replacen("duration", "until_done = true\nduration", 1)
    };
    // A hundred writes are ten times five requests of 32 KiB, and two of the journal.
    let report = run(&scenario(false));
    assert_eq!(report.requests, 70);
    assert!(report.duration_s < 60.0, "it ends with its last answer");
    let distances = &report.devices[0].distances;
    let to_and_fro = distances.iter().find(|d| d.up_to_bytes == Some(10 << 30));
    let ios = to_and_fro.map(|d| d.ios);
    assert_eq!(ios, Some(19), "to the journal and back");
    assert_eq!(run(&scenario(true)).requests, 80);
}

#[test]
fn a_guest_s_processor_takes_one_answer_after_the_other() {
    let scenario = |delay: &str| {
        format!(
            "{DISK}[[vm]]\nname = \"a\"\ndisk = [{{ size = \"10 GiB\" }}]\n\
             delay = {{ {delay} = \"50 ms\" }}\n\
             [[vm.workload]]\nrw = \"read\"\niodepth = 8\nnumber_ios = 80\n"
        )
        .replacen("duration", "until_done = true\nduration", 1)
    };
    // Delays go on side by side, a processor does not.
    assert!(run(&scenario("complete")).duration_s < 1.0);
    let report = run(&scenario("processor"));
    assert!(
        (4.0..4.1).contains(&report.duration_s),
        "{}",
        report.duration_s
    );
}

/// Part of the time until a VM's requests went to the device in which its limit held them, in %.
fn held_percent(report: &Report, name: &str) -> f64 {
    let waits = &vm(report, name).waits;
    100.0 * waits.regulated_ns as f64 / (waits.regulated_ns + waits.queued_ns) as f64
}

/// A database with a floor, a web server and an extraction with a limit, which reads in bulk, on a
/// SATA SSD under mClock; `bulk`: beside another VM that does.
fn extraction(limit: &str, depth: u32, bulk: bool) -> Report {
    let vm = |name: &str, objective: &str, workload: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ndisk = [{{ size = \"20 GiB\" }}]\n\
             delay = {{ submit = \"200 us\" }}\n[vm.objective]\n{objective}\n\
             [[vm.workload]]\niodepth = 16\n{workload}\n"
        )
    };
    let small = "rw = \"randread\"\nbs = \"8 KiB\"";
    let large = "rw = \"read\"\nbs = \"1 MiB\"";
    let mut text = format!(
        "duration = \"3 s\"\nwarm_up = \"1 s\"\n[[device]]\nname = \"disk\"\n\
         model = \"ssd-sata-300gb\"\npolicy = \"mclock\"\ndepth = {depth}\n\
         adaptive_depth = false\n"
    );
    text += &vm("db", "reservation = \"2000 IOPS\"\nweight = 400", small);
    text += &vm("web", "weight = 200", small);
    text += &vm("etl", &format!("limit = \"{limit}\"\nweight = 100"), large);
    if bulk {
        text += &vm("bulk", "weight = 100", large);
    }
    run(&text)
}

#[test]
fn a_limit_is_named_as_the_cause_only_where_it_binds() {
    // Its share by weight is less than either limit: with none it has as much.
    let free = vm(&extraction("none", 8, true), "etl").rates.bytes_per_s;
    for limit in ["120 MB/s", "150 MB/s"] {
        let report = extraction(limit, 8, true);
        near(vm(&report, "etl").rates.bytes_per_s, free, 1.0);
        let held = held_percent(&report, "etl");
        assert!(held < 5.0, "{limit}: {held} %");
    }
    // With a lower limit, or with room for more, it has what its limit allows.
    for (limit, mb_per_s, depth, bulk) in [
        ("40 MB/s", 40.0, 8, true),
        ("120 MB/s", 120.0, 32, false),
        ("150 MB/s", 150.0, 32, false),
    ] {
        let report = extraction(limit, depth, bulk);
        near(vm(&report, "etl").rates.bytes_per_s / 1e6, mb_per_s, 5.0);
        let held = held_percent(&report, "etl");
        assert!(held > 50.0, "{limit}: {held} %");
    }
}
