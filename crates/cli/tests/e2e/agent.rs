//! `tidegate agent` and processes that run: what they have, and what they have back in the end.
//!
//! Each test has a job of a process that does nothing, far from its deadline: the only step that is
//! taken is the first one, which lowers the other process.

use std::fs;
use std::process::Stdio;

use crate::daemon::{Scratch, wait_for};
use crate::tool::{Running, have, run, skipped};

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");
/// Half of the disk is too little for the job, the whole disk is enough.
const TERMS: [&str; 6] = [
    "--bandwidth=2 MB/s",
    "--job=job=1500 MB in 1000 s",
    "--interval=1 h",
    "-ojson",
    "--disk",
    env!("CARGO_MANIFEST_DIR"),
];
/// Own I/O class of the other process.
const OWN: &str = "best-effort: prio 6";

/// Returns true if this repository's disk honours I/O classes and `ionice` can read them.
fn can_be_tested(scratch: &Scratch) -> bool {
    let missing_pid = i32::MAX;
    let vm = format!("--vm=job={missing_pid}");
    let args = [&["agent", &vm], &TERMS[..]].concat();
    let message = Running::start(scratch, TIDEGATE, &args).wait().err;
    if !message.contains(&format!("process {missing_pid} not found")) {
        skipped(message.lines().next().unwrap_or("the agent says nothing"));
        return false;
    }
    have(&["ionice", "unshare"])
}

/// A shell and its child, which ends when its standard input is closed. Both have [`OWN`].
fn shell(scratch: &Scratch) -> (Running, u32) {
    let args = ["-c2", "-n6", "sh", "-c", "cat; :"];
    let shell = Running::start_with(scratch, "ionice", &args, Stdio::piped());
    let children = format!("/proc/{0}/task/{0}/children", shell.pid());
    let mut child = None;
    wait_for("the shell's child", || {
        let text = fs::read_to_string(&children).unwrap_or_default();
        child = text.trim().parse().ok();
        child.is_some()
    });
    (shell, child.expect("waited for"))
}

fn class(scratch: &Scratch, process: u32) -> String {
    let message = run(scratch, "ionice", &["-p", &process.to_string()]);
    message.trim().to_owned()
}

/// The agent over the two, once the other process and its child are idle.
fn agent(scratch: &Scratch, job: &Running, (other, child): (&Running, u32)) -> Running {
    let vms = [("job", job), ("b", other)].map(|(name, of)| format!("--vm={name}={}", of.pid()));
    let args = [&["agent", &vms[0], &vms[1]], &TERMS[..]].concat();
    let agent = Running::start(scratch, TIDEGATE, &args);
    wait_for("b to be idle", || agent.out().contains(r#""class":"idle""#));
    for process in [other.pid(), child] {
        assert_eq!(class(scratch, process), "idle");
    }
    assert_eq!(class(scratch, job.pid()), OWN);
    agent
}

#[test]
fn a_process_and_its_child_have_back_what_they_had_after_sigterm() {
    let scratch = Scratch::new();
    if !can_be_tested(&scratch) {
        return;
    }
    let (job, _) = shell(&scratch);
    let (other, child) = shell(&scratch);
    let agent = agent(&scratch, &job, (&other, child));
    let kill = format!("kill -TERM {}", agent.pid());
    run(&scratch, "sh", &["-c", &kill]);
    let done = agent.wait();
    assert!(done.status.success(), "{done:?}");
    assert!(
        done.err.contains("the original I/O classes are restored"),
        "{done:?}"
    );
    for process in [other.pid(), child, job.pid()] {
        assert_eq!(class(&scratch, process), OWN);
    }
}

#[test]
fn a_job_whose_process_vanishes_is_a_failure_and_all_is_put_back() {
    let scratch = Scratch::new();
    if !can_be_tested(&scratch) {
        return;
    }
    let (mut job, _) = shell(&scratch);
    let (other, child) = shell(&scratch);
    let agent = agent(&scratch, &job, (&other, child));
    job.kill();
    // Its child stays the job's until it ends.
    drop(job);
    let done = agent.wait();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    for message in ["all processes have ended", "of the transfer left"] {
        assert!(done.out.contains(message), "{message}: {done:?}");
    }
    assert!(done.err.contains("deadline not met: job"), "{done:?}");
    for process in [other.pid(), child] {
        assert_eq!(class(&scratch, process), OWN);
    }
}

/// In PID namespaces a process number can be chosen. All in it ends with the test.
#[test]
fn a_process_number_that_is_used_again_is_left_alone() {
    let scratch = Scratch::new();
    if !can_be_tested(&scratch) {
        return;
    }
    let script = r#"
set -eu
next=/proc/sys/kernel/ns_last_pid
[ -w $next ] || { echo "no process number can be chosen"; exit; }
until_said() {
    while read -r line <&3; do case $line in *"$1"*) return ;; esac; done
    echo "$1 was not said"
    exit 1
}
sleep 1000 & job=$!
sleep 1000 & other=$!
# Processes of one number are told apart by the clock tick that they began in, as programs on
# Linux usually do.
began() { cut -d " " -f 22 /proc/$1/stat; }
before=$(began $other)
mkfifo said
"$@" --vm=job=$job --vm=b=$other > said & agent=$!
exec 3< said
until_said '"idle"'
ionice -p $other
kill $other
wait $other || true
while
    echo $((other - 1)) > $next
    sleep 1000 & again=$!
    [ $again = $other ] || exit 1
    [ $(began $again) = $before ]
do
    kill $again
    wait $again || true
done
ionice -c 2 -n 7 -p $again
until_said '"left"'
ionice -p $again
kill -TERM $agent
cat <&3 > rest
wait $agent
ionice -p $again
"#;
    let args = [
        "--pid",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        script,
        "sh",
    ];
    let args = [&args[..], &[TIDEGATE, "agent"], &TERMS].concat();
    let done = Running::start(&scratch, "unshare", &args).wait();
    if done.err.contains("unshare:") || done.out.starts_with("no ") {
        return skipped(&format!("needs PID namespaces: {}{}", done.err, done.out));
    }
    assert!(done.status.success(), "{done:?}");
    let expected = ["idle", "best-effort: prio 7", "best-effort: prio 7"];
    assert_eq!(done.out.lines().collect::<Vec<_>>(), expected, "{done:?}");
}
