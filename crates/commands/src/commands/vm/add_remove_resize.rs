//! `tidegate vm add`, `remove` and `resize`.

use std::io;
use std::path::Path;

use anyhow::Result;
use hyper::Method;
use serde_json::{Value, json};
use tidegate_api::disk::{DiskRequest, SizeRequest};
use tidegate_api::query::{ChangeQuery, percent_encode};
use tidegate_api::vm::{Removed, VmRequest, VmView};
use tidegate_config::{Field, Section, document};
use tidegate_report::{Cell, Table, Tone};

use super::{change, describe};
use crate::args::{AddArgs, DiskArg, RemoveArgs, ResizeArgs};
use crate::client::{Client, read};
use crate::output::Output;
use crate::problem::Problem;
use crate::progress::DelayedBar;

pub(super) fn add(args: &AddArgs, client: &Client, out: Output) -> Result<()> {
    let vms = match (&args.file, &args.name) {
        (Some(file), _) => from_file(file)?,
        (None, Some(name)) => vec![serde_json::to_value(typed(name, args))?],
        (None, None) => unreachable!("one of them is required"),
    };
    let query = ChangeQuery {
        force: args.force,
        persist: args.persist,
    };
    // Stops at the first VM that is refused; VMs added before it stay.
    let mut answers = Vec::new();
    let mut progress = DelayedBar::new(vms.len() as u64, "adding VMs");
    for vm in vms {
        let name = vm["name"].as_str().unwrap_or_default();
        progress.set(answers.len() as u64, || name.to_owned());
        let path = format!("/v1/vms/{}{query}", percent_encode(name));
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

/// Returns the VM that the options describe.
fn typed(name: &str, args: &AddArgs) -> VmRequest {
    VmRequest {
        name: Some(name.to_owned()),
        device: args.device.clone(),
        background: args.background,
        max_connections: args.max_connections,
        objective: change(&args.parts),
        disk: args.disks.iter().map(typed_disk).collect(),
    }
}

/// Returns the disk that the options describe. Unknown keys and wrong values are passed on
/// unchanged, so that the daemon reports them.
fn typed_disk(DiskArg(keys): &DiskArg) -> DiskRequest {
    let mut disk = DiskRequest::default();
    for (key, text) in keys {
        let flag = text.parse::<bool>().ok();
        let field = match (key.as_str(), flag) {
            ("read_only", Some(flag)) => {
                disk.read_only = Some(flag);
                continue;
            }
            ("incoming", Some(flag)) => {
                disk.incoming = Some(flag);
                continue;
            }
            ("export", None) => &mut disk.export,
            ("path", None) => &mut disk.path,
            ("size", None) => &mut disk.size,
            ("create", None) => &mut disk.create,
            ("format", None) => &mut disk.format,
            ("block_size", None) => &mut disk.block_size,
            ("limit_group", None) => &mut disk.limit_group,
            _ => {
                let value = flag.map_or_else(|| Value::from(text.as_str()), Value::from);
                disk.other.insert(key.clone(), value);
                continue;
            }
        };
        *field = Some(text.clone());
    }
    disk
}

/// Returns the `[[vm]]` tables of a file as JSON.
fn from_file(file: &Path) -> Result<Vec<Value>> {
    let (text, name) = if file == Path::new("-") {
        let text = io::read_to_string(io::stdin());
        let failed = |error| Problem::new(format!("cannot read standard input: {error}"));
        (text.map_err(failed)?, "standard input".to_owned())
    } else {
        let text = document::read_text(file).map_err(Problem::new)?;
        (text, file.display().to_string())
    };
    let loaded = document::read(&text, &name, |root: &Field<'_>| {
        let mut section = Section::open(root)?;
        let vms = section.take_tables("vm");
        if vms.is_empty() {
            section.error("no [[vm]] section", "add a [[vm]] as in the configuration");
        }
        section.finish();
        Some(vms.iter().map(|vm| vm.node().to_json()).collect())
    })?;
    Ok(loaded.config)
}

pub(super) fn remove(args: &RemoveArgs, client: &Client, out: Output) -> Result<()> {
    let name = percent_encode(&args.name);
    let query = ChangeQuery {
        force: args.force,
        persist: args.persist,
    };
    let (path, what) = match &args.disk {
        Some(disk) => (
            format!("/v1/vms/{name}/disks/{}{query}", percent_encode(disk)),
            format!("VM {:?} with a disk {disk:?}", args.name),
        ),
        None => (
            format!("/v1/vms/{name}{query}"),
            format!("VM {:?}", args.name),
        ),
    };
    // Removing what does not exist succeeds without --strict, so that scripts can be repeated.
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
    let mut table = Table::properties();
    table.property("removed", Cell::from(removed.removed).tone(Tone::Strong));
    for failed in removed.not_flushed {
        table.property("not flushed", Cell::from(failed).tone(Tone::Bad));
    }
    Ok(out.table(&table)?)
}

pub(super) fn resize(args: &ResizeArgs, client: &Client, out: Output) -> Result<()> {
    let name = percent_encode(&args.name);
    let (export, size) = match &args.disk[..] {
        [export, size] => (export.clone(), size),
        [size] => (only_disk(&args.name, client)?, size),
        _ => unreachable!("one or two values are allowed"),
    };
    let query = ChangeQuery {
        force: args.shrink,
        persist: args.persist,
    };
    let path = format!("/v1/vms/{name}/disks/{}{query}", percent_encode(&export));
    let size = SizeRequest { size: size.clone() };
    let answer = client.change_slowly(Method::PATCH, &path, &size)?;
    if out.is_json() {
        return out.json(&answer);
    }
    Ok(out.table(&describe(&read(answer)?))?)
}

/// Returns the export name of a VM's only disk.
fn only_disk(name: &str, client: &Client) -> Result<String> {
    let vm: VmView = read(client.get(&format!("/v1/vms/{}", percent_encode(name)))?)?;
    let exports: Vec<String> = vm.disks.into_iter().map(|disk| disk.export).collect();
    match &exports[..] {
        [only] => Ok(only.clone()),
        _ => Err(Problem::new(format!("VM {name:?} has several disks"))
            .help(format!(
                "name one: tidegate vm resize {name} EXPORT SIZE, with EXPORT one of {}",
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
        let typed = serde_json::to_value(typed).expect("plain data");
        assert_eq!(from_file(&file).expect("good"), [typed]);
        std::fs::write(&file, "[[vm]]\nname = oltp\n").expect("writable");
        let refused = from_file(&file).expect_err("not TOML").to_string();
        assert!(refused.contains("vm.toml:2:8"), "{refused}");
        std::fs::write(&file, "[[device]]\nname = \"d\"\n").expect("writable");
        let refused = from_file(&file).expect_err("no VM").to_string();
        assert!(refused.contains("no [[vm]] section"), "{refused}");
    }
}
