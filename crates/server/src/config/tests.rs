//! Whole configuration files: valid ones, and the messages about broken ones.
//!
//! Each of `golden/*.toml` has mistakes of one kind, and the messages about it are in the file of
//! the same name. `TIDEGATE_BLESS=1` writes the messages anew, to be reviewed before they are
//! committed.

use std::path::PathBuf;

use tidegate_core::objective::{OpsRate, Rate};
use tidegate_core::part::Enforces;
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::{PolicySpec, registry};

use super::*;

fn parse_text(text: &str) -> Result<Loaded, ConfigErrors> {
    parse(text, "test.toml", Path::new("/etc/tidegate"))
}

pub(super) fn errors(text: &str) -> String {
    parse_text(text).expect_err("accepted").to_string()
}

#[test]
fn broken_files_are_answered_as_the_golden_ones_say() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/golden");
    let bless = std::env::var_os("TIDEGATE_BLESS").is_some();
    let policies: Vec<&str> = registry().iter().map(|info| info.name).collect();
    let policies = policies.join(", ");
    let mut checked = 0;
    for entry in std::fs::read_dir(&golden).expect("the golden files are there") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&path).expect("readable");
        let base = Path::new("/etc/tidegate");
        let message = parse(&text, &name, base).expect_err(&name).to_string() + "\n";
        // Names of policies come from the registry, so that a new policy changes no golden file.
        let message = message.replace(&policies, "{policies}");
        let expected = path.with_extension("txt");
        if bless {
            std::fs::write(&expected, &message).expect("writable");
        }
        let expected = std::fs::read_to_string(&expected).expect("readable");
        assert!(
            message == expected,
            "{name}: said\n{message}\nexpected\n{expected}"
        );
        checked += 1;
    }
    assert!(checked >= 12, "only {checked} golden files");
}

const WHOLE: &str = r#"
[daemon]
open_timeout = "5 s"
stop_timeout = "2 min"

[control]
socket = "run/control.sock"
mode = "0640"

[store]
path = "run/./state.redb"
snapshot_interval = "5 min"

[[listen]]
unix = "/run/nbd.sock"
mode = "0660"
exports = ["logs", "oltp"]

[[listen]]
tcp = "127.0.0.1:10809"

[[device]]
name = "disk0"
kind = "emulated"
model = "hdd-7200-1tb"
policy = { name = "mclock", cost_size = "64 KiB", catch_up = "250 ms" }
depth = 16
max_io = "512 KiB"
merge_limit = "0 B"
max_requests = 1000
buffer_memory = "64 MiB"

[[device]]
name = "disk1"
kind = "file"
policy = { regulator = "token-bucket", dispatcher = "mclock" }

[[vm]]
name = "oltp"
device = "disk0"
[vm.objective]
reservation = "120 IOPS @ 16 KiB"
limit = { total = "500 IOPS, 40 MB/s", read = "none" }
target = "400 IOPS"
weight = 250
latency = "30 ms"
[[vm.disk]]
size = "20 GiB"

[[vm]]
name = "bulk"
device = "disk1"
[vm.objective.limit]
total = "100 IOPS"
write = "20 MB/s"
burst = { write = "200 MB/s", length = "10 s" }
[[vm.disk]]
export = "logs"
path = "logs.raw"
size = "1 GiB"
create = "preallocated"
format = "raw"
block_size = "4 KiB"
[[vm.disk]]
path = "/dev/vg/bulk"
read_only = true
"#;

/// Parses a valid text; returns the configuration and its warnings.
pub(super) fn parts(text: &str) -> (Config, Vec<Diagnostic>) {
    let loaded = parse_text(text).unwrap_or_else(|e| panic!("{e}"));
    (loaded.config, loaded.warnings)
}

#[test]
fn a_whole_file_becomes_a_configuration() {
    let (config, warnings) = parts(WHOLE);
    let control = config.control.main.description();
    assert_eq!(control, "/etc/tidegate/run/control.sock (0640)");
    let daemon = DaemonConfig {
        open_within: Duration::from_secs(5),
        stop_within: Duration::from_secs(120),
        ..DaemonConfig::default()
    };
    assert_eq!(config.daemon, daemon);
    let store = config.store.expect("it is named");
    assert_eq!(store.path, PathBuf::from("/etc/tidegate/run/state.redb"));
    assert_eq!(store.learnt_every, Nanos::from_secs(300));
    assert_eq!(config.listeners[0].exports, ["logs", "oltp"]);
    assert!(matches!(
        config.listeners[0].address,
        ListenAddress::Unix { mode: 0o660, .. }
    ));
    assert!(matches!(config.listeners[1].address, ListenAddress::Tcp(_)));
    let warned: Vec<String> = warnings.iter().map(|w| w.what.clone()).collect();
    assert_eq!(
        warned,
        [
            "policy mclock does not enforce target (400 IOPS)",
            "policy mclock does not enforce latency (30 ms)",
        ]
    );
    assert_eq!(
        warnings[1].place.as_ref().map(|p| (p.line, p.column)),
        Some((46, 11))
    );
}

#[test]
fn a_whole_file_has_its_devices_and_vms() {
    let (config, _) = parts(WHOLE);
    let disk0 = &config.devices[0];
    let bounds = &disk0.scheduling;
    assert!(matches!(&disk0.kind, DeviceKind::Emulated { model } if model.name == "hdd-7200-1tb"));
    assert_eq!(
        (bounds.depth, bounds.max_io, bounds.merge_limit),
        (16, 512 << 10, 0)
    );
    assert_eq!(
        (bounds.max_requests, bounds.max_pending_per_vm),
        (1000, 1000)
    );
    assert_eq!(
        (bounds.buffer_memory, bounds.buffer_memory_per_vm),
        (64 << 20, 64 << 20)
    );
    let cost = bounds
        .policy
        .params()
        .iter()
        .copied()
        .find(|(info, _)| info.name == "cost_size");
    assert_eq!(cost.map(|(_, value)| value), Some(64 << 10));
    assert_eq!(
        config.devices[1].scheduling.policy.name(),
        "token-bucket+mclock"
    );

    let oltp = &config.vms[0];
    let norm = OpsRate {
        per_s: 120,
        norm: Some(16 << 10),
    };
    assert_eq!(
        oltp.objective.reservation,
        Rate {
            ops: Some(norm),
            bytes_per_s: None
        }
    );
    assert_eq!(oltp.objective.limit.total.bytes_per_s, Some(40_000_000));
    assert_eq!(oltp.objective.target, Rate::iops(400));
    assert_eq!(oltp.objective.weight, 250);
    assert_eq!(oltp.objective.latency, Some(Nanos::from_millis(30)));
    assert_eq!(oltp.disks[0].export, "oltp");
    assert_eq!(oltp.disks[0].path, None);

    let bulk = &config.vms[1];
    assert_eq!(bulk.device, 1);
    let burst = bulk.objective.limit.burst.expect("a burst");
    assert_eq!(
        (burst.write, burst.length),
        (Rate::bytes(200_000_000), Nanos::from_secs(10))
    );
    assert_eq!(bulk.disks[0].create, Create::Preallocated);
    assert_eq!(bulk.disks[0].format, DiskFormat::Raw);
    assert_eq!(
        bulk.disks[0].path,
        Some(PathBuf::from("/etc/tidegate/logs.raw"))
    );
    assert_eq!(bulk.disks[1].export, "bulk");
    assert!(bulk.disks[1].read_only);
}

#[test]
fn the_example_of_the_documentation_is_accepted() {
    let page = include_str!("../../../../docs/configuration.md");
    let vm_page = include_str!("../../../../docs/configuration-vm.md");
    let (_, rest) = page.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let loaded = parse_text(example).unwrap_or_else(|e| panic!("{e}"));
    assert!(loaded.warnings.is_empty());
    // The rules follow a disk; the example's disk is its last table.
    let (_, rules) = vm_page
        .split_once("```toml\n[[vm.disk.fault]]")
        .expect("one of faults");
    let (rules, _) = rules.split_once("```").expect("its end");
    let loaded = parse_text(&format!("{example}[[vm.disk.fault]]{rules}"));
    let faults = &loaded.unwrap_or_else(|e| panic!("{e}")).config.vms[0].disks[0].faults;
    assert_eq!(faults.len(), 2);
    for key in [
        "buffer_memory_per_vm",
        "merge_limit",
        "max_requests_per_vm",
        "read_only",
        "format",
        "probability",
        "torn",
    ] {
        let row = format!("| `{key}` |");
        assert!(
            page.contains(&row) || vm_page.contains(&row),
            "{key} is not documented"
        );
    }
}

#[test]
fn old_spellings_are_the_same_configuration_with_notes() {
    let new = "[daemon]\nopen_timeout = \"5 s\"\nstop_timeout = \"7 s\"\n\
               [store]\npath = \"s.redb\"\nsnapshot_interval = \"9 s\"\n\
               [[listen]]\nunix = \"nbd.sock\"\n\
               [[device]]\nname = \"d\"\nkind = \"memory\"\nmax_requests_per_vm = 7\n\
               [[vm]]\nname = \"a\"\n[[vm.disk]]\nsize = \"1 GiB\"\n\
               [[vm.disk.fault]]\noperations = \"write\"\nduration = \"3 s\"\nerror = \"EIO\"\n";
    let renamed = [
        ("open_timeout", "open_within"),
        ("stop_timeout", "stop_within"),
        ("snapshot_interval", "learnt_every"),
        ("max_requests_per_vm", "max_pending_per_vm"),
        ("operations", "on"),
        ("duration", "for"),
    ];
    let old = renamed.iter().fold(new.to_owned(), |text, (name, old)| {
        text.replace(&format!("{name} ="), &format!("{old} ="))
    });
    let read = |text: &str| parse_text(text).unwrap_or_else(|e| panic!("{e}"));
    let (new, old) = (read(new), read(&old));
    let daemon = |config: &Config| (config.daemon.open_within, config.daemon.stop_within);
    assert_eq!(daemon(&old.config), daemon(&new.config));
    // Messages use the spelling in the file.
    let keys = |config: &Config| [config.daemon.open_key, config.daemon.stop_key];
    assert_eq!(keys(&new.config), ["open_timeout", "stop_timeout"]);
    assert_eq!(keys(&old.config), ["open_within", "stop_within"]);
    let interval = |config: &Config| config.store.as_ref().map(|store| store.learnt_every);
    assert_eq!(interval(&old.config), Some(Nanos::from_secs(9)));
    assert_eq!(interval(&old.config), interval(&new.config));
    assert_eq!(old.config.devices[0].scheduling.max_pending_per_vm, 7);
    assert_eq!(new.config.devices[0].scheduling.max_pending_per_vm, 7);
    let faults = |config: &Config| config.vms[0].disks[0].faults.clone();
    assert_eq!(faults(&old.config), faults(&new.config));
    assert_eq!((new.notes.len(), new.warnings.len()), (0, 0));
    assert_eq!(old.warnings.len(), 0);
    let mut message: Vec<String> = old.notes.iter().map(|note| note.what.clone()).collect();
    let mut expected = renamed.map(|(name, _)| format!("the old spelling of `{name}`"));
    message.sort();
    expected.sort();
    assert_eq!(message, expected);
}

#[test]
fn defaults_need_four_lines_a_section() {
    let text = "[[listen]]\nunix = \"nbd.sock\"\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
                [[vm]]\nname = \"a\"\n[[vm.disk]]\nsize = \"1 GiB\"\n";
    let (config, warnings) = parts(text);
    assert!(warnings.is_empty());
    assert_eq!(config.control.listeners().count(), 1);
    assert!(config.store.is_none());
    assert_eq!(config.devices[0].scheduling.policy.name(), "slo");
    assert_eq!(config.vms[0].objective, Objective::default());
    assert_eq!(config.vms[0].disks[0].block_size, 512);
}

/// Returns the policies of the registry that enforce these parts of an objective, without tuners,
/// which require a target.
pub(crate) fn enforcing(parts: &[fn(&Enforces) -> bool]) -> Vec<&'static str> {
    let names = registry().iter().map(|info| info.name);
    let enforce = |name: &&str| {
        let spec = PolicySpec::named(name).unwrap_or_else(|e| panic!("{e}"));
        let enforces = spec.enforces_for(false);
        spec.parts().0 != Some("tuner") && parts.iter().all(|part| part(&enforces))
    };
    names.filter(enforce).collect()
}

#[test]
fn what_a_policy_does_not_enforce_is_a_warning_at_its_field() {
    let text = WHOLE.replace(
        "{ regulator = \"token-bucket\", dispatcher = \"mclock\" }",
        "\"fifo\"",
    );
    let warnings = parse_text(&text).unwrap_or_else(|e| panic!("{e}")).warnings;
    let message: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let message = message.join("\n");
    assert!(
        message.contains("policy fifo does not enforce limit (100 IOPS)"),
        "{message}"
    );
    assert!(
        message.contains("policy fifo does not enforce limit.write (20 MB/s)"),
        "{message}"
    );
    let limiting: Vec<String> = enforcing(&[|of| of.limit, |of| of.limit_by_direction])
        .iter()
        .map(|name| format!("{name:?}"))
        .collect();
    let help = format!("help: policy {} enforces it\n", limiting.join(" or "));
    assert!(message.contains(&help), "{message}");
    let both = text.replace(
        "[vm.objective.limit]",
        "[vm.objective]\nreservation = \"10 IOPS\"\n[vm.objective.limit]",
    );
    assert_ne!(both, text);
    let warnings = parse_text(&both).unwrap_or_else(|e| panic!("{e}")).warnings;
    let message: String = warnings.iter().map(|w| format!("{w}\n")).collect();
    let composed =
        "help: policy { regulator = \"token-bucket\", dispatcher = \"mclock\" } enforces it";
    let named = enforcing(&[|of| of.reservation, |of| of.limit_by_direction]);
    let help = named.first().map_or(composed.to_owned(), |name| {
        format!("help: policy {name:?} ")
    });
    assert!(message.contains(&help), "{message}");
}

#[test]
fn a_model_from_a_file_is_found_beside_the_configuration() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = include_str!("../../../../devices/hdd-7200-1tb.toml");
    std::fs::write(dir.path().join("mine.toml"), model).expect("writable");
    let text = WHOLE.replace("\"hdd-7200-1tb\"", "\"mine.toml\"");
    std::fs::write(dir.path().join("t.toml"), &text).expect("writable");
    let loaded = load(&dir.path().join("t.toml")).unwrap_or_else(|e| panic!("{e}"));
    assert!(matches!(
        loaded.config.devices[0].kind,
        DeviceKind::Emulated { .. }
    ));

    std::fs::remove_file(dir.path().join("mine.toml")).expect("removable");
    let message = load(&dir.path().join("t.toml"))
        .expect_err("accepted")
        .to_string();
    assert!(
        message.contains("cannot read") && message.contains("mine.toml"),
        "{message}"
    );
    let message = load(&dir.path().join("none.toml"))
        .expect_err("accepted")
        .to_string();
    assert!(message.contains("none.toml: No such file"), "{message}");
    std::fs::write(dir.path().join("t.toml"), b"# a\n\xff").expect("writable");
    let message = load(&dir.path().join("t.toml"))
        .expect_err("accepted")
        .to_string();
    assert!(
        message.contains("not a text file (byte 5 is not UTF-8)"),
        "{message}"
    );
}

#[test]
fn a_second_device_makes_every_vm_say_where_it_is() {
    let message = errors(&WHOLE.replace("device = \"disk1\"\n", ""));
    assert!(
        message.contains("vm \"bulk\": no device is set"),
        "{message}"
    );
    assert!(message.contains("\"disk0\" or \"disk1\""), "{message}");
}

#[test]
fn changes_merge_into_what_is_in_force() {
    let base = parse_text(WHOLE)
        .unwrap_or_else(|e| panic!("{e}"))
        .config
        .vms[1]
        .objective;
    let merge = |json: serde_json::Value| objective::merge(&base, &json);

    let new = merge(serde_json::json!({ "limit": { "burst": null }, "weight": 7 })).expect("good");
    assert_eq!(new.limit.total, base.limit.total);
    assert_eq!((new.limit.burst, new.weight), (None, 7));

    let new = merge(serde_json::json!({ "limit": "50 IOPS" })).expect("good");
    assert_eq!(new.limit.total, Rate::iops(50));
    assert!(new.limit.write.is_none() && new.limit.burst.is_none());

    let new = merge(serde_json::json!({ "limit": "none", "latency": null })).expect("good");
    assert!(new.limit.is_none());

    let refused = merge(serde_json::json!({ "reservation": "900 IOPS", "limit": 5, "x": 1 }));
    let list = refused.expect_err("accepted").0;
    assert_eq!(list.len(), 2, "{list:?}");
    let refused = merge(serde_json::json!({ "reservation": "900 IOPS" })).expect_err("accepted");
    assert_eq!(refused.0[0].field, "reservation");
    assert!(merge(serde_json::json!([1])).is_err());
    assert_eq!(merge(serde_json::json!({})).expect("good"), base);
}

proptest::proptest! {
    /// Concatenates lines of real files in random order, some truncated, as fuzz input that
    /// resembles a configuration.
    #[test]
    fn no_text_makes_it_panic(picks in proptest::collection::vec((0usize..70, 0usize..40), 0..60)) {
        let lines: Vec<&str> = WHOLE.lines().collect();
        let mut text = String::new();
        for (line, cut) in picks {
            let line = lines[line % lines.len()];
            text.push_str(if cut < 4 { &line[..line.len() / 2] } else { line });
            text.push('\n');
        }
        fuzz(text.as_bytes());
    }

    #[test]
    fn no_bytes_make_it_panic(data in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        fuzz(&data);
    }
}

#[test]
fn costs_by_the_devices_time_need_its_profile() {
    let text = |policy: &str| {
        format!(
            "[control]\nsocket = \"c.sock\"\n[[listen]]\nunix = \"n.sock\"\n[[device]]\n\
             name = \"d\"\nkind = \"memory\"\n\
             policy = {policy}\n[[vm]]\nname = \"a\"\n[[vm.disk]]\nsize = \"1 GiB\"\n"
        )
    };
    for policy in ["sfq", "mclock", "drr"] {
        let by = |cost: &str| text(&format!("{{ name = {policy:?}, cost = {cost:?} }}"));
        parse_text(&by("requests")).expect("that needs none");
        let message = errors(&by("device-time"));
        let why = format!(
            "policy {policy} computes costs from the device's profile, and the device has none"
        );
        assert!(message.contains(&why), "{message}");
        assert!(
            message.contains("test.toml:5") && message.contains("profile = "),
            "{message}"
        );
    }
}

#[test]
fn a_background_process_is_told_what_nothing_enforces_for_it() {
    let text = |policy: &str, background: &str| {
        format!(
            "[control]\nsocket = \"c.sock\"\n[[listen]]\nunix = \"n.sock\"\n[[device]]\n\
             name = \"d\"\nkind = \"memory\"\n\
             policy = {policy:?}\n[[vm]]\nname = \"backup\"\nbackground = {background}\n\
             objective = {{ limit = \"50 MB/s\" }}\n[[vm.disk]]\nsize = \"1 GiB\"\n"
        )
    };
    for (policy, background, warnings) in [
        ("mclock", "false", 0),
        // mClock keeps the limits of VMs, and is not told of background processes.
        ("mclock", "true", 1),
        ("limit", "true", 0),
    ] {
        let loaded = parse_text(&text(policy, background)).expect("it is sound");
        assert_eq!(loaded.config.vms[0].background, background == "true");
        let message = loaded.warnings.len();
        assert_eq!(message, warnings, "{policy}: {:?}", loaded.warnings);
    }
    let message = errors(&text("fifo", "\"yes\""));
    assert!(
        message.contains("vm.background") || message.contains("background"),
        "{message}"
    );
}

#[test]
fn a_file_or_a_socket_has_one_name_however_it_is_spelled() {
    let text = r#"
        [control]
        socket = "./here.sock"
        [[listen]]
        unix = "here.sock"
        [[device]]
        name = "disk0"
        kind = "file"
        [[vm]]
        name = "a"
        [[vm.disk]]
        path = "a.raw"
        [[vm]]
        name = "b"
        [[vm.disk]]
        path = ".//a.raw"
    "#;
    // Base directories of `tidegate check t.toml` and of `tidegate check ./t.toml`.
    for base in ["", "."] {
        let message = parse(text, "t.toml", Path::new(base))
            .expect_err("accepted")
            .to_string();
        assert!(
            message.contains("socket \"here.sock\" is there twice"),
            "{message}"
        );
        assert!(
            message.contains("file \"a.raw\" is there twice"),
            "{message}"
        );
    }
}

#[test]
fn tcp_addresses_that_cannot_be_bound_together_are_refused() {
    let text = |first: &str, second: &str| {
        format!(
            "[[listen]]\ntcp = \"{first}\"\n[[listen]]\ntcp = \"{second}\"\n[[device]]\n\
             name = \"ram\"\nkind = \"memory\"\n[[vm]]\nname = \"a\"\n[[vm.disk]]\n\
             size = \"1 MiB\"\n"
        )
    };
    for (first, second) in [
        ("127.0.0.1:10809", "0.0.0.0:10809"),
        ("0.0.0.0:10809", "127.0.0.1:10809"),
        ("[::]:10809", "127.0.0.1:10809"),
        ("[::1]:10809", "[::]:10809"),
        ("[::ffff:127.0.0.1]:10809", "127.0.0.1:10809"),
        ("127.0.0.1:10809", "[::ffff:0.0.0.0]:10809"),
    ] {
        let message = errors(&text(first, second));
        let what = format!("listen[1].tcp: {second} takes addresses of {first}, first on line 2");
        assert!(message.contains(&what), "{message}");
        assert!(message.contains("test.toml:4:7"), "{message}");
    }
    for (first, second) in [
        ("127.0.0.1:10809", "127.0.0.1:10810"),
        ("127.0.0.1:10809", "127.0.0.2:10809"),
        ("0.0.0.0:10809", "[::1]:10809"),
        ("127.0.0.1:0", "127.0.0.1:0"),
    ] {
        parse_text(&text(first, second)).expect("both can be bound");
    }
    // A loopback address in IPv4-mapped form, which other hosts cannot reach either.
    let loaded = parse_text(&text("[::ffff:127.0.0.1]:10809", "127.0.0.1:10810"));
    assert!(loaded.expect("both can be bound").warnings.is_empty());
}

#[test]
fn a_schedule_is_read_and_warned_of_where_it_hides_or_promises_in_vain() {
    let text = "[[listen]]\nunix = \"n.sock\"\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
                policy = \"mclock\"\n[[vm]]\nname = \"a\"\n[vm.objective]\nweight = 7\n\
                timezone = \"Europe/Berlin\"\n\
                [[vm.objective.schedule]]\nfrom = \"18:00\"\nuntil = \"23:00\"\n\
                target = \"50 MB/s\"\n\
                [[vm.objective.schedule]]\nfrom = \"22:00\"\nuntil = \"06:00\"\nweight = 9\n\
                [[vm.disk]]\nsize = \"1 MiB\"\n";
    let (config, warnings) = parts(text);
    let warned: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warned.len(), 2, "{warned:?}");
    assert!(
        warned[0].contains(
            "vm \"a\": objective.schedule[0].target: policy mclock does not enforce target"
        )
    );
    assert!(warned[0].contains("test.toml:15"), "{}", warned[0]);
    let hides =
        "entry 2 (22:00 to 06:00 every day) hides a part of entry 1 (18:00 to 23:00 every day)";
    assert!(warned[1].contains(hides), "{}", warned[1]);
    let vm = &config.vms[0];
    assert_eq!(vm.objective.weight, 7, "the base");
    let evening = "2026-11-22T20:00+01:00".parse().expect("a time");
    assert_eq!(vm.promised_at(evening).target, Rate::bytes(50_000_000));
    let mut there = vm.clone();
    there.put_in_force(evening);
    assert_eq!(there.objective.target, Rate::bytes(50_000_000));
    assert_eq!(there.promised(), vm.promised());
}

/// Configuration of a VM with two disks and another with one, with a template of sockets.
pub(super) fn with_template(listen: &str) -> String {
    format!(
        "[[listen]]\n{listen}\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
         [[vm]]\nname = \"a\"\n[[vm.disk]]\nexport = \"a-0\"\nsize = \"1 MiB\"\n\
         [[vm.disk]]\nexport = \"a-1\"\nsize = \"1 MiB\"\n\
         [[vm]]\nname = \"b\"\n[[vm.disk]]\nsize = \"1 MiB\"\n"
    )
}

#[test]
fn each_disk_has_a_vhost_user_socket_of_its_own() {
    let (config, _) = parts(&with_template("vhost_user = \"run/{disk}.sock\""));
    let ListenAddress::VhostUser { path, mode } = &config.listeners[0].address else {
        panic!("a template");
    };
    assert_eq!(*mode, 0o600);
    let expected = PathBuf::from("/etc/tidegate/run/a-1.sock");
    assert_eq!(path.expand("a", "a-1"), expected);
    // The VM's name is enough where the listener offers one disk of each.
    let one = "vhost_user = \"{vm}.sock\"\nexports = [\"a-0\", \"b\"]\nmode = \"0660\"";
    parts(&with_template(one));
    let said = errors(&with_template("vhost_user = \"run/{vm}.sock\""));
    assert!(
        said.contains("disks \"a-0\" and \"a-1\" would have one socket"),
        "{said}"
    );
    let long = format!("vhost_user = \"/{}/{{disk}}.sock\"", "x".repeat(98));
    let said = errors(&with_template(&long));
    assert!(said.contains("is 108 bytes long"), "{said}");
    let taken = "vhost_user = \"{disk}\"\n[[listen]]\nunix = \"a-1\"";
    let said = errors(&with_template(taken));
    assert!(said.contains("is there twice"), "{said}");
}

#[test]
fn sockets_have_an_owner_and_a_group_by_name_or_number() {
    let owner = |keys: &str| {
        let (config, _) = parts(&with_template(&format!(
            "vhost_user = \"{{disk}}\"\n{keys}"
        )));
        config.listeners[0].owner.clone()
    };
    assert_eq!(owner(""), SocketOwner::default());
    let both = owner("owner = \"libvirt-qemu\"\ngroup = \"107\"");
    assert_eq!(both.user.as_deref(), Some("libvirt-qemu"));
    assert_eq!(both.group.as_deref(), Some("107"));
    let text = "unix = \"a\"\nmode = \"0660\"\ngroup = \"kvm\"";
    let (config, _) = parts(&with_template(text));
    let described = config.listeners[0].description();
    assert_eq!(described, "/etc/tidegate/a (0660, group kvm)");
    let said = errors(&with_template(
        "unix = \"a\"\nowner = \"\"\ngroup = \"a:b\"",
    ));
    for what in ["\"\" is not the name", "\"a:b\" is not the name"] {
        assert!(said.contains(what), "{said}");
    }
    let tcp = "tcp = \"127.0.0.1:1\"\ngroup = \"kvm\"";
    let said = errors(&with_template(tcp));
    assert!(said.contains("a TCP port has no owner"), "{said}");
}

#[test]
fn without_paths_the_directories_of_the_system_are_not_for_disks_that_are_added() {
    let allows = |base: &str, path: &str| {
        let paths = PathsConfig::of_directory(Path::new(base));
        paths.allowed.check(Path::new(path)).is_ok()
    };
    for base in ["/", "/etc", "/etc/"] {
        assert!(!allows(base, "/etc/passwd"), "{base}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (base, disk) = (dir.path().display(), dir.path().join("new.raw"));
    assert!(allows(&base.to_string(), &disk.display().to_string()));
}
