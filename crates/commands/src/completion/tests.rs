//! Tests of candidates, against a control socket that answers what a test wants.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;
use crate::args;

/// Serves one request on a control socket with `body`; nothing at all if it is `None`.
fn control_socket(dir: &tempfile::TempDir, body: Option<&'static str>) -> PathBuf {
    let path = dir.path().join("control.sock");
    let listener = UnixListener::bind(&path).expect("a free path");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).expect("a request");
        match body {
            Some(body) => {
                let length = body.len();
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
                )
                .expect("the client reads");
            }
            // Silent until the client gives up and closes.
            None => while stream.read(&mut request).is_ok_and(|read| read > 0) {},
        }
    });
    path
}

const VMS: &str = r#"[{"name":"oltp","disks":[{"export":"oltp"},{"export":"a b"}]},
                     {"name":"bulk","disks":[{"export":"logs"}]}]"#;

/// Completes the last of `words` by the grammar, in a folder without files.
fn completed(words: &[&str]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let words: Vec<OsString> = ["tidegate"].iter().chain(words).map(Into::into).collect();
    let last = words.len() - 1;
    let mut command = args::command();
    clap_complete::engine::complete(&mut command, words, last, Some(dir.path()))
        .expect("a word of the grammar")
        .iter()
        .map(|candidate| candidate.get_value().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn names_come_from_the_daemon() {
    let dir = tempfile::tempdir().expect("a directory");
    let names = Object::Vm.names(&control_socket(&dir, Some(VMS)));
    assert_eq!(names, ["oltp", "bulk"]);
    let dir = tempfile::tempdir().expect("a directory");
    let names = Object::Export.names(&control_socket(&dir, Some(VMS)));
    assert_eq!(names, ["oltp", "logs"], "without the one that needs quotes");
    let dir = tempfile::tempdir().expect("a directory");
    let devices = control_socket(&dir, Some(r#"[{"name":"ram"}]"#));
    assert_eq!(Object::Device.names(&devices), ["ram"]);
}

#[test]
fn a_daemon_that_is_absent_silent_or_of_another_version_offers_nothing() {
    let nothing: [String; 0] = [];
    assert_eq!(Object::Vm.names(Path::new("/nonexistent/c.sock")), nothing);
    let dir = tempfile::tempdir().expect("a directory");
    let other = control_socket(&dir, Some(r#"{"vms":[]}"#));
    assert_eq!(Object::Vm.names(&other), nothing);
    let dir = tempfile::tempdir().expect("a directory");
    let silent = control_socket(&dir, None);
    assert_eq!(Object::Vm.names(&silent), nothing);
}

#[test]
fn the_socket_is_the_one_typed() {
    let typed = |words: &[&str]| {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        socket(&words)
    };
    let path = Path::new("/run/a.sock");
    assert_eq!(typed(&["tidegate", "--socket", "/run/a.sock", "vm"]), path);
    assert_eq!(typed(&["tidegate", "--socket=/run/a.sock", "vm"]), path);
    let split = ["tidegate", "--socket", "=", "/run/a.sock", "vm"];
    assert_eq!(typed(&split), path, "bash splits words at =");
}

#[test]
fn policies_are_completed_by_name_and_by_parts() {
    for words in [
        &["sim", "a.toml", "--policy", "mcl"][..],
        &["policy", "set", "disk0", "mcl"],
        &["policy", "show", "mcl"],
    ] {
        assert!(completed(words).contains(&"mclock".to_owned()), "{words:?}");
    }
    let listed = completed(&["compare", "a.toml", "--policy", "fifo,mcl"]);
    assert!(listed.contains(&"fifo,mclock".to_owned()), "{listed:?}");
    let parts = completed(&["sim", "a.toml", "--policy", "token-bucket+mcl"]);
    assert!(
        parts.contains(&"token-bucket+mclock".to_owned()),
        "{parts:?}"
    );
    for composed in &parts {
        assert!(args::parse_policy(composed).is_ok(), "{composed}");
    }
    let shown = completed(&["policy", "show", "bd-"]);
    assert!(shown.contains(&"bd-edf".to_owned()), "a part: {shown:?}");
}

#[test]
fn models_papers_and_mixes_are_completed() {
    for words in [
        &["sim", "a.toml", "--device", "hdd"][..],
        &["profile", "hdd"],
        &["profile", "show", "hdd"],
        &["promises", "--device", "nvme-1tb,hdd"],
    ] {
        let found = completed(words);
        let whole = |name: &String| name.ends_with("hdd-7200-1tb");
        assert!(found.iter().any(whole), "{words:?}: {found:?}");
    }
    assert!(completed(&["reproduce", "flu"]).contains(&"flubber".to_owned()));
    let mixes = completed(&["promises", "--mix", ""]);
    let first = &tidegate_experiments::promises::mixes()[0].name;
    assert!(mixes.contains(&first.to_string()), "{mixes:?}");
}

#[test]
fn options_are_offered_where_nothing_else_is() {
    let mut command = args::command();
    command.build();
    let mut command = without_options(command);
    let mut candidates = |words: &[&str]| {
        let words: Vec<OsString> = ["tidegate"].iter().chain(words).map(Into::into).collect();
        let last = words.len() - 1;
        let found = clap_complete::engine::complete(&mut command, words, last, None);
        let found = found.expect("a word of the grammar").into_iter();
        let values = found.map(|c| c.get_value().to_string_lossy().into_owned());
        values.collect::<Vec<_>>()
    };
    assert!(
        !candidates(&["reproduce", ""])
            .iter()
            .any(|c| c.starts_with('-'))
    );
    let start = candidates(&["transfer", "start", "dss", ""]);
    assert!(start.contains(&"--deadline".to_owned()), "{start:?}");
}

#[test]
fn every_shell_has_a_script_that_calls_the_program() {
    for shell in <Shell as clap::ValueEnum>::value_variants() {
        let script = script(*shell).expect("clap has it");
        let script = String::from_utf8(script).expect("text");
        assert!(script.contains(VARIABLE), "{shell}: {script}");
    }
}
