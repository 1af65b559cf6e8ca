//! `tidegate import`: prints a `[[vm]]` for each guest that other programs describe.
//!
//! Each format has a reader, which makes [`Guest`]s of it: disks, limits, and [`Remark`]s about all
//! that has no counterpart. The rest is the same for all formats.

mod content;
mod guest;
mod libvirt;
mod openstack;
mod options_list;
mod proxmox;
mod proxmox_storage;
mod qemu;
mod qemu_blocks;
mod throttle;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use tidegate_config::document;

use self::guest::{Guest, Remark, Taken};
use super::runtime_directory::RuntimeDirectory;
use crate::args::{ImportCommand, ImportOptions};
use crate::configuration_text::{comment, frame, path, string};
use crate::output::{self, Output};
use crate::problem::Problem;

/// Largest input in bytes.
const LARGEST: u64 = 16 << 20;
/// Name of standard input on the command line.
const STANDARD_INPUT: &str = "-";
/// Comment on limit groups in tables that are a part of a configuration.
const ABOUT_GROUPS: &str = "limit groups belong to the [[device]] of the disks: behind it, and \
                            before the next [[device]]";
/// Device of a whole configuration, unless one is named.
const DEVICE: &str = "disk0";

/// Prints the guests of the input, and what has no counterpart.
pub(super) fn run(command: &ImportCommand, out: Output) -> Result<()> {
    let (guests, options) = match command {
        ImportCommand::Libvirt(args) => {
            let guests: Result<Vec<_>> = args
                .files
                .iter()
                .map(|file| libvirt::read(&Input::read(file)?))
                .collect();
            (guests?, &args.options)
        }
        ImportCommand::Proxmox(args) => {
            let storages = args.storage.as_deref().map(Input::read).transpose()?;
            let storages = proxmox_storage::Storages::new(storages.as_ref());
            let files = args.files.files.iter();
            let guests: Result<Vec<_>> = files
                .map(|file| proxmox::read(&Input::read(file)?, &storages))
                .collect();
            (guests?, &args.files.options)
        }
        ImportCommand::Qemu(args) => {
            let guest = match &args.file {
                Some(file) => qemu::read_file(&Input::read_words(file)?)?,
                None => qemu::read(&args.words, "arguments")?,
            };
            (vec![guest], &args.options)
        }
        ImportCommand::Openstack(args) => (vec![openstack::read(args)?], &args.options),
    };
    print(&guests, options, out)
}

fn print(guests: &[Guest], options: &ImportOptions, out: Output) -> Result<()> {
    let (text, remarks) = tables(guests, options.device.as_deref(), options.complete);
    out.verbatim(&text)?;
    for remark in &remarks {
        output::tell(format_args!("note: {remark}"));
    }
    Ok(())
}

/// Returns the tables of all guests, with what belongs before them if the text `is_complete`, and
/// the remarks about them.
fn tables(guests: &[Guest], device: Option<&str>, is_complete: bool) -> (String, Vec<Remark>) {
    let mut taken = Taken::default();
    let mut remarks: Vec<Remark> = Vec::new();
    let (mut groups, mut vms) = (Vec::new(), Vec::new());
    for guest in guests {
        let mut made = guest.tables(device, &mut taken);
        groups.append(&mut made.groups);
        vms.push(made.vm);
        remarks.append(&mut made.remarks);
    }
    let mut text = String::new();
    if is_complete {
        text = complete(device.unwrap_or(DEVICE));
    } else if !groups.is_empty() {
        text = comment(ABOUT_GROUPS);
    }
    groups.append(&mut vms);
    text += &groups.join("\n");
    (text, remarks)
}

/// Returns what a configuration has before its VMs.
fn complete(device: &str) -> String {
    let directory = RuntimeDirectory::path();
    let listen = format!("unix = {}", path(&directory.join("nbd.sock")));
    let intro = "Configuration by `tidegate import`: check it with `tidegate check FILE`.";
    comment(intro) + "\n" + &frame(&directory.join("control.sock"), &listen, device)
}

/// Text to read, with its name in messages.
struct Input {
    name: String,
    text: String,
}

impl Input {
    /// Reads a file, or standard input.
    ///
    /// # Errors
    /// If it cannot be read, is too large, or is no text.
    fn read(file: &Path) -> Result<Input> {
        if file != Path::new(STANDARD_INPUT) {
            let name = file.display().to_string();
            let text = document::read_text(file).map_err(Problem::new)?;
            return Ok(Input { name, text });
        }
        limited(std::io::stdin().lock(), "standard input")
    }

    /// Reads a file with a command line, which may have zero bytes, or standard input.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    fn read_words(file: &Path) -> Result<Input> {
        if file == Path::new(STANDARD_INPUT) {
            return Input::read(file);
        }
        let name = file.display().to_string();
        let open = File::open(file);
        limited(open.with_context(|| format!("cannot open {name}"))?, &name)
    }

    /// Returns true if the text is XML, which only the reader of libvirt's domains takes.
    fn is_xml(&self) -> bool {
        self.text.trim_start().starts_with('<')
    }

    /// Returns the name of a line, counted from 0, for messages.
    fn line(&self, index: usize) -> String {
        format!("{}:{}", self.name, index + 1)
    }

    /// Returns the name of the file without directory and ending, for a guest without a name.
    fn stem(&self) -> String {
        let stem = Path::new(&self.name).file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }
}

/// Reads text of a bounded size.
fn limited(from: impl Read, name: &str) -> Result<Input> {
    let mut text = String::new();
    let read = from.take(LARGEST + 1).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {name}"))?;
    if text.len() as u64 > LARGEST {
        return Err(Problem::new(format!("{name} is larger than 16 MiB")).into());
    }
    Ok(Input {
        name: name.to_owned(),
        text,
    })
}

/// Returns a value for a message: quoted, and cut off where it is long.
fn shown(value: &str) -> String {
    const LONGEST: usize = 60;
    match value.char_indices().nth(LONGEST) {
        Some((end, _)) => string(&value[..end]) + "...",
        None => string(value),
    }
}

#[cfg(test)]
mod tests;
