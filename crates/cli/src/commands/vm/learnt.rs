//! `tidegate vm export` and `import`: what the policy has learnt of a VM, as a file.

use std::path::Path;

use anyhow::Result;
use hyper::Method;
use serde_json::{Value, json};
use tidegate_api::query::{LearntDisks, LearntQuery};
use tidegate_report::{Cell, Table, Tone};
use tidegate_server::learnt_file::LearntFile;

use super::describe;
use crate::args::ImportArgs;
use crate::client::{Client, escape, read};
use crate::kept;
use crate::output::Output;
use crate::problem::Problem;

/// A file that holds more is none of these.
const FILE_MAX: u64 = 128 << 10;

pub(super) fn export(name: &str, file: Option<&Path>, client: &Client, out: Output) -> Result<()> {
    let answer = client.get(&format!("/v1/vms/{}/learnt", escape(name)))?;
    let Some(file) = file else {
        return out.json(&answer);
    };
    let text = serde_json::to_string_pretty(&answer)? + "\n";
    kept::write(file, text.as_bytes())?;
    let learnt: LearntFile = read(answer)?;
    let (path, bytes) = (file.display().to_string(), text.len());
    if out.is_json() {
        return out.json(&json!({
            "vm": learnt.vm, "policy": learnt.policy, "controller": learnt.controller,
            "disks": learnt.disks, "file": path, "bytes": bytes,
        }));
    }
    let mut table = Table::facts();
    table
        .fact("VM", Cell::from(learnt.vm).tone(Tone::Strong))
        .fact(
            "learnt by",
            format!("{}, policy {}", learnt.controller, learnt.policy),
        )
        .fact("of disks on", disks(&learnt.disks))
        .fact("written to", format!("{path}, {bytes} bytes"));
    Ok(out.table(&table)?)
}

fn disks(disks: &[String]) -> String {
    match disks {
        [] => "what nothing tells from others".to_owned(),
        disks => disks.join(", "),
    }
}

pub(super) fn import(args: &ImportArgs, client: &Client, out: Output) -> Result<()> {
    let file = read_file(&args.file)?;
    let disks = match (args.disk_moved, args.same_disk) {
        (true, _) => LearntDisks::Moved,
        (false, true) => LearntDisks::Same,
        (false, false) => LearntDisks::Tell,
    };
    let query = LearntQuery { disks };
    let path = format!("/v1/vms/{}/learnt{query}", escape(&args.name));
    let answer = client.change(Method::PUT, &path, &file)?;
    if out.is_json() {
        return out.json(&answer);
    }
    Ok(out.table(&describe(&read(answer)?))?)
}

/// Read here too, so that what is wrong with it is said with its name.
fn read_file(path: &Path) -> Result<Value> {
    let at = path.display().to_string();
    let help = "name a file that `tidegate vm export` wrote";
    let Some(text) = kept::read(path, FILE_MAX)? else {
        return Err(Problem::new("there is no such file")
            .at(at)
            .help(help)
            .into());
    };
    let refused = |what: String| Problem::new(what).at(at.clone()).help(help);
    let file: Value = serde_json::from_str(&text)
        .map_err(|error| refused(format!("this is not JSON: {error}")))?;
    LearntFile::read(&file).map_err(|error| refused(error.to_string()))?;
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
        for (text, said) in [
            ("", "not JSON"),
            ("{", "not JSON"),
            ("{}", "names no format"),
            (
                "{\"format\": \"tidegate-learnt\", \"version\": 9}",
                "version 9 of the format",
            ),
        ] {
            std::fs::write(&path, text).expect("writable");
            let refused = refused();
            assert!(refused.contains(said), "{said}: {refused}");
            assert!(refused.contains("learnt.json"), "{refused}");
            assert!(refused.contains("vm export"), "{refused}");
        }
    }
}
