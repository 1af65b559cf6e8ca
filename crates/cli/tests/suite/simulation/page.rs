//! `tidegate sim --report`: the page.

use roxmltree::Document;

use super::{SMALL, example, printed};
use crate::common::page::{assert_loads_nothing, body, sections, titles};

/// Runs a scenario and returns its page.
fn page(scenario: &str, more: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("s.toml");
    std::fs::write(&file, scenario).expect("it is written");
    page_of(file.to_str().expect("text"), more)
}

fn page_of(file: &str, more: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out.html");
    let out_name = out.to_str().expect("text");
    printed(&[&["sim", file, "--report", out_name], more].concat());
    std::fs::read_to_string(&out).expect("it is written")
}

#[test]
fn a_page_has_promises_plots_and_distances_and_loads_nothing() {
    let html = page(SMALL, &[]);
    let document = Document::parse(body(&html)).expect("well-formed");
    assert_eq!(
        sections(&document),
        [
            "summary", "promises", "vms", "each-vm", "time", "delays", "devices", "details"
        ]
    );
    let titles = titles(&document);
    assert_eq!(
        titles,
        [
            "Promises over time",
            "Throughput",
            "Latency, 99th percentile",
            // Of VM a, then of VM b.
            "Requests per second",
            "Latency",
            "Distribution of latency",
            "Throughput",
            "Latency",
            "Distribution of latency",
            "Time of requests",
            // Of the device.
            "Utilisation",
            "Queue depth",
            "Throughput",
            "Distance from one I/O to the next",
        ]
    );
    assert!(html.contains("reservation 5 IOPS"), "the promise");
    let mut nodes = document.descendants();
    let matrix = nodes.find(|node| node.attribute("id") == Some("who-delayed-whom"));
    let nodes = matrix.expect("a matrix").descendants();
    let texts = nodes.filter(|node| node.is_text());
    let texts = texts.filter_map(|node| node.text());
    let text: Vec<&str> = texts.map(str::trim).filter(|it| !it.is_empty()).collect();
    assert_eq!(text[0], "waited");
    // Each VM is a row and a column: both waited for each other.
    assert_eq!(
        text.iter().filter(|it| ["a", "b"].contains(*it)).count(),
        4,
        "{text:?}"
    );
    assert_loads_nothing(&html);
}

#[test]
fn a_solid_state_disk_has_no_distances() {
    let html = page(&SMALL.replace("hdd-7200-1tb", "nvme-1tb"), &[]);
    assert!(!html.contains("Distance from one I/O"));
}

#[test]
fn the_same_scenario_gives_the_same_page_and_the_same_results_as_without() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = super::small(&dir);
    let out = dir.path().join("out.html");
    let out = out.to_str().expect("text");
    let with = || {
        let json = printed(&["sim", &file, "-o", "json", "--report", out]);
        (json, std::fs::read(out).expect("it is written"))
    };
    let first = with();
    assert!(first == with(), "not the same bytes");
    let without = printed(&["sim", &file, "-o", "json"]);
    assert_eq!(first.0, without);
}

#[test]
fn names_of_users_are_text() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("jobs.fio");
    let name = "<script>alert(1)</script>\"onload=x'&";
    let jobs = format!("[{name}]\nrw=randread\nsize=1M\ndescription=</title><img src=x>\n");
    std::fs::write(&file, jobs).expect("it is written");
    let html = page_of(file.to_str().expect("text"), &[]);
    let document = Document::parse(body(&html)).expect("well-formed");
    for tag in ["script", "img"] {
        let found = document.descendants().any(|node| node.has_tag_name(tag));
        assert!(!found && !html.contains(&format!("<{tag}")), "{tag}");
    }
    let attributes = document.descendants().flat_map(|node| node.attributes());
    let events: Vec<_> = attributes
        .filter(|attribute| attribute.name().starts_with("on"))
        .collect();
    assert!(events.is_empty(), "{events:?}");
    let shown = document.descendants().any(|node| node.text() == Some(name));
    assert!(shown, "the name is there");
}

#[test]
fn a_page_of_many_intervals_is_as_large_as_one_of_few() {
    let few = page(SMALL, &["--interval", "50 ms"]);
    let many = page(SMALL, &["--interval", "1 ms"]);
    assert!(many.len() < 3 * few.len(), "{} {}", many.len(), few.len());
}

#[test]
fn promises_that_change_are_lines_and_vms_that_leave_are_shown() {
    let html = page_of(&example("evening.toml"), &[]);
    Document::parse(body(&html)).expect("well-formed");
}

#[test]
fn a_page_of_many_vms_folds_their_plots() {
    let vm = |n: usize| {
        format!(
            "[[vm]]\nname = \"vm-{n}\"\ndisk = [{{ size = \"1 GiB\" }}]\n\
             objective = {{ reservation = \"1 IOPS\" }}\n[[vm.workload]]\nrw = \"randread\"\n"
        )
    };
    let vms: String = (0..110).map(vm).collect();
    let head = "duration = \"3 s\"\n[[device]]\nname = \"disk\"\nmodel = \"nvme-1tb\"\n\
                policy = \"mclock\"\n";
    let html = page(&format!("{head}{vms}"), &[]);
    let document = Document::parse(body(&html)).expect("well-formed");
    let mut sections = document.descendants();
    let each_vm = sections.find(|node| node.attribute("id") == Some("each-vm"));
    let folded = each_vm.expect("a section").descendants();
    let folded = folded.filter(|node| node.has_tag_name("details")).count();
    assert_eq!(folded, 92);
    assert!(html.contains("10 more VMs have no plots here"));
    assert!(html.contains("70 more promises are in the table only"));
}
