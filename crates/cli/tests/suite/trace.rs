//! `tidegate trace` as its users meet it.

use serde_json::Value;

use crate::common::{stderr, stdout, tidegate};

#[test]
fn a_trace_is_told_in_figures_and_a_bad_record_with_its_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.disksim");
    let path = file.to_str().expect("text");
    std::fs::write(&file, "0 0 0 8 1\n500000000 1 8 8 0\nthree words only\n")
        .expect("it is written");
    let bad = tidegate(&["trace", "info", path]);
    assert_eq!(bad.status.code(), Some(1));
    let message = stderr(&bad);
    assert!(
        message.contains("where: line 3") && message.contains("--skip-bad"),
        "{message}"
    );

    let text = stdout(&tidegate(&["trace", "info", path, "--skip-bad"]));
    assert!(
        text.contains("2, 50 % reads") && text.contains("line 3: 3 words"),
        "{text}"
    );
    let json = tidegate(&["trace", "info", path, "--skip-bad", "-o", "json"]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        (&json["format"], &json["skipped"]),
        (&"disksim".into(), &1.into())
    );
    assert_eq!(json["all"]["bytes"], 8192);
    assert_eq!(json["disks"][1]["name"], "1");

    std::fs::write(&file, "nothing of the sort\n").expect("it is written");
    let unknown = stderr(&tidegate(&["trace", "info", path]));
    assert!(unknown.contains("msr, disksim, vscsi"), "{unknown}");
    let missing = stderr(&tidegate(&["trace", "info", "no-such-file"]));
    assert!(missing.contains("no-such-file"), "{missing}");
}
