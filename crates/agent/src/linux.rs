//! Host that the agent runs on, through `/proc` and the cgroup file system.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::host::{Host, Process, Target, TargetError, Thread};
use crate::ioprio::IoPriority;

/// Directories in which libvirt's QEMU driver stores the PIDs of domains.
const LIBVIRT: [&str; 2] = ["/run/libvirt/qemu", "/var/run/libvirt/qemu"];
/// Index of the parent's PID (4th field) in `/proc/PID/stat` after the process name (`proc(5)`).
const PARENT: usize = 1;
/// Index of the start time (22nd field) in `/proc/PID/stat` after the process name.
const BEGAN: usize = 19;

/// Host that the agent runs on.
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
    /// Uses other directories for the process file system and libvirt, for tests.
    pub fn new<P: Into<PathBuf>>(
        proc: impl Into<PathBuf>,
        libvirt: impl IntoIterator<Item = P>,
    ) -> Linux {
        Linux {
            proc: proc.into(),
            libvirt: libvirt.into_iter().map(Into::into).collect(),
        }
    }

    /// Returns whether the kernel lists children of processes (`CONFIG_PROC_CHILDREN`). Without it
    /// the descendants of a named process are not found.
    pub fn knows_children(&self) -> bool {
        self.proc.join("thread-self/children").is_file()
    }

    fn read(&self, id: u32) -> Option<Process> {
        let stat = fs::read_to_string(self.proc.join(id.to_string()).join("stat")).ok()?;
        parse(id, &stat)
    }

    fn tasks(&self, process: Thread) -> Vec<(u32, PathBuf)> {
        let task = self.proc.join(process.id.to_string()).join("task");
        let Ok(entries) = fs::read_dir(&task) else {
            return Vec::new();
        };
        let id = |entry: fs::DirEntry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            Some((id, entry.path()))
        };
        entries.flatten().filter_map(id).collect()
    }

    /// Collects all processes of a cgroup and of the cgroups below it.
    fn of_cgroup(&self, directory: &Path, found: &mut Vec<Process>) -> io::Result<()> {
        let pids = fs::read_to_string(directory.join("cgroup.procs"))?;
        let pids = pids.lines().filter_map(|line| line.trim().parse().ok());
        found.extend(pids.filter_map(|pid| self.read(pid)));
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                match self.of_cgroup(&entry.path(), found) {
                    // The cgroup was removed during the walk.
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

/// Parses `/proc/PID/stat`. The process name may contain parentheses and spaces, so parsing starts
/// after the last parenthesis.
fn parse(id: u32, stat: &str) -> Option<Process> {
    let (_, behind) = stat.rsplit_once(')')?;
    let field = |n: usize| behind.split_whitespace().nth(n);
    let began = field(BEGAN)?.parse().ok()?;
    Some(Process {
        thread: Thread { id, began },
        parent: field(PARENT)?.parse().ok()?,
    })
}

impl Host for Linux {
    fn processes(&mut self, target: &Target) -> Result<Vec<Process>, TargetError> {
        let missing = |why| TargetError::Missing(target.clone(), why);
        match target {
            Target::Pid(pid) => {
                let process = self.read(*pid).ok_or_else(|| missing(""))?;
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
                let pid = self.libvirt_pid(name).and_then(|pid| self.read(pid));
                let process = pid.ok_or_else(|| {
                    missing(" (a running one has a file NAME.pid in /run/libvirt/qemu)")
                })?;
                Ok(vec![process])
            }
        }
    }

    fn process(&mut self, id: u32) -> Option<Process> {
        self.read(id)
    }

    fn children(&mut self, process: Thread) -> Vec<Process> {
        let mut found = Vec::new();
        for (_, task) in self.tasks(process) {
            // The thread may end at any time.
            let text = fs::read_to_string(task.join("children")).unwrap_or_default();
            let ids = text.split_whitespace().filter_map(|id| id.parse().ok());
            found.extend(ids.filter_map(|id| self.read(id)));
        }
        found
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
        let thread = |(id, task): (u32, PathBuf)| {
            let stat = fs::read_to_string(task.join("stat")).ok()?;
            parse(id, &stat).map(|found| found.thread)
        };
        self.tasks(process).into_iter().filter_map(thread).collect()
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
    fn what_a_process_says_is_found_behind_any_name() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        for name in ["(fio)", "(a b)", "(x) (y)", "())"] {
            let stat = format!("77 {name} S {}", fields.join(" "));
            let found = parse(77, &stat).expect(name);
            let thread = Thread { id: 77, began: 22 };
            assert_eq!((found.thread, found.parent), (thread, 4), "{name}");
        }
        assert_eq!(parse(77, "77 (fio) S 1"), None);
        assert_eq!(parse(77, ""), None);
    }

    #[test]
    fn this_process_is_seen_as_it_is() {
        let mut host = Linux::default();
        let me = Target::Pid(std::process::id());
        let found = host.processes(&me).expect("it runs");
        assert_eq!(found.len(), 1);
        let this = found[0].thread;
        assert!(host.moved(this).is_ok());
        let threads = host.threads(this);
        assert!(threads.contains(&this), "{threads:?}");
        assert_eq!(host.process(this.id), Some(found[0]));
        let nobody = host.processes(&Target::Pid(u32::MAX - 1));
        assert_eq!(
            nobody.expect_err("none").to_string(),
            "there is no process 4294967294"
        );
    }

    #[test]
    fn a_process_that_any_thread_starts_is_its_child() {
        use std::process::{Command, Stdio};
        let mut host = Linux::default();
        assert!(host.knows_children());
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let starter = std::thread::spawn(move || {
            let mut cat = Command::new("cat");
            let mut cat = cat.stdin(Stdio::piped()).spawn().expect("it is there");
            tell.send(cat.id()).expect("the test waits");
            // The kernel gives a thread's children to another thread when it ends.
            let _ = ended.recv();
            drop(cat.stdin.take());
            cat.wait().expect("our child");
        });
        let cat = told.recv().expect("started");
        let me = host.process(std::process::id()).expect("it runs").thread;
        let found = host.children(me);
        let child = found.iter().find(|child| child.thread.id == cat);
        assert_eq!(child.expect("found").parent, me.id, "{found:?}");
        drop(end);
        starter.join().expect("no panic");
        assert_eq!(host.process(cat), None);
    }

    #[test]
    fn a_threads_priority_is_set_and_read_back() {
        use tidegate_core::transfers::Class;
        let mut host = Linux::default();
        // On a thread of its own, so that the other test threads keep their priorities.
        let done = std::thread::spawn(move || {
            // SAFETY: it takes nothing and touches no memory.
            let id = unsafe { libc::gettid() } as u32;
            let thread = Thread { id, began: 0 };
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
            group
                .iter()
                .map(|found| found.thread.id)
                .collect::<Vec<_>>(),
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
