//! Pages of `tidegate reproduce --report` and `tidegate sim --report` in a browser, headless
//! Chromium.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::daemon::Scratch;
use crate::tool::{Running, arg, have};

/// Document as the browser has it, and what it logged.
struct Opened {
    document: String,
    log: String,
}

impl Opened {
    /// Messages on the console: errors, warnings, and what a page is forbidden to load.
    fn console(&self) -> Vec<&str> {
        let lines = self.log.lines();
        lines.filter(|line| line.contains(":CONSOLE")).collect()
    }

    /// Columns of the document beyond the window, by the script of [`with_probe`].
    fn overflow(&self) -> i64 {
        let (_, after) = self
            .document
            .split_once("data-overflow=\"")
            .expect("the probe ran");
        let (figure, _) = after.split_once('"').expect("an attribute");
        figure.parse().expect("a number")
    }
}

fn open(scratch: &Scratch, page: &Path, width: u32) -> Opened {
    let profile = scratch.join("profile");
    let (profile, size) = (
        format!("--user-data-dir={}", arg(&profile)),
        format!("--window-size={width},900"),
    );
    let address = format!("file://{}", arg(page));
    let args = [
        "--headless=new",
        // Tests run as root in containers, where the browser's sandbox does not start.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--enable-logging=stderr",
        "--virtual-time-budget=2000",
        &profile,
        &size,
        "--dump-dom",
        &address,
    ];
    let done = Running::start(scratch, "chromium", &args).wait();
    assert!(done.status.success(), "{}", done.err);
    Opened {
        document: done.out,
        log: done.err,
    }
}

/// Copy of a page with a script that tells how far it is wider than the window. The page's own
/// policy forbids scripts, and is left out.
fn with_probe(page: &str) -> String {
    let policy = page
        .lines()
        .find(|line| line.contains("Content-Security-Policy"));
    let probe = "<script>document.body.dataset.overflow = \
                 document.documentElement.scrollWidth - window.innerWidth;</script></body>";
    page.replace(policy.expect("a policy"), "")
        .replace("</body>", probe)
}

/// Checks that a page is as wide as the window on a screen and on a phone. The narrowest window of
/// the browser has 500 columns.
fn assert_fits(scratch: &Scratch, page: &str) {
    let probed = scratch.join("fitting.html");
    fs::write(&probed, with_probe(page)).expect("it can be written");
    for width in [1280, 500] {
        assert!(open(scratch, &probed, width).overflow() <= 0, "at {width}");
    }
}

/// Writes the report of a part of a paper.
fn report(scratch: &Scratch, paper: &str, part: &str) -> PathBuf {
    let path = scratch.join(&format!("{paper}.html"));
    let out = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["reproduce", paper, "--table", part, "--report"])
        .arg(&path)
        .output()
        .expect("it starts");
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{paper}: {err}");
    path
}

/// The cheapest part of each paper that has plots and a claim which fails, but for ISACS: each of
/// its tables is half a minute of a release build, and its page is of the same code.
#[test]
fn the_report_of_each_paper_has_its_parts_and_logs_nothing() {
    if !have(&["chromium"]) {
        return;
    }
    let scratch = Scratch::new();
    for (paper, part, fitted) in [
        ("flubber", "figure 4", true),
        ("vfair", "figure 9", true),
        ("vcup", "figure 7", true),
        ("pridyn", "figure 1.3", true),
        ("pcos", "figure 5.14", false),
    ] {
        let opened = open(&scratch, &report(&scratch, paper, part), 1280);
        assert_eq!(opened.console(), [""; 0], "{paper}");
        for part in [
            "<table id=\"verdict-table\">",
            "<table id=\"counts\">",
            "<section id=\"calibration\">",
            "<table id=\"ablation-table\">",
            "<details>",
            "<svg ",
        ] {
            assert!(opened.document.contains(part), "{paper}: {part}");
        }
        let table = opened.document.contains("<table id=\"fitted\">");
        assert_eq!(table, fitted, "{paper}");
    }
}

#[test]
fn the_report_of_a_reproduction_opens_in_a_browser_and_fits_its_window() {
    if !have(&["chromium"]) {
        return;
    }
    let scratch = Scratch::new();
    let path = report(&scratch, "flubber", "section 4.5");
    let page = fs::read_to_string(&path).expect("it was written");

    let opened = open(&scratch, &path, 1280);
    assert_eq!(opened.console(), [""; 0]);
    for part in [
        "<table id=\"verdict-table\">",
        "<table id=\"counts\">",
        "<details>",
        "<svg ",
    ] {
        assert!(
            opened.document.contains(part),
            "{part}: {}",
            opened.document
        );
    }

    assert_fits(&scratch, &page);

    let probed = scratch.join("probed.html");
    // A page that is too wide and loads something is noticed.
    let wide = "<div style=\"width:5000px\">wide</div><img src=\"missing.png\"></main>";
    fs::write(&probed, with_probe(&page).replace("</main>", wide)).expect("it can be written");
    assert!(open(&scratch, &probed, 1280).overflow() > 3000);
    fs::write(&probed, page.replace("</main>", wide)).expect("it can be written");
    let console = open(&scratch, &probed, 1280);
    assert_eq!(console.console().len(), 1, "{}", console.log);
}

#[test]
fn the_report_of_a_simulation_opens_in_a_browser_and_fits_its_window() {
    if !have(&["chromium"]) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("sim.html");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let out = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["sim", "--duration", "30 s", "--report"])
        .args([&path, &examples.join("noisy-neighbour.toml")])
        .output()
        .expect("it starts");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let opened = open(&scratch, &path, 1280);
    assert_eq!(opened.console(), [""; 0]);
    for part in [
        "<table id=\"promise-table\">",
        "Promises over time",
        "Queue depth",
    ] {
        assert!(opened.document.contains(part), "{part}");
    }
    assert_fits(
        &scratch,
        &fs::read_to_string(&path).expect("it was written"),
    );
}
