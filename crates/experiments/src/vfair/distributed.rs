//! Table 5 on live hosts: vFair on three of them, which exchange shares (section 4.3).
//!
//! Whoever runs the hosts takes a [`LiveMix`]'s scenario, has the VMs issue its workloads, and
//! hands over their rates; the same scenario runs in the simulator. As in the paper, a *share* is
//! a VM's requests per second over those that would saturate the disk (its footnote 5), and a
//! *ratio* is the share of a party over the mean share of the bulk transfers.
//!
//! The scenario is that of the simulated table 5 except for what live hosts have by themselves:
//! round trips, which are measured ([`RoundTrips`]), and messages that arrive at once. Workloads
//! that write have their requests in 256 MiB of their disks, since written bytes stay in memory.

use super::applications::{self, Mix};
use super::run::{self, Run};
use super::setup::{self, Disk, SCHEDULERS_TOML};
use super::{BAPS, PAPER, PAPER_TOML};
use crate::folder;
use crate::{ExperimentError, Reference};
use serde::Serialize;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::{Delay, Exchange, Path, Scenario, VmSpec};
use tidegate_workload::spec::{self, Flow, Rw, Sizes, Workload};
use tidegate_workload::time::TimeDistribution;

/// Largest difference of a live ratio from the simulated one that counts as the same.
pub const TOLERANCE: f64 = 0.05;
/// Bytes of a disk in which a workload that writes has its requests.
const WRITTEN_BYTES: u64 = 256 << 20;
/// Size of the requests of [`probe`], in bytes: a page of the paper's database.
const PROBE_BYTES: u32 = 16 << 10;

/// Row of table 5, as live hosts run it.
#[derive(Clone, Copy, Debug)]
pub struct LiveMix(&'static Mix);

/// Round trips of a request without what the disk takes. Each way is half of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTrips {
    /// Time between a VM and the scheduler of its host.
    pub vm: Nanos,
    /// Time between the scheduler of a host and the array.
    pub array: Nanos,
}

/// Result of a party of a mix: a VM, or VMs that count as one group.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PartyResult {
    /// Row of table 5.
    pub mix: &'static str,
    /// Name of the VM or of the group.
    pub vm: String,
    /// Hosts with its VMs, counted from 1, ascending.
    pub hosts: Vec<u32>,
    /// Weight of the VM or of the group.
    pub weight: u32,
    /// Part of what saturates the disk that it had on live hosts.
    pub live_share: f64,
    /// Part of what saturates the disk that it had in the simulator.
    pub simulated_share: f64,
    /// Live share over the mean live share of the bulk transfers.
    pub live_ratio: f64,
    /// Simulated share over the mean simulated share of the bulk transfers.
    pub simulated_ratio: f64,
    /// Ratio in the paper.
    pub paper_ratio: f64,
}

impl PartyResult {
    /// Returns the live ratio less the simulated one.
    pub fn difference(&self) -> f64 {
        self.live_ratio - self.simulated_ratio
    }

    /// Returns true if both ratios are the same within [`TOLERANCE`].
    pub fn is_within(&self) -> bool {
        // False also for no number, as of a run without requests.
        self.difference().abs() <= TOLERANCE
    }
}

impl RoundTrips {
    /// Computes the round trips from times of the [`probe`]'s requests: at the disk alone, at the
    /// array by itself, and through a host. A request that comes to the array by itself travels as
    /// one between a VM and its host does.
    pub fn from_probes(disk: Nanos, array: Nanos, host: Nanos) -> RoundTrips {
        // `since` is zero where the sooner time is the later one by chance.
        RoundTrips {
            vm: array.since(disk),
            array: host.since(array),
        }
    }
}

/// Names and texts of the files that the daemons read: the model of the array's disk, and its
/// profile.
pub fn disk_files() -> [(&'static str, &'static str); 2] {
    Disk::Ssd.files()
}

/// Returns the policy of the hosts as a value of TOML.
///
/// # Errors
/// If the experiment's list of schedulers is malformed.
pub fn policy_toml() -> Result<String, ExperimentError> {
    let file = "schedulers.toml";
    let schedulers: toml::Table =
        (SCHEDULERS_TOML.parse()).map_err(|e: toml::de::Error| ExperimentError::data(file, e))?;
    let policy = schedulers.get(BAPS).and_then(|it| it.get("policy"));
    let policy =
        policy.ok_or_else(|| ExperimentError::data(file, format!("there is no {BAPS}")))?;
    Ok(policy.to_string())
}

/// Workload that measures round trips: random reads of 16 KiB, one at a time.
pub fn probe() -> Workload {
    Workload {
        name: "probe".to_owned(),
        rw: Rw {
            mix: spec::Mix::Read,
            random: true,
        },
        sizes: std::array::from_fn(|_| Sizes::fixed(PROBE_BYTES)),
        flow: Flow::Closed {
            iodepth: 1,
            think: None,
        },
        ..Workload::default()
    }
}

/// Returns the time of a request of the [`probe`] at the disk alone, by its model.
///
/// # Errors
/// If a file of the experiment is malformed.
pub fn probe_at_disk() -> Result<Nanos, ExperimentError> {
    let second = Nanos::from_secs(1);
    let mix = LiveMix::all().next().expect("table 5 has rows");
    let mut scenario = mix.scenario(Nanos::ZERO, second)?;
    scenario.vms.truncate(1);
    for vm in &mut scenario.vms {
        vm.workloads = vec![probe()];
    }
    let fifo = PolicySpec::named("fifo");
    folder::set_policy(
        &mut scenario,
        &fifo.map_err(|error| ExperimentError::data("schedulers.toml", error))?,
    );
    // One at a time: the time of a request is a second over their number.
    Ok(Nanos((1e9 / Run::simulate(scenario).total_iops()) as u64))
}

impl LiveMix {
    /// Returns the rows of table 5 in order.
    pub fn all() -> impl Iterator<Item = LiveMix> {
        applications::all_mixes().map(LiveMix)
    }

    /// Returns the row's name, such as `sysbench:ftp:scp`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns the scenario, without any round trips. Its only device is the array.
    ///
    /// # Errors
    /// If a file of the experiment is malformed.
    pub fn scenario(self, warm_up: Nanos, measured: Nanos) -> Result<Scenario, ExperimentError> {
        let key = self.0.on_each_host(BAPS);
        let mut scenario = setup::scenario(&key)?;
        scenario.frame.warm_up = warm_up;
        scenario.frame.duration = warm_up + measured;
        for device in &mut scenario.devices {
            device.exchange = Exchange::default();
            device.path = Path::default();
            // Hosts are daemons, which bound payload memory and divide request slots.
            device.bounded = true;
        }
        for vm in &mut scenario.vms {
            vm.delay = Delay::default();
            for workload in &mut vm.workloads {
                if workload.rw.mix != spec::Mix::Read {
                    workload.size = Some(WRITTEN_BYTES);
                }
            }
        }
        folder::checked(scenario, key.case.file().0, &key)
    }

    /// Simulates a scenario with these round trips. Returns the requests per second of each VM.
    pub fn simulate(self, mut scenario: Scenario, trips: RoundTrips) -> Vec<f64> {
        let half = |trip: Nanos| Some(TimeDistribution::Fixed(Nanos(trip.0 / 2)));
        for device in &mut scenario.devices {
            device.path = Path {
                submit: half(trips.array),
                complete: half(trips.array),
            };
        }
        for vm in &mut scenario.vms {
            vm.delay = Delay {
                submit: half(trips.vm),
                complete: half(trips.vm),
                processor: None,
            };
        }
        let report = Run::simulate(scenario).report;
        report.vms.iter().map(|vm| vm.rates.iops).collect()
    }

    /// Compares the requests per second of each VM of the scenario on live hosts with those in the
    /// simulator.
    ///
    /// # Errors
    /// If a file of the experiment is malformed.
    ///
    /// # Panics
    /// If there are not as many rates as VMs.
    pub fn compare(
        self,
        scenario: &Scenario,
        live: &[f64],
        simulated: &[f64],
    ) -> Result<Vec<PartyResult>, ExperimentError> {
        let vms = scenario.vms.len();
        assert_eq!(
            [live.len(), simulated.len()],
            [vms, vms],
            "a rate for each VM"
        );
        let saturations = run::saturations(scenario);
        let parties = self.parties(scenario);
        let shares = |rates: &[f64]| -> Vec<f64> {
            let share = |&vm: &usize| rates[vm] / saturations[vm].unwrap_or(f64::NAN);
            let parties = parties.iter();
            parties.map(|party| party.iter().map(share).sum()).collect()
        };
        let (live, simulated) = (shares(live), shares(simulated));
        let [live_mean, simulated_mean] = [&live, &simulated].map(|shares| {
            // The first party is the application, the others are bulk transfers.
            let bulk = &shares[1..];
            bulk.iter().sum::<f64>() / bulk.len() as f64
        });
        let paper = self.paper_ratio()?;
        let result = |(place, party): (usize, &Vec<usize>)| {
            let members: Vec<&VmSpec> = party.iter().map(|&vm| &scenario.vms[vm]).collect();
            let (vm, weight) = name_and_weight(members[0]);
            let mut hosts: Vec<u32> = members.iter().map(|vm| vm.host + 1).collect();
            hosts.dedup();
            PartyResult {
                mix: self.0.name,
                vm,
                hosts,
                weight,
                live_share: live[place],
                simulated_share: simulated[place],
                live_ratio: live[place] / live_mean,
                simulated_ratio: simulated[place] / simulated_mean,
                paper_ratio: if place == 0 { paper } else { 1.0 },
            }
        };
        Ok(parties.iter().enumerate().map(result).collect())
    }

    /// VMs of each party, as indices into the scenario's: first the application alone.
    fn parties(self, scenario: &Scenario) -> Vec<Vec<usize>> {
        let is_application = |vm: &usize| scenario.vms[*vm].name == self.0.application;
        let (application, bulk): (Vec<usize>, Vec<usize>) =
            (0..scenario.vms.len()).partition(is_application);
        let mut parties = vec![application];
        if self.0.group {
            parties.push(bulk);
        } else {
            parties.extend(bulk.into_iter().map(|vm| vec![vm]));
        }
        parties
    }

    /// Ratio of the application in the paper.
    fn paper_ratio(self) -> Result<f64, ExperimentError> {
        let table = Reference::parse(PAPER_TOML)?.table("5", 1)?;
        let is_it = |labels: &[String], column: &str| {
            labels.first().is_some_and(|name| name == self.0.name) && column == BAPS
        };
        let cells = table.cells(PAPER.name, |labels, column| {
            is_it(labels, column).then_some(f64::NAN)
        });
        let cell = cells.first();
        let missing = || ExperimentError::data("paper.toml", format!("no {}", self.0.name));
        Ok(cell.ok_or_else(missing)?.theirs)
    }
}

/// Name and weight of the group of a VM, or of the VM itself if it has none.
fn name_and_weight(vm: &VmSpec) -> (String, u32) {
    match vm.objective.group {
        Some(group) => (group.name.to_string(), group.weight),
        None => (vm.name.clone(), vm.objective.weight),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(name: &str) -> LiveMix {
        LiveMix::all()
            .find(|mix| mix.name() == name)
            .expect("a row")
    }

    fn scenario(name: &str) -> Scenario {
        let (warm_up, measured) = (Nanos::from_millis(100), Nanos::from_millis(400));
        mix(name).scenario(warm_up, measured).expect("a scenario")
    }

    #[test]
    fn each_row_of_the_paper_is_run() {
        let names: Vec<&str> = LiveMix::all().map(LiveMix::name).collect();
        let table = Reference::parse(PAPER_TOML).and_then(|it| it.table("5", 1));
        let mut rows = Vec::new();
        table.expect("there").cells(PAPER.name, |labels, column| {
            if column == BAPS {
                rows.extend(labels.to_vec());
            }
            None
        });
        assert_eq!(names, rows);
    }

    #[test]
    fn a_live_scenario_has_no_network_and_writes_little() {
        for mix in LiveMix::all() {
            let scenario = scenario(mix.name());
            let device = &scenario.devices[0];
            assert_eq!(device.path, Path::default());
            assert_eq!(device.exchange, Exchange::default());
            assert!(device.bounded);
            for vm in &scenario.vms {
                assert_eq!(vm.delay, Delay::default(), "{}", vm.name);
                for workload in &vm.workloads {
                    let writes = workload.rw.mix != spec::Mix::Read;
                    let bounded = workload.size == Some(WRITTEN_BYTES);
                    assert_eq!(writes, bounded, "{}", vm.name);
                }
            }
        }
    }

    #[test]
    fn a_ratio_is_a_share_over_the_mean_of_the_bulk_transfers() {
        let scenario = scenario("dvdstore:ftp:scp");
        let saturations = run::saturations(&scenario);
        let of = |shares: [f64; 3]| -> Vec<f64> {
            let pairs = shares.iter().zip(&saturations);
            pairs
                .map(|(share, p)| share * p.expect("measured"))
                .collect()
        };
        let (live, simulated) = (of([0.3, 0.2, 0.4]), of([0.3, 0.3, 0.3]));
        let results = mix("dvdstore:ftp:scp").compare(&scenario, &live, &simulated);
        let results = results.expect("compared");
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let first = &results[0];
        assert!(close(first.live_share, 0.3) && close(first.live_ratio, 1.0));
        assert!(close(first.simulated_ratio, 1.0) && close(first.paper_ratio, 0.89));
        assert_eq!(
            (first.vm.as_str(), &first.hosts[..]),
            ("dvdstore", &[1][..])
        );
        assert_eq!((first.weight, first.is_within()), (100, true));
        let last = &results[2];
        assert!(close(last.live_ratio, 4.0 / 3.0) && close(last.paper_ratio, 1.0));
        assert!(close(last.difference(), 1.0 / 3.0) && !last.is_within());
        assert_eq!((last.vm.as_str(), &last.hosts[..]), ("scp", &[3][..]));
    }

    #[test]
    fn chunk_servers_count_as_one_party() {
        let scenario = scenario("sysbench:qfs");
        let saturations = run::saturations(&scenario);
        let rates: Vec<f64> = saturations
            .iter()
            .map(|p| p.expect("measured") / 10.0)
            .collect();
        let results = mix("sysbench:qfs").compare(&scenario, &rates, &rates);
        let results = results.expect("compared");
        assert_eq!(results.len(), 2);
        assert_eq!(
            (results[1].vm.as_str(), &results[1].hosts[..]),
            ("qfs", &[2, 3][..])
        );
        assert_eq!(results[1].weight, 100);
        assert!((results[0].live_ratio - 1.0 / 9.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_without_requests_is_not_within() {
        let scenario = scenario("sysbench:ftp:scp");
        let results = mix("sysbench:ftp:scp").compare(&scenario, &[0.0; 3], &[1.0; 3]);
        assert!(
            results
                .expect("compared")
                .iter()
                .all(|party| !party.is_within())
        );
    }

    #[test]
    fn round_trips_are_what_the_disk_does_not_take() {
        let trips = RoundTrips::from_probes(Nanos(100), Nanos(130), Nanos(200));
        assert_eq!((trips.vm, trips.array), (Nanos(30), Nanos(70)));
        let trips = RoundTrips::from_probes(Nanos(100), Nanos(90), Nanos(80));
        assert_eq!((trips.vm, trips.array), (Nanos::ZERO, Nanos::ZERO));
    }

    #[test]
    fn longer_round_trips_leave_a_lone_application_less() {
        let scenario = || {
            let mut scenario = scenario("postmark:ftp:scp");
            scenario.vms.truncate(1);
            scenario
        };
        let trips = |us| RoundTrips {
            vm: Nanos::from_micros(us),
            array: Nanos::from_micros(us),
        };
        let mix = mix("postmark:ftp:scp");
        let [near, far] = [10, 1000].map(|us| mix.simulate(scenario(), trips(us))[0]);
        assert!(far > 0.0 && near > 2.0 * far, "{near} and {far}");
    }

    #[test]
    fn a_probe_takes_as_long_as_the_disk() {
        let time = probe_at_disk().expect("a model");
        // A page is read in 50 us and leaves its chip in 51.2 us (8 KiB at 160 MB/s), two at a
        // time. A command takes 69 us and 1 us, 16 KiB at 310 MB/s take 52.9 us.
        let expected = Nanos::from_micros(223)..Nanos::from_micros(226);
        assert!(expected.contains(&time), "{time}");
    }

    #[test]
    fn the_policy_is_one_that_hosts_can_read() {
        let text = format!("policy = {}", policy_toml().expect("there"));
        let table: toml::Table = text.parse().expect("TOML on one line");
        assert_eq!(table["policy"]["name"].as_str(), Some("vfair"));
        assert!(!text.contains('\n'), "{text}");
    }
}
