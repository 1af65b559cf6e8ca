//! File with a recording of every simulated request.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tidegate_sim::world::World;

use crate::atomic_file;
use crate::problem::{self, Problem};

/// Recording of the only device of a scenario.
pub(super) struct Recording {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
}

impl Recording {
    /// Creates the file, replacing an existing one, and has the world record from now on.
    pub(super) fn begin(path: &Path, world: &mut World) -> Result<Recording> {
        let devices = &world.scenario().devices;
        if let [_, second, ..] = &devices[..] {
            let what = format!(
                "--record takes a scenario of one device, here is {:?} as well",
                second.name
            );
            let help = "leave the other devices and their VMs out of the scenario";
            return Err(Problem::new(what).help(help).into());
        }
        atomic_file::regular(path)?;
        let file = File::create(path).map_err(|error| problem::cannot_write(path, &error))?;
        world.record(0);
        Ok(Recording {
            path: path.to_owned(),
            file,
            bytes: Vec::new(),
        })
    }

    /// Writes what was recorded since the last call.
    pub(super) fn add(&mut self, world: &mut World) -> Result<()> {
        world.take_recording(0, &mut self.bytes);
        self.write()
    }

    /// Writes the rest with the end of the recording.
    pub(super) fn finish(mut self, world: &mut World) -> Result<()> {
        world.end_recording(0, &mut self.bytes);
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        let written = self.file.write_all(&self.bytes);
        self.bytes.clear();
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}
