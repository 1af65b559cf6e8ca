//! `tidegate reproduce vfair --distributed`: table 5 of the paper on three live hosts, beside the
//! same in the simulator.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use tidegate_core::time::Nanos;
use tidegate_experiments::distributed::{
    LiveMix, PartyResult, RoundTrips, TOLERANCE, probe, probe_at_disk,
};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_sim::scenario::Scenario;
use tidegate_units::human::duration;

use super::testbed::{self, Testbed};
use crate::args::ReproduceArgs;
use crate::guest::Guest;
use crate::output::{self, Output};
use crate::problem::Problem;
use crate::signals;

/// Paper whose hosts are run live.
const PAPER: &str = "vfair";
/// Seconds that a live run is measured unless told otherwise: those of the simulated scenarios.
const MEASURED_S: u64 = 30;
/// Divisor of the measured time that gives the time before it.
const WARM_UP_SHARE: u64 = 3;
/// Time for which a probe runs before it counts, and for which it counts.
const PROBE: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// Interval at which a live run is checked for processes and guests that have failed.
const CHECK: Duration = Duration::from_secs(1);
/// Interval at which the end of a simulation is polled.
const SIMULATION_POLL: Duration = Duration::from_millis(20);

/// Results of all rows that were run.
#[derive(Debug, Serialize)]
struct Results {
    /// Largest difference of ratios that counts as the same.
    tolerance: f64,
    /// Seconds that each row was measured.
    measured_s: u64,
    rows: Vec<RowResult>,
    /// True if all ratios are the same.
    within: bool,
}

/// Result of a row of table 5.
#[derive(Debug, Serialize)]
struct RowResult {
    row: &'static str,
    /// Measured round trip between a VM and its host, in ns.
    vm_round_trip_ns: u64,
    /// Measured round trip between a host and the array, in ns.
    array_round_trip_ns: u64,
    parties: Vec<Party>,
}

/// Result of a party with its verdict.
#[derive(Debug, Serialize)]
struct Party {
    #[serde(flatten)]
    result: PartyResult,
    difference: f64,
    within: bool,
}

/// Runs the rows and prints the results.
///
/// # Errors
/// If the testbed cannot be run, a signal comes, or a ratio differs by more than [`TOLERANCE`].
pub(super) fn run(paper: &str, args: &ReproduceArgs, out: Output) -> Result<()> {
    let mixes = wanted(paper, args.row.as_deref())?;
    let measured_s = args.seconds.unwrap_or(MEASURED_S);
    let stop = Arc::new(AtomicBool::new(false));
    signals::stop_and_clean_up(stop.clone())?;
    let at_disk = probe_at_disk()?;
    let mut rows = Vec::new();
    for mix in mixes {
        let row = run_row(mix, measured_s, at_disk, &stop)?;
        if !out.is_json() {
            let gap = if rows.is_empty() { "" } else { "\n" };
            let title = title(&row);
            out.text(&format!("{gap}{title}\n"))?;
            out.table(&table(&row.parties))?;
        }
        rows.push(row);
    }
    let parties = || rows.iter().flat_map(|row| &row.parties);
    let (all, outside) = (parties().count(), parties().filter(|it| !it.within).count());
    if out.is_json() {
        out.json(&Results {
            tolerance: TOLERANCE,
            measured_s,
            rows,
            within: outside == 0,
        })?;
    }
    verdict(all, outside)
}

/// Returns the rows that are to be run.
fn wanted(paper: &str, row: Option<&str>) -> Result<Vec<LiveMix>> {
    if paper != PAPER {
        let problem = Problem::new(format!("{paper} has no experiment on live hosts"));
        let help = format!("there is one: tidegate reproduce {PAPER} --distributed");
        return Err(problem.at("--distributed").help(help).into());
    }
    if !cfg!(feature = "cluster") {
        let problem = Problem::new("this build of tidegate has no client of NATS");
        let help = "build it with --features cluster";
        return Err(problem.at("--distributed").help(help).into());
    }
    let mixes = || LiveMix::all();
    let wanted: Vec<LiveMix> = mixes()
        .filter(|mix| row.is_none_or(|row| mix.name() == row))
        .collect();
    if wanted.is_empty() {
        let names: Vec<&str> = mixes().map(LiveMix::name).collect();
        let row = row.unwrap_or_default();
        let problem = Problem::new(format!("table 5 has no row {row:?}"));
        let help = format!("there are: {}", names.join(", "));
        return Err(problem.at("--row").help(help).into());
    }
    Ok(wanted)
}

/// Runs a row on live hosts and in the simulator.
fn run_row(mix: LiveMix, measured_s: u64, at_disk: Nanos, stop: &AtomicBool) -> Result<RowResult> {
    let measured = Nanos::from_secs(measured_s);
    let warm_up = Nanos(measured.0 / WARM_UP_SHARE);
    let scenario = mix.scenario(warm_up, measured)?;
    let mut testbed = Testbed::start(&scenario, stop)?;
    let trips = measure_round_trips(&mut testbed, &scenario, at_disk, stop)?;
    let seconds = scenario.frame.duration.as_secs_f64();
    output::tell(format_args!(
        "{}: {seconds:.0} s live, then in the simulator",
        mix.name()
    ));
    let live = run_live(&mut testbed, &scenario, stop)?;
    drop(testbed);
    let simulated = simulate(mix, scenario.clone(), trips, stop)?;
    let parties = mix.compare(&scenario, &live, &simulated)?;
    Ok(RowResult {
        row: mix.name(),
        vm_round_trip_ns: trips.vm.0,
        array_round_trip_ns: trips.array.0,
        parties: parties.into_iter().map(Party::new).collect(),
    })
}

/// Simulates a row on a thread of its own, so that a signal ends the command meanwhile.
fn simulate(
    mix: LiveMix,
    scenario: Scenario,
    trips: RoundTrips,
    stop: &AtomicBool,
) -> Result<Vec<f64>> {
    let simulation = thread::spawn(move || mix.simulate(scenario, trips));
    while !simulation.is_finished() {
        testbed::sleep(SIMULATION_POLL, stop)?;
    }
    let result = simulation.join();
    Ok(result.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Measures the round trips with the first VM's disk while nothing else is going on.
fn measure_round_trips(
    testbed: &mut Testbed,
    scenario: &Scenario,
    at_disk: Nanos,
    stop: &AtomicBool,
) -> Result<RoundTrips> {
    let vm = &scenario.vms[0];
    let sockets = [testbed.array_socket(), testbed.host_socket(vm.host)];
    let [mut array, mut host] = [Nanos::ZERO; 2];
    for (socket, time) in sockets.iter().zip([&mut array, &mut host]) {
        let [before, counted] = PROBE;
        let guest = Guest::start(socket, &vm.name, &[probe()], 1)?;
        testbed::sleep(before, stop)?;
        guest.restart();
        testbed::sleep(counted, stop)?;
        let measured = guest.measurements()?;
        if measured.ops == 0 {
            testbed.check()?;
            let what = format!("no reply at {} within {counted:?}", socket.display());
            return Err(Problem::new(what).into());
        }
        // One at a time, so the time of a request is that of all over their number.
        *time = Nanos((1e9 / measured.iops()) as u64);
    }
    Ok(RoundTrips::from_probes(at_disk, array, host))
}

/// Has all VMs issue their workloads. Returns the requests per second of each after the warm-up.
fn run_live(testbed: &mut Testbed, scenario: &Scenario, stop: &AtomicBool) -> Result<Vec<f64>> {
    let mut guests = Vec::new();
    for (i, vm) in scenario.vms.iter().enumerate() {
        let socket = testbed.host_socket(vm.host);
        // Different for each VM, and the same in every run.
        let seed = 1 + i as u64;
        let guest = Guest::start(&socket, &vm.name, &vm.workloads, seed);
        guests.push(guest.with_context(|| format!("VM {}", vm.name))?);
    }
    let frame = &scenario.frame;
    let warm_up = Duration::from_nanos(frame.warm_up.0);
    let measured = Duration::from_nanos(frame.duration.since(frame.warm_up).0);
    watch(testbed, &guests, warm_up, stop)?;
    guests.iter().for_each(Guest::restart);
    watch(testbed, &guests, measured, stop)?;
    let rate = |guest: &Guest| Ok(guest.measurements()?.iops());
    guests.iter().map(rate).collect()
}

/// Waits for a time, and meanwhile checks that everything works.
fn watch(testbed: &mut Testbed, guests: &[Guest], time: Duration, stop: &AtomicBool) -> Result<()> {
    let mut left = time;
    while !left.is_zero() {
        let now = left.min(CHECK);
        testbed::sleep(now, stop)?;
        left -= now;
        testbed.check()?;
        for guest in guests {
            guest.measurements()?;
        }
    }
    Ok(())
}

impl Party {
    fn new(result: PartyResult) -> Party {
        Party {
            difference: result.difference(),
            within: result.is_within(),
            result,
        }
    }
}

fn title(row: &RowResult) -> String {
    format!(
        "{} (round trips without the disk: VM to host {}, host to array {})",
        row.row,
        duration(row.vm_round_trip_ns),
        duration(row.array_round_trip_ns)
    )
}

/// Returns the table of a row's parties.
fn table(parties: &[Party]) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("HOST", Align::Left),
        ("WEIGHT", Align::Right),
        ("SHARE LIVE", Align::Right),
        ("SIM", Align::Right),
        ("RATIO LIVE", Align::Right),
        ("SIM", Align::Right),
        ("DIFF", Align::Right),
        ("PAPER", Align::Right),
    ]);
    for Party {
        result,
        difference,
        within,
    } in parties
    {
        let hosts: Vec<String> = result.hosts.iter().map(u32::to_string).collect();
        let tone = if *within { Tone::Good } else { Tone::Bad };
        let figure = |value: f64| Cell::from(format!("{value:.2}"));
        table.row([
            Cell::from(result.vm.clone()),
            Cell::from(hosts.join(", ")),
            Cell::from(result.weight.to_string()),
            Cell::from(format!("{:.3}", result.live_share)),
            Cell::from(format!("{:.3}", result.simulated_share)),
            figure(result.live_ratio),
            figure(result.simulated_ratio),
            Cell::from(format!("{difference:+.2}")).tone(tone),
            figure(result.paper_ratio),
        ]);
    }
    table
}

/// Returns an error if ratios differ.
fn verdict(all: usize, outside: usize) -> Result<()> {
    if outside == 0 {
        let are = format!("all {all} ratios are within {TOLERANCE} of the simulator's");
        output::tell(are);
        return Ok(());
    }
    let what =
        format!("{outside} of {all} ratios differ by more than {TOLERANCE} from the simulator's");
    let help = "a live run needs processors that nothing else uses, and a release build";
    Err(Problem::new(what).help(help).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(live_ratio: f64) -> Party {
        Party::new(PartyResult {
            mix: "sysbench:qfs",
            vm: "qfs".to_owned(),
            hosts: vec![2, 3],
            weight: 100,
            live_share: 0.5,
            simulated_share: 0.5,
            live_ratio,
            simulated_ratio: 1.0,
            paper_ratio: 0.99,
        })
    }

    #[test]
    fn a_table_has_a_line_for_each_party_and_fits_a_terminal() {
        let parties = [party(0.96), party(1.2)];
        assert_eq!(parties.each_ref().map(|it| it.within), [true, false]);
        let text = table(&parties).render(tidegate_report::Style::Plain);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("2, 3") && text.contains("-0.04"), "{text}");
    }

    #[test]
    fn json_has_figures_and_verdicts_on_one_level() {
        let json = serde_json::to_value(party(1.2)).expect("JSON");
        assert_eq!(
            (&json["vm"], &json["within"]),
            (&"qfs".into(), &false.into())
        );
        assert!((json["difference"].as_f64().expect("a number") - 0.2).abs() < 1e-9);
    }

    #[test]
    fn other_papers_and_unknown_rows_are_refused_with_what_there_is() {
        let message = |paper, row| wanted(paper, row).expect_err("refused").to_string();
        assert!(message("flubber", None).contains("tidegate reproduce vfair --distributed"));
        if cfg!(feature = "cluster") {
            assert!(message("vfair", Some("sysbench")).contains("sysbench:ftp:scp"));
            assert_eq!(wanted("vfair", None).expect("all").len(), 4);
            assert_eq!(wanted("vfair", Some("sysbench:qfs")).expect("one").len(), 1);
        } else {
            assert!(message("vfair", None).contains("--features cluster"));
        }
    }

    #[test]
    fn ratios_that_differ_are_an_error_with_their_number() {
        assert!(verdict(11, 0).is_ok());
        let error = verdict(11, 2).expect_err("two differ").to_string();
        assert!(error.contains("2 of 11 ratios"), "{error}");
    }
}
