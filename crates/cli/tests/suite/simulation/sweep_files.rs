//! Files that `tidegate sweep` writes beside its results.

use std::path::Path;

use serde_json::Value;

use super::{SMALL, printed};
use crate::common::page::{assert_loads_nothing, body, sections, titles};

/// Runs a sweep of a scenario under two policies and three seeds in a directory.
fn sweep(dir: &Path, scenario: &str) {
    let path = |name: &str| dir.join(name).display().to_string();
    std::fs::write(dir.join("s.toml"), scenario).expect("it is written");
    let (file, results) = (path("s.toml"), path("r.jsonl"));
    let (per_seed, report) = (path("seeds.csv"), path("out.html"));
    let args = [
        "sweep",
        &file,
        "--policy",
        "fifo,mclock",
        "--seeds",
        "1..3",
        "--results",
        &results,
        "--per-seed",
        &per_seed,
        "--report",
        &report,
        "-o",
        "json",
    ];
    printed(&args);
}

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).expect("it is written")
}

/// Policies of the results, each once.
fn policies(dir: &Path) -> Vec<String> {
    let results = read(dir, "r.jsonl");
    let lines = results.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        line["policy"].as_str().expect("text").to_owned()
    });
    let mut policies: Vec<String> = lines.collect();
    policies.sort();
    policies.dedup();
    policies
}

#[test]
#[cfg(not(feature = "parquet"))]
fn without_its_feature_parquet_is_refused_before_anything_is_simulated() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(dir.path().join("s.toml"), SMALL).expect("it is written");
    let (file, results, rows) = (path("s.toml"), path("r.jsonl"), path("seeds.parquet"));
    let args = ["sweep", &file, "--results", &results, "--per-seed", &rows];
    let said = super::refused(&args);
    assert!(said.contains("writes no Parquet"), "{said}");
    assert!(said.contains("--features parquet"), "{said}");
    assert!(!Path::new(&results).exists() && !Path::new(&rows).exists());
}

/// Returns the cells of a Parquet file by rows, heading first, as CSV spells them.
#[cfg(feature = "parquet")]
fn parquet_cells(path: &str) -> Vec<Vec<String>> {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;

    let file = std::fs::File::open(path).expect("it is written");
    let reader = SerializedFileReader::new(file).expect("a Parquet file");
    let cell = |field: &Field| match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::ULong(whole) => whole.to_string(),
        // JSON's spelling, which the results have.
        Field::Double(figure) => Value::from(*figure).to_string(),
        other => panic!("a column of another type: {other:?}"),
    };
    let mut cells = Vec::new();
    for row in reader.get_row_iter(None).expect("rows") {
        let row = row.expect("a row");
        if cells.is_empty() {
            let heading = row.get_column_iter().map(|(name, _)| name.clone());
            cells.push(heading.collect());
        }
        cells.push(row.get_column_iter().map(|(_, it)| cell(it)).collect());
    }
    cells
}

#[test]
#[cfg(feature = "parquet")]
fn parquet_has_the_names_rows_and_figures_of_the_csv() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(dir.path().join("s.toml"), SMALL).expect("it is written");
    let (file, results) = (path("s.toml"), path("r.jsonl"));
    let (rows, csv) = (path("seeds.parquet"), path("seeds.csv"));
    for rows in [&rows, &csv] {
        let args = ["sweep", &file, "--policy", "fifo,mclock", "--seeds", "1..3"];
        printed(&[&args[..], &["--results", &results, "--per-seed", rows]].concat());
    }
    let csv = read(dir.path(), "seeds.csv");
    let of_csv: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(of_csv.len(), 1 + 2 * 2 * 3, "{csv}");
    assert_eq!(parquet_cells(&rows), of_csv);
}

#[test]
fn every_vm_and_seed_has_a_row_and_policies_have_clean_names() {
    let dir = tempfile::tempdir().expect("a directory");
    sweep(dir.path(), SMALL);
    assert_eq!(policies(dir.path()), ["fifo", "mclock"]);
    let csv = read(dir.path(), "seeds.csv");
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let heading = &rows[0];
    assert_eq!(rows.len(), 1 + 2 * 2 * 3, "{csv}");
    assert!(rows.iter().all(|row| row.len() == heading.len()), "{csv}");
    let column = |name: &str| {
        let place = heading.iter().position(|it| *it == name);
        place.expect("a column")
    };
    let of = |policy: &str, seed: &str| {
        let mut found = rows.iter().filter(|row| {
            row[column("policy")] == policy
                && row[column("seed")] == seed
                && row[column("vm")] == "a"
        });
        found.next().expect("a row")
    };
    let file = dir.path().join("s.toml").display().to_string();
    let json = printed(&[
        "sim", &file, "--policy", "fifo", "--seed", "2", "-o", "json",
    ]);
    let alone: Value = serde_json::from_str(&json).expect("JSON");
    let vm = &alone["vms"][0];
    let row = of("fifo", "2");
    assert_eq!(row[column("iops")], vm["iops"].to_string());
    assert_eq!(
        row[column("latency_p99_ns")],
        vm["latency_p99_ns"].to_string()
    );
    assert_eq!(row[column("promises")], "1");
    assert_eq!(
        row[column("judged_s")],
        vm["promises"][0]["judged_s"].to_string()
    );
    assert_eq!(row[column("cpus")], "", "no pCPUs are simulated");
}

#[test]
fn parameters_that_are_not_at_their_defaults_are_in_the_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let policy = "policy = { name = \"mclock\", cost_size = \"1 MiB\" }";
    sweep(dir.path(), &SMALL.replace("policy = \"mclock\"", policy));
    assert_eq!(policies(dir.path()), ["fifo", "mclock (cost_size = 1 MiB)"]);
}

#[test]
fn a_page_compares_policies_seed_by_seed_and_is_the_same_after_a_resume() {
    let dir = tempfile::tempdir().expect("a directory");
    sweep(dir.path(), SMALL);
    let html = read(dir.path(), "out.html");
    let document = roxmltree::Document::parse(body(&html)).expect("well-formed");
    assert_eq!(sections(&document), ["summary", "scenario-1"]);
    assert_loads_nothing(&html);
    assert_eq!(
        titles(&document),
        [
            "Difference of IOPS",
            "Difference of throughput",
            "Difference of p50",
            "Difference of p99"
        ]
    );
    assert!(html.contains("Differences from fifo") && html.contains("1 to 3"));
    // All results are in the file now, and nothing is simulated.
    sweep(dir.path(), SMALL);
    assert_eq!(read(dir.path(), "out.html"), html);
}
