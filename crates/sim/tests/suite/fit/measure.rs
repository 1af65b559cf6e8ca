//! A device's saturation profile, measured through the simulator: FIFO, and as much outstanding as
//! the device takes. Not by `tidegate-profile`, which conditions flash first: these are short runs
//! on a model in its first state, and like is to be held against like.

use std::sync::{Arc, Mutex};

use tidegate_core::profile::{Access, Curve, DepthPoint, Direction, Profile};
use tidegate_core::time::Nanos;

use crate::common::{run, vm};

/// A device of the catalogue as a test drives it.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) model: &'static str,
    /// I/Os in flight.
    pub(crate) depth: u32,
    /// At saturation.
    pub(crate) saturated: u32,
    /// Range of the requests' addresses.
    pub(crate) disk_gib: u64,
    /// Duration of the whole measurement, in milliseconds.
    pub(crate) ms: u64,
    pub(crate) flash: bool,
}

pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        model: "hdd-7200-1tb",
        depth: 1,
        saturated: 32,
        disk_gib: 800,
        ms: 16_000,
        flash: false,
    },
    Setting {
        model: "hdd-7200-1tb",
        depth: 4,
        saturated: 32,
        disk_gib: 800,
        ms: 16_000,
        flash: false,
    },
    Setting {
        model: "hdd-7200-1tb",
        depth: 2,
        saturated: 32,
        disk_gib: 800,
        ms: 16_000,
        flash: false,
    },
    Setting {
        model: "ssd-sata-300gb",
        depth: 8,
        saturated: 32,
        disk_gib: 200,
        ms: 2_000,
        flash: true,
    },
    Setting {
        model: "ssd-sata-300gb",
        depth: 32,
        saturated: 32,
        disk_gib: 200,
        ms: 2_000,
        flash: true,
    },
];

impl Setting {
    pub(crate) fn device(&self, policy: &str, depth: u32) -> String {
        let Setting { model, ms, .. } = self;
        let warm_up = ms / 4;
        format!(
            "duration = \"{} ms\"\nwarm_up = \"{warm_up} ms\"\n[[device]]\nname = \"disk\"\n\
             model = \"{model}\"\npolicy = {policy}\ndepth = {depth}\nmerge_limit = \"0 B\"\n",
            ms + warm_up
        )
    }

    fn measured(&self, rw: &str, bs: &str, depth: u32) -> (f64, Nanos, Nanos, Nanos) {
        let device = self.device("\"fifo\"", depth);
        let report = run(&format!(
            "{device}[[vm]]\nname = \"a\"\ndisk = [{{ size = \"{} GiB\" }}]\n[[vm.workload]]\n\
             {rw}\nbs = \"{bs}\"\n\
             iodepth = {depth}\n",
            self.disk_gib
        ));
        let rates = vm(&report, "a").rates;
        let time = |ns: Option<u64>| Nanos(ns.expect("something was answered"));
        let [mean, p50, p99] = [
            rates.latency_mean_ns,
            rates.latency_p50_ns,
            rates.latency_p99_ns,
        ]
        .map(time);
        (rates.iops, mean, p50, p99)
    }
}

const SIZES: [(u32, &str); 3] = [(4096, "4 KiB"), (16384, "16 KiB"), (65536, "64 KiB")];

/// The profile of its model, measured once.
pub(crate) fn profile(setting: &Setting) -> Arc<Profile> {
    static MEASURED: Mutex<Vec<(&str, Arc<Profile>)>> = Mutex::new(Vec::new());
    let mut measured = MEASURED.lock().expect("no test fails in it");
    if let Some((_, profile)) = measured.iter().find(|(model, _)| *model == setting.model) {
        return profile.clone();
    }
    let profile = Arc::new(measure(setting));
    measured.push((setting.model, profile.clone()));
    profile
}

fn measure(setting: &Setting) -> Profile {
    let curve = |rw: &str| {
        let point = |(size, bs): (u32, &str)| (size, setting.measured(rw, bs, setting.saturated).0);
        Curve::new(&SIZES.map(point)).expect("rates")
    };
    let reads = [curve("rw = \"read\""), curve("rw = \"randread\"")];
    let writes = [curve("rw = \"write\""), curve("rw = \"randwrite\"")];
    let mix = |percent: u32| {
        let rw = format!("rw = \"randrw\"\nrwmixread = {percent}");
        (percent * 10, curve(&rw))
    };
    let mut latency = Vec::new();
    for (direction, rw) in [
        (Direction::Read, "randread"),
        (Direction::Write, "randwrite"),
    ] {
        for (size, bs) in SIZES {
            for depth in [1, 2, 4, 8, 32] {
                let (iops, mean, p50, p99) = setting.measured(&format!("rw = \"{rw}\""), bs, depth);
                latency.push(DepthPoint {
                    direction,
                    access: Access::Random,
                    size,
                    depth,
                    iops,
                    mean,
                    p50,
                    p99,
                });
            }
        }
    }
    Profile::new(reads, Some(writes), [25, 50, 75].map(mix).to_vec(), latency)
}
