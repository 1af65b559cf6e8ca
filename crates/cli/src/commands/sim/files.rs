//! Files that a simulation writes beside its report.

use std::path::PathBuf;

use anyhow::Result;
use tidegate_core::time::Nanos;
use tidegate_sim::report::{Report, Row};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;

use super::{fio_json, hdr_log, page, recording, responses};
use crate::args::SimArgs;

/// Files that were asked for.
pub(super) struct Files {
    responses: Option<responses::Log>,
    hdr_log: Option<hdr_log::LogFile>,
    fio_json: Option<PathBuf>,
    recording: Option<recording::Recording>,
    page: Option<page::PageFile>,
}

impl Files {
    /// Creates the files, so that a wrong path is an error before the run.
    pub(super) fn create(args: &SimArgs) -> Result<Files> {
        let responses = args.responses.as_deref().map(responses::Log::create);
        let hdr_log = args.hdr_log.as_deref().map(hdr_log::LogFile::create);
        let page = (args.report.as_deref()).map(|path| page::PageFile::create(path, &args.file));
        Ok(Files {
            responses: responses.transpose()?,
            hdr_log: hdr_log.transpose()?,
            fio_json: args.fio_json.clone(),
            recording: None,
            page: page.transpose()?,
        })
    }

    /// Returns the interval of rows: `asked`, or one that a file needs.
    pub(super) fn interval(&self, asked: Option<Nanos>, scenario: &Scenario) -> Option<Nanos> {
        let of_log = self.hdr_log.as_ref().map(|_| hdr_log::INTERVAL);
        let of_page = self.page.as_ref();
        let of_page = of_page.map(|_| page::PageFile::interval(scenario));
        asked.or(of_log).or(of_page)
    }

    /// Has the simulation keep what the files need.
    pub(super) fn prepare(&mut self, args: &SimArgs, world: &mut World) -> Result<()> {
        if self.responses.is_some() {
            world.keep_responses();
        }
        if self.fio_json.is_some() {
            world.keep_operations();
        }
        if let Some(page) = &mut self.page {
            page.prepare(world);
        }
        let recording = args.record.as_deref();
        let recording = recording.map(|path| recording::Recording::begin(path, world));
        self.recording = recording.transpose()?;
        Ok(())
    }

    /// Writes the row of an interval.
    pub(super) fn row(&mut self, row: &Row) -> Result<()> {
        if let Some(page) = &mut self.page {
            page.row(row);
        }
        self.hdr_log.as_mut().map_or(Ok(()), |log| log.add(row))
    }

    /// Writes what happened in a step.
    pub(super) fn step(&mut self, world: &mut World) -> Result<()> {
        if let Some(log) = &mut self.responses {
            log.add(&world.take_responses())?;
        }
        if let Some(page) = &mut self.page {
            page.step(world);
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
    pub(super) fn finish(self, scenario: &Scenario, report: &Report) -> Result<()> {
        if let Some(page) = self.page {
            page.finish(scenario, report)?;
        }
        match &self.fio_json {
            Some(path) => fio_json::write(report, path),
            None => Ok(()),
        }
    }
}
