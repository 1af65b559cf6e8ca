//! Plans compared with simulations: promises at the edge of a plan are kept, and those well beyond
//! it are not. The engine and models are the simulator's; the profile is measured on the same
//! model.

mod measure;

use crate::common::{read, vm};
use measure::Setting;
use tidegate_core::fit::{Assumed, Device, Fit, PlannedVm, Queueing, evaluate, nearest_of_all};
use tidegate_core::objective::Objective;
use tidegate_core::profile::Profile;
use tidegate_core::time::Nanos;
use tidegate_sim::report::{Report, Row, VmReport};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;

/// A VM: what it is promised, and what it does.
#[derive(Clone, Copy)]
struct Guest {
    name: &'static str,
    /// The `[vm.objective]`.
    promise: &'static str,
    /// The `[[vm.workload]]`.
    workload: &'static str,
}

/// A promise that a part of a policy does not know is one all the same.
fn said(text: &str) -> Scenario {
    read(text)
        .unwrap_or_else(|errors| panic!("{errors}"))
        .config
}

const fn guest(name: &'static str, promise: &'static str, workload: &'static str) -> Guest {
    Guest {
        name,
        promise,
        workload,
    }
}

/// Nobody promised it anything, and it takes what it can.
const BULK: Guest = guest(
    "bulk",
    "expects = { reads = \"0 %\", access = \"random\", size = \"64 KiB\" }",
    "rw = \"randwrite\"\nbs = \"64 KiB\"\niodepth = 32",
);

fn scenario(setting: &Setting, policy: &str, guests: &[Guest]) -> String {
    let mut text = setting.device(policy, setting.depth);
    let disk = setting.disk_gib / guests.len() as u64;
    for Guest {
        name,
        promise,
        workload,
    } in guests
    {
        text += &format!(
            "[[vm]]\nname = \"{name}\"\ndisk = \"{disk} GiB\"\n[vm.objective]\n{promise}\n\
             [[vm.workload]]\n{workload}\n"
        );
    }
    text
}

/// The objectives that it names, and the run with others in their place.
struct Trial<'a> {
    setting: &'a Setting,
    profile: &'a Profile,
    text: String,
    objectives: Vec<Objective>,
}

impl<'a> Trial<'a> {
    fn new(
        setting: &'a Setting,
        profile: &'a Profile,
        policy: &str,
        guests: &[Guest],
    ) -> Trial<'a> {
        let text = scenario(setting, policy, guests);
        let objectives = said(&text).tenants.iter().map(|t| t.objective).collect();
        Trial {
            setting,
            profile,
            text,
            objectives,
        }
    }

    fn device(&self) -> Device<'a> {
        Device {
            profile: self.profile,
            depth: self.setting.depth,
            max_io: 1 << 20,
            merge_limit: 0,
            capacity: None,
            queueing: Queueing::default(),
        }
    }

    fn evaluate(&self, objectives: &[Objective], assumed: &Assumed) -> Fit {
        evaluate(&self.device(), &tenants(objectives), assumed)
    }

    /// The promises, raised or lowered alike until they need that part of the device's time.
    fn at(&self, thousandths: u32) -> Vec<Objective> {
        let assumed = Assumed {
            headroom: thousandths,
            ..Assumed::default()
        };
        // Too much, so that lowering is what is left to do; by little, for that goes by
        // thousandths.
        let mut more = self.objectives.clone();
        loop {
            if let Some((_, lowered)) = nearest_of_all(&self.device(), &tenants(&more), &assumed) {
                return lowered;
            }
            more = more.iter().map(|o| times(o, 2)).collect();
        }
    }

    /// Gives all that have one the same bound: the shortest that fits.
    fn bound_tightly(&mut self) {
        let bound = |objectives: &[Objective], bound: u64| -> Vec<Objective> {
            let with = |o: &Objective| Objective {
                latency: o.latency.map(|_| Nanos(bound)),
                ..*o
            };
            objectives.iter().map(with).collect()
        };
        let fits = |ns| {
            let objectives = bound(&self.objectives, ns);
            self.evaluate(&objectives, &Assumed::default()).fits()
        };
        let (mut too_short, mut enough) = (0, Nanos::from_secs(10).0);
        assert!(fits(enough), "no bound would do");
        while enough - too_short > 1 {
            let middle = too_short + (enough - too_short) / 2;
            if fits(middle) {
                enough = middle
            } else {
                too_short = middle
            }
        }
        self.objectives = bound(&self.objectives, enough);
    }

    fn run(&self, objectives: &[Objective], rows: &mut dyn FnMut(&Row)) -> Report {
        let mut scenario = said(&self.text);
        for (tenant, objective) in scenario.tenants.iter_mut().zip(objectives) {
            tenant.objective = *objective;
        }
        let mut world = World::new(scenario, Some(Nanos::SECOND));
        world.run(rows);
        world.report()
    }

    /// Results of each VM with a floor.
    fn got(&self, objectives: &[Objective]) -> Vec<Got> {
        let mut rows = Vec::new();
        let report = self.run(objectives, &mut |row| rows.push(row.clone()));
        let fit = self.evaluate(objectives, &Assumed::default());
        let floors = report.vms.iter().zip(&fit.needs);
        let floors = floors.map(|(vm, need)| (vm, need.load.requests() as f64 / 1e6));
        let got = |(vm, floor): (&VmReport, f64)| {
            // Whole seconds after the warm-up.
            let own = rows.iter().filter(|row| row.vm == vm.name);
            let own = own.filter(|row| row.time_s >= report.warm_up_s + 1.0);
            let short = own.map(|row| floor.floor() - row.rates.iops);
            Got {
                name: vm.name.clone(),
                part: vm.rates.iops / floor,
                worst: short.fold(0.0, f64::max),
            }
        };
        floors.filter(|(_, floor)| *floor > 0.0).map(got).collect()
    }
}

#[derive(Debug)]
struct Got {
    name: String,
    /// Fraction of the floor over all of the time.
    part: f64,
    /// Requests short in its worst second.
    worst: f64,
}

fn tenants(objectives: &[Objective]) -> Vec<PlannedVm<'_>> {
    let tenant = |objective| PlannedVm::new("vm", objective);
    objectives.iter().map(tenant).collect()
}

fn times(objective: &Objective, factor: u64) -> Objective {
    let mut more = *objective;
    if let Some(ops) = &mut more.reservation.ops {
        ops.per_s *= factor;
    }
    more.reservation.bytes_per_s = more.reservation.bytes_per_s.map(|bytes| bytes * factor);
    more
}

const MCLOCK: &str = "{ name = \"mclock\", cost_size = \"1 MiB\" }";

/// Different sizes, directions and units, beside somebody who takes what is left.
const MIX: [Guest; 4] = [
    guest(
        "oltp",
        "reservation = \"30 IOPS\"\n\
         expects = { reads = \"70 %\", access = \"random\", size = \"16 KiB\" }",
        "rw = \"randrw\"\nrwmixread = 70\nbs = \"16 KiB\"\niodepth = 16",
    ),
    guest(
        "web",
        "reservation = \"20 IOPS\"\nexpects = { reads = \"100 %\", size = \"4 KiB\" }",
        "rw = \"randread\"\nbs = \"4 KiB\"\niodepth = 16",
    ),
    guest(
        "scan",
        "reservation = \"2 MB/s\"\nexpects = { reads = \"100 %\", size = \"64 KiB\" }",
        "rw = \"randread\"\nbs = \"64 KiB\"\niodepth = 16",
    ),
    BULK,
];

#[test]
fn floors_at_the_headroom_are_kept() {
    for setting in measure::SETTINGS {
        let profile = measure::profile(setting);
        let trial = Trial::new(setting, &profile, MCLOCK, &MIX);
        let objectives = trial.at(800);
        assert!(trial.evaluate(&objectives, &Assumed::default()).fits());
        for Got { name, part, worst } in trial.got(&objectives) {
            let what = format!("{} at {}: {name}", setting.model, setting.depth);
            // Answers come when the device is done: the promise, one request, is of starts.
            let in_flight = f64::from(setting.depth);
            assert!(part > 0.99, "{what} got {part:.3} of its floor");
            assert!(
                worst <= 1.0 + in_flight,
                "{what} was {worst} short in a second"
            );
        }
    }
}

#[test]
fn floors_well_beyond_the_device_are_missed() {
    for setting in measure::SETTINGS {
        let profile = measure::profile(setting);
        let trial = Trial::new(setting, &profile, MCLOCK, &MIX);
        let got = trial.got(&trial.at(1300));
        let least = got.iter().map(|got| got.part).fold(f64::INFINITY, f64::min);
        assert!(
            least < 0.95,
            "{} at {}: {got:?}",
            setting.model,
            setting.depth
        );
    }
}

macro_rules! late {
    ($($name:literal $iops:literal $rw:literal $reads:literal $bs:literal),*) => {
        [$(guest(
            $name,
            concat!("reservation = \"", $iops, " IOPS\"\nlatency = \"1 us\"\n",
                "expects = { reads = \"", $reads, " %\", access = \"random\", size = \"", $bs,
                "\" }"),
            concat!("rw = \"", $rw, "\"\nbs = \"", $bs, "\"\niodepth = 16\nrate_iops = \"", $iops,
                " IOPS\"\nrate_process = \"linear\""),
        )),*]
    };
}

const LATE: [Guest; 3] = late!(
    "oltp" "15" "randread" "100" "16 KiB",
    "web" "10" "randread" "100" "4 KiB",
    "mail" "10" "randwrite" "0" "4 KiB"
);
/// Flash answers writes before it has done them, and then reads wait for what no profile says
/// (docs/planning.md): here all read.
const LATE_ON_FLASH: [Guest; 3] = late!(
    "oltp" "300" "randread" "100" "16 KiB",
    "web" "200" "randread" "100" "4 KiB",
    "mail" "200" "randread" "100" "4 KiB"
);
const BULK_READS: Guest = guest(
    "bulk",
    "expects = { reads = \"100 %\", access = \"random\", size = \"64 KiB\" }",
    "rw = \"randread\"\nbs = \"64 KiB\"\niodepth = 32",
);

/// Reads and writes now and then, each within a bound.
fn late(setting: &Setting) -> [Guest; 4] {
    let (vms, bulk) = if setting.flash {
        (LATE_ON_FLASH, BULK_READS)
    } else {
        (LATE, BULK)
    };
    let [oltp, web, mail] = vms;
    [oltp, web, mail, bulk]
}

#[test]
fn bounds_that_fit_are_held_for_99_of_100() {
    for setting in measure::SETTINGS {
        let profile = measure::profile(setting);
        for process in ["linear", "poisson"] {
            let mut trial = Trial::new(
                setting,
                &profile,
                "{ dispatcher = \"edf\" }",
                &late(setting),
            );
            let line = |process| format!("rate_process = \"{process}\"");
            trial.text = trial.text.replace(&line("linear"), &line(process));
            trial.bound_tightly();
            let report = trial.run(&trial.objectives, &mut |_| {});
            for (name, objective) in ["oltp", "web", "mail"].iter().zip(&trial.objectives) {
                let bound = objective.latency.expect("each has one");
                let p99 = Nanos(
                    vm(&report, name)
                        .rates
                        .latency_p99_ns
                        .expect("it was served"),
                );
                let what = format!("{} at {}, {process}: {name}", setting.model, setting.depth);
                assert!(p99 <= bound, "{what} took {p99}, of {bound}");
            }
        }
    }
}
