//! Files that a simulation writes beside its report.

use std::path::PathBuf;

use anyhow::Result;
use tidegate_core::time::Nanos;
use tidegate_sim::report::{Report, Row};
use tidegate_sim::world::World;

use super::{fio_json, hdr_log, recording, responses};
use crate::args::SimArgs;

/// Files that were asked for.
pub(super) struct Files {
    responses: Option<responses::Log>,
    hdr_log: Option<hdr_log::LogFile>,
    fio_json: Option<PathBuf>,
    recording: Option<recording::Recording>,
}

impl Files {
    /// Creates the files, so that a wrong path is an error before the run.
    pub(super) fn create(args: &SimArgs) -> Result<Files> {
        let responses = args.responses.as_deref().map(responses::Log::create);
        let hdr_log = args.hdr_log.as_deref().map(hdr_log::LogFile::create);
        Ok(Files {
            responses: responses.transpose()?,
            hdr_log: hdr_log.transpose()?,
            fio_json: args.fio_json.clone(),
            recording: None,
        })
    }

    /// Returns the interval of rows: `asked`, or one that a file needs.
    pub(super) fn interval(&self, asked: Option<Nanos>) -> Option<Nanos> {
        asked.or(self.hdr_log.as_ref().map(|_| hdr_log::INTERVAL))
    }

    /// Has the simulation keep what the files need.
    pub(super) fn prepare(&mut self, args: &SimArgs, world: &mut World) -> Result<()> {
        if self.responses.is_some() {
            world.keep_responses();
        }
        if self.fio_json.is_some() {
            world.keep_operations();
        }
        let recording = args.record.as_deref();
        let recording = recording.map(|path| recording::Recording::begin(path, world));
        self.recording = recording.transpose()?;
        Ok(())
    }

    /// Writes the row of an interval.
    pub(super) fn row(&mut self, row: &Row) -> Result<()> {
        self.hdr_log.as_mut().map_or(Ok(()), |log| log.add(row))
    }

    /// Writes what happened in a step.
    pub(super) fn step(&mut self, world: &mut World) -> Result<()> {
        if let Some(log) = &mut self.responses {
            log.add(&world.take_responses())?;
        }
        match &mut self.recording {
            Some(recording) => recording.add(world),
            None => Ok(()),
        }
    }

    /// Completes the files that do not need the report.
    pub(super) fn end(&mut self, world: &mut World) -> Result<()> {
        let responses = self.responses.take();
        responses.map_or(Ok(()), responses::Log::finish)?;
        let hdr_log = self.hdr_log.take();
        hdr_log.map_or(Ok(()), hdr_log::LogFile::finish)?;
        let recording = self.recording.take();
        recording.map_or(Ok(()), |recording| recording.finish(world))
    }

    /// Writes the files that are made of the report.
    pub(super) fn finish(self, report: &Report) -> Result<()> {
        match &self.fio_json {
            Some(path) => fio_json::write(report, path),
            None => Ok(()),
        }
    }
}
