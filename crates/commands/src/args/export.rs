//! Options of `tidegate export`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueHint};

use super::value::parse_size;
use crate::completion;

/// Hypervisors.
#[derive(Debug, Subcommand)]
pub(crate) enum ExportCommand {
    /// Print the <disk> elements of a VM, for `virsh attach-device` or `virsh edit`
    #[command(
        after_help = "An NBD disk is one element. A vhost-user disk also needs guest memory that \
                      is shared with the daemon: <memoryBacking>, which is printed first and \
                      belongs directly below <domain>. docs/attach-libvirt.md has the \
                      whole way to a running guest.\n\nExamples:
  tidegate export libvirt db > db.xml && virsh attach-device db db.xml --config
  tidegate export libvirt db --target vda          the domain's first disk
  tidegate export libvirt db -o json | jq -r '.disks[0].xml'"
    )]
    Libvirt(LibvirtArgs),
    /// Print QEMU's arguments for the disks of a VM
    #[command(
        after_help = "The arguments are quoted for a shell and end with a backslash where another \
                      line follows, so that they can be pasted behind qemu-system-x86_64 ... \\. \
                      -o json has them as a list.\n\nExamples:
  tidegate export qemu db
  tidegate export qemu db --config /etc/tidegate/tidegate.toml
  disks=$(tidegate export qemu db) &&
      eval \"qemu-system-x86_64 -m 1G -accel kvm $disks\"
  tidegate export qemu db --memory \"4 GiB\"        for a vhost-user disk"
    )]
    Qemu(MachineArgs),
    /// Print Cloud Hypervisor's arguments for the disks of a VM
    #[command(
        after_help = "Cloud Hypervisor has no NBD: the disks need a vhost-user listener. The \
                      arguments follow its documentation and were not run with it.\n\nExamples:
  tidegate export cloud-hypervisor db --memory \"4 GiB\""
    )]
    CloudHypervisor(MachineArgs),
}

/// Choice of disks and listeners.
#[derive(Debug, ClapArgs)]
pub(crate) struct AttachArgs {
    /// VM name
    #[arg(add = completion::vms())]
    pub(crate) vm: String,
    /// Only this disk, by its export name [default: all disks of the VM]
    #[arg(long, value_name = "EXPORT", add = completion::exports())]
    pub(crate) disk: Option<String>,
    /// Take the VM from a configuration file instead of the running daemon
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Listener to use, by protocol (nbd, vhost-user), socket or address
    ///
    /// By default vhost-user comes before NBD on a unix socket, and TCP comes last.
    #[arg(long, value_name = "LISTENER")]
    pub(crate) listener: Option<String>,
}

/// Options of libvirt.
#[derive(Debug, ClapArgs)]
pub(crate) struct LibvirtArgs {
    #[command(flatten)]
    pub(crate) attach: AttachArgs,
    /// Target of the first disk, vda to vdz; further disks get the letters after it
    #[arg(long, value_name = "NAME", default_value = "vdb", value_parser = parse_target)]
    pub(crate) target: char,
    /// Leave out <reconnect delay>, which libvirt 9.0 refuses in `virsh edit` and ignores elsewhere
    #[arg(long)]
    pub(crate) no_reconnect: bool,
}

/// Options of hypervisors that are started by their arguments.
#[derive(Debug, ClapArgs)]
pub(crate) struct MachineArgs {
    #[command(flatten)]
    pub(crate) attach: AttachArgs,
    /// Memory of the guest, which a vhost-user disk has to share
    #[arg(long, value_name = "SIZE", default_value = "1 GiB", value_parser = parse_size)]
    pub(crate) memory: u64,
}

/// Parses the name of a virtio disk, and returns its letter.
fn parse_target(text: &str) -> Result<char, String> {
    let letter = text.strip_prefix("vd").filter(|letter| letter.len() == 1);
    let letter = letter.and_then(|letter| letter.chars().next());
    let letter = letter.filter(char::is_ascii_lowercase);
    letter.ok_or_else(|| "allowed: vda to vdz".to_owned())
}
