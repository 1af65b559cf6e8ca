//! `tidegate check` of a configuration with persisted VMs and objectives in its store.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tidegate_server::store::{Scope, Store, VmRecord};

const CONFIG: &str = r#"
[control]
socket = "control.sock"
[store]
path = "kept.redb"
[[listen]]
unix = "nbd.sock"
[[device]]
name = "disk0"
kind = "emulated"
model = "hdd-7200-1tb"
profile = "hdd-7200-1tb"
policy = "edf-credit"
[[vm]]
name = "oltp"
[[vm.disk]]
size = "64 MiB"
[[vm]]
name = "bulk"
[[vm.disk]]
size = "64 MiB"
"#;

fn check(dir: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([&["check", "t.toml"], more].concat())
        .current_dir(dir)
        .output()
        .expect("the binary runs")
}

fn warnings_of(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn kept(name: &str, disk: Value) -> VmRecord {
    let words = json!({ "name": name, "device": "disk0", "disk": [disk] });
    VmRecord::new(name, Scope::Whole, &words)
}

#[test]
fn vms_that_were_persisted_are_shown_and_warned_of_also_while_a_daemon_has_the_store() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("t.toml"), CONFIG).expect("writable");
    // Nothing is there yet, and nothing comes to be by looking.
    let before = check(dir.path(), &[]);
    assert_eq!(warnings_of(&before), "");
    let file = dir.path().join("kept.redb");
    assert!(!file.exists(), "made by looking");

    let store = Store::open(&file).expect("made");
    let memory = |export: &str| json!({ "export": export, "size": "8 MiB" });
    let lost = json!({ "export": "lost", "path": "lost.raw", "size": "8 MiB", "create": "sparse" });
    let too_much = json!({ "reservation": "250 IOPS", "weight": 7 });
    for record in [
        VmRecord::new("oltp", Scope::Objective, &too_much),
        kept("long", memory("long")),
        kept("clash", memory("bulk")),
        kept("lost", lost),
        kept("bulk", memory("bulk")),
        VmRecord::new("nobody", Scope::Objective, &json!({ "weight": 3 })),
        VmRecord::new(
            "elsewhere",
            Scope::Whole,
            &json!({ "name": "elsewhere", "device": "disk9", "disk": [memory("e")] }),
        ),
    ] {
        store.put_vm(&record).expect("writes");
    }
    let bytes = std::fs::read(&file).expect("there");
    let checked = check(dir.path(), &[]);
    let shown = String::from_utf8_lossy(&checked.stdout).into_owned();
    for part in [
        "250 IOPS; weight 7 (persisted)",
        "weight 100 (VM persisted)",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let warned = warnings_of(&checked);
    for part in [
        "vm \"clash\": in the store, but cannot be served: export \"bulk\" exists already: VM \
         \"bulk\" has it",
        "vm \"lost\": in the store, but cannot be served: lost.raw: No such file or directory",
        "`tidegate vm remove lost --persist` removes it",
        "vm \"bulk\": in the store and in the configuration file: the file is used",
        "vm \"nobody\": the store has an objective for a VM that is not in the configuration file",
        "vm \"elsewhere\": in the store, but cannot be served: ",
        "\"disk9\"",
        "t.toml:5:8",
        "device \"disk0\": the promises need",
    ] {
        assert!(warned.contains(part), "{part}: {warned}");
    }
    let json = check(dir.path(), &["-o", "json"]);
    let report: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let vms = report["vms"].as_array().expect("a list").iter();
    let vms: Vec<_> = vms.map(|vm| (vm["name"].as_str(), &vm["kept"])).collect();
    let (vm, objective, none) = (json!("vm"), json!("objective"), Value::Null);
    assert_eq!(
        vms,
        [
            (Some("oltp"), &objective),
            (Some("bulk"), &none),
            (Some("long"), &vm)
        ]
    );
    assert_eq!(report["warnings"].as_array().map(Vec::len), Some(6));
    assert!(bytes == std::fs::read(&file).expect("there"), "touched");
    // The daemon's, that has it open all the while.
    store.remove_vm("long").expect("writes");
}

#[test]
fn a_store_that_cannot_be_read_is_warned_of() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("t.toml"), CONFIG).expect("writable");
    std::fs::write(dir.path().join("kept.redb"), "something else").expect("writable");
    let warned = warnings_of(&check(dir.path(), &[]));
    assert!(
        warned.contains("store: persisted VMs and objectives are not known"),
        "{warned}"
    );
    assert!(warned.contains("not a store of Tidegate's"), "{warned}");
}
