//! Files that a simulation writes beside its report.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tidegate_core::time::Nanos;
use tidegate_sim::report::{Report, Row};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;

use super::{fio_json, hdr_log, page, recording, responses};
use crate::atomic_file::NewFile;
use crate::html_report::over_time::OverTime;

/// Paths of the files that are wanted.
#[derive(Clone, Copy, Default)]
pub(in crate::commands) struct Wanted<'a> {
    pub(in crate::commands) responses: Option<&'a Path>,
    pub(in crate::commands) record: Option<&'a Path>,
    pub(in crate::commands) fio_json: Option<&'a Path>,
    pub(in crate::commands) hdr_log: Option<&'a Path>,
    /// Page for a browser, and the scenario that it names.
    pub(in crate::commands) page: Option<(&'a Path, &'a Path)>,
    /// `true` for VMs over time, to plot them.
    pub(in crate::commands) plots: bool,
}

/// Files that were asked for.
pub(in crate::commands) struct Files {
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
    pub(in crate::commands) fn create(wanted: &Wanted<'_>) -> Result<Files> {
        let responses = wanted.responses.map(responses::Log::create);
        let hdr_log = wanted.hdr_log.map(hdr_log::LogFile::create);
        let (page, scenario_file) = wanted.page.unzip();
        let page = page.map(NewFile::create);
        Ok(Files {
            responses: responses.transpose()?,
            hdr_log: hdr_log.transpose()?,
            fio_json: wanted.fio_json.map(Path::to_owned),
            recording: None,
            page: page.transpose()?,
            scenario_file: scenario_file.unwrap_or(Path::new("")).to_owned(),
            plots: wanted.plots,
            over_time: None,
        })
    }

    /// Returns the interval of rows: `asked`, or one that a file needs.
    pub(in crate::commands) fn interval(
        &self,
        asked: Option<Nanos>,
        scenario: &Scenario,
    ) -> Option<Nanos> {
        let of_log = self.hdr_log.as_ref().map(|_| hdr_log::INTERVAL);
        let over_time = self.page.is_some() || self.plots;
        let over_time = over_time.then(|| OverTime::interval(scenario));
        asked.or(of_log).or(over_time)
    }

    /// Has the simulation keep what the files need.
    pub(in crate::commands) fn prepare(
        &mut self,
        wanted: &Wanted<'_>,
        world: &mut World,
    ) -> Result<()> {
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
        let recording = wanted
            .record
            .map(|path| recording::Recording::begin(path, world));
        self.recording = recording.transpose()?;
        Ok(())
    }

    /// Writes the row of an interval.
    pub(in crate::commands) fn row(&mut self, row: &Row) -> Result<()> {
        if let Some(over_time) = &mut self.over_time {
            over_time.row(row);
        }
        self.hdr_log.as_mut().map_or(Ok(()), |log| log.add(row))
    }

    /// Writes what happened in a step.
    pub(in crate::commands) fn step(&mut self, world: &mut World) -> Result<()> {
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
    pub(in crate::commands) fn end(&mut self, world: &mut World) -> Result<()> {
        let responses = self.responses.take();
        responses.map_or(Ok(()), responses::Log::finish)?;
        let hdr_log = self.hdr_log.take();
        hdr_log.map_or(Ok(()), hdr_log::LogFile::finish)?;
        let recording = self.recording.take();
        recording.map_or(Ok(()), |recording| recording.finish(world))
    }

    /// Writes the files that are made of the report. Returns what there is to plot.
    pub(in crate::commands) fn finish(
        self,
        scenario: &Scenario,
        report: &Report,
    ) -> Result<Option<OverTime>> {
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
