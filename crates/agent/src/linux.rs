//! The host this runs on, by `/proc` and the cgroup file system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::host::{Host, Target, TargetError, Thread};
use crate::ioprio::IoPriority;

/// Where libvirt's QEMU driver notes its domains' processes.
const LIBVIRT: [&str; 2] = ["/run/libvirt/qemu", "/var/run/libvirt/qemu"];
/// Of `/proc/PID/stat`: when it began is its 22nd field, the 20th behind the name.
const BEGAN: usize = 19;

/// The host this runs on.
#[derive(Debug)]
pub struct Linux {
    proc: PathBuf,
    libvirt: Vec<PathBuf>,
}

impl Default for Linux {
    fn default() -> Linux {
        Linux::new("/proc", LIBVIRT)
    }
}

impl Linux {
    /// With its process file system and libvirt's directories elsewhere.
    pub fn new<P: Into<PathBuf>>(
        proc: impl Into<PathBuf>,
        libvirt: impl IntoIterator<Item = P>,
    ) -> Linux {
        Linux {
            proc: proc.into(),
            libvirt: libvirt.into_iter().map(Into::into).collect(),
        }
    }

    fn process(&self, pid: u32) -> Option<Thread> {
        let stat = fs::read_to_string(self.proc.join(pid.to_string()).join("stat")).ok()?;
        began(&stat).map(|began| Thread { id: pid, began })
    }

    /// All processes of a cgroup and of those below it.
    fn of_cgroup(&self, directory: &Path, found: &mut Vec<Thread>) -> io::Result<()> {
        let pids = fs::read_to_string(directory.join("cgroup.procs"))?;
        let pids = pids.lines().filter_map(|line| line.trim().parse().ok());
        found.extend(pids.filter_map(|pid| self.process(pid)));
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                match self.of_cgroup(&entry.path(), found) {
                    // It went while we looked.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    fn libvirt_pid(&self, name: &str) -> Option<u32> {
        let read = |at: &PathBuf| fs::read_to_string(at.join(format!("{name}.pid"))).ok();
        self.libvirt.iter().find_map(read)?.trim().parse().ok()
    }
}

/// When a process or thread began; its name may hold anything, also parentheses and spaces.
fn began(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(BEGAN)?.parse().ok()
}

impl Host for Linux {
    fn processes(&mut self, target: &Target) -> Result<Vec<Thread>, TargetError> {
        let missing = |why| TargetError::Missing(target.clone(), why);
        match target {
            Target::Pid(pid) => {
                let process = self.process(*pid).ok_or_else(|| missing(""))?;
                Ok(vec![process])
            }
            Target::Cgroup(directory) => {
                let mut found = Vec::new();
                match self.of_cgroup(directory, &mut found) {
                    Ok(()) => Ok(found),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        Err(missing(" (a directory with a file cgroup.procs)"))
                    }
                    Err(error) => Err(TargetError::Io {
                        path: directory.clone(),
                        error,
                    }),
                }
            }
            Target::Libvirt(name) => {
                let pid = self.libvirt_pid(name).and_then(|pid| self.process(pid));
                let process = pid.ok_or_else(|| {
                    missing(" that runs, by its file NAME.pid in /run/libvirt/qemu")
                })?;
                Ok(vec![process])
            }
        }
    }

    fn moved(&mut self, process: Thread) -> io::Result<u64> {
        let text = fs::read_to_string(self.proc.join(process.id.to_string()).join("io"))?;
        let field = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|bytes| bytes.trim().parse::<u64>().ok())
        };
        match (field("read_bytes"), field("write_bytes")) {
            (Some(read), Some(written)) => Ok(read + written),
            _ => Err(io::Error::other("no read_bytes and write_bytes in it")),
        }
    }

    fn threads(&mut self, process: Thread) -> Vec<Thread> {
        let task = self.proc.join(process.id.to_string()).join("task");
        let Ok(entries) = fs::read_dir(&task) else {
            return Vec::new();
        };
        let thread = |entry: fs::DirEntry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            began(&stat).map(|began| Thread { id, began })
        };
        entries.flatten().filter_map(thread).collect()
    }

    fn priority(&mut self, thread: Thread) -> io::Result<IoPriority> {
        IoPriority::get(thread.id)
    }

    fn set_priority(&mut self, thread: Thread, priority: IoPriority) -> io::Result<()> {
        priority.set(thread.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_process_began_is_found_behind_any_name() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        for name in ["(fio)", "(a b)", "(x) (y)", "())"] {
            let stat = format!("77 {name} S {}", fields.join(" "));
            assert_eq!(began(&stat), Some(22), "{name}");
        }
        assert_eq!(began("77 (fio) S 1"), None);
        assert_eq!(began(""), None);
    }

    #[test]
    fn this_process_is_seen_as_it_is() {
        let mut host = Linux::default();
        let me = Target::Pid(std::process::id());
        let found = host.processes(&me).expect("it runs");
        assert_eq!(found.len(), 1);
        assert!(host.moved(found[0]).is_ok());
        let threads = host.threads(found[0]);
        assert!(threads.contains(&found[0]), "{threads:?}");
        let nobody = host.processes(&Target::Pid(u32::MAX - 1));
        assert_eq!(
            nobody.expect_err("none").to_string(),
            "there is no process 4294967294"
        );
    }

    #[test]
    fn a_threads_priority_is_set_and_read_back() {
        use tidegate_core::jobs::Class;
        let mut host = Linux::default();
        // A thread of its own: the others keep theirs.
        let done = std::thread::spawn(move || {
            // SAFETY: it takes nothing and touches no memory.
            let id = unsafe { libc::gettid() } as u32;
            let thread = Thread { id, began: 0 };
            let before = host.priority(thread).expect("it runs");
            host.set_priority(thread, IoPriority::of(Class::Idle))
                .expect("anybody may");
            assert_eq!(host.priority(thread).expect("it runs").to_string(), "idle");
            host.set_priority(thread, before).expect("anybody may");
            assert_eq!(host.priority(thread).expect("it runs"), before);
        });
        done.join().expect("no panic");
    }

    #[test]
    fn a_cgroup_has_those_below_it_and_libvirt_its_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let me = std::process::id();
        let below = dir.path().join("a/b");
        fs::create_dir_all(&below).expect("made");
        fs::write(dir.path().join("cgroup.procs"), "").expect("written");
        fs::write(dir.path().join("a/cgroup.procs"), "4294967294\n").expect("written");
        fs::write(below.join("cgroup.procs"), format!("{me}\n")).expect("written");
        fs::write(dir.path().join("web.pid"), format!("{me}\n")).expect("written");
        let mut host = Linux::new("/proc", [dir.path()]);
        let group = host
            .processes(&Target::Cgroup(dir.path().to_owned()))
            .expect("it is there");
        assert_eq!(
            group.iter().map(|process| process.id).collect::<Vec<_>>(),
            [me]
        );
        let domain = host
            .processes(&Target::Libvirt("web".to_owned()))
            .expect("it runs");
        assert_eq!(domain, group);
        assert!(host.processes(&Target::Libvirt("db".to_owned())).is_err());
        assert!(
            host.processes(&Target::Cgroup(dir.path().join("c")))
                .is_err()
        );
    }
}
