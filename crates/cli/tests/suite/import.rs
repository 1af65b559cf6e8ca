//! `tidegate import`: what it prints passes `tidegate check`.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{stderr, stdout, tidegate};

const DOMAIN: &str = "<domain type='kvm'>\n<name>web</name>\n<devices>\n\
    <disk type='file' device='disk'><source file='/srv/web.raw'/><target dev='vda'/>\n\
    <iotune><total_bytes_sec>40000000</total_bytes_sec></iotune>\n<glitter/></disk>\n\
    </devices></domain>";

#[test]
fn a_domain_is_read_from_a_file_or_a_pipe_and_checked() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("web.xml");
    std::fs::write(&file, DOMAIN).expect("writable");
    let path = file.to_str().expect("text");
    let output = tidegate(&["import", "libvirt", path, "--complete"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let note = format!("note: {path}:6 <glitter>: has no counterpart");
    assert!(stderr(&output).starts_with(&note), "{}", stderr(&output));
    let config = dir.path().join("t.toml");
    std::fs::write(&config, &output.stdout).expect("writable");
    let checked = tidegate(&["-o", "json", "check", config.to_str().expect("text")]);
    assert!(checked.status.success(), "{}", stdout(&checked));
    assert!(
        stdout(&checked).contains("\"total\": \"40 MB/s\""),
        "{}",
        stdout(&checked)
    );

    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["import", "libvirt", "-", "--device", "ssd"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(DOMAIN.as_bytes()).expect("it reads");
    drop(stdin);
    let piped = child.wait_with_output().expect("it ends");
    let text = stdout(&piped);
    let table = "[[vm]]\nname = \"web\"\ndevice = \"ssd\"\n[vm.objective]\nlimit = \"40 MB/s\"\n";
    assert!(text.contains(table), "{text}");
    assert!(
        stderr(&piped).contains("standard input:6 <glitter>"),
        "{}",
        stderr(&piped)
    );
}

#[test]
fn check_shows_the_limits_of_imported_disks() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("t.toml");
    let group = "throttling.group=g,throttling.bps-read=1000000";
    let output = tidegate(&[
        "import",
        "qemu",
        "--complete",
        "--",
        "qemu-system-x86_64",
        "-drive",
        "file=/a.raw,format=raw,throttling.iops-total=500",
        "-drive",
        &format!("file=/b.raw,format=raw,{group}"),
        "-drive",
        &format!("file=/c.raw,format=raw,{group}"),
        "-name",
        "web",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    std::fs::write(&config, &output.stdout).expect("writable");
    let config = config.to_str().expect("text");

    let text = stdout(&tidegate(&["check", config]));
    let row = |name: &str| {
        let mut lines = text.lines().map(str::trim_start);
        let row = lines.find(|line| line.split_whitespace().any(|word| word == name));
        row.unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    assert!(row("web-disk0").ends_with("at most 500 IOPS"), "{text}");
    assert!(row("web-disk1").ends_with("in limit group web-g"), "{text}");
    assert!(row("web-disk2").ends_with("in limit group web-g"), "{text}");
    assert!(text.contains("LIMIT GROUP"), "{text}");
    let of_group = text.lines().find(|line| line.starts_with("web-g"));
    assert!(
        of_group.is_some_and(|row| row.ends_with("1 MB/s of reads")),
        "{text}"
    );

    let json = tidegate(&["-o", "json", "check", config]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let disks = &json["vms"][0]["disks"];
    assert_eq!(disks[0]["export"], "web-disk0", "{json}");
    assert_eq!(disks[0]["limit"]["total"], "500 IOPS", "{json}");
    assert_eq!(disks[1]["limit_group"], "web-g", "{json}");
    assert_eq!(json["limit_groups"][0]["name"], "web-g", "{json}");
    assert_eq!(json["limit_groups"][0]["limit"]["read"], "1 MB/s", "{json}");
}

#[test]
fn the_words_of_qemu_may_be_typed() {
    let output = tidegate(&[
        "import",
        "qemu",
        "--device",
        "ssd",
        "qemu-system-x86_64",
        "-m",
        "1G",
        "-drive",
        "file=/a.raw,format=raw,throttling.bps-read=1000000",
        "-name",
        "a",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("name = \"a\"\ndevice = \"ssd\"\n"), "{text}");
    assert!(text.contains("limit = { read = \"1 MB/s\" }\n"), "{text}");
    // As /proc/PID/cmdline has them.
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("cmdline");
    std::fs::write(&file, "/usr/bin/kvm\0-name\0b\0-hda\0/b.raw\0").expect("writable");
    let output = tidegate(&["import", "qemu", "--file", file.to_str().expect("text")]);
    let text = stdout(&output);
    assert!(
        text.contains("name = \"b\"\n") && text.contains("\"/b.raw\"\n"),
        "{text}"
    );
}

#[test]
fn files_that_are_missing_or_of_another_kind_are_errors() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("x.xml");
    std::fs::write(&file, "not xml").expect("writable");
    let bad = file.to_str().expect("text");
    for (args, part) in [
        (&["libvirt", "/nonexistent/x.xml"][..], "/nonexistent/x.xml"),
        (&["libvirt", bad], "virsh dumpxml"),
        (
            &["proxmox", "/nonexistent/100.conf"],
            "/nonexistent/100.conf",
        ),
        (
            &["proxmox", bad, "--storage", "/nonexistent/s"],
            "/nonexistent/s",
        ),
        (
            &["qemu", "--file", "/nonexistent/cmdline"],
            "/nonexistent/cmdline",
        ),
        (&["openstack", "/nonexistent/specs"], "/nonexistent/specs"),
    ] {
        let output = tidegate(&[&["import"], args].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(
            stderr(&output).contains(part),
            "{args:?}: {}",
            stderr(&output)
        );
    }
}
