//! `tidegate demo`: what scheduling is worth, in under a minute.
//!
//! The configuration is `examples/demo.toml`, which `tidegate serve` runs as it is: an emulated
//! flash volume and an emulated hard disk, each shared by VMs that do not get along. The demo has
//! an act for each device. A small client drives each VM through its own NBD socket while the
//! policies take turns, swapped under load; the engine judges what was promised.

mod cast;
mod load;
mod show;

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tidegate_core::attainment::PartAttainment;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;
use tidegate_server::config::{Config, objective_view};
use tidegate_server::daemon::{Daemon, DaemonHandle};
use tokio::signal::unix::{SignalKind, signal};

use crate::output::Output;
use crate::problem::Problem;
use crate::promise;
use cast::{ACTS, Act};
use load::{Guest, Seen};

const CONFIG: &str = include_str!("../../../../examples/demo.toml");
/// The device model that the configuration names, and its path beside the configuration.
const MODEL: &str = include_str!("../../../../examples/cloud-nvme.toml");
const MODEL_PATH: &str = "cloud-nvme.toml";

/// What to show.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Time of both acts together, in seconds.
    pub(crate) seconds: u64,
    /// Policies in the order they take turns in each act.
    pub(crate) policies: Vec<PolicySpec>,
    /// How the curve of the first act is drawn.
    pub(crate) ascii: bool,
    /// Where the results go.
    pub(crate) out: Output,
}

/// Results of all acts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    /// Turns in the order in which they were taken.
    pub(crate) policies: Vec<PolicyResult>,
}

/// What the VMs of one device got under one policy.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PolicyResult {
    /// Name of the device in the configuration.
    pub(crate) device: &'static str,
    /// Name of the policy.
    pub(crate) policy: String,
    /// VMs of the device in the order of the configuration.
    pub(crate) vms: Vec<VmResult>,
    /// Megabytes (10^6) a second, all of them together.
    pub(crate) mb_s: f64,
}

/// What one VM got.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VmResult {
    /// Name of the VM.
    pub(crate) vm: String,
    /// Requests a second.
    pub(crate) iops: f64,
    /// Megabytes (10^6) a second.
    pub(crate) mb_s: f64,
    /// 99th percentile of the time from wanting to send to the answer, milliseconds.
    pub(crate) p99_ms: f64,
    /// True when no part of the objective was missed, so for a VM that was promised nothing, too.
    pub(crate) met: bool,
    /// Objective in words.
    pub(crate) wanted: String,
    /// Parts of the objective as the engine judges them, over the seconds that were measured.
    pub(crate) attainment: Vec<PartResult>,
}

/// Seconds of a turn in which a part of an objective was kept or missed.
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
    /// Turn that it belongs to, counted over all acts.
    pub(crate) turn: usize,
    /// Seconds since the act began.
    pub(crate) at_s: f64,
    /// Latency in nanoseconds.
    pub(crate) p99_ns: f64,
}

/// Part of a turn, in which the policy before it still echoes, that is not counted; the seconds
/// that the engine judges reach up to one second further back.
const SETTLING_SHARE: u32 = 4;
const SETTLING_LEAST: Duration = Duration::from_millis(1250);
/// Shortest turn in which the engine judges a second.
const TURN_LEAST: Duration = Duration::from_secs(3);
const REFRESH: Duration = Duration::from_millis(250);

/// Runs the demo and prints what came of it.
///
/// # Errors
/// When the daemon cannot start or a guest fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let dir = tempfile::Builder::new()
        .prefix("tidegate-demo-")
        .tempdir()?;
    let turns = turns(options)?;
    std::fs::write(dir.path().join(MODEL_PATH), MODEL)?;
    let config = tidegate_server::config::parse(CONFIG, "examples/demo.toml", dir.path())
        .context("the demo's own configuration is broken")?
        .config;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (handle, daemon) = serve(config)?;
    let results = runtime.block_on(async {
        tokio::select! {
            // First: the same signal ends the daemon, and with it the guests.
            biased;
            stopped = signalled() => Err(stopped),
            results = play(options, &turns, &handle, dir.path()) => results,
        }
    });
    handle.shut_down();
    daemon.join().expect("the daemon's thread does not panic")?;
    let results = results?;
    if options.out.is_json() {
        return options.out.json(&results);
    }
    Ok(())
}

/// Time that each policy has in each act.
fn turns(options: &Options) -> Result<Vec<Duration>> {
    let turn = |act: &Act| {
        Duration::from_secs(options.seconds) * act.share / 100 / options.policies.len() as u32
    };
    let turns: Vec<Duration> = ACTS.iter().map(turn).collect();
    let shortest = turns.iter().min().expect("there is an act");
    if *shortest >= TURN_LEAST {
        return Ok(turns);
    }
    let least = ACTS
        .iter()
        .map(|act| act.share)
        .min()
        .expect("there is an act");
    let needed = TURN_LEAST.as_secs() * 100 * options.policies.len() as u64;
    let problem = Problem::new(format!(
        "{} s are too short for {} policies in {} acts",
        options.seconds,
        options.policies.len(),
        ACTS.len()
    ));
    let help = format!(
        "--seconds {} or more, or fewer policies",
        needed.div_ceil(least.into())
    );
    Err(problem.help(help).into())
}

/// What to say once somebody has had enough.
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
    let problem = Problem::new("stopped before every policy had its turn");
    problem.help("--seconds N makes it shorter").into()
}

/// The daemon on a thread of its own, with its own runtime.
fn serve(config: Config) -> Result<(DaemonHandle, std::thread::JoinHandle<Result<()>>)> {
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let daemon = Daemon::start(config)?;
            let _ = send.send(daemon.handle());
            daemon.run().await?;
            Ok(())
        })
    });
    match receive.recv() {
        Ok(handle) => Ok((handle, thread)),
        Err(_) => {
            thread.join().expect("the daemon's thread does not panic")?;
            anyhow::bail!("the daemon ended before it began")
        }
    }
}

async fn play(
    options: &Options,
    turns: &[Duration],
    daemon: &DaemonHandle,
    dir: &Path,
) -> Result<Results> {
    let terminal = std::io::stdout().is_terminal();
    let mut results = Results {
        policies: Vec::new(),
    };
    for (act, turn) in ACTS.iter().zip(turns) {
        let mut screen = show::Screen::new(terminal, options);
        let played = play_act(options, act, *turn, daemon, dir, &mut screen).await?;
        screen.finish(act, &played)?;
        results.policies.extend(played);
    }
    Ok(results)
}

async fn play_act(
    options: &Options,
    act: &'static Act,
    turn: Duration,
    daemon: &DaemonHandle,
    dir: &Path,
    screen: &mut show::Screen,
) -> Result<Vec<PolicyResult>> {
    let device = daemon.devices().entries().iter();
    let device = (device.map(|entry| entry.name()))
        .position(|name| name == act.device)
        .with_context(|| format!("no device {}", act.device))?;
    let mut vms = Vec::new();
    for (i, cast) in act.cast.iter().enumerate() {
        let vm = daemon.vms().find(cast.vm)?;
        let wanted = promise::in_words(vm.background, &objective_view(&vm.objective));
        let socket = dir.join(format!("{}.sock", cast.vm));
        let guest = Guest::start(&socket, cast.vm, cast.behaviour, 7 + i as u64);
        vms.push(Played {
            vm: cast.vm,
            wanted,
            guest: guest.with_context(|| format!("VM {}", cast.vm))?,
            before: Vec::new(),
        });
    }
    let first = daemon.vms().find(act.cast[0].vm)?;
    screen.hold_against(first.objective.latency);
    screen.introduce(act, vms.iter().map(|vm| vm.wanted.as_str()))?;
    let settling = (turn / SETTLING_SHARE).max(SETTLING_LEAST);
    let mut results = Vec::new();
    let act_began = Instant::now();
    for policy in &options.policies {
        daemon.set_policy(device, policy.clone()).await?;
        let begin = Instant::now();
        let mut counting = false;
        while begin.elapsed() < turn {
            tokio::time::sleep(REFRESH.min(turn.saturating_sub(begin.elapsed()))).await;
            if !counting && begin.elapsed() >= settling {
                counting = true;
                for vm in &mut vms {
                    vm.guest.restart();
                    vm.before = daemon.look(vm.vm).await?.attainment;
                }
            }
            if let Some(p99_ns) = vms[0].guest.take_recent_p99() {
                screen.sample(Sample {
                    turn: results.len(),
                    at_s: act_began.elapsed().as_secs_f64(),
                    p99_ns,
                });
            }
            let now = summarize(act, policy, &vms, daemon).await?;
            screen.update(&now, begin.elapsed(), turn, counting)?;
        }
        results.push(summarize(act, policy, &vms, daemon).await?);
    }
    Ok(results)
}

/// A VM while its act is played.
struct Played {
    vm: &'static str,
    wanted: String,
    guest: Guest,
    /// Counts of the engine when measuring began.
    before: Vec<PartAttainment>,
}

async fn summarize(
    act: &Act,
    policy: &PolicySpec,
    vms: &[Played],
    daemon: &DaemonHandle,
) -> Result<PolicyResult> {
    let mut results = Vec::new();
    for vm in vms {
        let seen = vm.guest.seen().with_context(|| format!("VM {}", vm.vm))?;
        let after = daemon.look(vm.vm).await?.attainment;
        results.push(result_of(vm, &seen, &after));
    }
    Ok(PolicyResult {
        device: act.device,
        policy: policy.name().to_owned(),
        mb_s: results.iter().map(|vm| vm.mb_s).sum(),
        vms: results,
    })
}

fn result_of(vm: &Played, seen: &Seen, after: &[PartAttainment]) -> VmResult {
    let seconds = seen.took.as_secs_f64().max(1e-9);
    let attainment = since(&vm.before, after);
    VmResult {
        vm: vm.vm.to_owned(),
        iops: seen.ops as f64 / seconds,
        mb_s: seen.bytes as f64 / 1e6 / seconds,
        p99_ms: seen.latency_us.value_at_quantile(0.99) as f64 / 1e3,
        met: attainment.iter().all(|part| part.missed_s == 0),
        wanted: vm.wanted.clone(),
        attainment,
    }
}

/// Seconds that were judged after `before` was looked at.
fn since(before: &[PartAttainment], after: &[PartAttainment]) -> Vec<PartResult> {
    let parts = after.iter().map(|now| {
        let then = before.iter().find(|then| then.part == now.part);
        let (kept_s, missed_s) = then.map_or((0, 0), |then| (then.kept_s, then.missed()));
        PartResult {
            part: now.part.name(),
            kept_s: now.kept_s - kept_s,
            missed_s: now.missed() - missed_s,
        }
    });
    parts.collect()
}
