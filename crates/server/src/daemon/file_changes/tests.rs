use std::path::Path;

use super::*;
use crate::config;

/// Sections before the VMs.
const HOST: &str = r#"
[control]
socket = "c.sock"
[[control.listen]]
unix = "people.sock"
mode = "0666"
[[listen]]
unix = "nbd.sock"
[[listen]]
tcp = "127.0.0.1:0"
[listen.tls]
certificate = "server.pem"
private_key = "server.key"
[[device]]
name = "fast"
kind = "file"
depth = 8
policy = "limit"
[[device.limit_group]]
name = "logs"
limit = "9 MB/s"
[[device]]
name = "slow"
kind = "file"
policy = "limit"
"#;

const VMS: &str = r#"
[[vm]]
name = "a"
device = "fast"
[vm.objective]
limit = "50 IOPS"
[[vm.disk]]
export = "a"
path = "a.raw"
limit = "30 IOPS"
[[vm.disk]]
export = "a-logs"
path = "a-logs.raw"
limit_group = "logs"
[[vm]]
name = "b"
device = "slow"
[[vm.disk]]
path = "b.raw"
size = "1 MiB"
"#;

fn read(text: &str) -> Config {
    let loaded = config::parse(text, "t.toml", Path::new("/images"));
    loaded.unwrap_or_else(|error| panic!("{error}")).config
}

fn whole() -> String {
    format!("{HOST}{VMS}")
}

fn in_force(text: &str) -> FileInForce {
    let Config {
        vms,
        devices,
        sections,
        ..
    } = read(text);
    FileInForce {
        vms,
        devices,
        sections,
    }
}

/// Compares the whole file with one that has other text in the place of some.
fn edited(edits: &[(&str, &str)]) -> FileChanges {
    let mut text = whole();
    for (before, now) in edits {
        assert_eq!(text.matches(before).count(), 1, "{before}");
        text = text.replace(before, now);
    }
    FileChanges::new(&in_force(&whole()), &read(&text))
}

fn names(vms: &[VmConfig]) -> Vec<&str> {
    vms.iter().map(|vm| vm.name.as_str()).collect()
}

fn words(restart: &[NeedsRestart]) -> Vec<String> {
    restart.iter().map(ToString::to_string).collect()
}

#[test]
fn a_file_that_says_the_same_changes_nothing() {
    let same = edited(&[("limit = \"50 IOPS\"", "# slower\nlimit = \"50  IOPS\"")]);
    assert!(same.is_empty() && same.restart.is_empty(), "{same:?}");
}

#[test]
fn keys_that_need_a_restart_are_named_with_their_section() {
    let changes = edited(&[
        ("depth = 8", "depth = 16"),
        ("name = \"logs\"", "name = \"journal\""),
        ("limit_group = \"logs\"", ""),
        (
            "unix = \"nbd.sock\"",
            "unix = \"nbd.sock\"\nmode = \"0660\"",
        ),
        ("mode = \"0666\"", "mode = \"0660\""),
        ("[control]", "[history]\nenabled = false\n[control]"),
        ("name = \"slow\"", "name = \"slower\""),
        ("device = \"slow\"", "device = \"slower\""),
    ]);
    assert_eq!(
        words(&changes.restart),
        [
            "[control]: listen people.sock: mode changed",
            "[[device]] fast: depth changed",
            "[[device]] fast: limit_group journal: added",
            "[[device]] fast: limit_group logs: removed",
            "[[device]] slower: added",
            "[[device]] slow: removed",
            "[history]: added",
            "[[listen]] nbd.sock: mode added",
            "[[vm]] b: its device \"slower\" is not served yet",
        ]
    );
    // The VM that waits for its device stays as it is.
    assert_eq!(names(&changes.vms), ["a"]);
    assert!(changes.removed.is_empty() && changes.groups.is_empty());
}

#[test]
fn tls_is_left_to_the_listeners_that_have_it() {
    let changes = edited(&[("\"server.pem\"", "\"new.pem\"")]);
    assert!(changes.restart.is_empty(), "{changes:?}");
    let tls = "[listen.tls]\ncertificate = \"server.pem\"\nprivate_key = \"server.key\"\n";
    let changes = edited(&[(tls, "")]);
    assert_eq!(
        words(&changes.restart),
        ["[[listen]] 127.0.0.1:0: tls removed"]
    );
}

#[test]
fn policies_and_shared_limits_are_applied() {
    let other = (
        "depth = 8\npolicy = \"limit\"",
        "depth = 8\npolicy = \"mclock\"",
    );
    let changes = edited(&[other, ("limit = \"9 MB/s\"", "limit = \"8 MB/s\"")]);
    let policies: Vec<_> = (changes.policies.iter())
        .map(|(device, policy)| (*device, config::policy_words(policy)["name"].clone()))
        .collect();
    assert_eq!(policies, [(0, "mclock".into())]);
    let [(0, logs)] = changes.groups.as_slice() else {
        panic!("one group of the first device: {changes:?}");
    };
    assert_eq!(logs.limit.total.bytes_per_s, Some(8_000_000));
    assert!(changes.vms.is_empty() && changes.restart.is_empty());
}

#[test]
fn vms_are_added_removed_and_edited() {
    let new = "[[vm]]\nname = \"c\"\ndevice = \"slow\"\n[[vm.disk]]\npath = \"c.raw\"\n";
    let text = whole().replace("50 IOPS", "60 IOPS");
    let b = text.find("[[vm]]\nname = \"b\"").expect("it is there");
    let text = text[..b].to_owned() + new;
    // The served devices are in another order than those of the file.
    let mut before = in_force(&whole());
    before.devices.swap(0, 1);
    before
        .vms
        .iter_mut()
        .for_each(|vm| vm.device = 1 - vm.device);
    let changes = FileChanges::new(&before, &read(&text));
    assert_eq!(changes.removed, ["b"]);
    assert_eq!(names(&changes.vms), ["a", "c"]);
    let devices: Vec<usize> = changes.vms.iter().map(|vm| vm.device).collect();
    assert_eq!(devices, [1, 0]);
    // Fault rules are in no words of a VM.
    let fault = "path = \"b.raw\"\n[[vm.disk.fault]]\nerror = \"EIO\"";
    let size = ("path = \"b.raw\"\nsize = \"1 MiB\"", fault);
    assert_eq!(names(&edited(&[size]).vms), ["b"]);
}

/// Returns VM `a` of a file with other text in the place of some.
fn vm_a(edits: &[(&str, &str)]) -> VmConfig {
    let text = edits
        .iter()
        .fold(whole(), |text, (before, now)| text.replace(before, now));
    read(&text).vms.swap_remove(0)
}

#[test]
fn a_vm_is_changed_part_by_part() {
    let served = vm_a(&[]);
    let file = vm_a(&[
        ("50 IOPS", "60 IOPS"),
        (
            "device = \"fast\"\n",
            "device = \"fast\"\nmax_connections = 3\nbackground = true\n",
        ),
        (
            "limit = \"30 IOPS\"",
            "limit = \"40 IOPS\"\nread_only = true",
        ),
        ("a-logs", "a-journal"),
    ]);
    let changes = VmChanges::new(&served, &file);
    assert_eq!(
        changes.applied(),
        [
            "objective",
            "max_connections",
            "background",
            "limits of disk \"a\"",
            "disk \"a-logs\" removed",
            "disk \"a-journal\" added",
        ]
    );
    assert_eq!(
        words(&changes.restart),
        ["[[vm]] a: disk \"a\": read_only changed"]
    );

    let moved = vm_a(&[
        ("device = \"fast\"", "device = \"slow\""),
        ("limit_group = \"logs\"", ""),
        ("50 IOPS", "60 IOPS"),
    ]);
    let changes = VmChanges::new(&served, &moved);
    assert_eq!(words(&changes.restart), ["[[vm]] a: device changed"]);
    assert!(changes.applied().is_empty(), "{changes:?}");
}

#[test]
fn a_size_that_is_left_out_is_that_of_the_file() {
    let sized = |size: &str| vm_a(&[("path = \"a.raw\"", &format!("path = \"a.raw\"\n{size}"))]);
    let restart = |served: &str, file: &str| {
        let changes = VmChanges::new(&sized(served), &sized(file));
        words(&changes.restart)
    };
    let (one, two) = ("size = \"1 MiB\"", "size = \"2 MiB\"");
    assert!(restart("", one).is_empty());
    assert!(restart(one, "").is_empty());
    assert!(restart(one, one).is_empty());
    assert_eq!(restart(one, two), ["[[vm]] a: disk \"a\": size changed"]);
}

#[test]
fn what_is_not_applied_stays_out_of_the_file_in_force() {
    let before = vm_a(&[]);
    let file = vm_a(&[
        ("50 IOPS", "60 IOPS"),
        ("30 IOPS", "40 IOPS"),
        ("a.raw", "new.raw"),
    ]);
    // The path needs a restart, and the limit of the disk was refused.
    let served = vm_a(&[("50 IOPS", "60 IOPS")]);
    let now = as_in_force(Some(&before), (&file, &file), &served);
    assert_eq!(
        words_of(now.clone(), "fast"),
        words_of(served.clone(), "fast")
    );
    // Both come up again, and so does an edit that is taken back.
    let force = FileInForce {
        vms: vec![now, read(&whole()).vms.swap_remove(1)],
        ..in_force(&whole())
    };
    assert_eq!(names(&FileChanges::new(&force, &read(&whole())).vms), ["a"]);

    // A disk whose removal was refused, and one that could not be added.
    let file = vm_a(&[("a-logs", "a-journal")]);
    let now = as_in_force(Some(&before), (&file, &file), &before);
    let exports: Vec<&str> = now.disks.iter().map(|disk| disk.export.as_str()).collect();
    assert_eq!(exports, ["a", "a-logs"]);
}

#[test]
fn a_file_that_is_applied_is_the_file_in_force_whatever_the_store_says() {
    let file = vm_a(&[("50 IOPS", "60 IOPS"), ("30 IOPS", "40 IOPS")]);
    let mut wanted = file.clone();
    wanted.promise(vm_a(&[("50 IOPS", "70 IOPS")]).promised());
    let now = as_in_force(Some(&vm_a(&[])), (&file, &wanted), &wanted);
    assert_eq!(words_of(now, "fast"), words_of(file.clone(), "fast"));
    // A VM that the control API has added, and the file has now.
    let now = as_in_force(None, (&file, &file), &file);
    assert_eq!(words_of(now, "fast"), words_of(file, "fast"));
}
