//! Files that earlier builds wrote: each is opened, or refused before anything touches it, with a
//! word on how to convert it. `fixtures/README.md` says how they were made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use redb::{Database, ReadableTable, TableDefinition};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_server::store::{Change, Store};

use crate::common::{drain_stderr, serve, stderr};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

/// The schema's number in a store, and the records of its VMs.
const MARK: TableDefinition<'_, &str, u64> = TableDefinition::new("tidegate");
const VMS: TableDefinition<'_, &str, (u32, u8, &str)> = TableDefinition::new("vms");

/// A directory with copies of fixtures.
struct Copies(TempDir);

impl Copies {
    /// Copies fixtures, each under the name beside it.
    fn of(files: &[(&str, &str)]) -> Copies {
        let copies = Copies(tempfile::tempdir().expect("a directory"));
        for (fixture, name) in files {
            fs::copy(Path::new(FIXTURES).join(fixture), copies.path(name)).expect("copied");
        }
        copies
    }

    fn store() -> Copies {
        Copies::of(&[
            ("store.toml", "tidegate.toml"),
            ("store-v4.redb", "tidegate.redb"),
        ])
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn tidegate(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(args)
            .current_dir(self.0.path())
            .env_remove("TIDEGATE_PLACE_DB")
            .output()
            .expect("the binary runs")
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.tidegate(&[args, &["-o", "json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Runs a command that is to refuse the file `name` and to leave it as it is; the message.
    fn refused(&self, args: &[&str], name: &str) -> String {
        let before = fs::read(self.path(name)).expect("there");
        let output = self.tidegate(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        assert!(
            fs::read(self.path(name)).expect("there") == before,
            "{name} was touched by {args:?}"
        );
        stderr(&output)
    }

    /// Replaces the only `from` of a text file.
    fn replace(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(name)).expect("text");
        assert_eq!(text.matches(from).count(), 1, "{from} in {name}");
        fs::write(self.path(name), text.replace(from, to)).expect("writable");
    }

    fn serve(&self) -> Daemon {
        let (child, log) = serve(&self.path("tidegate.toml"));
        drain_stderr(log);
        Daemon(child)
    }
}

/// A daemon that ends with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_store_of_schema_4_keeps_vms_objectives_jobs_and_what_was_learnt() {
    let copies = Copies::store();
    let daemon = copies.serve();
    let ask = |args: &[&str]| copies.json(&[&["--socket", "control.sock"], args].concat());
    let bulk = ask(&["vm", "show", "bulk"]);
    assert_eq!(bulk["disks"][0]["size_bytes"], 64 << 20, "{bulk}");
    assert_eq!(bulk["objective"]["weight"], 200, "{bulk}");
    assert_eq!(bulk["objective"]["limit"]["total"], "500 IOPS", "{bulk}");
    let oltp = ask(&["vm", "show", "oltp"]);
    assert_eq!(oltp["objective"]["target"], "150 MB/s", "{oltp}");
    // Measured in a run of half a minute, and not by this daemon, which has had no request yet.
    let learnt = &oltp["tuning"]["range"]["highest_bytes_per_s"];
    assert_eq!(*learnt, json!(11_526_798), "{oltp}");
    let jobs = ask(&["job", "list"]);
    assert_eq!(jobs[0]["vm"], "bulk", "{jobs}");
    assert_eq!(jobs[0]["job"]["size_bytes"], 1_u64 << 40, "{jobs}");
    drop(daemon);
}

#[test]
fn a_store_of_a_newer_schema_is_refused_and_not_touched() {
    let copies = Copies::store();
    let database = Database::open(copies.path("tidegate.redb")).expect("a database");
    let write = database.begin_write().expect("writes");
    let mut mark = write.open_table(MARK).expect("there");
    let was = mark.insert("schema", 6).expect("writes");
    assert_eq!(was.expect("there").value(), 4);
    drop(mark);
    write.commit().expect("writes");
    drop(database);
    let parts = [
        "schema is version 6",
        "up to 5",
        "run the Tidegate that wrote it",
    ];
    let message = copies.refused(&["serve", "tidegate.toml"], "tidegate.redb");
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");

    // A warning of `check`, for the file may be one for another build on this host.
    let before = fs::read(copies.path("tidegate.redb")).expect("there");
    let checked = copies.tidegate(&["check", "tidegate.toml"]);
    let message = stderr(&checked);
    assert!(checked.status.success(), "{message}");
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    assert!(fs::read(copies.path("tidegate.redb")).expect("there") == before);
}

#[test]
fn a_vm_kept_in_newer_words_is_named_and_its_record_stays() {
    let copies = Copies::store();
    let file = copies.path("tidegate.redb");
    let database = Database::open(&file).expect("a database");
    let write = database.begin_write().expect("writes");
    let mut vms = write.open_table(VMS).expect("there");
    let words = {
        let kept = vms.get("bulk").expect("reads").expect("there");
        let (version, _, words) = kept.value();
        assert_eq!(version, 1);
        words.to_owned()
    };
    vms.insert("bulk", (3, 0, &*words)).expect("writes");
    drop(vms);
    write.commit().expect("writes");
    drop(database);

    let before = fs::read(&file).expect("there");
    let message = stderr(&copies.tidegate(&["check", "tidegate.toml"]));
    for part in ["\"bulk\"", "has version 3", "Tidegate that wrote it"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(
        fs::read(&file).expect("there") == before,
        "touched by check"
    );

    // The daemon serves the others, and keeps what it cannot read for one that can.
    let daemon = copies.serve();
    let vms = copies.json(&["--socket", "control.sock", "vm", "list"]);
    let names: Vec<_> = vms
        .as_array()
        .expect("a list")
        .iter()
        .map(|vm| &vm["name"])
        .collect();
    assert_eq!(names, ["oltp"]);
    drop(daemon);
    let kept = Store::read_vms(&file).expect("readable");
    let bulk = kept
        .iter()
        .find(|record| record.name == "bulk")
        .expect("kept");
    assert!(bulk.words().expect_err("newer").contains("version 3"));
}

#[test]
fn what_was_learnt_in_version_1_is_taken_and_a_newer_one_is_not() {
    let copies = Copies::of(&[
        ("store.toml", "tidegate.toml"),
        ("learnt-v1.json", "learnt.json"),
        ("learnt-v1.json", "newer.json"),
    ]);
    let daemon = copies.serve();
    let import = ["--socket", "control.sock", "vm", "import", "oltp"];
    let vm = copies.json(&[&import[..], &["learnt.json"]].concat());
    assert!(vm["tuning"]["range"].is_object(), "{vm}");

    copies.replace("newer.json", "\"version\": 1", "\"version\": 2");
    let message = copies.refused(&[&import[..], &["newer.json"]].concat(), "newer.json");
    for part in ["format version 2", "Tidegate that wrote it", "newer.json"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    drop(daemon);
}

#[test]
fn a_profile_of_version_1_is_read_and_a_newer_one_is_refused() {
    let copies = Copies::of(&[("profile-v1.toml", "profile.toml")]);
    let shown = copies.json(&["profile", "show", "profile.toml"]);
    assert_eq!(shown["device"], "hdd-7200-1tb");
    assert_eq!(shown["curves"].as_array().map(Vec::len), Some(7), "{shown}");

    copies.replace("profile.toml", "version = 1\n", "version = 2\n");
    let message = copies.refused(&["profile", "show", "profile.toml"], "profile.toml");
    for part in ["unknown version 2", "`tidegate profile`", "profile.toml:2"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_configuration_and_a_scenario_of_version_0_1_are_accepted() {
    let copies = Copies::of(&[
        ("configuration.toml", "tidegate.toml"),
        ("scenario.toml", "scenario.toml"),
    ]);
    let report = copies.json(&["check", "tidegate.toml"]);
    assert_eq!(report["good"], true, "{report}");
    let report = copies.json(&["check", "scenario.toml"]);
    assert_eq!(report["good"], true, "{report}");
    let report = copies.json(&["sim", "scenario.toml", "--duration", "12 s"]);
    assert!(
        report["vms"].as_array().is_some_and(|vms| !vms.is_empty()),
        "{report}"
    );
}

#[test]
fn a_file_of_hosts_of_a_newer_version_is_refused_and_not_touched() {
    let copies = Copies::of(&[("place-v1.redb", "place.redb")]);
    let file = copies.path("place.redb");
    let store = Store::open(&file).expect("a store");
    let (device, part) = ("", "place");
    let (identity, state) = store.device(device, part).expect("reads").expect("there");
    let mut state: Value = serde_json::from_slice(&state).expect("JSON");
    assert_eq!(state["version"], 1);
    state["version"] = json!(2);
    let state = state.to_string().into_bytes();
    let change = Change::PutDevice {
        device,
        part,
        identity: &identity,
        state: Some(&state),
    };
    store.apply(&[change]).expect("writes");
    drop(store);
    let message = copies.refused(&["place", "list", "--db", "place.redb"], "place.redb");
    for part in ["format 2", "use the Tidegate version that wrote it"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}
