//! The rules, applied to the workspace that this crate is part of.

use std::{fs, path::Path};

use tidy::{Debts, Workspace, check};

#[test]
fn the_workspace_keeps_its_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("crates/tidy/debts.txt")).expect("debts.txt is there");
    let debts = Debts::parse(&text).expect("debts.txt is well-formed");
    let findings = check(&Workspace::read(&root).expect("all sources can be read and parsed"));
    let problems = debts.compare(&findings);
    let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(
        problems.is_empty(),
        "\n{}\n\n{} problems",
        list.join("\n\n"),
        problems.len()
    );
}
