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
    let said = run(&["--vm", &me, "--job", "you=1 GiB in 1 s"]);
    assert!(
        said.contains("no such VM: \"you\"") && said.contains("there are: me"),
        "{said}"
    );
    let said = run(&["--vm", &me, "--vm", &me]);
    assert!(said.contains("VM name me is given twice"), "{said}");
    let said = run(&["--vm", &me, "--vm", &me.replace("me", "you")]);
    assert!(said.contains("VMs me and you are both process"), "{said}");
    let said = run(&["--vm", "me"]);
    assert!(said.contains("NAME=PID"), "{said}");
    let said = run(&["--vm", &me, "--job", "me=1 GiB"]);
    assert!(said.contains("2 GiB in 60 s"), "{said}");
    let nowhere = tidegate(&["agent", "--vm", &me, "--disk", "/proc/self/stat"]);
    assert!(
        stderr(&nowhere).contains("not on exactly one disk"),
        "{}",
        stderr(&nowhere)
    );
}
