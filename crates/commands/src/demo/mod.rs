//! `tidegate demo`: shows the effect of scheduling in under a minute.
//!
//! The configuration is `examples/demo.toml`, which `tidegate serve` runs as it is: an emulated
//! flash volume and an emulated hard disk, each shared by VMs that disturb each other. The demo has
//! a comparison for each device. A small client drives each VM through its own NBD socket while
//! policies are swapped under load, one after the other. The engine judges the promises. Meanwhile
//! the dashboard shows the same daemon, and in the end a report is made of its history.

mod comparisons;
mod processor_time;
mod show;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tidegate_core::attainment::PartAttainment;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;
use tidegate_server::calculation::Program;
use tidegate_server::config::{Config, objective_view};
use tidegate_server::control::Sockets;
use tidegate_server::daemon::{Daemon, DaemonHandle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::client::Client;
use crate::guest::{Guest, Measurements};
use crate::objective_line;
use crate::output::{self, Output};
use crate::problem::Problem;
use comparisons::{COMPARISONS, Comparison};
use processor_time::ProcessorTime;

const CONFIG: &str = include_str!("../../../../examples/demo.toml");
/// Device model of the configuration, written to [`MODEL_PATH`] beside it.
const MODEL: &str = include_str!("../../../../examples/cloud-nvme.toml");
const MODEL_PATH: &str = "cloud-nvme.toml";
/// Dashboard of the demo, which no other program of this host can have taken.
const DASHBOARD: &str = "\n[[dashboard]]\ntcp = \"127.0.0.1:0\"\n";

/// Options of the demo.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Duration of both comparisons together in seconds.
    pub(crate) seconds: u64,
    /// Policies of each comparison, in this order.
    pub(crate) policies: Vec<PolicySpec>,
    /// True to draw the curve in ASCII.
    pub(crate) ascii: bool,
    /// File of the report that is made in the end.
    pub(crate) report: PathBuf,
    /// Writes the report of a span of a daemon's history, from one time to another, to a file.
    pub(crate) write_report: fn(&Path, &Client, &str, &str) -> Result<()>,
    /// True to serve the dashboard after the results, until a signal comes.
    pub(crate) keep: bool,
    /// Format and style of the output.
    pub(crate) out: Output,
}

/// Results of all comparisons.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    /// Results of each comparison and policy, in order.
    pub(crate) policies: Vec<PolicyResult>,
    /// Time of the demo's threads, which tells how busy the machine was.
    pub(crate) processor_time: ProcessorTime,
}

/// Results of one device's VMs under one policy.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PolicyResult {
    /// Name of the device in the configuration.
    pub(crate) device: &'static str,
    /// Name of the policy.
    pub(crate) policy: String,
    /// VMs of the device in the order of the configuration.
    pub(crate) vms: Vec<VmResult>,
    /// Megabytes (10^6) a second of all VMs together.
    pub(crate) mb_s: f64,
}

/// Result of one VM.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VmResult {
    /// Name of the VM.
    pub(crate) vm: String,
    /// Requests a second.
    pub(crate) iops: f64,
    /// Megabytes (10^6) a second.
    pub(crate) mb_s: f64,
    /// 99th percentile of the time from the intended start of a request to its reply, in
    /// milliseconds.
    pub(crate) p99_ms: f64,
    /// True if no part of the objective was missed; also true for a VM without promises.
    pub(crate) met: bool,
    /// Objective on one line.
    #[serde(rename = "wanted")]
    pub(crate) objective: String,
    /// Parts of the objective as judged by the engine over the measured seconds.
    pub(crate) attainment: Vec<PartResult>,
}

/// Seconds of a run in which a part of an objective was kept or missed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PartResult {
    /// Part of the objective: `reservation`, `latency` or `limit`.
    pub(crate) part: &'static str,
    /// Seconds that were kept.
    pub(crate) kept_s: u64,
    /// Seconds that were missed.
    pub(crate) missed_s: u64,
}

/// 99th percentile of a VM's latency over one refresh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Index of the run within the comparison.
    pub(crate) run: usize,
    /// Seconds since the comparison began.
    pub(crate) at_s: f64,
    /// Latency in nanoseconds.
    pub(crate) p99_ns: f64,
}

/// Divisor of a run's duration that gives its uncounted beginning, in which the previous policy
/// still has effects. The engine's judged seconds may reach 1 s further back, hence
/// [`SETTLING_MIN`].
const SETTLING_SHARE: u32 = 4;
/// Shortest uncounted beginning of a run.
const SETTLING_MIN: Duration = Duration::from_millis(1250);
/// Shortest run in which the engine judges a second.
const RUN_MIN: Duration = Duration::from_secs(3);
/// Interval between updates of the display.
const REFRESH: Duration = Duration::from_millis(250);

/// Runs the demo and prints the results.
///
/// # Errors
/// If the daemon cannot start or a guest fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let dir = tempfile::Builder::new()
        .prefix("tidegate-demo-")
        .tempdir()?;
    let durations = run_durations(options)?;
    std::fs::write(dir.path().join(MODEL_PATH), MODEL)?;
    let text = format!("{CONFIG}{DASHBOARD}");
    let config = tidegate_server::config::parse(&text, "examples/demo.toml", dir.path())
        .context("the demo's own configuration is broken")?
        .config;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let socket = dir.path().join("control.sock");
    let (Serving { handle, dashboard }, daemon) = serve(config)?;
    let begun = Instant::now();
    if !options.out.is_json() {
        let until = if options.keep {
            "Ctrl-C"
        } else {
            "the end of the demo"
        };
        let line = format!("Watch it in a browser until {until}: {dashboard}\n\n");
        options.out.text(&line)?;
    }
    let results = runtime.block_on(async {
        tokio::select! {
            // The same signal also ends the daemon and the guests, so it must be polled first.
            biased;
            stopped = signalled() => Err(stopped),
            results = compare_all(options, &durations, &handle, dir.path()) => results,
        }
    });
    let ended = results.and_then(|results| {
        end(options, &results, &socket, begun.elapsed())?;
        if options.keep {
            runtime.block_on(signalled());
        }
        Ok(())
    });
    handle.shut_down();
    daemon.join().expect("the daemon's thread does not panic")?;
    ended
}

/// Writes the results, and the report of the daemon's history over the time that the demo took.
fn end(options: &Options, results: &Results, socket: &Path, took: Duration) -> Result<()> {
    if options.out.is_json() {
        options.out.json(results)?;
    }
    if let Some(warning) = results.processor_time.warning() {
        output::tell(format_args!("{warning}"));
    }
    let from = format!("-{}s", took.as_secs() + 1);
    (options.write_report)(&options.report, &Client::new(socket)?, &from, "now")?;
    if options.keep {
        output::tell(format_args!("the dashboard is served until Ctrl-C"));
    }
    Ok(())
}

/// Returns the duration of a policy's run in each comparison.
fn run_durations(options: &Options) -> Result<Vec<Duration>> {
    let duration = |comparison: &Comparison| {
        Duration::from_secs(options.seconds) * comparison.share
            / 100
            / options.policies.len() as u32
    };
    let durations: Vec<Duration> = COMPARISONS.iter().map(duration).collect();
    let shortest = durations.iter().min().expect("there is a comparison");
    if *shortest >= RUN_MIN {
        return Ok(durations);
    }
    let least = COMPARISONS
        .iter()
        .map(|comparison| comparison.share)
        .min()
        .expect("there is a comparison");
    // Seconds that give the shortest comparison, of `least` per cent, runs of `RUN_MIN` each.
    let needed = RUN_MIN.as_secs() * 100 * options.policies.len() as u64;
    let problem = Problem::new(format!(
        "{} s are too short for {} policies on {} devices",
        options.seconds,
        options.policies.len(),
        COMPARISONS.len()
    ));
    let help = format!(
        "use --seconds {} or more, or fewer policies",
        needed.div_ceil(least.into())
    );
    Err(problem.help(help).into())
}

/// Waits for SIGINT or SIGTERM and returns the error for a stopped demo.
async fn signalled() -> anyhow::Error {
    let (mut interrupt, mut terminate) = match (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) {
        (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
        (Err(error), _) | (_, Err(error)) => return error.into(),
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    let problem = Problem::new("stopped before all policies were shown");
    problem.help("--seconds N makes the demo shorter").into()
}

/// Daemon of the demo.
struct Serving {
    handle: DaemonHandle,
    /// Address of its dashboard.
    dashboard: String,
}

/// Starts the daemon with its control API on a thread of its own with its own runtime.
fn serve(config: Config) -> Result<(Serving, std::thread::JoinHandle<Result<()>>)> {
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let sockets = Sockets::bind(&config)?;
            let sockets = sockets.with_calculations(&config, Program::this(&["calculate"]));
            // The dashboard comes last.
            let name = sockets.names().last().unwrap_or_default();
            let dashboard = format!("http://{name}");
            let daemon = Daemon::start(config)?;
            let handle = daemon.handle();
            let (stop, stopped) = oneshot::channel::<()>();
            let stopped = async move { drop(stopped.await) };
            let api = tokio::spawn(sockets.serve(handle.clone(), stopped));
            // The receiver waits until the start has ended, so sending cannot fail.
            let _ = send.send(Serving { handle, dashboard });
            let ended = daemon.run().await;
            drop(stop);
            let _ = api.await;
            ended?;
            Ok(())
        })
    });
    match receive.recv() {
        Ok(serving) => Ok((serving, thread)),
        Err(_) => {
            thread.join().expect("the daemon's thread does not panic")?;
            anyhow::bail!("the daemon ended during its start")
        }
    }
}

async fn compare_all(
    options: &Options,
    durations: &[Duration],
    daemon: &DaemonHandle,
    dir: &Path,
) -> Result<Results> {
    let terminal = std::io::stdout().is_terminal();
    let mut results = Results {
        policies: Vec::new(),
        processor_time: ProcessorTime::default(),
    };
    for (comparison, duration) in COMPARISONS.iter().zip(durations) {
        let mut display = show::Display::new(terminal, options);
        let watching = (&mut display, &mut results.processor_time);
        let runs = compare(options, comparison, *duration, daemon, dir, watching).await?;
        display.finish(comparison, &runs)?;
        results.policies.extend(runs);
    }
    Ok(results)
}

/// Runs each policy for `duration`, one after the other, and returns their results.
async fn compare(
    options: &Options,
    comparison: &'static Comparison,
    duration: Duration,
    daemon: &DaemonHandle,
    dir: &Path,
    (display, processor_time): (&mut show::Display, &mut ProcessorTime),
) -> Result<Vec<PolicyResult>> {
    let device = daemon.devices().entries().iter();
    let device = (device.map(|entry| entry.name()))
        .position(|name| name == comparison.device)
        .with_context(|| format!("no device {}", comparison.device))?;
    let mut vms = Vec::new();
    for (i, spec) in comparison.vms.iter().enumerate() {
        let vm = daemon.vms().find(spec.name)?;
        let objective = objective_line::in_words(vm.background, &objective_view(&vm.objective));
        let socket = dir.join(format!("{}.sock", spec.name));
        // Seeds 7, 8, ...: different for each guest, and the same in every demo.
        let guest = Guest::start(
            &socket,
            spec.name,
            &[spec.behaviour.workload()],
            7 + i as u64,
        );
        vms.push(RunningVm {
            name: spec.name,
            objective,
            guest: guest.with_context(|| format!("VM {}", spec.name))?,
            before: Vec::new(),
        });
    }
    let first = daemon.vms().find(comparison.vms[0].name)?;
    display.set_bound(first.objective.latency);
    display.print_vms(comparison, vms.iter().map(|vm| vm.objective.as_str()))?;
    let settling = (duration / SETTLING_SHARE).max(SETTLING_MIN);
    let mut results = Vec::new();
    let time_before = ProcessorTime::now();
    let comparison_began = Instant::now();
    for policy in &options.policies {
        daemon.set_policy(device, policy.clone()).await?;
        let begin = Instant::now();
        let mut measuring = false;
        while begin.elapsed() < duration {
            // No longer than the run, so that all runs have the same length.
            tokio::time::sleep(REFRESH.min(duration.saturating_sub(begin.elapsed()))).await;
            // Effects of the previous policy are over: count from here on.
            if !measuring && begin.elapsed() >= settling {
                measuring = true;
                for vm in &mut vms {
                    vm.guest.restart();
                    vm.before = daemon.vm_snapshot(vm.name).await?.attainment;
                }
            }
            if let Some(p99_ns) = vms[0].guest.take_recent_p99() {
                display.sample(Sample {
                    run: results.len(),
                    at_s: comparison_began.elapsed().as_secs_f64(),
                    p99_ns,
                });
            }
            let now = summarize(comparison, policy, &vms, daemon).await?;
            let progress = [begin.elapsed(), duration];
            display.update(results.len(), &now, progress, measuring)?;
        }
        results.push(summarize(comparison, policy, &vms, daemon).await?);
    }
    // The threads of the guests end with `vms`, behind this.
    processor_time.add(ProcessorTime::now().since(time_before));
    Ok(results)
}

/// VM of the running comparison.
struct RunningVm {
    name: &'static str,
    objective: String,
    guest: Guest,
    /// Attainment counters when measuring began.
    before: Vec<PartAttainment>,
}

async fn summarize(
    comparison: &Comparison,
    policy: &PolicySpec,
    vms: &[RunningVm],
    daemon: &DaemonHandle,
) -> Result<PolicyResult> {
    let mut results = Vec::new();
    for vm in vms {
        let measured = vm.guest.measurements();
        let measured = measured.with_context(|| format!("VM {}", vm.name))?;
        let after = daemon.vm_snapshot(vm.name).await?.attainment;
        results.push(result_of(vm, &measured, &after));
    }
    Ok(PolicyResult {
        device: comparison.device,
        policy: policy.name().to_owned(),
        mb_s: results.iter().map(|vm| vm.mb_s).sum(),
        vms: results,
    })
}

fn result_of(vm: &RunningVm, measured: &Measurements, after: &[PartAttainment]) -> VmResult {
    let attainment = since(&vm.before, after);
    VmResult {
        vm: vm.name.to_owned(),
        iops: measured.iops(),
        mb_s: measured.bytes_per_s() / 1e6,
        p99_ms: measured.latency_us.value_at_quantile(0.99) as f64 / 1e3,
        met: attainment.iter().all(|part| part.missed_s == 0),
        objective: vm.objective.clone(),
        attainment,
    }
}

/// Returns the seconds judged between `before` and `after`.
fn since(before: &[PartAttainment], after: &[PartAttainment]) -> Vec<PartResult> {
    let parts = after.iter().map(|now| {
        let then = before.iter().find(|then| then.part == now.part);
        // A part that was not judged before begins at 0.
        let (kept_s, missed_s) = then.map_or((0, 0), |then| (then.kept_s, then.missed()));
        PartResult {
            part: now.part.name(),
            kept_s: now.kept_s - kept_s,
            missed_s: now.missed() - missed_s,
        }
    });
    parts.collect()
}
