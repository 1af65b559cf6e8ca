//! Options of `tidegate import`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueHint};
use tidegate_config::is_name;

use super::value::parse_size;
use crate::completion;

/// Help text of `import` after the subcommands.
pub(super) const HELP: &str = "\
Prints one [[vm]] for each guest, with its disks and limits; a throttle group of several disks \
becomes a [[device.limit_group]]. All that has no counterpart is named with its place on standard \
error, and in comments of the output. Nothing is changed. docs/import.md has what becomes what.

Examples:
  virsh dumpxml web | tidegate import libvirt -
  tidegate import proxmox /etc/pve/qemu-server/100.conf
  tidegate import qemu --file /proc/4711/cmdline
  tidegate import openstack quota:disk_total_iops_sec=500 --name small
  tidegate import libvirt web.xml --complete > tidegate.toml";

/// Formats that are read.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Read domains of libvirt: <iotune>, <throttlegroups> and <blkiotune>
    #[command(after_help = "Examples:
  tidegate import libvirt web.xml db.xml
  virsh dumpxml web | tidegate import libvirt -")]
    Libvirt(ImportFormatArgs),
    /// Read VMs of Proxmox VE: mbps, iops and so on of their drives
    #[command(
        after_help = "Volumes of the storages local, local-lvm and local-zfs are found as a new \
                      installation has them; --storage reads where those of this installation \
                      are.\n\nExamples:
  tidegate import proxmox /etc/pve/qemu-server/*.conf \\
      --storage /etc/pve/storage.cfg"
    )]
    Proxmox(ProxmoxArgs),
    /// Read a command line of QEMU: throttling options and throttle-group objects
    #[command(after_help = "Examples:
  tidegate import qemu qemu-system-x86_64 -drive \\
      file=a.raw,format=raw,throttling.iops-total=500
  tidegate import qemu --file start-web.sh
  tidegate import qemu --file /proc/4711/cmdline")]
    Qemu(QemuArgs),
    /// Read extra specs of a flavor of Nova, or QoS specs of Cinder
    #[command(
        after_help = "SPECS are KEY=VALUE, or files with what `openstack flavor show -f json` or \
                      `openstack volume qos show -f json` prints. They name no disk: without \
                      --path, a path is made up.\n\nExamples:
  tidegate import openstack quota:disk_read_bytes_sec=50000000 --name small
  openstack volume qos show gold -f json | tidegate import openstack -"
    )]
    Openstack(OpenstackArgs),
}

/// Options of all formats.
#[derive(Debug, ClapArgs)]
pub(crate) struct ImportOptions {
    /// Device of the VMs [default: the only one]
    #[arg(long, value_name = "NAME", value_parser = parse_name, add = completion::devices())]
    pub(crate) device: Option<String>,
    /// Print a whole configuration, with sockets and a device, instead of [[vm]] tables alone
    #[arg(long)]
    pub(crate) complete: bool,
}

/// Files of one format.
#[derive(Debug, ClapArgs)]
pub(crate) struct ImportFormatArgs {
    /// Files to read; - is standard input
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) options: ImportOptions,
}

/// Options of Proxmox VE.
#[derive(Debug, ClapArgs)]
pub(crate) struct ProxmoxArgs {
    #[command(flatten)]
    pub(crate) files: ImportFormatArgs,
    /// Storages of the cluster, to find the paths of volumes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) storage: Option<PathBuf>,
}

/// Options of QEMU.
#[derive(Debug, ClapArgs)]
pub(crate) struct QemuArgs {
    /// File with a command line, as for a shell or with zero bytes between words; - is standard
    /// input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          required_unless_present = "words", conflicts_with = "words")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: ImportOptions,
    /// Command line, beginning with the program
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<String>,
}

/// Options of OpenStack.
#[derive(Debug, ClapArgs)]
pub(crate) struct OpenstackArgs {
    /// Specs: KEY=VALUE, or files; - is standard input
    #[arg(required = true, value_name = "SPECS", value_hint = ValueHint::FilePath)]
    pub(crate) specs: Vec<String>,
    /// Name of the VM [default: that of the flavor or QoS specs]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,
    /// Path of its disk
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) path: Option<PathBuf>,
    /// Size of its disk, for limits per GB; the file is created with it
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    #[command(flatten)]
    pub(crate) options: ImportOptions,
}

/// Parses the name of a VM or device.
fn parse_name(text: &str) -> Result<String, String> {
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        Err("1 to 64 letters, digits, '-', '_' or '.', not beginning with '.'".to_owned())
    }
}
