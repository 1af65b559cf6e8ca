//! `tidegate profile` as its users meet it: nothing that holds anything is written to, what was
//! stopped goes on, and a model's profile is the same every time.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn tidegate(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().expect("the binary runs")
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(dir).arg("profile").args(args);
    command
}

/// Runs a measurement that must be refused and returns its standard error.
#[track_caller]
fn refused(dir: &Path, args: &[&str]) -> String {
    let output = tidegate(dir, args);
    assert!(!output.status.success(), "{args:?} was not refused");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn a_models_profile_is_the_same_every_time_and_can_be_shown() {
    let dir = directory();
    let mut texts = Vec::new();
    for results in ["a.toml", "b.toml"] {
        let args = ["hdd-7200-1tb", "--quick", "--results", results];
        let output = tidegate(dir.path(), &args);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{message}");
        assert!(message.contains(results), "{message}");
        texts.push(fs::read(dir.path().join(results)).expect("written"));
    }
    assert_eq!(texts[0], texts[1]);
    let shown = tidegate(dir.path(), &["show", "a.toml", "-o", "json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(shown["device"], "hdd-7200-1tb");
    let sizes = shown["curves"][0]["points"].as_array().map(Vec::len);
    assert_eq!(sizes, Some(5));
    let table = tidegate(dir.path(), &["show", "a.toml"]).stdout;
    let table = String::from_utf8_lossy(&table);
    assert!(table.contains("random requests, 50 % reads"), "{table}");
}

#[test]
fn what_holds_something_is_not_written_to() {
    let dir = directory();
    let disk = dir.path().join("disk.raw");
    fs::write(&disk, vec![7; 1 << 20]).expect("written");
    let message = refused(dir.path(), &["disk.raw"]);
    for part in [
        "contains data: 1 MiB",
        "--read-only",
        "--overwrite",
        "disk.raw",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let message = refused(dir.path(), &["disk.raw", "--size", "1 MiB"]);
    assert!(
        message.contains("--size creates a file, but the file exists"),
        "{message}"
    );
    assert_eq!(fs::read(&disk).expect("there"), vec![7; 1 << 20]);
    let left: Vec<_> = fs::read_dir(dir.path()).expect("there").collect();
    assert_eq!(left.len(), 1, "nothing else was made: {left:?}");
}

#[test]
fn what_holds_nothing_measures_nothing() {
    let dir = directory();
    let message = refused(dir.path(), &["."]);
    assert!(
        message.contains("a directory") && message.contains("--size"),
        "{message}"
    );
    let message = refused(dir.path(), &["no.raw"]);
    assert!(
        message.contains("no such file") && message.contains("--size"),
        "{message}"
    );
    File::create(dir.path().join("empty.raw")).expect("made");
    let message = refused(dir.path(), &["empty.raw", "--read-only"]);
    assert!(
        message.contains("is empty") && message.contains("--size"),
        "{message}"
    );
    let sparse = File::create(dir.path().join("sparse.raw")).expect("made");
    sparse.set_len(1 << 30).expect("a size");
    let message = refused(dir.path(), &["sparse.raw", "--read-only"]);
    assert!(message.contains("the file is all holes"), "{message}");
    let message = refused(dir.path(), &["no.raw", "--size", "4 KiB"]);
    assert!(message.contains("too small to measure"), "{message}");
    assert!(!dir.path().join("no.raw").exists(), "it is removed again");
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let dir = directory();
    let message = refused(dir.path(), &["nvme-1tb", "--size", "1 GiB"]);
    assert!(message.contains("--size is for disks"), "{message}");
    let message = refused(dir.path(), &["hdd-7200-1tb", "--depth", "33"]);
    assert!(
        message.contains("--depth 33") && message.contains("1 to 32"),
        "{message}"
    );
    let message = refused(dir.path(), &["nvme-2tb"]);
    assert!(message.contains("did you mean \"nvme-1tb\""), "{message}");
    let message = refused(dir.path(), &["disk.raw", "--live"]);
    assert!(message.contains("--live is for models"), "{message}");
    let message = refused(dir.path(), &["disk.raw", "--read-only", "--overwrite"]);
    assert!(message.contains("cannot be used with"), "{message}");
}

/// Steps that a measurement has kept.
fn kept(part: &Path) -> usize {
    let text = fs::read(part).unwrap_or_default();
    let part: Value = serde_json::from_slice(&text).unwrap_or_default();
    part["outcomes"].as_array().map_or(0, Vec::len)
}

/// Measures until so many steps are kept, and ends it with Ctrl-C; what it said.
fn stopped_after(steps: usize, dir: &Path, args: &[&str]) -> String {
    let child = command(dir, args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let part = dir.join("disk.profile.toml.part");
    let until = Instant::now() + Duration::from_secs(60);
    while kept(&part) < steps {
        assert!(Instant::now() < until, "{steps} steps take seconds");
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status();
    assert!(killed.expect("it runs").success());
    let output = child.wait_with_output().expect("it ends");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_was_stopped_goes_on() {
    let dir = directory();
    let args = ["disk.raw", "--size", "16 MiB", "--quick"];
    let part = dir.path().join("disk.profile.toml.part");
    let message = stopped_after(2, dir.path(), &args);
    assert!(message.contains("the same command resumes it"), "{message}");
    let first = kept(&part);
    assert!(first >= 2);
    assert_eq!(
        fs::metadata(dir.path().join("disk.raw"))
            .expect("it stays")
            .len(),
        16 << 20
    );
    // With another plan it does not.
    let other = ["disk.raw", "--size", "16 MiB", "--quick", "--seed", "2"];
    let message = refused(dir.path(), &other);
    assert!(
        message.contains("another plan") && message.contains("--fresh"),
        "{message}"
    );
    // Nor another disk under the same name.
    fs::create_dir(dir.path().join("other")).expect("made");
    let other = [
        "other",
        "--size",
        "16 MiB",
        "--results",
        "disk.profile.toml",
    ];
    let message = refused(dir.path(), &other);
    assert!(message.contains("another device"), "{message}");
    let left = fs::read_dir(dir.path().join("other"))
        .expect("there")
        .count();
    assert_eq!(left, 0, "nothing was made");
    let message = stopped_after(first + 1, dir.path(), &args);
    let known = format!("{first} of ");
    assert!(
        message.contains(&known) && message.contains("done before"),
        "{message}"
    );
}

#[test]
fn a_scratch_file_that_somebody_else_wrote_to_is_theirs() {
    let dir = directory();
    let args = ["disk.raw", "--size", "16 MiB", "--quick"];
    let disk = dir.path().join("disk.raw");
    stopped_after(1, dir.path(), &args);
    let inode = fs::metadata(&disk).expect("it stays").ino();
    // Not even another length.
    fs::write(&disk, vec![7; 16 << 20]).expect("written");
    assert_eq!(fs::metadata(&disk).expect("there").ino(), inode);
    for fresh in [&args[..], &[&args[..], &["--fresh"]].concat()] {
        let message = refused(dir.path(), fresh);
        assert!(message.contains("but the file exists"), "{message}");
    }
    let bytes = fs::read(&disk).expect("there");
    assert!(bytes.iter().all(|byte| *byte == 7), "it was written to");
}

#[test]
fn a_file_in_the_scratch_files_place_is_not_taken_for_it() {
    let dir = directory();
    let size = ["--size", "16 MiB"];
    let disk = dir.path().join("disk.raw");
    let part = dir.path().join("disk.profile.toml.part");
    stopped_after(1, dir.path(), &["disk.raw", size[0], size[1], "--quick"]);
    let inode = fs::metadata(&disk).expect("it stays").ino();
    fs::remove_file(&disk).expect("removed");
    // As large, and on many filesystems with the inode that is free now.
    fs::write(&disk, vec![7; 16 << 20]).expect("written");
    // On others as if it had got that.
    let text = fs::read_to_string(&part).expect("kept");
    let (old, new) = (
        format!(":{inode},"),
        format!(":{},", fs::metadata(&disk).expect("there").ino()),
    );
    assert_eq!(text.matches(&old).count(), 1, "{text}");
    fs::write(&part, text.replace(&old, &new)).expect("written");
    for args in [&["--quick"][..], &["--quick", "--fresh"]] {
        let message = refused(dir.path(), &[&["disk.raw"], args].concat());
        assert!(message.contains("contains data"), "{message}");
        let message = refused(dir.path(), &[&["disk.raw"], &size[..], args].concat());
        assert!(message.contains("but the file exists"), "{message}");
    }
    // Nor is what was learnt of the scratch file its own.
    let message = refused(dir.path(), &["disk.raw", "--quick", "--overwrite"]);
    assert!(message.contains("another device"), "{message}");
    let bytes = fs::read(&disk).expect("there");
    assert!(
        bytes.len() == 16 << 20 && bytes.iter().all(|byte| *byte == 7),
        "it is as it was"
    );
}
