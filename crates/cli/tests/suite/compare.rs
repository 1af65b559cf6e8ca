//! `tidegate compare`, from outside.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{stderr, stdout, tidegate};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example() -> String {
    let path = root().join("examples/noisy-neighbour-nvme.toml");
    path.to_str().expect("plain").to_owned()
}

/// `make pictures` writes the picture again.
#[test]
fn the_picture_in_the_readme_is_what_the_program_draws() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("drawn.svg");
    let args = ["compare", &example(), "--policy", "slo"];
    let output = tidegate(
        &[
            &args[..],
            &[
                "--fixed-depth",
                "fifo,mclock",
                "--svg",
                file.to_str().expect("plain"),
            ],
        ]
        .concat(),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let drawn = std::fs::read_to_string(&file).expect("it was written");
    let kept = root().join("docs/pictures/noisy-neighbour.svg");
    let kept = std::fs::read_to_string(kept).expect("it is there");
    assert_eq!(drawn, kept, "write it again with make pictures");
    assert!(drawn.len() < 60_000);
}

#[test]
fn each_policy_has_its_latency_over_time_and_its_verdicts() {
    let args = [
        "compare",
        &example(),
        "--duration",
        "8 s",
        "--interval",
        "1 s",
    ];
    let with = |more: &[&str]| tidegate(&[&args[..], more].concat());
    let output = with(&[
        "--policy",
        "slo,fifo",
        "--fixed-depth",
        "fifo",
        "-o",
        "json",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(report["vm"], "db");
    let variants = report["variants"].as_array().expect("a list");
    let names: Vec<&str> = variants
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert_eq!(names, ["slo", "fifo", "fifo, depth 32"]);
    for variant in variants {
        let curve = variant["latency"].as_array().expect("a list");
        assert_eq!(curve.len(), 8);
        let p99 = |i: usize| curve[i]["p99_ns"].as_u64().expect("answered");
        // The neighbour begins after six seconds.
        let disturbed = p99(7) > 2 * p99(3);
        assert_eq!(disturbed, variant["policy"] == "fifo", "{variant}");
        let kept = variant["report"]["vms"][0]["promises"][1]["kept"].as_bool();
        assert_eq!(kept, Some(!disturbed));
    }
    let text = stdout(&with(&[
        "--policy", "fifo,slo", "--vm", "web", "--plot", "--ascii",
    ]));
    assert!(text.contains("latency in 2 of 8 s"), "{text}");
    assert!(text.contains("latency of web"), "{text}");
    assert!(
        text.contains("neighbour active: time (s) from 6 to 8"),
        "{text}"
    );
    let refused = with(&["--vm", "nobody"]);
    assert!(!refused.status.success());
    assert!(
        stderr(&refused).contains("one of db, web, neighbour"),
        "{}",
        stderr(&refused)
    );
}
