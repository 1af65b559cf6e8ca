//! Recordings of every request of a device, switched on and off while it is served.
//!
//! ```text
//!   event loop                        recorder, one thread for all devices
//!   Done --> Producer --ring--------> Stream --> blocks --> files of the device
//!            control --changes------>   |                     oldest removed first
//!                                       v
//!                                    Progress --> status, metrics     dump: files --> client
//! ```
//!
//! An event loop writes 64 bytes for each request that its engine has finished, and makes no system
//! call for it. If the recorder does not keep up, requests are dropped and counted; if its disk is
//! full or fails, the recording stops. Neither delays I/O. Without a recording there is no thread
//! and no memory, and a request costs one branch.

mod directory;
mod dump;
mod lock;
mod producer;
mod recorder;
mod ring;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tidegate_api::recording::{DeviceRecordingView, RecordingsView};
use tidegate_core::time::Nanos;
use tidegate_recording::Header;
use tokio::sync::{Semaphore, oneshot};

use crate::blocking_call::{NotDone, call_async};
use crate::config::RecordingConfig;
use crate::profile::block_device_below;
use crate::ring::sys;
use crate::storage_identity::IdentitySource;
use crate::timekeeping::wall_at_loop_start;

pub(crate) use dump::{Dumped, Range, Sink, Unrecorded};
pub use producer::{Producer, Queues, RecordingCounts};

use directory::{RecordingFile, files_of};
use recorder::Recorder;
use stream::{Progress, Stream};

/// Deadline for calls that read or write the directory of recordings.
const FILES_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of dumps that are read at a time. Each has a thread.
const DUMPS_MAX: usize = 2;

/// Reason why a recording cannot be switched on or dumped.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The configuration names no directory for recordings.
    #[error(
        "no directory for recordings, and no store beside which it could be: add [recording] with \
         directory = \"/var/lib/tidegate/recordings\" to the configuration"
    )]
    NoDirectory,
    /// The device is being recorded.
    #[error("device {0:?} is being recorded already")]
    IsOn(String),
    /// The directory cannot be used.
    #[error("recordings in {}: {source}", path.display())]
    Directory {
        /// Directory of the recordings.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The maximum number of dumps is being read.
    #[error("{DUMPS_MAX} dumps are being read: try again once one of them has ended")]
    Busy,
    /// The file system of the directory did not answer.
    #[error("the directory of recordings: {0}")]
    NoAnswer(NotDone),
}

/// Recordings of a daemon's devices.
#[derive(Debug)]
pub struct Recordings {
    /// Directory and bound; `None` if there is no place for recordings.
    config: Option<RecordingConfig>,
    recorder: Option<Recorder>,
    devices: Vec<Device>,
    /// Devices whose disks are on the storage of the recordings, as last looked up.
    on_served_storage: Mutex<Vec<String>>,
    /// Held by the call that reads or writes the directory, until it returns.
    files: Arc<tokio::sync::Mutex<()>>,
    /// Permits of dumps.
    dumps: Arc<Semaphore>,
}

/// Recording of one device.
#[derive(Debug)]
struct Device {
    name: String,
    session: Mutex<Option<Session>>,
}

/// Recording that is on, or has stopped by itself.
#[derive(Clone, Debug)]
struct Session {
    since: Timestamp,
    progress: Arc<Progress>,
}

/// Moment at which an event loop has begun to record.
#[derive(Debug)]
pub struct Begun {
    /// Loop time.
    pub(crate) at: Nanos,
    /// VMs with their disks as the loop has numbered them, and the device; the wall clock is still
    /// to be set.
    pub(crate) header: Header,
}

impl Recordings {
    /// Creates the recordings of these devices, all of which are off.
    pub(crate) fn new(
        config: Option<RecordingConfig>,
        devices: impl Iterator<Item = String>,
    ) -> Recordings {
        let recorder = (config.as_ref())
            .map(|config| Recorder::new(config.directory.clone(), config.max_bytes));
        Recordings {
            config,
            recorder,
            devices: devices
                .map(|name| Device {
                    name,
                    session: Mutex::new(None),
                })
                .collect(),
            on_served_storage: Mutex::default(),
            files: Arc::default(),
            dumps: Arc::new(Semaphore::new(DUMPS_MAX)),
        }
    }

    /// Makes a call that reads or writes the directory, on a thread that may block. Calls follow
    /// one another: however many are asked for, at most one thread waits for a file system that
    /// does not answer.
    ///
    /// # Errors
    /// If the call fails, or if earlier calls or the call itself take longer than 5 s.
    pub(crate) async fn with_files<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce(&Recordings) -> Result<T, RecordingError> + Send + 'static,
    ) -> Result<T, RecordingError> {
        let turn = tokio::time::timeout(FILES_TIMEOUT, self.files.clone().lock_owned());
        let turn = turn
            .await
            .map_err(|_| RecordingError::NoAnswer(NotDone::Late(FILES_TIMEOUT)))?;
        let own = self.clone();
        let called = call_async(FILES_TIMEOUT, move || {
            let result = call(&own);
            // Given back only now, by a thread that is late as well.
            drop(turn);
            result
        });
        called.await.map_err(RecordingError::NoAnswer)?
    }

    /// Checks that a device can be recorded: it is not yet, and the directory can be used. Warns if
    /// the directory is on the storage of a device that is served. Reads metadata of files, so it
    /// may block.
    ///
    /// # Errors
    /// If it cannot be recorded.
    pub(crate) fn prepare(
        &self,
        device: usize,
        storage: &[(String, IdentitySource)],
    ) -> Result<(), RecordingError> {
        let device = &self.devices[device];
        let Some(recorder) = &self.recorder else {
            return Err(RecordingError::NoDirectory);
        };
        let is_on = (device.session().as_ref()).is_some_and(|it| it.progress.failure().is_none());
        if is_on {
            return Err(RecordingError::IsOn(device.name.clone()));
        }
        let path = self.directory().unwrap_or(Path::new(""));
        let failed = |source| RecordingError::Directory {
            path: path.to_owned(),
            source,
        };
        recorder.check().map_err(failed)?;
        self.look_up_storage(path, storage);
        Ok(())
    }

    /// Notes the devices whose disks are on the block device of the directory, and warns of them.
    fn look_up_storage(&self, path: &Path, storage: &[(String, IdentitySource)]) {
        let below = block_device_below(path).ok().flatten();
        let shares = |source: &IdentitySource| {
            (below.as_ref()).is_some_and(|name| source.identity().has(name))
        };
        let shared = storage.iter().filter(|(_, source)| shares(source));
        let shared: Vec<String> = shared.map(|(name, _)| name.clone()).collect();
        for device in &shared {
            tracing::warn!(
                %device,
                directory = %path.display(),
                "recordings are written to the storage of this device, beside its VMs' I/O; name \
                 a directory on another disk with [recording] directory"
            );
        }
        *self.on_served_storage() = shared;
    }

    /// Takes over the queues of an event loop that has begun to record.
    ///
    /// # Errors
    /// If the recorder's thread cannot be started.
    pub(crate) fn begin(
        &self,
        device: usize,
        queues: Queues,
        begun: Begun,
    ) -> Result<(), RecordingError> {
        let device = &self.devices[device];
        let (Some(recorder), Some(config)) = (&self.recorder, &self.config) else {
            return Err(RecordingError::NoDirectory);
        };
        let now = Timestamp::now();
        let header = Header {
            started_unix_ns: wall_at_loop_start().saturating_add(begun.at.0),
            ..begun.header
        };
        let progress = Arc::new(Progress::default());
        let name = device.name.clone();
        let stream = Stream::new(name, queues, begun.at, &header, progress.clone())
            .with_wall(Box::new(wall_at_loop_start));
        let added = recorder.add(stream);
        added.map_err(|source| RecordingError::Directory {
            path: config.directory.clone(),
            source,
        })?;
        let since = now;
        *device.session() = Some(Session { since, progress });
        let directory = config.directory.display();
        tracing::info!(device = %device.name, %directory, "recording on");
        Ok(())
    }

    /// Notes that an event loop no longer records. Returns false if it did not.
    pub(crate) fn ended(&self, device: usize) -> bool {
        let device = &self.devices[device];
        let was_on = device.session().take().is_some();
        if was_on {
            tracing::info!(device = %device.name, "recording off");
        }
        was_on
    }

    /// Returns the state of the recordings. Reads the directory, so it may block.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) fn status(&self) -> Result<RecordingsView, RecordingError> {
        let path = self.directory();
        let devices = self.devices.iter().map(|device| device.status(path));
        let devices = devices.collect::<io::Result<Vec<_>>>();
        let devices = devices.map_err(|source| RecordingError::Directory {
            path: path.unwrap_or(Path::new("")).to_owned(),
            source,
        })?;
        Ok(RecordingsView {
            directory: path.map(|path| path.display().to_string()),
            max_bytes: self.config.as_ref().map_or(0, |config| config.max_bytes),
            bytes: devices.iter().map(|device| device.bytes).sum(),
            on_storage_of: self.on_served_storage().clone(),
            devices,
        })
    }

    /// Begins to pass one recording of a range of a device's files to `sink`, on a thread of low
    /// priority, and returns the receiver of its result. The thread ends once nobody wants the
    /// rest.
    ///
    /// # Errors
    /// If there is no directory, too many dumps are being read, or there is no thread.
    pub(crate) fn begin_dump(
        self: &Arc<Self>,
        device: usize,
        range: Range,
        mut sink: impl Sink + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<Dumped, RecordingError>>, RecordingError> {
        let Some(path) = self.directory() else {
            return Err(RecordingError::NoDirectory);
        };
        let permit = self.dumps.clone().try_acquire_owned();
        let permit = permit.map_err(|_| RecordingError::Busy)?;
        let own = self.clone();
        let (sender, result) = oneshot::channel();
        let dump = move || {
            sys::lower_priority();
            let dumped = own.dump(device, &range, &mut sink);
            if let Err(error) = &dumped {
                tracing::error!("a dump of recordings ended early: {error}");
                sink.fail();
            }
            // The client may ask for the next dump as soon as it has the end of this one.
            drop(permit);
            drop(sink);
            // A client that has left does not wait for it.
            let _ = sender.send(dumped);
        };
        let thread = std::thread::Builder::new().name("recording dump".to_owned());
        thread
            .spawn(dump)
            .map_err(|source| RecordingError::Directory {
                path: path.to_owned(),
                source,
            })?;
        Ok(result)
    }

    /// Passes one recording of a range of a device's files to `sink`. Reads files, so it blocks.
    fn dump(
        &self,
        device: usize,
        range: &Range,
        sink: &mut impl Sink,
    ) -> Result<Dumped, RecordingError> {
        let (Some(path), Some(recorder)) = (self.directory(), &self.recorder) else {
            return Err(RecordingError::NoDirectory);
        };
        if !recorder.flush() {
            tracing::warn!("the recorder's disk does not answer: the last second is not dumped");
        }
        let device = &self.devices[device].name;
        let dumped = dump::dump(path, device, range, sink);
        dumped.map_err(|source| RecordingError::Directory {
            path: path.to_owned(),
            source,
        })
    }

    /// Writes what was recorded and ends all recordings, when their event loops have ended.
    pub(crate) fn finish(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.end();
        }
    }

    /// Returns the devices that are recorded from the start on, by index.
    pub(crate) fn on_at_start(&self) -> Vec<usize> {
        self.config
            .as_ref()
            .map_or_else(Vec::new, |config| config.devices.clone())
    }

    fn on_served_storage(&self) -> MutexGuard<'_, Vec<String>> {
        let known = self.on_served_storage.lock();
        known.unwrap_or_else(PoisonError::into_inner)
    }

    fn directory(&self) -> Option<&Path> {
        self.config
            .as_ref()
            .map(|config| config.directory.as_path())
    }
}

impl Device {
    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self, directory: Option<&Path>) -> io::Result<DeviceRecordingView> {
        let files = match directory {
            Some(directory) => files_of(directory, &self.name)?,
            None => Vec::new(),
        };
        let session = self.session().clone();
        let problem = (session.as_ref()).and_then(|session| session.progress.failure());
        let is_on = session.is_some() && problem.is_none();
        let time = |unix_ns: u64| Timestamp::from_nanosecond(unix_ns.into()).ok();
        let written = |time: SystemTime| Timestamp::try_from(time).ok();
        let until = if is_on {
            Some(Timestamp::now())
        } else {
            files.last().and_then(|file| written(file.written))
        };
        let of_session = |count: fn(&Progress) -> u64| {
            session
                .as_ref()
                .map_or(0, |session| count(&session.progress))
        };
        Ok(DeviceRecordingView {
            device: self.name.clone(),
            on: is_on,
            since: session.as_ref().map(|session| session.since.to_string()),
            problem,
            requests: of_session(|it| it.recorded.load(Ordering::Relaxed)),
            dropped: of_session(|it| it.dropped.load(Ordering::Relaxed)),
            written_bytes: of_session(|it| it.bytes.load(Ordering::Relaxed)),
            files: files.len() as u64,
            bytes: files.iter().map(|file| file.bytes).sum(),
            from: (files.iter().map(RecordingFile::known_begin).min())
                .and_then(time)
                .map(|time| time.to_string()),
            until: until
                .filter(|_| !files.is_empty())
                .map(|time| time.to_string()),
        })
    }
}
