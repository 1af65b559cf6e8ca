//! Store of a process that is killed at random during changes: acknowledged changes are found
//! whole, the last one whole or not at all.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_server::store::Store;

use crate::common::store_model::{Step, StoreModel};

const CHANGES: u64 = 1000;
const SEED: u64 = 6;
/// Mean number of changes between two kills.
const APART: u64 = 25;

const NAME: &str = "store_kill::a_thousand_changes_outlive_the_process_that_made_them";
const PATH: &str = "TIDEGATE_TEST_STORE";
const FROM: &str = "TIDEGATE_TEST_FROM";

/// Body of the process that is killed: makes changes and prints the number of each when done.
fn child(path: &Path) {
    let from = std::env::var(FROM).expect("where to go on");
    let from: u64 = from.parse().expect("a number");
    let store = Store::open(path).expect("opens");
    let mut progress = std::io::stderr();
    for number in from..CHANGES {
        Step::draw(SEED, number).apply(&store).expect("writes");
        // Written in one call, so that a number is printed whole or not at all.
        (progress.write_all(format!("{number}\n").as_bytes())).expect("the parent reads");
    }
    let _ = progress.write_all(b"done\n");
}

fn start(path: &Path, from: u64) -> Child {
    let test = std::env::current_exe().expect("this test has a file");
    Command::new(test)
        .args(["--exact", NAME, "--nocapture"])
        .env(PATH, path)
        .env(FROM, from.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts")
}

#[test]
fn a_thousand_changes_outlive_the_process_that_made_them() {
    if let Some(path) = std::env::var_os(PATH) {
        return child(Path::new(&path));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidegate.redb");
    let mut rng = Pcg64::seed_from_u64(SEED);
    let (mut kept, mut done) = (StoreModel::default(), 0);
    let (mut kills, mut halfway) = (0, 0);
    while done < CHANGES {
        let mut child = start(&path, done);
        let mut progress = BufReader::new(child.stderr.take().expect("piped")).lines();
        let wanted = rng.random_range(0..2 * APART);
        let mut acknowledged = Vec::new();
        let mut last = false;
        while (acknowledged.len() as u64) < wanted && !last {
            let line = progress
                .next()
                .expect("it ends only when done")
                .expect("text");
            last = line == "done";
            acknowledged.extend(line.parse::<u64>().ok());
        }
        // A random time of about the length of one change.
        std::thread::sleep(Duration::from_micros(rng.random_range(0..3000)));
        child.kill().expect("ours");
        child.wait().expect("ours");
        kills += 1;
        // Output of the process until it was killed.
        acknowledged
            .extend((progress.map_while(Result::ok)).filter_map(|line| line.parse::<u64>().ok()));
        let expected: Vec<u64> = (done..done + acknowledged.len() as u64).collect();
        assert_eq!(acknowledged, expected, "it makes them in order");
        for &number in &acknowledged {
            kept = kept.after(&Step::draw(SEED, number));
        }
        done += acknowledged.len() as u64;

        let found = Store::open(&path).and_then(|store| StoreModel::read(&store));
        let found = found.unwrap_or_else(|error| panic!("after change {done}: {error}"));
        let next = kept.clone().after(&Step::draw(SEED, done));
        if found != kept && found == next && done < CHANGES {
            halfway += 1;
            kept = next;
            done += 1;
        }
        assert!(
            found == kept,
            "after change {done}, kill {kills}: neither with the next change nor without: {:?}",
            found.differences(&kept)
        );
    }
    println!("{kills} kills, {halfway} between a change and its acknowledgement");
    assert!(kills >= 10, "only {kills} kills");
}
