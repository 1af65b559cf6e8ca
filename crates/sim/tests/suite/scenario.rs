//! Messages about wrong scenarios: each at its place, all of them together.

use crate::common::{DISK, good, read, refused};
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_workload::arrival_process::Spacing;
use tidegate_workload::spec::{Flow, Mix, Placement};
use tidegate_workload::time::TimeDistribution;

const VM: &str = "[[vm]]\nname = \"a\"\ndisk = [{ size = \"10 GiB\" }]\n";

fn workload(words: &str) -> String {
    format!("{DISK}{VM}[[vm.workload]]\n{words}\n")
}

#[test]
fn every_word_of_a_job_is_understood() {
    let scenario = good(&workload(
        "
        name = \"mixed\"
        rw = \"randrw\"
        rwmixread = 70
        bssplit = { read = \"4 KiB/60 : 64 KiB/40\", write = \"8 KiB/1\" }
        iodepth = 8
        thinktime = { distribution = \"normal\", mean = \"2 ms\", deviation = \"500 us\" }
        thinktime_blocks = 16
        offset = \"1 GiB\"
        offset_increment = \"1 MiB\"
        size = \"2 GiB\"
        io_size = \"3 GiB\"
        number_ios = 1000
        random_distribution = \"zipf:1.1\"
        numjobs = 3
        startdelay = \"5 s\"
        runtime = \"50 s\"
        fsync = 32
        sync = true
    ",
    ));
    let workload = &scenario.vms[0].workloads[0];
    assert_eq!(workload.name, "mixed");
    assert_eq!(workload.rw.mix, Mix::ReadWrite { read_percent: 70 });
    assert!(workload.rw.random);
    let shares = |i: usize| -> Vec<(u32, u32)> {
        workload.sizes[i]
            .0
            .iter()
            .map(|s| (s.bytes, s.weight))
            .collect()
    };
    assert_eq!(shares(0), [(4096, 60), (65536, 40)]);
    assert_eq!((shares(1), shares(2)), (vec![(8192, 1)], vec![(4096, 1)]));
    let Flow::Closed {
        iodepth: 8,
        think: Some(think),
    } = &workload.flow
    else {
        panic!("{:?}", workload.flow);
    };
    assert_eq!(think.blocks, 16);
    assert!(matches!(think.time, TimeDistribution::Normal { .. }));
    assert_eq!(
        (workload.offset, workload.offset_increment),
        (1 << 30, 1 << 20)
    );
    assert_eq!(
        (workload.size, workload.io_size),
        (Some(2 << 30), Some(3 << 30))
    );
    assert_eq!(workload.number_ios, Some(1000));
    assert_eq!(workload.placement, Placement::Zipf { theta: 1.1 });
    assert_eq!(
        (workload.numjobs, workload.fsync, workload.sync),
        (3, 32, true)
    );
    assert_eq!(workload.start, Nanos::from_secs(5));
    assert_eq!(workload.runtime, Some(Nanos::from_secs(50)));
}

#[test]
fn a_rate_makes_a_job_open() {
    let scenario = good(&workload(
        "
        rw = \"randwrite\"
        bs = \"16 KiB\"
        rate_iops = \"250 IOPS\"
        rate_process = \"poisson\"
        bursts = { on = \"1 s\", off = { distribution = \"exponential\", mean = \"4 s\" } }
    ",
    ));
    let Flow::Open { arrivals, iodepth } = &scenario.vms[0].workloads[0].flow else {
        panic!("a closed loop");
    };
    assert_eq!((arrivals.per_s, *iodepth), (250.0, 1024));
    assert_eq!(arrivals.spacing, Spacing::Poisson);
    assert!(arrivals.bursts.is_some());
}

#[test]
fn every_mistake_is_reported_with_its_line_and_what_is_allowed() {
    let text = "\
duration = 60
sede = 3
[[device]]
name = \"disk\"
model = \"hdd-7200\"
[[vm]]
name = \"a\"
disk = [{ size = \"10 GiB\" }]
[[vm.workload]]
rw = \"randraed\"
bs = \"4 KiB\"
bssplit = \"4k/50\"
rwmixread = 120
[[vm]]
name = \"a\"
disk = [{ size = \"10 GiB\" }]
[[event]]
at = \"5 s\"
";
    let said = refused(text);
    let expected = [
        ("test.toml:1:12", "60 is a bare number, its unit is missing"),
        ("test.toml:2:1", "unknown key `sede`"),
        ("test.toml:5:9", "no device is called \"hdd-7200\""),
        ("test.toml:10:6", "did you mean \"randread\"?"),
        ("test.toml:12:11", "bs and bssplit together"),
        ("test.toml:13:13", "120 is out of range"),
        ("test.toml:15:8", "VM \"a\" is there twice"),
        ("test.toml:14:1", "it has no workload"),
        ("test.toml:17:1", "changes nothing, or too much at once"),
    ];
    for (place, what) in expected {
        assert!(said.contains(place), "{place}:\n{said}");
        assert!(said.contains(what), "{what}:\n{said}");
    }
    assert!(said.contains("did you mean `seed`?"), "{said}");
}

#[test]
fn a_job_that_does_not_fit_its_disk_is_refused_where_it_is() {
    let said = refused(&workload(
        "rw = \"read\"\noffset = \"9 GiB\"\nsize = \"2 GiB\"",
    ));
    assert!(said.contains("must lie on the disk of 10 GiB"), "{said}");
    assert!(said.contains("test.toml:12:1"), "{said}");
}

#[test]
fn disks_that_do_not_fit_their_device_are_refused() {
    let vm = "[[vm]]\nname = \"b\"\ncount = 200\ndisk = [{ size = \"10 GiB\" }]\n\
              [[vm.workload]]\nrw = \"read\"\n";
    let said = refused(&(workload("rw = \"read\"") + vm));
    assert!(
        said.contains("holds 1 TB, the disks of its VMs need 2.158 TB"),
        "{said}"
    );
}

#[test]
fn closed_and_open_words_do_not_mix() {
    let said = refused(&workload(
        "rw = \"read\"\nrate_iops = \"5 IOPS\"\nthinktime = \"1 ms\"",
    ));
    assert!(said.contains("does not wait for its answers"), "{said}");
    let said = refused(&workload("rw = \"read\"\nrate_process = \"poisson\""));
    assert!(said.contains("there is no rate for it"), "{said}");
    let said = refused(&workload("rw = \"read\"\nrwmixread = 50"));
    assert!(said.contains("only a mix of reads and writes"), "{said}");
}

#[test]
fn placements_and_sizes_out_of_range_are_refused() {
    for wrong in [
        "zipf", "zipf:1", "zipf:-2", "pareto:1", "normal:0", "random:3", "circle:1",
    ] {
        let words = format!("rw = \"randread\"\nrandom_distribution = \"{wrong}\"");
        assert!(refused(&workload(&words)).contains("zipf:1.1"), "{wrong}");
    }
    for wrong in ["4 KiB", "4 KiB/0", "100 B/5", "2 GiB/1", "4 KiB/1:", "x/1"] {
        let words = format!("rw = \"randread\"\nbssplit = \"{wrong}\"");
        assert!(
            refused(&workload(&words)).contains("a size with its share"),
            "{wrong}"
        );
    }
    assert!(refused(&workload("rw = \"read\"\nbs = \"1000 B\"")).contains("multiple of 512 B"));
}

#[test]
fn what_a_policy_does_not_enforce_is_said() {
    let promised = VM.to_owned() + "[vm.objective]\nreservation = \"10 IOPS\"\n";
    let text = format!("{DISK}{promised}[[vm.workload]]\nrw = \"read\"\n");
    let loaded = read(&text).expect("good");
    assert_eq!(loaded.warnings.len(), 1);
    let said = loaded.warnings[0].to_string();
    assert!(said.contains("fifo does not enforce reservation"), "{said}");
}

#[test]
fn what_is_said_is_said_of_the_policy_that_is_asked_for() {
    let promised = VM.to_owned() + "[vm.objective]\nreservation = \"10 IOPS\"\n";
    let text = format!("{DISK}{promised}[[vm.workload]]\nrw = \"read\"\n");
    let text = text.replace(
        "policy = \"fifo\"",
        "policy = { name = \"mclock\", cost_size = \"1 MiB\" }",
    );
    let under = |policy: &str| {
        let policy = tidegate_policies::policy::PolicySpec::named(policy).expect("registered");
        let read = tidegate_sim::scenario::read;
        let models = tidegate_config::model::built_in;
        read(&text, "test.toml", &models, Some(&policy)).expect("good")
    };
    assert_eq!(under("sfq").warnings.len(), 1);
    let same = under("mclock");
    assert_eq!(same.warnings, []);
    let cost = same.config.devices[0]
        .scheduling
        .policy
        .params()
        .iter()
        .copied()
        .find(|(info, _)| info.name == "cost_size");
    assert_eq!(cost.map(|(_, value)| value), Some(1 << 20));
}

#[test]
fn costs_by_the_devices_time_need_its_profile() {
    let by_time = "policy = { name = \"sfq\", cost = \"device-time\" }";
    let text = workload("rw = \"read\"").replace("policy = \"fifo\"", by_time);
    let said = refused(&text);
    let why = "policy sfq computes costs from the device's profile, and the device has none";
    assert!(said.contains(why), "{said}");
    assert!(said.contains("`tidegate profile`"), "{said}");
    let event = format!("[[event]]\nat = \"1 s\"\n{by_time}\n");
    let said = refused(&(workload("rw = \"read\"") + &event));
    assert!(said.contains(why) && said.contains("event"), "{said}");
    // A scenario that was made otherwise, too.
    let mut scenario = good(&workload("rw = \"read\""));
    let mut policy = tidegate_policies::policy::PolicySpec::named("drr").expect("registered");
    policy.set("cost", 3).expect("device-time");
    scenario.devices[0].scheduling.policy = policy;
    let said = scenario.check().expect_err("refused").to_string();
    assert!(said.contains("and the device has none"), "{said}");
}

#[test]
fn a_background_process_has_no_delay() {
    let text = workload("rw = \"read\"")
        + "[[background]]\nname = \"backup\"\ndisk = [{ size = \"1 GiB\" }]\n[background.delay]\n\
           submit = \"1 ms\"\n[[background.workload]]\nrw = \"read\"\n";
    assert!(refused(&text).contains("unknown key `delay`"));
    let text = text.replace("[background.delay]\nsubmit = \"1 ms\"\n", "");
    assert!(good(&text).vms[1].background);
}

#[test]
fn an_event_names_who_it_is_about() {
    let event = |words: &str| workload("rw = \"read\"") + "[[event]]\nat = \"1 s\"\n" + words;
    let said = refused(&event("vm = \"b\"\nobjective = { weight = 5 }"));
    assert!(said.contains("there is no VM \"b\""), "{said}");
    let said = refused(&event("policy = \"mcloc\""));
    assert!(said.contains("mclock"), "{said}");
    let said = refused(&event("vm = \"a\"\nobjective = { wieght = 5 }"));
    assert!(said.contains("did you mean `weight`?"), "{said}");
}

#[test]
fn a_warm_up_leaves_something() {
    let text = format!("warm_up = \"60 s\"\n{}", workload("rw = \"read\""));
    assert!(refused(&text).contains("leaves nothing of a duration"));
}

#[test]
fn numbered_names_are_names_like_others() {
    let counted = VM.replace("\"a\"", "\"b\"\ncount = 2") + "[[vm.workload]]\nrw = \"read\"\n";
    let other = |name: &str| {
        let vm = VM.replace("\"a\"", &format!("{name:?}"));
        format!("{DISK}{counted}{vm}[[vm.workload]]\nrw = \"read\"\n")
    };
    let said = refused(&other("b-2"));
    assert!(said.contains("VM \"b-2\" is there twice"), "{said}");
    // An event for all of them is not for one that is merely called alike.
    let text = other("b-3") + "[[event]]\nat = \"1 s\"\nvm = \"b\"\nobjective = { weight = 5 }\n";
    assert_eq!(good(&text).changes.len(), 2);
    let said = refused(&text.replace("vm = \"b\"", "vm = \"bb\""));
    assert!(said.contains("did you mean \"b\"?"), "{said}");
}

#[test]
fn what_happens_after_the_end_is_warned_of() {
    let text = workload("rw = \"read\"").replace(
        "disk = [{ size = \"10",
        "arrives = \"60 s\"\ndisk = [{ size = \"10",
    ) + "[[event]]\nat = \"61 s\"\npolicy = \"drr\"\n";
    let loaded = read(&text).expect("good");
    let said: Vec<String> = loaded.warnings.iter().map(|w| w.to_string()).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    for said in said {
        assert!(said.contains("is after the end, at 60 s"), "{said}");
    }
    let early = text.replace("60 s\"\ndisk", "9 s\"\nleaves = \"9 s\"\ndisk");
    let said = refused(&early);
    assert!(
        said.contains("it leaves at 9 s and arrives at 9 s"),
        "{said}"
    );
    assert!(said.contains("test.toml:"), "{said}");
}

#[test]
fn what_a_guest_makes_of_a_job_is_understood() {
    let scenario = good(&workload(
        "
        rw = \"randrw\"
        size = \"1 GiB\"
        nrfiles = 128
        file_gap = \"64 KiB\"
        fsync = 40
        [vm.workload.page_cache]
        hit_percent = 36
        merge_limit = \"44 KiB\"
        depth = 32
        flush = false
        [vm.workload.page_cache.journal]
        offset = \"2 GiB\"
        size = \"128 MiB\"
        requests = 3
        bs = \"8 KiB\"
        pause = \"4 ms\"
    ",
    ));
    let workload = &scenario.vms[0].workloads[0];
    assert_eq!((workload.files.count, workload.files.gap), (128, 64 << 10));
    let cache = workload.page_cache.unwrap();
    assert_eq!((cache.hit_percent, cache.merge_limit), (36, 44 << 10));
    assert_eq!((cache.depth, cache.flush), (32, false));
    let journal = cache.journal.unwrap();
    assert_eq!((journal.offset, journal.size), (2 << 30, 128 << 20));
    assert_eq!((journal.requests, journal.bytes), (3, 8 << 10));
    assert_eq!(journal.pause, Nanos::from_millis(4));
    assert_eq!(
        workload.region(0, 10 << 30).unwrap().end,
        (1 << 30) + 127 * (64 << 10)
    );
    let copies = "rw = \"read\"\nsize = \"1 GiB\"\ncopy_to = { offset = \"2 GiB\" }";
    let copy = good(&self::workload(copies)).vms[0].workloads[0].copy_to;
    assert_eq!(copy.map(|copy| copy.piece), Some(1 << 20));
    let misplaced = refused(&self::workload(&copies.replace("2 GiB", "10 GiB")));
    assert!(misplaced.contains("must lie on the disk"), "{misplaced}");
}

#[test]
fn disks_lie_where_they_are_put_and_do_not_overlap() {
    let vm = |name: &str, at: &str| {
        format!(
            "[[vm]]\nname = \"{name}\"\ndisk = [{{ size = \"10 GiB\"{at} }}]\n[[vm.workload]]\n\
             rw = \"read\"\n"
        )
    };
    let at = |place: &str| format!(", at = \"{place}\"");
    let scenario = good(&format!("{DISK}{}{}", vm("a", &at("100 GiB")), vm("b", "")));
    let disks: Vec<u64> = scenario
        .layout(0)
        .iter()
        .map(|(_, disk)| disk.start >> 30)
        .collect();
    assert_eq!(disks, [100, 110]);
    let said = refused(&format!(
        "{DISK}{}{}",
        vm("a", &at("5 GiB")),
        vm("b", &at("0 B"))
    ));
    assert!(said.contains("the disks of b and a overlap"), "{said}");
    let said = refused(&format!("{DISK}{}", vm("a", &at("1 KiB"))));
    assert!(said.contains("begins on no multiple"), "{said}");
}

#[test]
fn distances_go_upwards() {
    let device = |list: &str| {
        workload("rw = \"read\"").replacen("depth", &format!("distances = {list}\ndepth"), 1)
    };
    let scenario = good(&device("[\"0 B\", \"25.6 GB\"]"));
    assert_eq!(scenario.devices[0].distances, [0, 25_600_000_000]);
    assert!(refused(&device("[\"1 MiB\", \"0 B\"]")).contains("larger than the one before"));
}

#[test]
fn old_spellings_are_the_same_scenario_with_a_note_each() {
    let new = format!(
        "{}[[vm]]\nname = \"a\"\n[[vm.disk]]\nsize = \"10 GiB\"\nat = \"1 GiB\"\n\
         [[vm.workload]]\nrw = \"read\"\nio_size = \"1 GiB\"\n\
         deadline = {{ tolerance = 0.3, max_bandwidth = \"54 MB/s\", vms = 2 }}\n\
         [[vm]]\nname = \"b\"\ncount = 2\n\
         disk = [{{ size = \"1 GiB\" }}]\n[[vm.workload]]\nrw = \"write\"\n",
        DISK.replace("depth", "transport = { submit = \"1 ms\" }\ndepth")
    );
    let old = new
        .replace("transport", "path")
        .replace(
            "[[vm.disk]]\nsize = \"10 GiB\"\nat",
            "disk = \"10 GiB\"\ndisk_at",
        )
        .replace("disk = [{ size = \"1 GiB\" }]", "disk = \"1 GiB\"")
        .replace("vm.workload", "vm.job")
        .replace("vms = 2", "tenants = 2");
    let read = |text: &str| {
        let models = tidegate_config::model::built_in;
        tidegate_sim::scenario::read(text, "test.toml", &models, None).expect("good")
    };
    let (new, old) = (read(&new), read(&old));
    assert_eq!(format!("{:?}", old.config), format!("{:?}", new.config));
    assert_eq!((new.notes.len(), old.warnings.len()), (0, 0));
    let said: Vec<_> = old.notes.iter().map(|note| note.what.as_str()).collect();
    let expected = [
        "`transport`",
        "[[vm.disk]] with `size`",
        "`at` in [[vm.disk]]",
        "`workload`",
        "`vms`",
    ];
    assert_eq!(
        said,
        expected.map(|new| format!("the old spelling of {new}"))
    );
    assert!(
        !old.notes[0].to_string().contains("times"),
        "{}",
        old.notes[0]
    );
    assert!(
        old.notes[1].to_string().contains("2 times"),
        "{}",
        old.notes[1]
    );
}
