//! What packages install, held against the programs that read it: manual pages.

use std::fs;

use crate::daemon::Scratch;
use crate::tool::{Running, arg, have, run};

/// Width of the terminal that pages are set for.
const COLUMNS: usize = 80;

#[test]
fn manual_pages_are_set_without_warnings_and_fit_a_terminal() {
    if !have(&["groff"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = env!("CARGO_BIN_EXE_tidegate");
    run(&scratch, program, &["man", "man1"]);
    let mut pages: Vec<_> = (fs::read_dir(scratch.join("man1")).expect("it is there"))
        .map(|entry| entry.expect("readable").path())
        .collect();
    pages.sort();
    assert!(pages.len() > 50, "{} pages", pages.len());
    for page in pages {
        // What `man -l` runs, without colours and with all warnings.
        let args = ["-man", "-Tutf8", "-ww", "-P-cbou", "-rLL=80n", arg(&page)];
        let set = Running::start(&scratch, "groff", &args).wait();
        assert!(set.status.success(), "{}: {}", page.display(), set.err);
        assert_eq!(set.err, "", "{}", page.display());
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"] {
            assert!(set.out.lines().any(|line| line == section), "{}", set.out);
        }
        for line in set.out.lines() {
            let wide = line.chars().count();
            assert!(wide <= COLUMNS, "{}: {line}", page.display());
        }
    }
}
