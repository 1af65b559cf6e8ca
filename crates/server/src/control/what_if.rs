//! `/v1/whatif`: what-if runs of recorded spans, one at a time.
//!
//! ```text
//!   POST --> Calculation: child process     --progress, results--> Last --> GET
//!            ^ stdin
//!            recording dump: files of the span
//! ```
//!
//! A run is ended by `DELETE`, by its bounds, and with the daemon. The last one is kept, with its
//! page, until the next begins.

use std::io::Write;
use std::process::ChildStdin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::{Timestamp, Zoned};
use serde_json::Value;
use tidegate_api::error::Problem;
use tidegate_api::query::RecordingQuery;
use tidegate_api::what_if::{WhatIfRequest, WhatIfRun, WhatIfState, WhatIfView};
use tidegate_config::objective;
use tidegate_core::objective::Objective;
use tidegate_device::catalogue;
use tokio::sync::oneshot;

use super::Api;
use super::error::{ApiError, ApiResult, json};
use super::handlers::{Body, ok, parse_body};
use super::pages;
use super::plane::Plane;
use super::recordings;
use crate::calculation::{
    BOUNDS, Begun, Calculation, Order, Program, Results, WhatIfOrder, problem,
};
use crate::config;
use crate::recording::{Dumped, Range, RecordingError, Recordings, Sink};

/// Most policies of a run.
const POLICIES_MAX: usize = 8;
/// Example of a body.
pub(super) const EXAMPLE: &str =
    r#"{"device": "disk0", "from": "-15m", "to": "now", "policies": ["slo", "mclock"]}"#;

/// Runs of a daemon: the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct WhatIfRuns(Arc<Mutex<Last>>);

/// Last run.
#[derive(Debug, Default)]
struct Last {
    run: Option<WhatIfRun>,
    /// Process of a run that goes on.
    calculation: Option<Calculation>,
    page: Option<Bytes>,
}

/// Reading of the recording for a run.
struct Feeding {
    /// Result of the dump.
    read: oneshot::Receiver<Result<Dumped, RecordingError>>,
    /// True once the recording has turned out to be too long.
    is_too_long: Arc<AtomicBool>,
}

impl WhatIfRuns {
    fn last(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last run with its bounds.
    fn view(&self) -> WhatIfView {
        WhatIfView {
            bounds: BOUNDS,
            models: catalogue::names().map(str::to_owned).collect(),
            run: self.last().run.clone(),
        }
    }

    /// Starts a run, whose process `feed` passes the recording to.
    ///
    /// # Errors
    /// 409 while another one runs, 503 if there is no process or `feed` fails.
    fn start(
        &self,
        program: &Program,
        request: WhatIfRequest,
        feed: impl FnOnce(ChildStdin) -> ApiResult<Feeding>,
    ) -> ApiResult<()> {
        let mut last = self.last();
        if let Some(run) = last.run.as_ref().filter(|run| is_running(run)) {
            let what = format!("what-if run {} is not over yet", run.number);
            return Err(ApiError::new(StatusCode::CONFLICT, what, "whatif")
                .allowing("one at a time: wait for it, or DELETE /v1/whatif"));
        }
        let number = last.run.as_ref().map_or(0, |run| run.number) + 1;
        let (order, own) = (order(&request), self.clone());
        let progress = move |done, step| own.note_progress(number, done, step);
        let begun = Calculation::begin(program, &order, progress);
        let Begun {
            calculation,
            input,
            results,
        } = begun.map_err(|error| {
            let what = format!("no process for the run: {error}");
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, what, "whatif")
        })?;
        let feeding = feed(input)?;
        let device = request.device.clone();
        let policies = request.policies.join(",");
        tracing::info!(number, %device, policies, "what-if run begins");
        *last = Last {
            run: Some(WhatIfRun {
                number,
                state: WhatIfState::Running,
                request,
                begun: Timestamp::now().to_string(),
                ended: None,
                progress: 0.0,
                step: String::new(),
                problem: None,
                answer: None,
            }),
            calculation: Some(calculation),
            page: None,
        };
        drop(last);
        let own = self.clone();
        tokio::spawn(async move {
            if let Err(problem) = feeding.end(&device).await {
                own.finish(number, Err(problem));
            }
            let results = results.await;
            let lost = |_| Err(problem("its results are lost: this is a bug".to_owned()));
            own.finish(number, results.unwrap_or_else(lost));
        });
        Ok(())
    }

    fn note_progress(&self, number: u64, done: f64, step: String) {
        if let Some(run) = self.last().running(number) {
            (run.progress, run.step) = (done, step);
        }
    }

    /// Ends a run that goes on; one that was cancelled or has failed stays so.
    fn finish(&self, number: u64, results: Result<Results, Problem>) {
        let mut last = self.last();
        let Some(run) = last.running(number) else {
            return;
        };
        run.ended = Some(Timestamp::now().to_string());
        run.step.clear();
        let page = match results {
            Ok(Results { answer, page }) => {
                (run.state, run.progress) = (WhatIfState::Done, 1.0);
                run.answer = Some(answer);
                Some(Bytes::from(page))
            }
            Err(problem) => {
                tracing::warn!(number, "what-if run failed: {}", problem.what);
                (run.state, run.problem) = (WhatIfState::Failed, Some(problem));
                None
            }
        };
        last.page = page;
        // Ends the process, if it goes on.
        last.calculation = None;
    }

    /// Cancels the run that goes on.
    ///
    /// # Errors
    /// 409 if none does.
    fn cancel(&self) -> ApiResult<()> {
        let mut last = self.last();
        let Some(run) = last.run.as_mut().filter(|run| is_running(run)) else {
            let what = "there is no what-if run that could be cancelled";
            return Err(ApiError::new(StatusCode::CONFLICT, what, "whatif"));
        };
        run.state = WhatIfState::Cancelled;
        run.ended = Some(Timestamp::now().to_string());
        run.step.clear();
        tracing::info!(number = run.number, "what-if run cancelled");
        last.calculation = None;
        Ok(())
    }
}

impl Last {
    /// Returns the run with a number while it goes on.
    fn running(&mut self, number: u64) -> Option<&mut WhatIfRun> {
        let run = self.run.as_mut();
        run.filter(|run| run.number == number && is_running(run))
    }
}

fn is_running(run: &WhatIfRun) -> bool {
    run.state == WhatIfState::Running
}

impl Feeding {
    /// Waits until the recording was read.
    ///
    /// # Errors
    /// The reason why the process does not have all of it.
    async fn end(self, device: &str) -> Result<(), Problem> {
        let at = |what: String, allowed: &str| Problem {
            what,
            at: "recording".to_owned(),
            allowed: Some(allowed.to_owned()),
        };
        let read = self.read.await;
        if self.is_too_long.load(Ordering::Relaxed) {
            let mib = BOUNDS.recording_bytes >> 20;
            let what = format!("the recording of this span is larger than {mib} MiB");
            return Err(at(what, "a shorter span"));
        }
        match read {
            Ok(Ok(Dumped::Sent)) => Ok(()),
            Ok(Ok(Dumped::NoFile | Dumped::UnknownVm)) => {
                let what = format!("there is no recording of device {device:?} in this span");
                Err(at(what, "GET /v1/recordings has what there is"))
            }
            Ok(Err(error)) => Err(problem(error.to_string())),
            Err(_) => Err(problem(
                "the recording could not be read: this is a bug".to_owned(),
            )),
        }
    }
}

/// Passes a recording to the process of a run.
struct Feed {
    input: ChildStdin,
    left: u64,
    is_too_long: Arc<AtomicBool>,
}

impl Sink for Feed {
    fn take(&mut self, bytes: &mut Vec<u8>) -> bool {
        let piece = std::mem::take(bytes);
        match self.left.checked_sub(piece.len() as u64) {
            Some(left) => self.left = left,
            None => {
                self.is_too_long.store(true, Ordering::Relaxed);
                return false;
            }
        }
        // A process that has ended says why by itself.
        self.input.write_all(&piece).is_ok()
    }

    fn is_wanted(&self) -> bool {
        !self.is_too_long.load(Ordering::Relaxed)
    }

    fn fail(&mut self) {}
}

fn order(request: &WhatIfRequest) -> Order {
    let from = request.from.as_deref().unwrap_or("the beginning");
    let to = request.to.as_deref().unwrap_or("now");
    Order::WhatIf(WhatIfOrder {
        name: format!("{}, {from} to {to}", request.device),
        policies: request.policies.clone(),
        objectives: request.objectives.clone(),
        model: request.model.clone(),
        allow_gaps: request.allow_gaps,
    })
}

/// Checks what does not depend on the recording.
fn check<P: Plane>(api: &Api<P>, request: &WhatIfRequest) -> ApiResult<()> {
    let wrong = |what: String, at: &str, allowed: String| {
        Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, what, at).allowing(allowed))
    };
    if request.policies.len() > POLICIES_MAX {
        let what = format!("{} policies", request.policies.len());
        return wrong(what, "policies", format!("at most {POLICIES_MAX}"));
    }
    for policy in &request.policies {
        config::policy::read(&Value::String(policy.clone()))?;
    }
    for (vm, change) in &request.objectives {
        // A VM of the recording may have left since.
        let now = api.plane.vm(vm);
        let now = now.map_or_else(Objective::default, |vm| vm.objective);
        objective::merge(&now, change)?;
    }
    match &request.model {
        // Files of the host are not for clients of this role.
        Some(model) if !catalogue::names().any(|name| name == model) => {
            let names: Vec<&str> = catalogue::names().collect();
            wrong(
                format!("there is no model {model:?}"),
                "model",
                format!("there are: {}", names.join(", ")),
            )
        }
        _ => Ok(()),
    }
}

pub(super) async fn show<P: Plane>(State(api): State<Api<P>>) -> Response {
    ok(&api.what_ifs.view())
}

pub(super) async fn start<P: Plane>(State(api): State<Api<P>>, body: Body) -> ApiResult<Response> {
    let body = parse_body(body, EXAMPLE)?;
    let request: WhatIfRequest = serde_json::from_value(body).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, error.to_string(), "body").allowing(EXAMPLE)
    })?;
    let device = api.device(&request.device)?;
    check(&api, &request)?;
    let query = RecordingQuery {
        vm: None,
        from: request.from.clone(),
        to: request.to.clone(),
    };
    let range = recordings::range(&query, &Zoned::now(), &api.plane.vms_of(device))?;
    let maker = api.maker()?;
    let recordings = api.plane.recordings();
    let status = recordings.with_files(Recordings::status).await;
    let status = status.map_err(|error| recordings::refused(&error))?;
    let mut recorded = status.devices.iter().filter(|it| it.files > 0);
    if !recorded.any(|it| it.device == request.device) {
        let what = format!("there is no recording of device {:?}", request.device);
        let how = format!(
            "PUT /v1/devices/{}/recording with {{\"on\": true}} switches it on",
            request.device
        );
        return Err(ApiError::new(StatusCode::CONFLICT, what, "recording").allowing(how));
    }
    let feed = |input| feed(&recordings, device, range, input);
    api.what_ifs.start(&maker.program, request, feed)?;
    Ok(json(StatusCode::ACCEPTED, &api.what_ifs.view()))
}

/// Begins to pass the recording of a span to a process.
fn feed(
    recordings: &Arc<Recordings>,
    device: usize,
    range: Range,
    input: ChildStdin,
) -> ApiResult<Feeding> {
    let is_too_long = Arc::new(AtomicBool::new(false));
    let feed = Feed {
        input,
        left: BOUNDS.recording_bytes,
        is_too_long: is_too_long.clone(),
    };
    let begun = recordings.begin_dump(device, range, feed);
    let read = begun.map_err(|error| recordings::refused(&error))?;
    Ok(Feeding { read, is_too_long })
}

pub(super) async fn cancel<P: Plane>(State(api): State<Api<P>>) -> ApiResult<Response> {
    api.what_ifs.cancel()?;
    Ok(ok(&api.what_ifs.view()))
}

pub(super) async fn page<P: Plane>(State(api): State<Api<P>>) -> ApiResult<Response> {
    match api.what_ifs.last().page.clone() {
        Some(page) => Ok(pages::page(page)),
        None => {
            let what = "there is no what-if run with results";
            Err(ApiError::new(StatusCode::NOT_FOUND, what, "whatif")
                .allowing("POST /v1/whatif starts one"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> WhatIfRequest {
        WhatIfRequest {
            device: "disk0".to_owned(),
            policies: vec!["fifo".to_owned()],
            ..WhatIfRequest::default()
        }
    }

    /// Starts a run by a shell script, whose recording has been read as `read` says.
    fn start(runs: &WhatIfRuns, script: &str, read: Dumped, is_too_long: bool) -> ApiResult<()> {
        let program = Program::new("/bin/sh", &["-c", script]);
        runs.start(&program, request(), |_| {
            let (sender, receiver) = oneshot::channel();
            sender.send(Ok(read)).expect("the receiver is there");
            Ok(Feeding {
                read: receiver,
                is_too_long: Arc::new(AtomicBool::new(is_too_long)),
            })
        })
    }

    /// Returns the last run once it is over.
    async fn ended(runs: &WhatIfRuns) -> WhatIfRun {
        loop {
            let run = runs.view().run.expect("one was started");
            if !is_running(&run) {
                return run;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    const DONE: &str = r#"read -r order; echo '{"done": {"answer": 7, "page": "<p>"}}'"#;

    #[tokio::test]
    async fn a_run_ends_with_its_results_and_page() {
        let runs = WhatIfRuns::default();
        assert_eq!(runs.view().run, None);
        start(&runs, DONE, Dumped::Sent, false).expect("no other runs");
        let run = ended(&runs).await;
        assert_eq!((run.number, run.state), (1, WhatIfState::Done));
        assert_eq!(run.answer, Some(Value::from(7)));
        assert!((run.progress - 1.0).abs() < f64::EPSILON);
        assert!(run.ended.is_some() && run.problem.is_none());
        assert_eq!(runs.last().page.as_deref(), Some(&b"<p>"[..]));
    }

    #[tokio::test]
    async fn a_second_run_waits_for_the_end_or_the_cancellation_of_the_first() {
        let runs = WhatIfRuns::default();
        let refused = runs.cancel().expect_err("nothing runs");
        assert_eq!(refused.status, StatusCode::CONFLICT);
        start(&runs, "exec sleep 1000", Dumped::Sent, false).expect("no other runs");
        let refused = start(&runs, DONE, Dumped::Sent, false).expect_err("one at a time");
        assert_eq!(refused.status, StatusCode::CONFLICT);
        assert_eq!(refused.body.error.what, "what-if run 1 is not over yet");
        runs.cancel().expect("it runs");
        let run = runs.view().run.expect("one was started");
        assert_eq!(run.state, WhatIfState::Cancelled);
        start(&runs, DONE, Dumped::Sent, false).expect("the first is over");
        let run = ended(&runs).await;
        // The end of the first process says nothing of the second run.
        assert_eq!((run.number, run.state), (2, WhatIfState::Done));
    }

    #[tokio::test]
    async fn a_recording_that_is_missing_or_too_long_fails_the_run_at_once() {
        let runs = WhatIfRuns::default();
        for (read, is_too_long, what) in [
            (Dumped::NoFile, false, "there is no recording of device"),
            (
                Dumped::Sent,
                true,
                "the recording of this span is larger than 32 MiB",
            ),
        ] {
            // The process does not end by itself.
            start(&runs, "exec sleep 1000", read, is_too_long).expect("no other runs");
            let run = ended(&runs).await;
            assert_eq!(run.state, WhatIfState::Failed);
            let problem = run.problem.expect("a failure has a reason");
            assert!(problem.what.starts_with(what), "{problem:?}");
        }
    }

    #[test]
    fn a_process_gets_no_more_than_the_bound_of_a_recording() {
        let mut child = std::process::Command::new("/bin/cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("there is cat");
        let is_too_long = Arc::new(AtomicBool::new(false));
        let mut feed = Feed {
            input: child.stdin.take().expect("a pipe"),
            left: 5,
            is_too_long: is_too_long.clone(),
        };
        assert!(feed.take(&mut vec![0; 3]) && feed.take(&mut vec![0; 2]));
        assert!(feed.is_wanted());
        assert!(!feed.take(&mut vec![0; 1]));
        assert!(!feed.is_wanted() && is_too_long.load(Ordering::Relaxed));
        drop(feed);
        assert!(child.wait().expect("a child").success());
    }
}
