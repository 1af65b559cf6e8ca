//! `tidegate reproduce`, from outside.

use serde_json::Value;
use std::collections::BTreeSet;

use crate::common::tidegate;

fn printed(args: &[&str]) -> String {
    let output = tidegate(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn refused(args: &[&str]) -> String {
    let output = tidegate(args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn keys(entry: &Value) -> BTreeSet<&str> {
    let object = entry.as_object().expect("an object");
    object.keys().map(String::as_str).collect()
}

#[test]
fn json_is_one_list_of_figures_and_claims_whatever_the_number_of_threads() {
    let table = ["reproduce", "flubber", "--table", "3", "-o", "json"];
    let text = printed(&table);
    let list: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let (cells, claims): (Vec<&Value>, Vec<&Value>) =
        list.iter().partition(|entry| entry.get("table").is_some());
    // Four workloads under four schedulers.
    assert_eq!(cells.len(), 16);
    let of_cell = [
        "paper",
        "table",
        "row",
        "column",
        "theirs",
        "ours",
        "calibrated",
        "cannot_hold",
    ];
    for cell in &cells {
        assert_eq!(keys(cell), BTreeSet::from(of_cell), "{cell}");
        assert_eq!(cell["paper"], "flubber");
        assert_eq!(cell["table"], "3");
        assert_eq!(cell["calibrated"], cell["column"] == "cfq", "{cell}");
        assert!(cell["ours"].as_f64().is_some_and(|s| s > 1.0), "{cell}");
    }
    let theirs = cells
        .iter()
        .find(|cell| cell["row"] == "read/seq_read" && cell["column"] == "flubber");
    assert_eq!(theirs.expect("it is there")["theirs"], 54.16);
    assert!(!claims.is_empty());
    let of_claim = [
        "claim",
        "holds",
        "detail",
        "id",
        "part",
        "verdict",
        "cannot_hold",
        "outcome",
        "ablations",
    ];
    for claim in claims {
        assert_eq!(keys(claim), BTreeSet::from(of_claim));
        assert!(claim["holds"].is_boolean());
        assert!(claim["detail"].as_str().is_some_and(|why| !why.is_empty()));
        let verdict = claim["verdict"].as_str().expect("a word");
        assert_eq!(verdict == "holds", claim["holds"] == true, "{claim}");
        assert_eq!(verdict == "cannot hold", !claim["cannot_hold"].is_null());
    }
    assert_eq!(text, printed(&[&table[..], &["--jobs", "1"]].concat()));
}

#[test]
fn vfair_beside_its_rivals_whatever_the_number_of_threads() {
    let table = ["reproduce", "vfair", "--table", "2", "-o", "json"];
    let text = printed(&table);
    let list: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let (cells, claims): (Vec<&Value>, Vec<&Value>) =
        list.iter().partition(|entry| entry.get("table").is_some());
    // Three VMs under three schedulers, and their fair shares, which the disk was fitted to.
    assert_eq!(cells.len(), 12);
    for cell in &cells {
        assert_eq!(cell["calibrated"], cell["column"] == "fair_share", "{cell}");
        assert!(
            cell["ours"].as_f64().is_some_and(|iops| iops > 1.0),
            "{cell}"
        );
    }
    assert!(claims.len() > 6, "{claims:?}");
    assert_eq!(text, printed(&[&table[..], &["--jobs", "1"]].concat()));
}

#[test]
fn vcup_beside_its_figures_whatever_the_number_of_threads() {
    let figure = ["reproduce", "vcup", "--figure", "7", "-o", "json"];
    let text = printed(&figure);
    let list: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let (cells, claims): (Vec<&Value>, Vec<&Value>) =
        list.iter().partition(|entry| entry.get("table").is_some());
    // Three windows, and V at one of them; the array was fitted to nothing of it.
    assert_eq!(cells.len(), 4);
    for cell in &cells {
        assert_eq!(cell["calibrated"], false, "{cell}");
        assert!(cell["ours"].as_f64().is_some_and(|x| x > 0.0), "{cell}");
    }
    assert_eq!(claims.len(), 12, "{claims:?}");
    assert_eq!(text, printed(&[&figure[..], &["--jobs", "1"]].concat()));
}

#[test]
fn pridyn_beside_its_figures_whatever_the_number_of_threads() {
    let figure = ["reproduce", "pridyn", "--figure", "4.6", "-o", "json"];
    let text = printed(&figure);
    let list: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let (cells, claims): (Vec<&Value>, Vec<&Value>) =
        list.iter().partition(|entry| entry.get("table").is_some());
    // Missed without PriDyn and with it; nothing was fitted to either.
    assert_eq!(cells.len(), 2);
    for cell in &cells {
        assert_eq!(cell["calibrated"], false, "{cell}");
        assert!(cell["ours"].as_f64().is_some(), "{cell}");
    }
    // Halved, sooner, research as well, and the order.
    assert_eq!(claims.len(), 4, "{claims:?}");
    assert_eq!(text, printed(&[&figure[..], &["--jobs", "1"]].concat()));
}

/// A request of 24 KiB once and again, for the first web stream: the others are what they are.
#[test]
fn somebody_s_traces_are_replayed_and_what_is_missing_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    let figure = ["reproduce", "pridyn", "--figure", "4.4", "-o", "json"];
    let mine = [&figure[..], &["--traces", path]].concat();
    let refusal = refused(&mine);
    assert!(refusal.contains("expected: web_0.csv"), "{refusal}");
    let line = "128166372003061629,web,0,Read,7014609920,24576,41286\n";
    std::fs::write(folder.path().join("web_0.csv"), line).expect("a file");
    let output = tidegate(&mine);
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}");
    assert!(
        shown.contains("web_1.csv") && !shown.contains("web_0.csv"),
        "{shown}"
    );
    assert_ne!(output.stdout, printed(&figure).into_bytes());
    let refusal = refused(&["reproduce", "vcup", "--figure", "7", "--traces", path]);
    assert!(refusal.contains("vcup replays no traces"), "{refusal}");
}

#[test]
fn people_read_theirs_ours_and_whether_claims_hold() {
    let part = ["reproduce", "flubber", "--table", "section 4.5"];
    let text = printed(&[&part[..], &["--details"]].concat());
    for word in [
        "THEIRS",
        "OURS",
        "RATIO",
        "predicted",
        "wait_success_pct",
        "fitted on table 3",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // Without it a screen with the verdicts, and where to look.
    let screen = printed(&part);
    for word in ["CAN HOLD", "ORDER", "section 4.5", "--details", "README.md"] {
        assert!(screen.contains(word), "{word}: {screen}");
    }
    assert!(!screen.contains("wait_success_pct"), "{screen}");
    assert!(screen.lines().all(|line| line.len() <= 80), "{screen}");
    assert!(printed(&["reproduce"]).contains("flubber"));
}

#[test]
fn curves_are_drawn_here_and_written_as_svg() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("curves.svg");
    let path = file.to_str().expect("UTF-8");
    let figure = ["reproduce", "flubber", "--table", "figure 4"];
    let text = printed(&[&figure[..], &["--plot", "--ascii", "--svg", path]].concat());
    let (_, plot) = text.split_once("Figure 4: two writers").expect("a plot");
    assert!(plot.is_ascii(), "{plot}");
    assert!(plot.contains("o seq_write   x rnd_write"), "{plot}");
    assert!(plot.lines().all(|line| line.len() <= 80), "{plot}");
    let svg = std::fs::read_to_string(&file).expect("it is there");
    assert!(
        svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    assert!(svg.contains(">promised to rnd_write</text>"), "{svg}");

    let json = printed(&[&figure[..], &["-o", "json", "--svg", path]].concat());
    serde_json::from_str::<Value>(&json).expect("JSON alone");
    assert_eq!(svg, std::fs::read_to_string(&file).expect("it is there"));
}

#[test]
fn curves_that_nobody_would_see_are_refused() {
    for (args, why) in [
        (
            &["flubber", "--table", "3", "--plot"][..],
            "there are curves of: figure 4",
        ),
        (
            &["flubber", "--table", "3", "--svg", "x.svg"],
            "there are curves of: figure 4",
        ),
        (
            &["flubber", "--plot", "-o", "json"],
            "use --svg FILE with -o json",
        ),
        (&["flubber", "--ascii"], "add --plot"),
        (&["--svg", "x.svg"], "name one"),
        (
            &["flubber", "--calibrate", "--svg", "x.svg"],
            "cannot be used with",
        ),
    ] {
        let message = refused(&[&["reproduce"], args].concat());
        assert!(message.contains(why), "{args:?}: {message}");
    }
}

#[test]
fn what_there_is_not_is_answered_with_what_there_is() {
    let message = refused(&["reproduce", "fluber"]);
    assert!(message.contains("there are: flubber"), "{message}");
    let message = refused(&["reproduce", "flubber", "--table", "7"]);
    assert!(message.contains("there are: 2, 3, 4, 5, 6"), "{message}");
    let message = refused(&["reproduce", "vfair", "--figure", "7"]);
    assert!(
        message.contains("no figure 7") && message.contains("figure 6"),
        "{message}"
    );
}
