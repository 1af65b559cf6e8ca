//! `tidegate vm export` and `import`: learnt state of a VM in a file.

use std::path::Path;

use anyhow::Result;
use hyper::Method;
use serde_json::{Value, json};
use tidegate_api::query::{LearntDisks, LearntQuery, percent_encode};
use tidegate_report::{Cell, Table, Tone};
use tidegate_server::learnt_state_file::LearntStateFile;
use tidegate_units::human;

use super::describe;
use crate::args::ImportArgs;
use crate::atomic_file;
use crate::client::{Client, read};
use crate::output::Output;
use crate::problem::Problem;

/// Maximum size in bytes of a file of learnt state.
const FILE_MAX: u64 = 128 << 10;

pub(super) fn export(name: &str, file: Option<&Path>, client: &Client, out: Output) -> Result<()> {
    let answer = client.get(&format!("/v1/vms/{}/learnt", percent_encode(name)))?;
    let Some(file) = file else {
        return out.json(&answer);
    };
    let text = serde_json::to_string_pretty(&answer)? + "\n";
    atomic_file::write(file, text.as_bytes())?;
    let learnt: LearntStateFile = read(answer)?;
    let (path, bytes) = (file.display().to_string(), text.len());
    if out.is_json() {
        return out.json(&json!({
            "vm": learnt.vm, "policy": learnt.policy, "controller": learnt.controller,
            "disks": learnt.disks, "file": path, "bytes": bytes,
        }));
    }
    let mut table = Table::properties();
    table
        .property("VM", Cell::from(learnt.vm).tone(Tone::Strong))
        .property(
            "from",
            format!("controller {}, policy {}", learnt.controller, learnt.policy),
        )
        .property("disks on", disks(&learnt.disks))
        .property(
            "written to",
            format!("{path}, {}", human::bytes(bytes as u64)),
        );
    Ok(out.table(&table)?)
}

/// Returns the devices of the disks on which the state was learnt.
fn disks(disks: &[String]) -> String {
    match disks {
        [] => "storage that cannot be identified".to_owned(),
        disks => disks.join(", "),
    }
}

pub(super) fn import(args: &ImportArgs, client: &Client, out: Output) -> Result<()> {
    let file = read_file(&args.file)?;
    let disks = match (args.disk_moved, args.same_disk) {
        (true, _) => LearntDisks::Different,
        (false, true) => LearntDisks::Same,
        (false, false) => LearntDisks::Detect,
    };
    let query = LearntQuery { disks };
    let path = format!("/v1/vms/{}/learnt{query}", percent_encode(&args.name));
    let answer = client.change(Method::PUT, &path, &file)?;
    if out.is_json() {
        return out.json(&answer);
    }
    Ok(out.table(&describe(&read(answer)?))?)
}

/// Reads and checks a file of learnt state, so that errors name the file. The daemon checks again.
fn read_file(path: &Path) -> Result<Value> {
    let at = path.display().to_string();
    let help = "give a file written by `tidegate vm export`";
    let Some(text) = atomic_file::read(path, FILE_MAX)? else {
        return Err(Problem::new("no such file").at(at).help(help).into());
    };
    let refused = |what: String| Problem::new(what).at(at.clone()).help(help);
    let file: Value =
        serde_json::from_str(&text).map_err(|error| refused(format!("not JSON: {error}")))?;
    LearntStateFile::read(&file).map_err(|error| refused(error.to_string()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_one_is_refused_by_its_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("learnt.json");
        let refused = || format!("{:#}", read_file(&path).expect_err("refused"));
        assert!(refused().contains("no such file"), "{}", refused());
        for (text, message) in [
            ("", "not JSON"),
            ("{", "not JSON"),
            ("{}", "\"format\" is missing"),
            (
                "{\"format\": \"tidegate-learnt\", \"version\": 9}",
                "format version 9",
            ),
        ] {
            std::fs::write(&path, text).expect("writable");
            let refused = refused();
            assert!(refused.contains(message), "{message}: {refused}");
            assert!(refused.contains("learnt.json"), "{refused}");
            assert!(refused.contains("vm export"), "{refused}");
        }
    }
}
