//! `tidegate export`: prints what attaches the disks of a VM to a hypervisor.

mod attachment;
mod cloud_hypervisor;
mod libvirt;
mod qemu;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use tidegate_api::endpoint::DiskEndpointsView;
use tidegate_api::query::percent_encode;
use tidegate_server::config::{self, Config, ListenConfig, VmConfig};
use tidegate_server::control::view;
use tidegate_server::persisted_vms::preview_start;
use tidegate_server::store::Store;

use self::attachment::{Attachment, Transport};
use crate::args::{AttachArgs, ExportCommand, Global, LibvirtArgs, MachineArgs};
use crate::client::read;
use crate::output::{self, Output};
use crate::problem::Problem;
use crate::shell;

/// Seconds for which a hypervisor holds requests of an NBD disk while the daemon is away: longer
/// than a restart, which opens all disks.
const NBD_RECONNECT_S: u32 = 60;
/// Seconds between attempts to connect to a vhost-user socket again.
const VHOST_RECONNECT_S: u32 = 1;

/// Result as JSON.
#[derive(Serialize)]
struct Report<'a> {
    vm: &'a str,
    disks: Vec<DiskReport<'a>>,
    /// Elements of libvirt's XML that belong directly below `<domain>`; absent where none is
    /// needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    domain_xml: Option<&'static str>,
    /// Arguments, not quoted; absent for libvirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Vec<String>>,
}

/// Disk in JSON.
#[derive(Serialize)]
struct DiskReport<'a> {
    export: &'a str,
    read_only: bool,
    #[serde(flatten)]
    transport: &'a Transport,
    /// Element of libvirt's XML; absent for other hypervisors.
    #[serde(skip_serializing_if = "Option::is_none")]
    xml: Option<String>,
}

/// Prints the disks of a VM in the hypervisor's form. `global` names the daemon.
pub(super) fn run(command: &ExportCommand, global: &Global, out: Output) -> Result<()> {
    match command {
        ExportCommand::Libvirt(args) => print_xml(args, global, out),
        ExportCommand::Qemu(args) => {
            let disks = disks(&args.attach, global)?;
            let arguments = qemu::arguments(&disks, args.memory);
            print_arguments(args, &disks, arguments, out)
        }
        ExportCommand::CloudHypervisor(args) => {
            let disks = disks(&args.attach, global)?;
            let arguments = cloud_hypervisor::arguments(&args.attach.vm, &disks, args.memory)?;
            print_arguments(args, &disks, arguments, out)
        }
    }
}

/// Attachment of all disks of a VM.
pub(super) struct Attached {
    /// URI of each disk that is served over NBD.
    pub(super) uris: Vec<String>,
    /// Arguments of QEMU, for a shell.
    pub(super) qemu: String,
}

/// Returns how the disks of a VM are attached.
///
/// # Errors
/// If no listener offers one of them.
pub(super) fn attached(vm: &VmConfig, listeners: &[ListenConfig]) -> Result<Attached> {
    let all = AttachArgs {
        vm: vm.name.clone(),
        disk: None,
        config: None,
        listener: None,
    };
    let disks = attachment::choose(&all, &view::disk_endpoints(vm, listeners))?;
    Ok(Attached {
        uris: disks.iter().filter_map(Attachment::uri).collect(),
        // The memory is of no interest: it is shared only with vhost-user.
        qemu: for_shell(&qemu::arguments(&disks, 1 << 30)),
    })
}

fn print_xml(args: &LibvirtArgs, global: &Global, out: Output) -> Result<()> {
    let disks = disks(&args.attach, global)?;
    disks.iter().for_each(note_mode);
    let mut elements = Vec::new();
    for (disk, letter) in disks.iter().zip(args.target..='z') {
        let target = format!("vd{letter}");
        elements.push(libvirt::disk(disk, &target, !args.no_reconnect));
    }
    if elements.len() < disks.len() {
        let what = format!("{} disks do not fit behind vd{}", disks.len(), args.target);
        let problem = Problem::new(what).at("--target");
        return Err(problem.help("begin earlier, or use --disk").into());
    }
    let shares = disks.iter().any(|disk| disk.transport.shares_memory());
    let domain_xml = shares.then_some(libvirt::MEMORY_BACKING);
    if !out.is_json() {
        return Ok(out.text(&(domain_xml.unwrap_or_default().to_owned() + &elements.concat()))?);
    }
    let elements = elements.into_iter().map(Some);
    out.json(&Report {
        vm: &args.attach.vm,
        disks: (disks.iter().zip(elements))
            .map(|(disk, xml)| disk_report(disk, xml))
            .collect(),
        domain_xml,
        arguments: None,
    })
}

/// Prints a note if only the daemon's user may connect to the socket of a disk: libvirt runs QEMU
/// as a user of its own. A socket that does not exist yet says nothing.
fn note_mode(disk: &Attachment) {
    let (Transport::NbdUnix { unix } | Transport::VhostUser { unix }) = &disk.transport else {
        return;
    };
    // Write permission of the group or of others is what connecting takes, unix(7).
    let mode = fs::metadata(unix).map(|socket| socket.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o022 == 0) {
        output::tell(format_args!(
            "note: only the daemon's user may connect to {unix}, and libvirt runs QEMU as another \
             one: set mode = \"0660\" and group = \"QEMU's\" in [[listen]]"
        ));
    }
}

fn print_arguments(
    args: &MachineArgs,
    disks: &[Attachment],
    arguments: Vec<String>,
    out: Output,
) -> Result<()> {
    if !out.is_json() {
        return Ok(out.text(&for_shell(&arguments))?);
    }
    out.json(&Report {
        vm: &args.attach.vm,
        disks: disks.iter().map(|disk| disk_report(disk, None)).collect(),
        domain_xml: None,
        arguments: Some(arguments),
    })
}

fn disk_report(disk: &Attachment, xml: Option<String>) -> DiskReport<'_> {
    DiskReport {
        export: &disk.export,
        read_only: disk.read_only,
        transport: &disk.transport,
        xml,
    }
}

/// Returns the disks that the options choose, of the daemon or of a file.
fn disks(args: &AttachArgs, global: &Global) -> Result<Vec<Attachment>> {
    let all = match &args.config {
        Some(file) => from_file(&args.vm, file)?,
        None => {
            let path = format!("/v1/vms/{}/endpoints", percent_encode(&args.vm));
            // Errors of the connection are of this type, those that the daemon answers are not.
            let answer = (global.client()?.get(&path)).map_err(|error| {
                let or_file = |problem: Problem| problem.or_else("add --config FILE").into();
                error.downcast().map_or_else(|error| error, or_file)
            })?;
            read(answer)?
        }
    };
    attachment::choose(args, &all)
}

/// Returns the disks of a VM with their listeners, as `tidegate serve` would offer them with the
/// configuration in `file`: VMs in its store included.
fn from_file(vm: &str, file: &Path) -> Result<Vec<DiskEndpointsView>> {
    let mut config = config::load(file)?.config;
    add_persisted(&mut config);
    let found = config.vms.iter().find(|known| known.name == vm);
    let found = found.ok_or_else(|| {
        let names: Vec<_> = config.vms.iter().map(|vm| vm.name.as_str()).collect();
        let problem = Problem::new(format!("there is no VM {vm:?}"));
        let problem = problem.at(file.display().to_string());
        problem.help(format!("there are: {}", names.join(", ")))
    })?;
    Ok(view::disk_endpoints(found, &config.listeners))
}

/// Adds the VMs of the configuration's store. Without a readable store there are only those of the
/// file, and a note says so.
fn add_persisted(config: &mut Config) {
    let Some(store) = config.store.clone() else {
        return;
    };
    match Store::read_vms(&store.path) {
        // `tidegate check` explains changes that cannot be applied.
        Ok(records) => drop(preview_start(&records, config)),
        Err(error) => output::tell(format_args!("note: persisted VMs are not known: {error}")),
    }
}

/// Returns options with their values for a shell: a line each, continued by a backslash. A value
/// that is no option follows on the same line.
fn for_shell(arguments: &[String]) -> String {
    let mut text = String::new();
    for argument in arguments {
        let separator = match (text.is_empty(), argument.starts_with('-')) {
            (true, _) => "",
            (false, true) => " \\\n",
            (false, false) => " ",
        };
        text = text + separator + &shell::quoted(argument);
    }
    text + "\n"
}

/// Returns a size in the unit that QEMU and Cloud Hypervisor both take, rounded up.
fn mebibytes(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_and_continued() {
        let words = ["-object", "a=b", "--disk", "c d", "it's"].map(str::to_owned);
        assert_eq!(
            for_shell(&words),
            "-object a=b \\\n--disk 'c d' 'it'\\''s'\n"
        );
    }

    #[test]
    fn sizes_are_in_mebibytes() {
        assert_eq!(mebibytes(1 << 30), "1024M");
        assert_eq!(mebibytes(1), "1M");
    }
}
