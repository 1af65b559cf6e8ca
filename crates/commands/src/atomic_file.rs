//! Small files that commands read and replace, safely against crashes and special files.
//!
//! ```text
//!   read: a regular file? --> at most a maximum size --> text
//!   write: a regular file, or none yet? --> all of it beside, synced --> renamed onto it
//!          --> its directory synced
//! ```
//!
//! A path may lead to anything: an endless device, a FIFO without a writer, a device node that a
//! rename would replace. Only regular files are accepted. A symbolic link is followed and stays.

use std::fs::{self, File, FileType, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;
use tidegate_units::human::bytes as bytes_text;

use crate::output;
use crate::problem::{self, Problem};

/// Maximum number of symbolic links followed in a row, as in Linux.
const SYMLINKS_MAX: usize = 40;

/// Reads a file, if it exists.
///
/// # Errors
/// If it is not a regular file, has more than `most` bytes, is not UTF-8 or cannot be read.
pub(crate) fn read(path: &Path, most: u64) -> Result<Option<String>> {
    let cannot = || format!("cannot read {}", path.display());
    // Checked before opening, because opening a FIFO would block until a writer comes.
    if regular(path)?.is_none() {
        return Ok(None);
    }
    let file = File::open(path).with_context(cannot)?;
    // Again on the open file: the path may lead elsewhere by now.
    check(path, file.metadata().with_context(cannot)?.file_type())?;
    let mut bytes = Vec::new();
    // The size is not trusted: files of /proc report 0, and others may grow.
    (file.take(most.saturating_add(1)).read_to_end(&mut bytes)).with_context(cannot)?;
    if bytes.len() as u64 > most {
        let what = format!("the file is larger than {}", bytes_text(most));
        return Err(refused(path, what));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(refused(path, "the file is not UTF-8 text".to_owned())),
    }
}

/// Replaces a file atomically: a crash leaves the old or the new content. Permissions are kept.
///
/// # Errors
/// If the path is not a regular file, or cannot be written.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut new = Replacement::create(path)?;
    new.write_all(bytes)
        .with_context(|| format!("cannot write {}", path.display()))?;
    new.commit()
}

/// File that a command writes at its end. It is created at the begin, so that a wrong path is an
/// error before a long run.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    file: Replacement,
}

impl NewFile {
    /// Creates an empty file, which is not in its place yet.
    ///
    /// # Errors
    /// If the path is not a regular file, or cannot be written.
    pub(crate) fn create(path: &Path) -> Result<NewFile> {
        Ok(NewFile {
            path: path.to_owned(),
            file: Replacement::create(path)?,
        })
    }

    /// Writes the whole content, puts the file in its place and reports its name on standard error.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn finish(mut self, content: &(impl AsRef<[u8]> + ?Sized)) -> Result<()> {
        let written = self.file.write_all(content.as_ref());
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.file.commit()?;
        output::tell(format_args!("wrote {}", self.path.display()));
        Ok(())
    }
}

/// New content of a file, which replaces the old one atomically once it is whole. Without
/// [`Replacement::commit`] the file stays as it is.
#[derive(Debug)]
pub(crate) struct Replacement {
    path: PathBuf,
    /// End of the path's links.
    target: PathBuf,
    beside: NamedTempFile,
}

impl Replacement {
    /// Creates an empty file beside the one that is replaced.
    ///
    /// # Errors
    /// If the path is not a regular file, or cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Replacement> {
        // As for any new file, less the user's umask.
        Replacement::with_mode(path, 0o666)
    }

    /// Creates an empty file beside the one that is replaced, for its owner alone unless the old
    /// one was for others, too.
    ///
    /// # Errors
    /// If the path is not a regular file, or cannot be written.
    pub(crate) fn create_private(path: &Path) -> Result<Replacement> {
        Replacement::with_mode(path, 0o600)
    }

    fn with_mode(path: &Path, mode: u32) -> Result<Replacement> {
        let cannot = || format!("cannot write {}", path.display());
        let old = regular(path)?;
        let target = match &old {
            Some(_) => fs::canonicalize(path).with_context(cannot)?,
            None => link_target(path).with_context(cannot)?,
        };
        let named = !target.as_os_str().as_bytes().ends_with(b"/");
        let Some(name) = target.file_name().filter(|_| named) else {
            return Err(refused(path, "not the name of a file".to_owned()));
        };
        // A rename needs no write permission for the replaced file, so it is checked here.
        if old.is_some() {
            (OpenOptions::new().write(true).open(&target)).with_context(cannot)?;
        }
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        // In the same directory, because a rename cannot cross file systems.
        let beside = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".new")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder(&target))
            .map_err(|error| problem::cannot_write(&target, &without_path(error)))?;
        if let Some(old) = old {
            (beside.as_file().set_permissions(old.permissions())).with_context(cannot)?;
        }
        let path = path.to_owned();
        Ok(Replacement {
            path,
            target,
            beside,
        })
    }

    /// Puts the new content in the place of the old one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn commit(self) -> Result<()> {
        let cannot = || format!("cannot write {}", self.path.display());
        // Synced first, because the rename may otherwise become durable before the data.
        self.beside.as_file().sync_data().with_context(cannot)?;
        self.beside.persist(&self.target).with_context(cannot)?;
        sync_name(&self.target).with_context(cannot)
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.beside.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.beside.flush()
    }
}

/// Syncs the directory of a file, which makes its name durable.
fn sync_name(path: &Path) -> io::Result<()> {
    match File::open(folder(path)) {
        Ok(folder) => folder.sync_all(),
        // A directory of mode 0300 allows creating files but cannot be opened for a sync.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the metadata of a regular file, if it exists; fails for anything else.
pub(crate) fn regular(path: &Path) -> Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(found) => check(path, found.file_type()).map(|()| Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn check(path: &Path, kind: FileType) -> Result<()> {
    let is = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_char_device() => "a character device",
        kind if kind.is_block_device() => "a block device",
        _ => "something else",
    };
    Err(refused(path, format!("this is {is}, not a regular file")))
}

fn refused(path: &Path, what: String) -> anyhow::Error {
    Problem::new(what)
        .at(path.display().to_string())
        .help("give a file that this command wrote before, or one that does not exist")
        .into()
}

/// Returns the path at the end of a chain of links whose target does not exist yet.
fn link_target(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..SYMLINKS_MAX {
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_symlink() => {
                target = folder(&target).join(fs::read_link(&target)?);
            }
            _ => return Ok(target),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns the error of the operating system without the name of the temporary file, which the
/// user never gave.
fn without_path(error: io::Error) -> io::Error {
    // `tempfile` has no access to the error inside: it appends ` at path "..."` to its text.
    match error.to_string().split_once(" at path ") {
        Some((text, _)) => io::Error::new(error.kind(), text),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn refusal<T: std::fmt::Debug>(result: Result<T>) -> String {
        format!("{:#}", result.expect_err("refused"))
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a directory");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_missing_directory_is_reported_with_the_name_that_was_given() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("none/x.html");
        let text = refusal(Replacement::create(&file));
        assert!(
            text.contains("none/x.html: No such file or directory"),
            "{text}"
        );
        assert!(!text.contains(".new"), "{text}");
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("kept");
        assert_eq!(read(&file, 10).expect("none yet"), None);
        write(&file, b"one").expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("set");
        write(&file, b"two").expect("written again");
        assert_eq!(read(&file, 10).expect("read").as_deref(), Some("two"));
        let mode = fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(names(dir.path()), ["kept"]);
        // A file for its owner alone; an old one keeps its permissions.
        let private = dir.path().join("private");
        for (path, expected) in [(&private, 0o600), (&file, 0o640)] {
            let new = Replacement::create_private(path).expect("created");
            new.commit().expect("put in place");
            let mode = fs::metadata(path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, expected);
        }
    }

    #[test]
    fn the_old_file_is_whole_until_the_new_one_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("kept");
        write(&file, b"the old one").expect("written");
        // A process that has the file open keeps the old one: it is replaced, not written over.
        let mut old = File::open(&file).expect("there");
        // Left behind by a run that was killed.
        fs::write(dir.path().join(".kept.killed.new"), "the n").expect("written");
        write(&file, b"the new one").expect("written");
        let mut held = String::new();
        old.read_to_string(&mut held).expect("read");
        assert_eq!(held, "the old one");
        let new = read(&file, 99).expect("read");
        assert_eq!(new.as_deref(), Some("the new one"));
    }

    #[test]
    fn a_symbolic_link_stays_and_its_target_is_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let (link, far) = (dir.path().join("link"), dir.path().join("far"));
        fs::create_dir(&far).expect("made");
        symlink("second", dir.path().join("link")).expect("a link");
        symlink("far/file", dir.path().join("second")).expect("a link");
        for text in ["not there yet", "there"] {
            write(&link, text.as_bytes()).expect("written");
            assert!(link.is_symlink());
            let held = fs::read_to_string(far.join("file")).expect("there");
            assert_eq!(held, text);
            assert_eq!(read(&link, 99).expect("read").as_deref(), Some(text));
        }
        assert_eq!(names(dir.path()), ["far", "link", "second"]);
        assert_eq!(names(&far), ["file"]);
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        symlink(&a, &b).expect("a link");
        symlink(&b, &a).expect("a link");
        assert!(refusal(write(&a, b"")).contains("cannot"));
    }

    #[test]
    fn what_is_no_regular_file_is_neither_read_nor_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).expect("bound");
        let link = dir.path().join("link");
        symlink(&socket, &link).expect("a link");
        for (path, is) in [
            (dir.path(), "a directory"),
            (&socket, "a socket"),
            (&link, "a socket"),
        ] {
            for refusal in [refusal(read(path, 10)), refusal(write(path, b"new"))] {
                assert!(refusal.contains(is), "{refusal}");
                assert!(refusal.contains(&path.display().to_string()), "{refusal}");
            }
        }
        assert!(refusal(read(Path::new("/dev/zero"), 10)).contains("a character device"));
        let kind = fs::metadata(&socket).expect("still there").file_type();
        assert!(kind.is_socket());
        assert_eq!(names(dir.path()), ["link", "socket"]);
    }

    #[test]
    fn no_more_is_read_than_was_said_and_only_text() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("kept");
        fs::write(&file, "0123456789").expect("written");
        assert_eq!(
            read(&file, 10).expect("it fits").as_deref(),
            Some("0123456789")
        );
        assert!(refusal(read(&file, 9)).contains("larger than 9 B"));
        fs::write(&file, [0xff, 0xfe]).expect("written");
        assert!(refusal(read(&file, 10)).contains("not UTF-8"));
    }

    #[test]
    fn a_place_that_cannot_be_is_refused_with_its_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let none = dir.path().join("none/kept");
        assert!(refusal(write(&none, b"")).contains("none/kept"));
        for name in ["new/", "", "none/.."] {
            let refusal = refusal(write(&dir.path().join("none").join(name), b""));
            assert!(refusal.contains("not the name of a file") || refusal.contains("cannot write"));
        }
        assert!(refusal(write(Path::new(""), b"")).contains("not the name of a file"));
        assert!(names(dir.path()).is_empty());
    }
}
