//! Measurement of a device's saturation profile in the simulator: FIFO, with a full queue.
//! `tidegate-profile` is not used because it conditions flash first, whereas these tests run the
//! model in its fresh state.

use std::sync::{Arc, Mutex};

use tidegate_core::profile::{Access, Curve, DepthPoint, Direction, Profile};
use tidegate_core::time::Nanos;

use crate::common::{run, vm};

/// Device of the catalogue as a test drives it.
#[derive(Clone, Copy)]
pub(crate) struct DeviceSetup {
    pub(crate) model: &'static str,
    /// Queue depth of the trials.
    pub(crate) depth: u32,
    /// Queue depth that saturates the device.
    pub(crate) depth_saturated: u32,
    /// Size of the disk in GiB: the range of the requests' addresses.
    pub(crate) disk_gib: u64,
    /// Duration of the whole measurement, in milliseconds.
    pub(crate) duration_ms: u64,
    pub(crate) flash: bool,
}

pub(crate) const SETTINGS: &[DeviceSetup] = &[
    DeviceSetup {
        model: "hdd-7200-1tb",
        depth: 1,
        depth_saturated: 32,
        disk_gib: 800,
        duration_ms: 16_000,
        flash: false,
    },
    DeviceSetup {
        model: "hdd-7200-1tb",
        depth: 4,
        depth_saturated: 32,
        disk_gib: 800,
        duration_ms: 16_000,
        flash: false,
    },
    DeviceSetup {
        model: "hdd-7200-1tb",
        depth: 2,
        depth_saturated: 32,
        disk_gib: 800,
        duration_ms: 16_000,
        flash: false,
    },
    DeviceSetup {
        model: "ssd-sata-300gb",
        depth: 8,
        depth_saturated: 32,
        disk_gib: 200,
        duration_ms: 2_000,
        flash: true,
    },
    DeviceSetup {
        model: "ssd-sata-300gb",
        depth: 32,
        depth_saturated: 32,
        disk_gib: 200,
        duration_ms: 2_000,
        flash: true,
    },
];

/// Rate and latencies of one measurement.
struct PointRates {
    iops: f64,
    mean: Nanos,
    p50: Nanos,
    p99: Nanos,
}

impl DeviceSetup {
    pub(crate) fn device(&self, policy: &str, depth: u32) -> String {
        let DeviceSetup {
            model, duration_ms, ..
        } = self;
        let warm_up = duration_ms / 4;
        format!(
            "duration = \"{} ms\"\nwarm_up = \"{warm_up} ms\"\n[[device]]\nname = \"disk\"\n\
             model = \"{model}\"\npolicy = {policy}\ndepth = {depth}\nmerge_limit = \"0 B\"\n",
            duration_ms + warm_up
        )
    }

    /// Measures a closed loop of `depth` requests.
    fn measured(&self, rw: &str, bs: &str, depth: u32) -> PointRates {
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
        PointRates {
            iops: rates.iops,
            mean,
            p50,
            p99,
        }
    }
}

const SIZES: [(u32, &str); 3] = [(4096, "4 KiB"), (16384, "16 KiB"), (65536, "64 KiB")];

/// Profile of the setup's model; cached by model name, so all setups of a model must agree in disk
/// size and duration.
pub(crate) fn profile(setup: &DeviceSetup) -> Arc<Profile> {
    static MEASURED: Mutex<Vec<(&str, Arc<Profile>)>> = Mutex::new(Vec::new());
    let mut measured = MEASURED.lock().expect("no test fails in it");
    if let Some((_, profile)) = measured.iter().find(|(model, _)| *model == setup.model) {
        return profile.clone();
    }
    let profile = Arc::new(measure(setup));
    measured.push((setup.model, profile.clone()));
    profile
}

fn measure(setup: &DeviceSetup) -> Profile {
    let curve = |rw: &str| {
        let point =
            |(size, bs): (u32, &str)| (size, setup.measured(rw, bs, setup.depth_saturated).iops);
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
                let PointRates {
                    iops,
                    mean,
                    p50,
                    p99,
                } = setup.measured(&format!("rw = \"{rw}\""), bs, depth);
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
