//! Calculations by small shell scripts in place of the program.

use std::sync::mpsc;

use super::*;

/// Begins a calculation by a script.
fn begin(script: &str, progress: impl Fn(f64, String) + Send + 'static) -> Begun {
    let program = Program::new("/bin/sh", &["-c", script]);
    let order = Order::Report(ReportOrder {
        socket: "control.sock".into(),
        from: "-1h".to_owned(),
        to: "now".to_owned(),
    });
    Calculation::begin(&program, &order, progress).expect("there is a shell")
}

/// Returns the result of a script whose input ends behind the order.
fn result_of(script: &str) -> Result<Results, Problem> {
    let begun = begin(script, |_, _| {});
    drop(begun.input);
    begun.results.blocking_recv().expect("it is always told")
}

#[test]
fn a_calculation_gets_its_order_and_input_and_tells_progress_and_results() {
    let (sender, told) = mpsc::channel();
    // The order comes back as the answer, what follows it as the page.
    let script = r#"read -r order; page=$(cat)
        echo '{"progress": [0.25, "fifo"]}'
        echo "{\"done\": {\"answer\": $order, \"page\": \"$page\"}}""#;
    let mut begun = begin(script, move |done, step| {
        let _ = sender.send((done, step));
    });
    begun.input.write_all(b"recording").expect("it reads");
    drop(begun.input);
    let results = begun.results.blocking_recv().expect("it is told");
    let results = results.expect("results");
    assert_eq!(results.page, "recording");
    let order =
        serde_json::json!({"report": {"socket": "control.sock", "from": "-1h", "to": "now"}});
    assert_eq!(results.answer, order);
    assert_eq!(told.recv(), Ok((0.25, "fifo".to_owned())));
}

#[test]
fn a_calculation_without_results_says_why() {
    let told =
        result_of(r#"echo '{"problem": {"what": "no gap", "where": "it", "allowed": null}}'"#);
    let told = told.expect_err("a problem");
    assert_eq!((told.what.as_str(), told.at.as_str()), ("no gap", "it"));
    for (script, what, allowed) in [
        ("true", "it ended without results: exit status: 0", None),
        (
            "echo first; echo thread panicked >&2; exit 101",
            "it ended without results: exit status: 101: thread panicked",
            None,
        ),
        (
            "kill -XCPU $$",
            "it took more than 300 s of CPU time",
            Some("a shorter span, or fewer policies"),
        ),
        (
            "kill -ALRM $$",
            "it took longer than 600 s",
            Some("a shorter span, or fewer policies"),
        ),
        (
            "echo memory allocation of 9 bytes failed >&2; kill -ABRT $$",
            "it needed more than 1024 MiB",
            Some("a shorter span"),
        ),
        (
            "kill -KILL $$",
            "the system ended it, most likely for want of memory",
            Some("a shorter span"),
        ),
    ] {
        let problem = result_of(script).expect_err(script);
        assert_eq!(problem.what, what, "{script}");
        assert_eq!(problem.allowed.as_deref(), allowed, "{script}");
    }
}

#[test]
fn a_calculation_that_is_dropped_ends() {
    let begun = begin("exec sleep 1000", |_, _| {});
    drop(begun.calculation);
    // The watching thread tells of the end only once the process has been waited for.
    let problem = begun.results.blocking_recv().expect("it is told");
    assert!(problem.is_err());
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let program = Program::new("/nonexistent/tidegate", &[]);
    let order = Order::Report(ReportOrder {
        socket: PathBuf::new(),
        from: String::new(),
        to: String::new(),
    });
    assert!(Calculation::begin(&program, &order, |_, _| {}).is_err());
}
