//! Recordings of requests: switched on and off for the event loops.

use std::sync::Arc;

use tidegate_config::recording_facts;
use tidegate_recording::DeviceFacts;

use super::handle::DaemonHandle;
use super::shared::Shared;
use crate::command::{Command, ControlError, RecordingChange};
use crate::config::{DeviceConfig, DeviceKind};
use crate::recording::{Producer, RecordingError, Recordings};

/// Returns the facts of a device for its recordings.
fn facts(device: &DeviceConfig) -> DeviceFacts {
    let (kind, model) = match &device.kind {
        DeviceKind::File => ("file", None),
        DeviceKind::Memory => ("memory", None),
        DeviceKind::Nbd => ("nbd", None),
        DeviceKind::Emulated { model } => ("emulated", Some(&**model)),
    };
    recording_facts::device((&device.name, kind), model, &device.scheduling)
}

fn refused(error: &RecordingError) -> ControlError {
    ControlError::Recording(error.to_string())
}

/// Records every request of a device from now on.
async fn start(shared: &Shared, device: usize) -> Result<(), ControlError> {
    let entries = shared.devices.entries().iter().enumerate();
    let storage = entries.map(|(at, entry)| (entry.name().to_owned(), shared.identity_source(at)));
    let storage: Vec<_> = storage.collect();
    // The ring's memory is taken on that thread, too.
    let prepare = move |recordings: &Recordings| {
        recordings.prepare(device, &storage)?;
        Ok(Producer::new())
    };
    let prepared = shared.recordings.with_files(prepare).await;
    let (producer, queues) = prepared.map_err(|error| refused(&error))?;
    let facts = Box::new(facts(&shared.devices.entries()[device].config()));
    let begun = shared.devices.ask(device, |reply| {
        Command::ChangeRecording(RecordingChange::Start {
            producer,
            device: facts,
            reply,
        })
    });
    let begun = begun.await?;
    let recordings = &shared.recordings;
    // Only starts a thread. If that fails the queues are gone, and the loop stops recording.
    let begun = recordings.begin(device, queues, begun);
    begun.map_err(|error| refused(&error))
}

/// Recordings of a daemon's devices, with the switches for them.
#[derive(Clone, Debug)]
pub struct DeviceRecordings(Arc<Shared>);

impl DeviceRecordings {
    /// Returns the recordings of a running daemon.
    pub fn of(handle: &DaemonHandle) -> DeviceRecordings {
        DeviceRecordings(handle.shared().clone())
    }

    /// Returns their state and files.
    pub fn state(&self) -> &Arc<Recordings> {
        &self.0.recordings
    }

    /// Switches the recording of a device on or off. Does nothing if it is off already.
    ///
    /// # Errors
    /// If the recording is on already, there is no directory for it, or the device's event loop has
    /// ended.
    pub async fn switch(&self, device: usize, on: bool) -> Result<(), ControlError> {
        if on {
            return start(&self.0, device).await;
        }
        let ask = |reply| Command::ChangeRecording(RecordingChange::Stop { reply });
        self.0.devices.ask(device, ask).await?;
        self.0.recordings.ended(device);
        Ok(())
    }

    /// Switches on the recordings that the configuration names. One that cannot be switched on
    /// does not keep the daemon from serving: it is logged.
    pub(super) async fn start_configured(&self) {
        for device in self.0.recordings.on_at_start() {
            if let Err(error) = self.switch(device, true).await {
                let device = self.0.devices.name(device);
                tracing::error!(%device, "its requests are not recorded: {error}");
            }
        }
    }
}
