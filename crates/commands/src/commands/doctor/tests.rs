//! Checks of hosts that a directory describes.

use std::fs;
use std::path::Path;

use tidegate_server::host_support::SandboxSupport;

use super::*;

/// Writes files below a root.
fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
    let dir = tempfile::tempdir().expect("a directory");
    for (path, text) in files {
        let path = dir.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("one")).expect("writable");
        fs::write(path, text).expect("writable");
    }
    let root = HostRoot::new(dir.path());
    (dir, root)
}

fn probes() -> Probes {
    Probes {
        ring: Ok(()),
        sandbox: SandboxSupport {
            landlock: Ok(6),
            seccomp: Ok(()),
        },
        clock: Some(true),
    }
}

fn level(findings: &[Finding], check: &str) -> Option<Level> {
    let finding = findings.iter().find(|finding| finding.check == check);
    finding.map(|finding| {
        assert_eq!(
            finding.mend.is_some(),
            finding.level != Level::Ok,
            "{finding}"
        );
        finding.level
    })
}

fn config(text: &str, base: &Path) -> Config {
    let loaded = config::parse(text, "t.toml", base);
    loaded.unwrap_or_else(|errors| panic!("{errors}")).config
}

#[test]
fn a_host_without_fault_has_none() {
    let (_dir, host) = host(&[
        ("/proc/sys/kernel/osrelease", "6.12.1\n"),
        ("/proc/sys/kernel/io_uring_disabled", "0\n"),
        ("/proc/sys/net/core/wmem_max", "8388608\n"),
        ("/proc/sys/net/core/rmem_max", "8388608\n"),
        ("/proc/self/cgroup", "0::/user.slice\n"),
    ]);
    let found = findings(&host, &probes(), None);
    for check in [
        "kernel",
        "io_uring",
        "landlock",
        "seccomp",
        "send buffers",
        "receive buffers",
    ] {
        assert_eq!(level(&found, check), Some(Level::Ok), "{check}");
    }
    assert_eq!(level(&found, "cgroup I/O limits"), Some(Level::Ok));
    assert_eq!(level(&found, "clock"), None, "no schedule needs it");
}

#[test]
fn a_host_with_every_fault_is_told_all_of_them() {
    let unit = "/sys/fs/cgroup/system.slice/tidegate.service";
    let (_dir, host) = host(&[
        ("/proc/sys/kernel/osrelease", "5.15.0-91-generic\n"),
        ("/proc/sys/kernel/io_uring_disabled", "2\n"),
        ("/proc/sys/net/core/wmem_max", "212992\n"),
        (
            "/sys/fs/cgroup/system.slice/io.max",
            "8:0 rbps=1000000 wbps=max riops=max wiops=max\n",
        ),
        (&format!("{unit}/io.latency"), "8:16 target=5\n"),
        ("/sys/block/sda/size", "2000000\n"),
        ("/sys/block/sda/dev", "8:0\n"),
        ("/sys/block/sda/queue/scheduler", "none mq-deadline [bfq]\n"),
        ("/sys/block/sda/queue/write_cache", "write back\n"),
    ]);
    let bad = Probes {
        ring: Err("Operation not permitted".to_owned()),
        sandbox: SandboxSupport {
            landlock: Err("not enabled".to_owned()),
            seccomp: Err("no".to_owned()),
        },
        clock: Some(false),
    };
    let found = findings(&host, &bad, None);
    for (check, expected) in [
        ("kernel", Level::Fail),
        ("io_uring", Level::Fail),
        ("landlock", Level::Warn),
        ("seccomp", Level::Warn),
        ("send buffers", Level::Warn),
        ("cgroup io.max", Level::Warn),
        ("cgroup io.latency", Level::Warn),
        ("scheduler sda", Level::Warn),
        ("write cache sda", Level::Ok),
    ] {
        assert_eq!(level(&found, check), Some(expected), "{check}");
    }
    let text: String = found.iter().map(Finding::to_string).collect();
    assert!(
        text.contains("mend: echo none > /sys/block/sda/queue/scheduler\n"),
        "{text}"
    );
    assert!(text.contains("rbps=max"), "{text}");
}

#[test]
fn files_and_directories_of_a_configuration_are_checked() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("good.raw"), vec![0; 1 << 20]).expect("writable");
    fs::write(
        dir.path().join("image.raw"),
        [b"QFI\xfb".as_slice(), &[0; 4092]].concat(),
    )
    .expect("writable");
    let text = r#"
[control]
socket = "missing/control.sock"
[store]
path = "tidegate.redb"
[[listen]]
unix = "nbd.sock"
[[listen]]
vhost_user = "{disk}.sock"
[[device]]
name = "disk0"
kind = "file"
[[vm]]
name = "good"
[[vm.objective.schedule]]
from = "18:00"
until = "19:00"
weight = 7
[[vm.disk]]
path = "good.raw"
[[vm]]
name = "image"
[[vm.disk]]
path = "image.raw"
[[vm]]
name = "lost"
[[vm.disk]]
path = "lost.raw"
[[vm]]
name = "huge"
[[vm.disk]]
path = "huge.raw"
size = "900 TiB"
create = "sparse"
"#;
    let config = config(text, dir.path());
    let meminfo = "MemTotal: 1 kB\nHugePages_Total:      64\nHugePages_Free:        0\n";
    let (_host_dir, host) = host(&[("/proc/meminfo", meminfo)]);
    let bad_clock = Probes {
        clock: Some(false),
        ..probes()
    };
    let found = findings(&host, &bad_clock, Some(&config));
    for (check, expected) in [
        ("disk good", Level::Ok),
        ("disk image", Level::Fail),
        ("disk lost", Level::Fail),
        ("disk huge", Level::Ok),
        ("socket control[0]", Level::Fail),
        ("socket listen[0]", Level::Ok),
        ("store", Level::Ok),
        ("room for disks", Level::Warn),
        ("clock", Level::Warn),
        ("huge pages", Level::Warn),
    ] {
        assert_eq!(level(&found, check), Some(expected), "{check}");
    }
    assert!(level(&found, "direct I/O good").is_some());
    assert!(!dir.path().join("huge.raw").exists(), "nothing is made");
    let again = findings(&host, &probes(), Some(&config));
    assert_eq!(level(&again, "clock"), Some(Level::Ok));
}

#[test]
fn an_encrypted_disk_is_a_warning() {
    let dir = tempfile::tempdir().expect("a directory");
    let content = [b"LUKS\xba\xbe\0\x02".as_slice(), &[0; 4088]].concat();
    fs::write(dir.path().join("luks"), content).expect("writable");
    let (_host_dir, host) = host(&[]);
    for (format, expected) in [("", Level::Warn), ("format = \"raw\"\n", Level::Ok)] {
        let text = format!(
            "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"file\"\n\
             [[vm]]\nname = \"a\"\n[[vm.disk]]\npath = \"luks\"\n{format}"
        );
        let found = findings(&host, &probes(), Some(&config(&text, dir.path())));
        assert_eq!(level(&found, "disk a"), Some(expected));
    }
}
