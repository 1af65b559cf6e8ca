//! `tidegate agent` as its users meet it.

use crate::common::{stderr, tidegate};

#[test]
fn the_agent_refuses_what_it_cannot_do_and_says_what_would_be_right() {
    let me = format!("me={}", std::process::id());
    let run = |args: &[&str]| {
        let output = tidegate(&[&["agent", "--dry-run", "--disk", "."], args].concat());
        assert!(!output.status.success());
        stderr(&output)
    };
    let message = run(&["--vm", &me, "--job", "you=1 GiB in 1 s"]);
    assert!(
        message.contains("no such VM: \"you\"") && message.contains("there are: me"),
        "{message}"
    );
    let message = run(&["--vm", &me, "--vm", &me]);
    assert!(message.contains("VM name me is given twice"), "{message}");
    let message = run(&["--vm", &me, "--vm", &me.replace("me", "you")]);
    assert!(
        message.contains("VMs me and you are both process"),
        "{message}"
    );
    let message = run(&["--vm", "me"]);
    assert!(message.contains("NAME=PID"), "{message}");
    let message = run(&["--vm", &me, "--job", "me=1 GiB"]);
    assert!(message.contains("2 GiB in 60 s"), "{message}");
    let nowhere = tidegate(&["agent", "--vm", &me, "--disk", "/proc/self/stat"]);
    assert!(
        stderr(&nowhere).contains("not on exactly one disk"),
        "{}",
        stderr(&nowhere)
    );
}
