//! `tidegate init`: writes a configuration for this host.

mod text;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;

use crate::args::InitArgs;
use crate::atomic_file;
use crate::host::{BlockDevice, HostRoot};
use crate::output::{self, Output};
use crate::problem::{Problem, cannot_write};

/// Prints the configuration, or writes it to a file.
pub(super) fn run(args: &InitArgs, out: Output) -> Result<()> {
    let host = HostRoot::new(&args.root);
    let text = text::configuration(&host, &BlockDevice::all(&host));
    let Some(file) = &args.file else {
        return Ok(out.verbatim(&text)?);
    };
    if args.force {
        atomic_file::write(file, text.as_bytes())?;
    } else {
        write_new(file, &text)?;
    }
    let name = file.display();
    output::tell(format_args!(
        "{name} is written. Next: add a [[vm]] to it, then `tidegate check {name}` and \
         `tidegate doctor {name}`"
    ));
    Ok(())
}

/// Writes a file that must not exist.
fn write_new(file: &Path, text: &str) -> Result<()> {
    let created = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file);
    let mut created = created.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let problem = Problem::new(format!("{} exists", file.display())).at("FILE");
            problem
                .help("name another file, or replace it with --force")
                .into()
        }
        _ => cannot_write(file, &error),
    })?;
    let written = std::io::Write::write_all(&mut created, text.as_bytes());
    written.map_err(|error| cannot_write(file, &error))
}
