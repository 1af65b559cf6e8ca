//! `tidegate demo`: what scheduling is worth, in under a minute.
//!
//! The configuration is `examples/demo.toml`, which `tidegate serve` runs as it is: one
//! emulated hard disk, three VMs and a backup. Each is driven through its own NBD socket by a small
//! client; the policies take turns, swapped under load.

mod load;
mod show;

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;
use tidegate_server::config::Config;
use tidegate_server::daemon::{Daemon, DaemonHandle};
use tokio::signal::unix::{SignalKind, signal};

use crate::output::Output;
use crate::problem::Problem;
use load::{Arrivals, Behaviour, Guest, Seen};

const CONFIG: &str = include_str!("../../../../examples/demo.toml");

/// What to show.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// All policies together run for so long.
    pub(crate) seconds: u64,
    /// Policies in the order they take turns.
    pub(crate) policies: Vec<PolicySpec>,
    /// Where the results go.
    pub(crate) out: Output,
}

/// Everything the demo found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    /// In the order they took turns.
    pub(crate) policies: Vec<PolicyResult>,
}

/// What the VMs got under one policy.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PolicyResult {
    /// The policy.
    pub(crate) policy: String,
    /// The VMs in the order of the configuration.
    pub(crate) vms: Vec<VmResult>,
    /// Megabytes (10^6) a second, all of them together.
    pub(crate) mb_s: f64,
}

/// What one VM got.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VmResult {
    /// The VM.
    pub(crate) vm: String,
    /// Requests a second.
    pub(crate) iops: f64,
    /// Megabytes (10^6) a second.
    pub(crate) mb_s: f64,
    /// 99th percentile of the time from wanting to send to the answer, milliseconds.
    pub(crate) p99_ms: f64,
    /// Whether it got what it wanted; true for a VM that wanted nothing in particular.
    pub(crate) met: bool,
    /// What it wanted.
    pub(crate) wanted: String,
}

/// A VM of the demo: its name in the configuration and what its guest does.
struct Cast {
    vm: &'static str,
    does: &'static str,
    behaviour: Behaviour,
}

const CAST: [Cast; 4] = [
    Cast {
        vm: "oltp",
        does: "random 8 KiB reads, 20 a second",
        behaviour: Behaviour {
            writes: false,
            size: 8 << 10,
            random: true,
            span: 16 << 30,
            arrivals: Arrivals::Open { per_s: 20.0 },
        },
    },
    Cast {
        vm: "stream",
        does: "sequential 256 KiB reads, 4 at once",
        behaviour: Behaviour {
            writes: false,
            size: 256 << 10,
            random: false,
            span: 16 << 30,
            arrivals: Arrivals::Closed { depth: 4 },
        },
    },
    Cast {
        vm: "bulk",
        does: "sequential 1 MiB writes, 32 at once",
        behaviour: Behaviour {
            writes: true,
            size: 1 << 20,
            random: false,
            span: 512 << 20,
            arrivals: Arrivals::Closed { depth: 32 },
        },
    },
    Cast {
        vm: "backup",
        does: "sequential 256 KiB reads, 4 at once, in the background",
        behaviour: Behaviour {
            writes: false,
            size: 256 << 10,
            random: false,
            span: 16 << 30,
            arrivals: Arrivals::Closed { depth: 4 },
        },
    },
];

/// A turn's first part, in which the policy before it still echoes, is not counted.
const WARM_UP_SHARE: u32 = 8;
const REFRESH: Duration = Duration::from_millis(500);

/// Runs the demo and prints what came of it.
///
/// # Errors
/// When the daemon cannot start or a guest fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let dir = tempfile::Builder::new()
        .prefix("tidegate-demo-")
        .tempdir()?;
    let config = tidegate_server::config::parse(CONFIG, "examples/demo.toml", dir.path())
        .context("the demo's own configuration is broken")?
        .config;
    let objectives: Vec<Objective> = config.vms.iter().map(|vm| vm.objective).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (handle, daemon) = serve(config)?;
    let results = runtime.block_on(async {
        tokio::select! {
            // First: the same signal ends the daemon, and with it the guests.
            biased;
            stopped = signalled() => Err(stopped),
            results = play(options, &handle, dir.path(), &objectives) => results,
        }
    });
    handle.shut_down();
    daemon.join().expect("the daemon's thread does not panic")?;
    let results = results?;
    if options.out.is_json() {
        return options.out.json(&results);
    }
    Ok(options
        .out
        .text(&show::side_by_side(&results, options.out.style()))?)
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
    daemon: &DaemonHandle,
    dir: &Path,
    objectives: &[Objective],
) -> Result<Results> {
    let guests: Vec<Guest> = CAST
        .iter()
        .enumerate()
        .map(|(i, cast)| {
            let socket = dir.join(format!("{}.sock", cast.vm));
            Guest::start(&socket, cast.vm, cast.behaviour, 7 + i as u64)
                .with_context(|| format!("VM {}", cast.vm))
        })
        .collect::<Result<_>>()?;
    let turn = Duration::from_secs(options.seconds) / options.policies.len() as u32;
    let mut screen = show::Screen::new(std::io::stdout().is_terminal(), options.out);
    screen.introduce(&CAST, objectives)?;
    let mut results = Results {
        policies: Vec::new(),
    };
    for policy in &options.policies {
        daemon.set_policy(0, policy.clone()).await?;
        let begin = Instant::now();
        let warm = turn / WARM_UP_SHARE;
        let mut counting = false;
        while begin.elapsed() < turn {
            tokio::time::sleep(REFRESH.min(turn - begin.elapsed().min(turn))).await;
            if !counting && begin.elapsed() >= warm {
                counting = true;
                guests.iter().for_each(Guest::restart);
            }
            let now = summarize(policy, &guests, objectives)?;
            screen.update(&now, begin.elapsed(), turn, counting)?;
        }
        results
            .policies
            .push(summarize(policy, &guests, objectives)?);
    }
    screen.finish()?;
    Ok(results)
}

fn summarize(
    policy: &PolicySpec,
    guests: &[Guest],
    objectives: &[Objective],
) -> Result<PolicyResult> {
    let vms = CAST
        .iter()
        .zip(guests)
        .zip(objectives)
        .map(|((cast, guest), objective)| {
            Ok(judge(
                cast,
                &guest.seen().with_context(|| format!("VM {}", cast.vm))?,
                objective,
            ))
        });
    let vms = vms.collect::<Result<Vec<VmResult>>>()?;
    Ok(PolicyResult {
        policy: policy.name().to_owned(),
        mb_s: vms.iter().map(|vm| vm.mb_s).sum(),
        vms,
    })
}

/// A floor counts as held when the VM got it, or as much of it as it asked for; 3 % are left
/// for the edges of so short a measurement.
const FLOOR_TOLERANCE: f64 = 0.97;

fn judge(cast: &Cast, seen: &Seen, objective: &Objective) -> VmResult {
    let seconds = seen.took.as_secs_f64().max(1e-9);
    let iops = seen.ops as f64 / seconds;
    let mb_s = seen.bytes as f64 / 1e6 / seconds;
    let p99_ms = seen.latency_us.value_at_quantile(0.99) as f64 / 1e3;
    let asked = match cast.behaviour.arrivals {
        Arrivals::Open { per_s } => per_s,
        Arrivals::Closed { .. } => f64::INFINITY,
    };
    let floor = objective.reservation;
    let floor_ops = floor.ops.map_or(0.0, |o| (o.per_s as f64).min(asked));
    let floor_mb = floor.bytes_per_s.map_or(0.0, |b| b as f64 / 1e6);
    let in_time = objective
        .latency
        .is_none_or(|bound| p99_ms <= bound.as_millis_f64());
    // Arrivals at random vary by the square root of their number; so may what is served.
    let luck = match cast.behaviour.arrivals {
        Arrivals::Open { per_s } => 3.0 * (per_s * seconds).sqrt() / seconds,
        Arrivals::Closed { .. } => 0.0,
    };
    let met =
        iops + luck >= floor_ops * FLOOR_TOLERANCE && mb_s >= floor_mb * FLOOR_TOLERANCE && in_time;
    VmResult {
        vm: cast.vm.to_owned(),
        iops,
        mb_s,
        p99_ms,
        met,
        wanted: wanted(cast, objective),
    }
}

/// What a VM wants: what it asks for, as far as its reservation covers that, and in time.
fn wanted(cast: &Cast, objective: &Objective) -> String {
    let mut parts = Vec::new();
    if let (Arrivals::Open { per_s }, Some(floor)) =
        (cast.behaviour.arrivals, objective.reservation.ops)
    {
        parts.push(format!("{per_s:.0} of its {floor}"));
    } else if !objective.reservation.is_none() {
        parts.push(objective.reservation.to_string());
    }
    if let Some(latency) = objective.latency {
        parts.push(format!("p99 <= {:.0} ms", latency.as_millis_f64()));
    }
    if parts.is_empty() {
        "what is left".to_owned()
    } else {
        parts.join(", ")
    }
}
