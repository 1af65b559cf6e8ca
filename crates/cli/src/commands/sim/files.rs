//! Files that a simulation writes beside its report.

use std::path::PathBuf;

use anyhow::Result;
use tidegate_core::time::Nanos;
use tidegate_sim::report::{Report, Row};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;

use super::{fio_json, hdr_log, page, recording, responses};
use crate::args::SimArgs;
use crate::atomic_file::NewFile;
use crate::html_report::over_time::OverTime;

/// Files that were asked for.
pub(super) struct Files {
    responses: Option<responses::Log>,
    hdr_log: Option<hdr_log::LogFile>,
    fio_json: Option<PathBuf>,
    recording: Option<recording::Recording>,
    page: Option<NewFile>,
    /// File of the scenario.
    scenario_file: PathBuf,
    /// `true` if plots were asked for.
    plots: bool,
    /// Kept for the page and for plots.
    over_time: Option<OverTime>,
}

impl Files {
    /// Creates the files, so that a wrong path is an error before the run.
    pub(super) fn create(args: &SimArgs) -> Result<Files> {
        let responses = args.responses.as_deref().map(responses::Log::create);
        let hdr_log = args.hdr_log.as_deref().map(hdr_log::LogFile::create);
        let page = args.report.as_deref().map(NewFile::create);
        Ok(Files {
            responses: responses.transpose()?,
            hdr_log: hdr_log.transpose()?,
            fio_json: args.fio_json.clone(),
            recording: None,
            page: page.transpose()?,
            scenario_file: args.file.clone(),
            plots: args.plot || args.plots.svg.is_some(),
            over_time: None,
        })
    }

    /// Returns the interval of rows: `asked`, or one that a file needs.
    pub(super) fn interval(&self, asked: Option<Nanos>, scenario: &Scenario) -> Option<Nanos> {
        let of_log = self.hdr_log.as_ref().map(|_| hdr_log::INTERVAL);
        let over_time = self.page.is_some() || self.plots;
        let over_time = over_time.then(|| OverTime::interval(scenario));
        asked.or(of_log).or(over_time)
    }

    /// Has the simulation keep what the files need.
    pub(super) fn prepare(&mut self, args: &SimArgs, world: &mut World) -> Result<()> {
        if self.responses.is_some() {
            world.keep_responses();
        }
        if self.fio_json.is_some() {
            world.keep_operations();
        }
        if self.page.is_some() {
            world.keep_operations();
        }
        if self.page.is_some() || self.plots {
            self.over_time = Some(OverTime::begin(world));
        }
        let recording = args.record.as_deref();
        let recording = recording.map(|path| recording::Recording::begin(path, world));
        self.recording = recording.transpose()?;
        Ok(())
    }

    /// Writes the row of an interval.
    pub(super) fn row(&mut self, row: &Row) -> Result<()> {
        if let Some(over_time) = &mut self.over_time {
            over_time.row(row);
        }
        self.hdr_log.as_mut().map_or(Ok(()), |log| log.add(row))
    }

    /// Writes what happened in a step.
    pub(super) fn step(&mut self, world: &mut World) -> Result<()> {
        if let Some(log) = &mut self.responses {
            log.add(&world.take_responses())?;
        }
        if let Some(over_time) = &mut self.over_time {
            over_time.step(world);
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

    /// Writes the files that are made of the report. Returns what there is to plot.
    pub(super) fn finish(self, scenario: &Scenario, report: &Report) -> Result<Option<OverTime>> {
        if let (Some(page), Some(over_time)) = (self.page, &self.over_time) {
            page.finish(&page::page(
                &self.scenario_file,
                over_time,
                scenario,
                report,
            ))?;
        }
        if let Some(path) = &self.fio_json {
            fio_json::write(report, path)?;
        }
        Ok(self.over_time.filter(|_| self.plots))
    }
}
