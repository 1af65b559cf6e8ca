//! Real host, through `/proc` and the cgroup file system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::host::{Host, Process, Target, TargetError, TaskId};
use crate::ioprio::IoPriority;

/// Directories in which libvirt's QEMU driver stores the PIDs of domains.
const LIBVIRT_PID_DIRECTORIES: [&str; 2] = ["/run/libvirt/qemu", "/var/run/libvirt/qemu"];
/// Index of the parent's PID (4th field) in `/proc/PID/stat` after the process name (`proc(5)`).
const PPID_FIELD: usize = 1;
/// Index of the start time (22nd field) in `/proc/PID/stat` after the process name.
const START_TIME_FIELD: usize = 19;

/// [`Host`] that reads `/proc`, cgroup v2 directories and libvirt's PID files.
#[derive(Debug)]
pub struct LinuxHost {
    proc: PathBuf,
    libvirt: Vec<PathBuf>,
}

impl Default for LinuxHost {
    fn default() -> LinuxHost {
        LinuxHost::new("/proc", LIBVIRT_PID_DIRECTORIES)
    }
}

impl LinuxHost {
    /// Creates a host whose process file system and libvirt's PID files are in these directories;
    /// for tests.
    pub fn new<P: Into<PathBuf>>(
        proc: impl Into<PathBuf>,
        libvirt: impl IntoIterator<Item = P>,
    ) -> LinuxHost {
        LinuxHost {
            proc: proc.into(),
            libvirt: libvirt.into_iter().map(Into::into).collect(),
        }
    }

    /// Returns whether the kernel lists children of processes (`CONFIG_PROC_CHILDREN`). Without it
    /// the descendants of a named process are not found.
    pub fn lists_children(&self) -> bool {
        self.proc.join("thread-self/children").is_file()
    }

    fn read_process(&self, id: u32) -> Option<Process> {
        let stat = fs::read_to_string(self.proc.join(id.to_string()).join("stat")).ok()?;
        parse_stat(id, &stat)
    }

    /// Returns the threads of a process by number, with their directories below `/proc`.
    fn thread_directories(&self, process: TaskId) -> Vec<(u32, PathBuf)> {
        let task = self.proc.join(process.id.to_string()).join("task");
        let Ok(entries) = fs::read_dir(&task) else {
            return Vec::new();
        };
        let numbered = |entry: fs::DirEntry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            Some((id, entry.path()))
        };
        entries.flatten().filter_map(numbered).collect()
    }

    /// Collects all processes of a cgroup and of the cgroups below it.
    fn collect_cgroup_processes(
        &self,
        directory: &Path,
        processes: &mut Vec<Process>,
    ) -> io::Result<()> {
        let pids = fs::read_to_string(directory.join("cgroup.procs"))?;
        let pids = pids.lines().filter_map(|line| line.trim().parse().ok());
        processes.extend(pids.filter_map(|pid| self.read_process(pid)));
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                match self.collect_cgroup_processes(&entry.path(), processes) {
                    // The cgroup was removed during the walk.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    fn libvirt_pid(&self, name: &str) -> Option<u32> {
        // A file without a PID is skipped like a missing one: the other directory may have it.
        let read = |directory: &PathBuf| {
            let text = fs::read_to_string(directory.join(format!("{name}.pid"))).ok()?;
            text.trim().parse().ok()
        };
        self.libvirt.iter().find_map(read)
    }
}

/// Parses `/proc/PID/stat`. The process name may contain parentheses and spaces, so parsing starts
/// after the last parenthesis.
fn parse_stat(id: u32, stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(')')?;
    let field = |n: usize| fields.split_whitespace().nth(n);
    let start_ticks = field(START_TIME_FIELD)?.parse().ok()?;
    Some(Process {
        task: TaskId { id, start_ticks },
        parent: field(PPID_FIELD)?.parse().ok()?,
    })
}

impl Host for LinuxHost {
    fn processes(&mut self, target: &Target) -> Result<Vec<Process>, TargetError> {
        let missing = || TargetError::Missing(target.clone());
        match target {
            Target::Pid(pid) => {
                let process = self.read_process(*pid).ok_or_else(missing)?;
                Ok(vec![process])
            }
            Target::Cgroup(directory) => {
                let mut processes = Vec::new();
                match self.collect_cgroup_processes(directory, &mut processes) {
                    Ok(()) => Ok(processes),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing()),
                    Err(error) => Err(TargetError::Io {
                        path: directory.clone(),
                        error,
                    }),
                }
            }
            Target::Libvirt(name) => {
                let process = self
                    .libvirt_pid(name)
                    .and_then(|pid| self.read_process(pid));
                Ok(vec![process.ok_or_else(missing)?])
            }
        }
    }

    fn process(&mut self, id: u32) -> Option<Process> {
        self.read_process(id)
    }

    fn children(&mut self, process: TaskId) -> Vec<Process> {
        let mut children = Vec::new();
        for (_, task) in self.thread_directories(process) {
            // The thread may end at any time.
            let text = fs::read_to_string(task.join("children")).unwrap_or_default();
            let ids = text.split_whitespace().filter_map(|id| id.parse().ok());
            children.extend(ids.filter_map(|id| self.read_process(id)));
        }
        children
    }

    fn bytes_moved(&mut self, process: TaskId) -> io::Result<u64> {
        let text = fs::read_to_string(self.proc.join(process.id.to_string()).join("io"))?;
        let field = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|bytes| bytes.trim().parse::<u64>().ok())
        };
        match (field("read_bytes"), field("write_bytes")) {
            (Some(read), Some(written)) => Ok(read + written),
            _ => Err(io::Error::other(
                "the fields read_bytes and write_bytes are missing",
            )),
        }
    }

    fn threads(&mut self, process: TaskId) -> Vec<TaskId> {
        let thread = |(id, task): (u32, PathBuf)| {
            let stat = fs::read_to_string(task.join("stat")).ok()?;
            parse_stat(id, &stat).map(|process| process.task)
        };
        self.thread_directories(process)
            .into_iter()
            .filter_map(thread)
            .collect()
    }

    fn priority(&mut self, thread: TaskId) -> io::Result<IoPriority> {
        IoPriority::get(thread.id)
    }

    fn set_priority(&mut self, thread: TaskId, priority: IoPriority) -> io::Result<()> {
        priority.set(thread.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_after_process_names_with_spaces_and_parentheses() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        for name in ["(fio)", "(a b)", "(x) (y)", "())"] {
            let stat = format!("77 {name} S {}", fields.join(" "));
            let found = parse_stat(77, &stat).expect(name);
            let task = TaskId {
                id: 77,
                start_ticks: 22,
            };
            assert_eq!((found.task, found.parent), (task, 4), "{name}");
        }
        assert_eq!(parse_stat(77, "77 (fio) S 1"), None);
        assert_eq!(parse_stat(77, ""), None);
    }

    #[test]
    fn own_process_is_found_with_threads_and_bytes() {
        let mut host = LinuxHost::default();
        let me = Target::Pid(std::process::id());
        let found = host.processes(&me).expect("it runs");
        assert_eq!(found.len(), 1);
        let this = found[0].task;
        assert!(host.bytes_moved(this).is_ok());
        let threads = host.threads(this);
        assert!(threads.contains(&this), "{threads:?}");
        assert_eq!(host.process(this.id), Some(found[0]));
        let missing = host.processes(&Target::Pid(u32::MAX - 1));
        assert_eq!(
            missing.expect_err("none").to_string(),
            "process 4294967294 not found"
        );
    }

    #[test]
    fn children_include_those_started_by_other_threads() {
        use std::process::{Command, Stdio};
        let mut host = LinuxHost::default();
        assert!(host.lists_children());
        let (send_pid, pid) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let starter = std::thread::spawn(move || {
            let mut cat = Command::new("cat");
            let mut cat = cat.stdin(Stdio::piped()).spawn().expect("it is there");
            send_pid.send(cat.id()).expect("the test waits");
            // The kernel gives a thread's children to another thread when it ends.
            let _ = ended.recv();
            drop(cat.stdin.take());
            cat.wait().expect("our child");
        });
        let cat = pid.recv().expect("started");
        let me = host.process(std::process::id()).expect("it runs").task;
        let found = host.children(me);
        let child = found.iter().find(|child| child.task.id == cat);
        assert_eq!(child.expect("found").parent, me.id, "{found:?}");
        drop(end);
        starter.join().expect("no panic");
        assert_eq!(host.process(cat), None);
    }

    #[test]
    fn thread_priority_is_set_and_read_back() {
        use tidegate_core::transfers::Class;
        let mut host = LinuxHost::default();
        // On a thread of its own, so that the other test threads keep their priorities.
        let done = std::thread::spawn(move || {
            // SAFETY: it takes nothing and touches no memory.
            let id = unsafe { libc::gettid() } as u32;
            let thread = TaskId { id, start_ticks: 0 };
            let before = host.priority(thread).expect("it runs");
            host.set_priority(thread, IoPriority::for_class(Class::Idle))
                .expect("anybody may");
            assert_eq!(host.priority(thread).expect("it runs").to_string(), "idle");
            host.set_priority(thread, before).expect("anybody may");
            assert_eq!(host.priority(thread).expect("it runs"), before);
        });
        done.join().expect("no panic");
    }

    #[test]
    fn cgroup_includes_nested_cgroups_and_libvirt_domain_is_found_by_pid_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let me = std::process::id();
        let below = dir.path().join("a/b");
        fs::create_dir_all(&below).expect("made");
        fs::write(dir.path().join("cgroup.procs"), "").expect("written");
        fs::write(dir.path().join("a/cgroup.procs"), "4294967294\n").expect("written");
        fs::write(below.join("cgroup.procs"), format!("{me}\n")).expect("written");
        fs::write(dir.path().join("web.pid"), format!("{me}\n")).expect("written");
        // An empty file in the first directory does not hide the second one.
        fs::write(below.join("web.pid"), "").expect("written");
        let mut host = LinuxHost::new("/proc", [below.as_path(), dir.path()]);
        let group = host
            .processes(&Target::Cgroup(dir.path().to_owned()))
            .expect("it is there");
        assert_eq!(
            group
                .iter()
                .map(|process| process.task.id)
                .collect::<Vec<_>>(),
            [me]
        );
        let domain = host
            .processes(&Target::Libvirt("web".to_owned()))
            .expect("it runs");
        assert_eq!(domain, group);
        let libvirt = host.processes(&Target::Libvirt("db".to_owned()));
        assert_eq!(
            libvirt.expect_err("no file").to_string(),
            "libvirt domain db not found or not running: libvirt has no PID file db.pid under \
             /run/libvirt/qemu"
        );
        let directory = dir.path().join("c");
        let cgroup = host.processes(&Target::Cgroup(directory.clone()));
        assert_eq!(
            cgroup.expect_err("no directory").to_string(),
            format!(
                "cgroup {} not found: the directory has no file cgroup.procs",
                directory.display()
            )
        );
    }
}
