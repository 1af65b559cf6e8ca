//! Files of recordings: a directory for each device, oldest files removed first.
//!
//! A file's name is the time at which it begins, in nanoseconds since 1970 with leading zeroes, so
//! that names sort by time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Suffix of the files' names.
const SUFFIX: &str = ".tgrec";
/// Most nanoseconds by which the time of a write, which file systems take from a coarse clock, may
/// be before the time at which the file was named.
const CLOCK_SLACK_NS: u64 = 1_000_000_000;
/// Digits of a name, enough for 2^64.
const DIGITS: usize = 20;

/// File of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RecordingFile {
    pub(super) path: PathBuf,
    /// Time at which it begins, in nanoseconds since 1970.
    pub(super) begins: u64,
    pub(super) bytes: u64,
    /// The clock was set back: it has the time behind the beginning of the file before, and begins
    /// earlier.
    pub(super) is_moved: bool,
    /// Time of the last write.
    pub(super) written: SystemTime,
}

/// Returns the files of a device, oldest first; none if there is no directory.
///
/// # Errors
/// If the directory cannot be read.
pub(super) fn files_of(directory: &Path, device: &str) -> io::Result<Vec<RecordingFile>> {
    let entries = match fs::read_dir(directory.join(device)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(begins) = begin_of(&entry.file_name().to_string_lossy()) else {
            continue;
        };
        // A file may be removed while the directory is read.
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_file() {
            files.push(RecordingFile {
                path: entry.path(),
                begins,
                bytes: meta.len(),
                is_moved: false,
                written: meta.modified()?,
            });
        }
    }
    files.sort_by_key(|file| file.begins);
    for at in 0..files.len() {
        let follows = at > 0 && Some(files[at].begins) == files[at - 1].begins.checked_add(1);
        // The file before may have been removed to make room.
        files[at].is_moved = follows || files[at].begins_behind_its_end();
    }
    Ok(files)
}

impl RecordingFile {
    /// Returns the time of the last write in nanoseconds since 1970.
    fn ends(&self) -> u64 {
        let since = self.written.duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        })
    }

    /// Returns true if it was written to before the time in its name.
    fn begins_behind_its_end(&self) -> bool {
        self.begins > self.ends().saturating_add(CLOCK_SLACK_NS)
    }

    /// Returns the time at which it begins in nanoseconds since 1970, as far as it is known: that
    /// of the last write where its name has a later one.
    pub(super) fn known_begin(&self) -> u64 {
        if self.begins_behind_its_end() {
            self.ends()
        } else {
            self.begins
        }
    }

    /// Order in which files make room: the one that was written to last is the last. One that was
    /// written in the future comes first: its clock was wrong, and has been put right since.
    fn age_order(&self, now: SystemTime) -> (SystemTime, u64) {
        let is_wrong = self.written > now + Duration::from_nanos(CLOCK_SLACK_NS);
        let written = if is_wrong {
            SystemTime::UNIX_EPOCH
        } else {
            self.written
        };
        (written, self.begins)
    }
}

/// Returns the time in a file's name; `None` if it is no recording's.
fn begin_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let are_digits = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    are_digits.then(|| digits.parse().ok())?
}

/// Opens the file of a recording for writing. Tests put other outputs in its place.
pub(super) type Create = fn(&Path) -> io::Result<Box<dyn Write + Send>>;

/// Creates a directory for the daemon's user alone, unless it exists. Its parent must exist: below
/// the mount point of a file system that is not mounted, files would fill another one.
///
/// # Errors
/// If the parent does not exist, or the directory cannot be created.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().unwrap_or(path).display();
            let what = format!("{parent} does not exist: mount its file system, or create it");
            Err(io::Error::new(io::ErrorKind::NotFound, what))
        }
        created => created,
    }
}

/// Creates a file that must not exist.
pub(super) fn create_file(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    // For the daemon's user alone: addresses tell much of a guest.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file: File = options.open(path)?;
    Ok(Box::new(file))
}

/// Directory of all recordings with a bound on its size, owned by the recorder.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Maximum size of all files in bytes.
    max_bytes: u64,
    /// Files that are complete.
    complete: Vec<RecordingFile>,
    /// Bytes of the files that are being written.
    open_bytes: u64,
    create: Create,
}

impl Directory {
    /// Opens a directory, which is created unless it exists, with the files of the devices that are
    /// there.
    ///
    /// # Errors
    /// If the directory cannot be created or read.
    pub(super) fn open(path: &Path, max_bytes: u64, create: Create) -> io::Result<Directory> {
        create_directory(path)?;
        let mut complete = Vec::new();
        for entry in fs::read_dir(path)? {
            let name = entry?.file_name();
            // What is no directory has no files of recordings.
            if let Ok(files) = files_of(path, &name.to_string_lossy()) {
                complete.extend(files);
            }
        }
        Ok(Directory {
            path: path.to_owned(),
            max_bytes,
            complete,
            open_bytes: 0,
            create,
        })
    }

    /// Returns the size at which a file of one of `streams` recordings is complete. Files are
    /// small against the whole, so that removing one removes a small part of what is known.
    pub(super) fn file_bytes(&self, streams: usize) -> u64 {
        let parts = 16 * streams.max(1) as u64;
        (self.max_bytes / parts).min(64 << 20)
    }

    /// Creates a file of a device that begins at a time, in nanoseconds since 1970. A file that
    /// begins before another of the device, as when the clock was set back, gets the next possible
    /// time.
    pub(super) fn create(&mut self, device: &str, begins: u64) -> io::Result<OpenFile> {
        let directory = self.path.join(device);
        create_directory(&directory)?;
        let of_device = (self.complete.iter()).filter(|file| file.path.starts_with(&directory));
        let last = of_device.map(|file| file.begins).max();
        let begins = begins.max(last.map_or(0, |last| last.saturating_add(1)));
        let path = directory.join(format!("{begins:0DIGITS$}{SUFFIX}"));
        let output = (self.create)(&path)?;
        Ok(OpenFile {
            path,
            begins,
            bytes: 0,
            output,
        })
    }

    /// Appends to a file, after removing the oldest complete ones if all would be too large.
    pub(super) fn write(&mut self, file: &mut OpenFile, bytes: &[u8]) -> io::Result<()> {
        self.make_room(bytes.len() as u64)?;
        file.output.write_all(bytes)?;
        file.bytes += bytes.len() as u64;
        self.open_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Removes the oldest files until there is room for `bytes` more.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let mut total = self.open_bytes + self.complete.iter().map(|file| file.bytes).sum::<u64>();
        while total.saturating_add(bytes) > self.max_bytes {
            let now = SystemTime::now();
            let files = self.complete.iter().enumerate();
            let Some((oldest, _)) = files.min_by_key(|(_, file)| file.age_order(now)) else {
                break;
            };
            let oldest = self.complete.swap_remove(oldest);
            match fs::remove_file(&oldest.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => total -= oldest.bytes,
            }
        }
        Ok(())
    }

    /// Takes back a file to which nothing is written any more.
    pub(super) fn complete(&mut self, file: OpenFile) {
        self.open_bytes -= file.bytes;
        self.complete.push(RecordingFile {
            path: file.path,
            begins: file.begins,
            bytes: file.bytes,
            is_moved: false,
            written: SystemTime::now(),
        });
    }
}

/// File that is being written.
pub(super) struct OpenFile {
    path: PathBuf,
    begins: u64,
    bytes: u64,
    output: Box<dyn Write + Send>,
}

impl OpenFile {
    /// Returns the number of bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the path, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path, device: &str) -> Vec<u64> {
        let files = files_of(directory, device).expect("readable");
        files.iter().map(|file| file.bytes).collect()
    }

    #[test]
    fn the_oldest_files_of_all_devices_make_room() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut directory = Directory::open(dir.path(), 1000, create_file).expect("writable");
        for (device, bytes) in [("a", 300), ("b", 350), ("a", 250)] {
            let mut file = directory.create(device, 0).expect("writable");
            directory.write(&mut file, &vec![1; bytes]).expect("room");
            directory.complete(file);
        }
        assert_eq!(
            (names(dir.path(), "a"), names(dir.path(), "b")),
            (vec![300, 250], vec![350])
        );
        let mut open = directory.create("b", 0).expect("writable");
        directory.write(&mut open, &[1; 400]).expect("room is made");
        assert_eq!(
            (names(dir.path(), "a"), names(dir.path(), "b")),
            (vec![250], vec![350, 400])
        );
        // The file that is being written is never removed, even where it alone is too large.
        directory.write(&mut open, &[1; 700]).expect("room is made");
        assert_eq!(
            (names(dir.path(), "a"), names(dir.path(), "b")),
            (vec![], vec![1100])
        );
        directory.complete(open);
        // The next daemon finds the files.
        let mut again = Directory::open(dir.path(), 1000, create_file).expect("readable");
        let mut open = again.create("a", 0).expect("writable");
        again.write(&mut open, &[1; 10]).expect("room is made");
        assert_eq!(
            (names(dir.path(), "a"), names(dir.path(), "b")),
            (vec![10], vec![])
        );
    }

    /// The clock was a year ahead at the start, and was put right then.
    #[test]
    fn files_from_a_future_that_was_none_make_room_first() {
        const YEAR: Duration = Duration::from_secs(365 * 86_400);
        let now = SystemTime::now();
        let nanos = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH);
            since.expect("after 1970").as_nanos() as u64
        };
        let dir = tempfile::tempdir().expect("a directory");
        let mut directory = Directory::open(dir.path(), 400, create_file).expect("writable");
        let day = Duration::from_secs(86_400);
        // The second file of `a` begins now, with a name that follows the first.
        for (device, begins, written, bytes) in [
            ("a", now + YEAR, now + YEAR, 100),
            ("b", now - day, now - day, 110),
            ("a", now, now, 120),
        ] {
            let mut file = directory.create(device, nanos(begins)).expect("writable");
            directory.write(&mut file, &vec![1; bytes]).expect("room");
            let path = file.path.clone();
            directory.complete(file);
            let file = File::options().append(true).open(path).expect("there");
            file.set_modified(written).expect("its own file");
        }
        let mut directory = Directory::open(dir.path(), 400, create_file).expect("readable");
        let mut open = directory.create("b", nanos(now)).expect("writable");
        directory.write(&mut open, &[1; 150]).expect("room is made");
        let left = files_of(dir.path(), "a").expect("readable");
        assert_eq!(names(dir.path(), "b"), [110, 150]);
        let [moved] = &left[..] else {
            panic!("{left:?}");
        };
        // Known without the file before it.
        assert!(moved.is_moved && moved.bytes == 120, "{moved:?}");
        assert!(moved.begins > nanos(now + YEAR));
        assert_eq!(moved.known_begin(), nanos(now));
        directory.write(&mut open, &[1; 100]).expect("room is made");
        assert_eq!(names(dir.path(), "b"), [250], "of the day before");
        assert_eq!(names(dir.path(), "a"), [120]);
    }

    #[test]
    fn only_the_last_component_of_the_directory_is_created() {
        let dir = tempfile::tempdir().expect("a directory");
        let mount_point = dir.path().join("disk");
        let path = mount_point.join("recordings");
        let refused = Directory::open(&path, 1000, create_file).expect_err("no parent");
        let refused = refused.to_string();
        assert!(refused.contains("disk does not exist"), "{refused}");
        assert!(!mount_point.exists());
        fs::create_dir(&mount_point).expect("writable");
        let mut directory = Directory::open(&path, 1000, create_file).expect("created");
        directory.create("a", 1).expect("writable");
        assert_eq!(names(&path, "a"), [0]);
        // Unmounted while it is in use: nothing is written in its place.
        fs::remove_dir_all(&mount_point).expect("there");
        assert!(directory.create("a", 2).is_err() && !mount_point.exists());
    }

    #[test]
    fn files_of_others_are_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("a")).expect("writable");
        for name in ["notes.txt", "1.tgrec", "0000000000000000000x.tgrec"] {
            fs::write(dir.path().join("a").join(name), "x").expect("writable");
        }
        fs::write(dir.path().join("file"), "x").expect("writable");
        let mut directory = Directory::open(dir.path(), 5, create_file).expect("readable");
        let mut file = directory.create("a", 0).expect("writable");
        directory.write(&mut file, &[1; 10]).expect("written");
        assert_eq!(
            fs::read_dir(dir.path().join("a"))
                .expect("readable")
                .count(),
            4
        );
        assert_eq!(files_of(dir.path(), "nothing").expect("no directory"), []);
    }
}
