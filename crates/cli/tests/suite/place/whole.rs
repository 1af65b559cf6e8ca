//! Killed at any moment, it has made its change or none.

use std::process::Stdio;

use super::Site;

#[test]
fn whoever_is_killed_amid_writes_has_done_all_or_nothing() {
    let site = Site::new();
    site.good(&[
        "job",
        "first",
        "--size",
        "1 GB",
        "--deadline",
        "1 h",
        "--hosts",
        "place.toml",
    ]);
    let file = site.file("tidegate-place.redb");
    let written = || {
        let about = std::fs::metadata(&file).expect("there");
        (about.modified().expect("a time"), about.len())
    };
    let (mut sure, mut asked) = (vec!["first".to_owned()], vec!["first".to_owned()]);
    for round in 0..16 {
        let name = format!("job-{round}");
        let before = written();
        let args = ["job", &name, "--size", "1 GB", "--deadline", "1 h"];
        let mut child = site
            .command(&args)
            .stdout(Stdio::null())
            .spawn()
            .expect("it runs");
        // Killed once it has begun to write: on a busy machine sooner or later in that.
        let ended = loop {
            match child.try_wait().expect("it runs") {
                Some(status) => break status,
                None if written() != before => {
                    child.kill().expect("it is ours");
                    break child.wait().expect("it ends");
                }
                None => std::thread::yield_now(),
            }
        };
        asked.push(name.clone());
        if ended.success() {
            sure.push(name);
        }
        let listed = site.json(&["list"]);
        let hosts = listed["hosts"].as_array().expect("hosts").iter();
        let jobs = hosts.flat_map(|host| host["jobs"].as_array().expect("jobs"));
        let there: Vec<_> = jobs
            .map(|job| (job["name"].as_str(), job["size_bytes"].as_u64()))
            .collect();
        for name in &sure {
            assert!(
                there.contains(&(Some(name), Some(1_000_000_000))),
                "{name} of {there:?}"
            );
        }
        for (name, size) in &there {
            let name = name.expect("a name").to_owned();
            assert!(
                asked.contains(&name) && *size == Some(1_000_000_000),
                "{there:?}"
            );
        }
        // Who is there without having said so is there for good.
        sure = there
            .iter()
            .filter_map(|(name, _)| name.map(str::to_owned))
            .collect();
        let known = site.json(&["db"]);
        assert_eq!(known.as_array().map(Vec::len), Some(2));
    }
}
