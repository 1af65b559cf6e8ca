//! JSON Schema of a `tidegate sim` scenario (disks, as opposed to `tidegate vcpu`).

use serde_json::Value;
use tidegate_vcpu::scenario as vcpu;

use super::keys;

/// Returns the JSON Schema (draft 2020-12) of the scenario that `tidegate sim` reads.
pub fn schema() -> Value {
    let title = "Scenario of tidegate sim";
    let schedulers = (vcpu::keys::SCHEDULERS, vcpu::schedulers());
    tidegate_config::schema::json_schema(&keys::SCENARIO, title, vec![schedulers])
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::path::Path;

    use tidegate_config::library::Library;
    use tidegate_config::model;
    use tidegate_core::profile::Profile;
    use tidegate_device::catalogue::Entry;
    use tidegate_testkit::schema::{
        Checker, assert_doc_tables_are_current, assert_misspelt_keys_are_refused,
        assert_schema_defaults_are_valid, files,
    };

    use super::*;
    use crate::scenario::read;

    const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    /// Tables of a scenario of disks.
    const DISKS: &str = r#"
title = "all"
duration = "60 s"
warm_up = "10 s"
until_done = true
seed = 7
[[device]]
name = "disk"
model = "hdd-7200-1tb"
policy = { name = "mclock", cost_size = "64 KiB" }
distances = ["0 B", "25.6 GB"]
[device.exchange]
loss = "20 %"
delay = "1 ms"
[device.transport]
submit = "100 us"
[[device.limit_group]]
name = "logs"
limit = "40 MB/s"
[[vm]]
name = "oltp"
count = 2
arrives = "1 s"
leaves = "30 s"
[vm.objective]
reservation = "40 IOPS"
[vm.objective.limit]
total = "1000 IOPS"
[vm.objective.limit.burst]
total = "2000 IOPS"
[vm.objective.group]
name = "qfs"
[vm.objective.expects]
reads = "70 %"
[[vm.disk]]
size = "10 GiB"
[[vm.workload]]
rw = "write"
[vm.delay]
submit = "20 us"
processor = { distribution = "lognormal", median = "2 ms", sigma = 0.5 }
[[background]]
name = "backup"
[[background.disk]]
size = "10 GiB"
[[background.workload]]
rw = "read"
[[event]]
at = "40 s"
vm = "oltp"
objective = { limit = "10 MB/s" }
[[event]]
at = "50 s"
policy = "fifo"
[[vm]]
name = "loads"
[[vm.disk]]
size = "100 GiB"
at = "50 GiB"
limit = { read = "300 IOPS" }
limit_group = "logs"
"#;

    /// Tables of workloads, of the last VM of [`DISKS`] or [`HOST`].
    const WORKLOADS: &str = r#"
[[vm.workload]]
rw = "randrw"
rwmixread = 70
random_distribution = "zipf:1.1"
thinktime_blocks = 2
[vm.workload.bs]
read = "8 KiB"
[vm.workload.thinktime]
distribution = "exponential"
mean = "20 ms"
[[vm.workload]]
rw = "write"
rate_iops = "200 IOPS"
fsync = 10
[vm.workload.bssplit]
write = "4 KiB/60 : 64 KiB/40"
[vm.workload.bursts]
on = "1 s"
off = { distribution = "uniform", from = "0 ms", to = "30 ms" }
[[vm.workload]]
rw = "randwrite"
fsync = 8
[vm.workload.page_cache]
hit_percent = 36
[vm.workload.page_cache.journal]
size = "128 MiB"
[[vm.workload]]
rw = "read"
size = "10 GiB"
[vm.workload.copy_to]
offset = "12 GiB"
"#;

    /// Tables of a host.
    const HOST: &str = r#"
duration = "60 s"
[host]
[host.cpu]
pcpus = 4
scheduler = "credit2"
[host.cpu.driver]
pinned = "0"
submit = "20 us"
[[device]]
name = "disk"
model = "hdd-7200-1tb"
[[vm]]
name = "vm"
[[vm.disk]]
size = "10 GiB"
[vm.cpu]
vcpus = 2
issue = "1 us"
[[vm.workload]]
iodepth = 2
[vm.workload.replay]
file = "web.csv"
mode = "next-when-done"
[vm.workload.deadline]
tolerance = 0.3
max_bandwidth = "54 MB/s"
bandwidth_loss = "17 MB/s"
"#;

    /// Models of the catalogue, and a trace of any name.
    struct TestLibrary;

    impl Library for TestLibrary {
        fn model(&self, name: &str) -> Result<Entry, String> {
            model::built_in(name)
        }

        fn profile(&self, path: &str) -> Result<Profile, String> {
            Err(format!("no profile {path}"))
        }

        fn open(&self, _: &str) -> Result<Box<dyn BufRead>, String> {
            Ok(Box::new(
                "1000000 0 0 16 1\n1000000 0 800000 64 0\n".as_bytes(),
            ))
        }
    }

    fn read_whole(text: &str) -> Result<(), String> {
        let read = read(text, "f.toml", &TestLibrary, None);
        read.map(|_| ()).map_err(|refused| refused.to_string())
    }

    #[test]
    fn every_table_is_accepted_and_a_misspelt_key_of_each_refused_as_by_the_reader() {
        let mut headings = assert_misspelt_keys_are_refused(schema(), HOST, read_whole);
        let disks = format!("{DISKS}{WORKLOADS}");
        headings.extend(assert_misspelt_keys_are_refused(
            schema(),
            &disks,
            read_whole,
        ));
        for section in &keys::SCENARIO.with_inner()[1..] {
            // Random durations have one section `distribution`; it appears under the key that uses
            // it.
            let name = match section.name {
                "distribution" => "vm.workload.thinktime",
                name => name,
            };
            assert!(headings.contains(name), "[{name}]");
        }
        let checker = Checker::new(schema());
        for (right, wrong) in [
            ("\"zipf:1.1\"", "\"zipf\""),
            ("model = \"hdd-7200-1tb\"\n", ""),
            ("loss = \"20 %\"", "loss = 20"),
            ("\"exponential\"", "\"exponentiol\""),
            ("\"4 KiB/60 : 64 KiB/40\"", "\"4 KiB : 64 KiB\""),
        ] {
            let wrong = disks.replacen(right, wrong, 1);
            assert_ne!(wrong, disks, "{right}");
            assert!(checker.check_toml(&wrong).is_err(), "{right}");
            assert!(read_whole(&wrong).is_err(), "{right}");
        }
    }

    #[test]
    fn examples_and_experiments_go_by_the_schema() {
        let checker = Checker::new(schema());
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut checked = 0;
        let experiments = std::fs::read_dir(repository.join("experiments")).expect("there");
        let folders = experiments.map(|entry| entry.expect("readable").path().join("scenarios"));
        let folders = folders.filter(|folder| folder.is_dir());
        for folder in folders.chain([repository.join("examples")]) {
            for path in files(&folder, "toml") {
                let text = std::fs::read_to_string(&path).expect("readable");
                // Only scenarios of disks, among the TOML files, have both.
                if text.lines().any(|line| line.starts_with("duration = "))
                    && text.contains("[[device]]")
                {
                    assert_eq!(checker.check_toml(&text), Ok(()), "{}", path.display());
                    checked += 1;
                }
            }
        }
        assert!(checked >= 20, "only {checked}");
    }

    #[test]
    fn defaults_are_values_of_their_keys() {
        assert_schema_defaults_are_valid(schema(), &keys::SCENARIO.with_inner()[1..]);
    }

    /// `TIDEGATE_BLESS=1` writes the tables anew.
    #[test]
    fn the_documentation_has_the_tables_that_the_reader_reads_by() {
        let pages = [
            "simulation.md",
            "simulation-devices.md",
            "workloads.md",
            "workloads-page-cache.md",
            "host.md",
        ]
        .map(|page| Path::new(DOCS).join(page));
        let pages: Vec<&Path> = pages.iter().map(|page| page.as_path()).collect();
        let mut sections = keys::SCENARIO.with_inner();
        // Objectives are documented with the configuration, `[host]` has no key of its own, and
        // tables of sizes have one key for each operation.
        let left_out = ["host", "vm.workload.bs", "vm.workload.bssplit"];
        sections.retain(|section| {
            !left_out.contains(&section.name) && !section.name.starts_with("vm.objective")
        });
        assert_doc_tables_are_current(&pages, &sections);
    }
}
