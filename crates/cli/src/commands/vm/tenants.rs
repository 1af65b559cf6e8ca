//! `tidegate vm add`, `remove` and `resize`: who is served from now on.

use std::path::Path;

use anyhow::Result;
use hyper::Method;
use serde_json::{Map, Value, json};
use tidegate_config::{Field, Section, document};
use tidegate_report::{Cell, Table, Tone};
use tidegate_server::control::Removed;
use tidegate_server::control::view::VmView;

use super::{change, describe};
use crate::args::{AddArgs, DiskArg, RemoveArgs, ResizeArgs};
use crate::client::{Client, escape, read};
use crate::output::Output;
use crate::problem::Problem;
use crate::progress::Patient;

/// What is asked for beside the change itself.
pub(super) fn query(force: bool, persist: bool) -> &'static str {
    match (force, persist) {
        (false, false) => "",
        (true, false) => "?force=true",
        (false, true) => "?persist=true",
        (true, true) => "?force=true&persist=true",
    }
}

pub(super) fn add(args: &AddArgs, client: &Client, out: Output) -> Result<()> {
    let vms = match (&args.file, &args.name) {
        (Some(file), _) => from_file(file)?,
        (None, Some(name)) => vec![typed(name, args)],
        (None, None) => unreachable!("one of them is required"),
    };
    let mut answers = Vec::new();
    let mut progress = Patient::new(vms.len() as u64, "adding VMs");
    for vm in vms {
        let name = vm["name"].as_str().unwrap_or_default();
        progress.at(answers.len() as u64, || name.to_owned());
        let path = format!(
            "/v1/vms/{}{}",
            escape(name),
            query(args.force, args.persist)
        );
        answers.push(client.change_slowly(Method::PUT, &path, &vm)?);
    }
    drop(progress);
    if out.is_json() {
        return match (&args.file, &answers[..]) {
            (None, [answer]) => out.json(answer),
            _ => out.json(&answers),
        };
    }
    for answer in answers {
        out.table(&describe(&read(answer)?))?;
    }
    Ok(())
}

/// The VM that was typed, in the words of the configuration.
fn typed(name: &str, args: &AddArgs) -> Value {
    let mut vm = Map::new();
    vm.insert("name".to_owned(), json!(name));
    if let Some(device) = &args.device {
        vm.insert("device".to_owned(), json!(device));
    }
    if args.background {
        vm.insert("background".to_owned(), json!(true));
    }
    if let Some(max) = args.max_connections {
        vm.insert("max_connections".to_owned(), json!(max));
    }
    let Value::Object(objective) = change(&args.parts) else {
        unreachable!("a change is an object");
    };
    if !objective.is_empty() {
        vm.insert("objective".to_owned(), objective.into());
    }
    let disks: Vec<Value> = args.disks.iter().map(typed_disk).collect();
    vm.insert("disk".to_owned(), disks.into());
    vm.into()
}

fn typed_disk(DiskArg(keys): &DiskArg) -> Value {
    let value = |text: &str| match text {
        "true" => json!(true),
        "false" => json!(false),
        text => json!(text),
    };
    let keys = keys.iter().map(|(key, text)| (key.clone(), value(text)));
    Value::Object(keys.collect())
}

/// The VMs of a file.
fn from_file(file: &Path) -> Result<Vec<Value>> {
    let text = document::read_text(file).map_err(Problem::new)?;
    let loaded = document::read(&text, &file.display().to_string(), |root: &Field<'_>| {
        let mut section = Section::of(root)?;
        let vms = section.take_tables("vm");
        if vms.is_empty() {
            section.error("there is no VM in it", "a [[vm]], as in the configuration");
        }
        section.finish();
        Some(vms.iter().map(|vm| vm.node().to_json()).collect())
    })?;
    Ok(loaded.config)
}

pub(super) fn remove(args: &RemoveArgs, client: &Client, out: Output) -> Result<()> {
    let name = escape(&args.name);
    let (path, what) = match &args.disk {
        Some(disk) => (
            format!(
                "/v1/vms/{name}/disks/{}{}",
                escape(disk),
                query(args.force, args.persist)
            ),
            format!("VM {:?} with a disk {disk:?}", args.name),
        ),
        None => (
            format!("/v1/vms/{name}{}", query(args.force, args.persist)),
            format!("VM {:?}", args.name),
        ),
    };
    let removed = match client.remove(&path)? {
        Ok(removed) => removed,
        Err(missing) if args.strict => return Err(missing),
        Err(_) if out.is_json() => return out.json(&json!({ "removed": null, "not_flushed": [] })),
        Err(_) => return Ok(out.text(&format!("There is no {what}: nothing to remove.\n"))?),
    };
    if out.is_json() {
        return out.json(&removed);
    }
    let removed: Removed = read(removed)?;
    let mut table = Table::facts();
    table.fact("removed", Cell::from(removed.removed).tone(Tone::Strong));
    for failed in removed.not_flushed {
        table.fact("not flushed", Cell::from(failed).tone(Tone::Bad));
    }
    Ok(out.table(&table)?)
}

pub(super) fn resize(args: &ResizeArgs, client: &Client, out: Output) -> Result<()> {
    let name = escape(&args.name);
    let (export, size) = match &args.disk[..] {
        [export, size] => (export.clone(), size),
        [size] => (only_disk(&args.name, client)?, size),
        _ => unreachable!("one or two values are allowed"),
    };
    let force = query(args.shrink, args.persist);
    let path = format!("/v1/vms/{name}/disks/{}{force}", escape(&export));
    let answer = client.change_slowly(Method::PATCH, &path, &json!({ "size": size }))?;
    if out.is_json() {
        return out.json(&answer);
    }
    Ok(out.table(&describe(&read(answer)?))?)
}

/// The export of a VM's only disk.
fn only_disk(name: &str, client: &Client) -> Result<String> {
    let vm: VmView = read(client.get(&format!("/v1/vms/{}", escape(name)))?)?;
    let exports: Vec<String> = vm.disks.into_iter().map(|disk| disk.export).collect();
    match &exports[..] {
        [only] => Ok(only.clone()),
        _ => Err(Problem::new(format!("VM {name:?} has several disks"))
            .help(format!(
                "say which: tidegate vm resize {name} EXPORT SIZE, one of {}",
                exports.join(", ")
            ))
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command, VmCommand};
    use clap::Parser;

    #[test]
    fn what_is_typed_says_the_same_as_a_file() {
        let line = [
            "tidegate",
            "vm",
            "add",
            "oltp",
            "--device",
            "disk0",
            "--disk",
            "path=oltp.raw,size=20 GiB,create=sparse,read_only=false",
            "--reservation",
            "120 IOPS",
            "--weight",
            "7",
            "--limit",
            "500 IOPS",
        ];
        let typed = match Args::try_parse_from(line).expect("good").command {
            Command::Vm(VmCommand::Add(args)) => typed("oltp", &args),
            other => panic!("{other:?}"),
        };
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("vm.toml");
        let text = "[[vm]]\nname = \"oltp\"\ndevice = \"disk0\"\n\
                    [vm.objective]\nreservation = \"120 IOPS\"\nweight = 7\n\
                    limit = { total = \"500 IOPS\" }\n\
                    [[vm.disk]]\npath = \"oltp.raw\"\nsize = \"20 GiB\"\ncreate = \"sparse\"\n\
                    read_only = false\n";
        std::fs::write(&file, text).expect("writable");
        assert_eq!(from_file(&file).expect("good"), [typed]);
        std::fs::write(&file, "[[vm]]\nname = oltp\n").expect("writable");
        let refused = from_file(&file).expect_err("not TOML").to_string();
        assert!(refused.contains("vm.toml:2:8"), "{refused}");
        std::fs::write(&file, "[[device]]\nname = \"d\"\n").expect("writable");
        let refused = from_file(&file).expect_err("no VM").to_string();
        assert!(refused.contains("there is no VM in it"), "{refused}");
    }
}
