//! Reservations near the limit of their own VM, of which `plan` and `check` warn.

use serde_json::Value;

use crate::common::{stderr, stdout, tidegate};

/// Beside a limit equal to it, the simulator serves 1.74 of 3 MB/s.
#[test]
fn a_plan_warns_of_a_reservation_near_its_limit_and_the_limit_that_it_names_suffices() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("s.toml");
    let file_name = file.to_str().expect("plain");
    let write = |limit: &str| {
        let vm = |name: &str, rates: &str| {
            format!(
                "[[vm]]\nname = \"{name}\"\ndisk = [{{ size = \"50 GiB\" }}]\n[vm.objective]\n\
                 {rates}expects = {{ size = \"64 KiB\" }}\n[[vm.workload]]\nrw = \"randread\"\n\
                 bs = \"64 KiB\"\niodepth = 16\n"
            )
        };
        let rates = format!("reservation = \"3 MB/s\"\n{limit}");
        let text = format!(
            "duration = \"20 s\"\n[[device]]\nname = \"d\"\nmodel = \"hdd-7200-1tb\"\n\
             profile = \"hdd-7200-1tb\"\n{}{}",
            vm("a", &rates),
            vm("bulk", "")
        );
        std::fs::write(&file, text).expect("writable");
    };
    write("limit = \"3 MB/s\"\n");
    let warned = tidegate(&["plan", file_name]);
    assert!(warned.status.success(), "{}", stderr(&warned));
    let shown = stdout(&warned);
    assert!(
        shown.contains("VM a: the reservation of 3 MB/s is too near to limit = \"3 MB/s\""),
        "{shown}"
    );
    let plan = stdout(&tidegate(&["plan", file_name, "-o", "json"]));
    let plan: Value = serde_json::from_str(&plan).expect("JSON");
    let near = &plan["devices"][0]["near_limits"][0];
    let instead = near["instead"].as_str().expect("text");
    let (limit, _) = instead.split_once(" or more").expect("one suffices");
    write(&format!("{limit}\n"));
    let quiet = stdout(&tidegate(&["plan", file_name]));
    assert!(!quiet.contains("too near"), "{quiet}");
    let served = stdout(&tidegate(&["sim", file_name]));
    let kept = served
        .lines()
        .find(|line| line.starts_with("a ") && line.contains("reservation"));
    assert!(
        kept.is_some_and(|line| line.contains("in all 20 s")),
        "{served}"
    );
}

#[test]
fn a_check_warns_of_a_reservation_near_its_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("c.toml");
    let vm = |name: &str, objective: &str| {
        format!("[[vm]]\nname = \"{name}\"\n{objective}[[vm.disk]]\nsize = \"1 GiB\"\n")
    };
    let rates = "reservation = \"3 MB/s\"\nlimit = \"3 MB/s\"\n";
    let text = format!(
        "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"emulated\"\n\
         model = \"hdd-7200-1tb\"\nprofile = \"hdd-7200-1tb\"\n{}{}",
        vm("a", &format!("[vm.objective]\n{rates}")),
        vm("b", "")
    );
    std::fs::write(&file, text).expect("writable");
    let checked = tidegate(&["check", file.to_str().expect("plain")]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let warned = stderr(&checked);
    assert!(warned.contains("too near to limit"), "{warned}");
}
