//! Ablations and other variants of the runs, which show the causes of claims' outcomes.

use super::{ARRAY_2_BARE, ARRAY_BARE, Case, KIB, Key, MB, move_to_one_host, workloads};
use crate::ExperimentError;
use crate::folder::{self, set_param};
use crate::frame::Variant;
use tidegate_core::objective::Limit;
use tidegate_core::time::Nanos;
use tidegate_sim::scenario::Scenario;
use tidegate_workload::spec::{Flow, SizeShare, Sizes, Think, Workload};
use tidegate_workload::time::TimeDistribution;

/// Ablation or addition, to show the cause of a claim's outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::vcup) enum Ablation {
    /// Unchanged run.
    Unchanged,
    /// Tidegate's additions to the paper's algorithm.
    WithAdditions,
    /// One CFQ over all VMs instead of a LUN and a CFQ per VM.
    SharedCfq,
    /// Array without its controller's caches and read-ahead.
    NoController,
    /// Data sets of web, mail and file as large as the VM's disk instead of table III's sizes.
    WholeDisk,
    /// 200 requests of each sequential reader outstanding, as many as fio asks for without a page
    /// cache, instead of one window of the guest's read-ahead.
    DirectReads,
    /// Four I/Os of each VM with the array at most, CFQ's quantum up to Linux 2.6.32, instead of
    /// the 32 of Xen's ring.
    Quantum,
    /// Video server whose viewers and whose film always have a request outstanding, in place of
    /// the rate and the pause of Filebench's `videoserver.f`.
    GreedyVideo,
    /// [`MAIL_PAUSE`] in the guest between two requests of a thread of mail, alone with a rising
    /// target.
    PausingMail,
    /// [`WithAdditions`](Ablation::WithAdditions), and random requests of fio that arrive in the
    /// pieces in which the guest puts them on Xen's ring, in place of whole ones.
    CutRequests,
    /// Windows of [`SHORT_WINDOW`] throughout; viewers of the video server whose next
    /// [`READ_AHEAD`] requests wait, so that an I/O is as large as the merge limit; and I/Os of up
    /// to a film's [`FILM_REQUEST`] where no merge limit holds.
    ShortWindows,
    /// DRR by the bandwidths as weights, without the token bucket that holds them.
    DrrAlone,
    /// Four I/Os of each VM, CFQ's quantum again, with an array of drives that read nothing ahead:
    /// the pieces of a cut request do not wait side by side, and each costs a positioning. For
    /// random loads.
    CostlyCuts,
    /// Delay slices that end with the [`TICK`]s of a kernel of the time, and an error that is
    /// carried on through them; for random loads.
    Ticks,
    /// Tuning action that decides by its last window alone, as the paper has it, for the loads of
    /// section 5.1.
    LastWindow,
    /// Window revision that moves the window before it tests its goal, as algorithm 1 is printed,
    /// for the same loads.
    MovesFirst,
    /// Latency of the I/Os that requests are cut into, as a host sees them that has Xen's ring in
    /// front of it, in place of requests'; the runs are the same.
    PerIo,
}

/// Requests that ten threads of fio with an I/O depth of 20 have outstanding.
const DIRECT_READS: u32 = 200;
/// Linux's `cfq_quantum` up to 2.6.32.
const CFQ_QUANTUM: u32 = 4;

/// Time from one request of a thread of mail to its next: 16 threads with 14 KiB each in 10 ms are
/// 22.9 MB/s, and the paper's server does "about 22 MB/s" at most (section 5.3).
const MAIL_PAUSE: Nanos = Nanos::from_millis(10);

/// Tick of the kernel that Xen 3.4 ships, 2.6.18.8-xen: `CONFIG_HZ=100`.
const TICK: Nanos = Nanos::from_millis(10);

/// Pages of a request on Xen's ring at most.
const RING_PAGES: u32 = 11;
/// Shortest window of section 5.1.1.
const SHORT_WINDOW: Nanos = Nanos::from_millis(32);
/// Requests that a viewer has outstanding where it reads ahead.
const READ_AHEAD: u32 = 4;
/// Bytes of a request of the film that is written.
const FILM_REQUEST: u32 = 1 << 20;

impl Variant for Ablation {
    const NOTHING: Ablation = Ablation::Unchanged;
    const ALL: &'static [Ablation] = &[
        Ablation::WithAdditions,
        Ablation::SharedCfq,
        Ablation::NoController,
        Ablation::WholeDisk,
        Ablation::DirectReads,
        Ablation::Quantum,
        Ablation::GreedyVideo,
        Ablation::PausingMail,
        Ablation::CutRequests,
        Ablation::ShortWindows,
        Ablation::DrrAlone,
        Ablation::CostlyCuts,
        Ablation::Ticks,
        Ablation::LastWindow,
        Ablation::MovesFirst,
        Ablation::PerIo,
    ];

    fn phrase(self) -> String {
        match self {
            Ablation::Unchanged => "As it is",
            Ablation::WithAdditions => "With what Tidegate adds",
            Ablation::SharedCfq => "With one CFQ over all VMs",
            Ablation::NoController => "Without the array's controller",
            Ablation::WholeDisk => "With data sets as large as the disks",
            Ablation::DirectReads => "With 200 requests of each reader outstanding",
            Ablation::Quantum => "With 4 I/Os of a VM with the array",
            Ablation::GreedyVideo => "With a video server that always asks for more",
            Ablation::PausingMail => "With 10 ms in the guest between two requests of mail",
            Ablation::CutRequests => {
                "With what Tidegate adds, and requests that the guest cuts at 11 pages"
            }
            Ablation::ShortWindows => {
                "With windows of 32 ms, viewers that read ahead, and larger I/Os"
            }
            Ablation::DrrAlone => "With DRR by weight, without the token bucket",
            Ablation::CostlyCuts => "With 4 I/Os of a VM with drives that read nothing ahead",
            Ablation::Ticks => "With delay slices that end with a kernel's ticks",
            Ablation::LastWindow => "With a tuning action that knows its last window alone",
            Ablation::MovesFirst => "With windows that move before the goal is tested",
            Ablation::PerIo => "By the latency of I/Os with the array in place of requests'",
        }
        .to_owned()
    }

    fn named(name: &str) -> Option<Ablation> {
        (name == "added").then_some(Ablation::WithAdditions)
    }
}

/// Applies an ablation to a scenario; those of the policy are in it already.
pub(super) fn apply(scenario: &mut Scenario, key: &Key) -> Result<(), ExperimentError> {
    match key.without {
        Ablation::SharedCfq => move_to_one_host(scenario),
        Ablation::NoController => {
            for device in &mut scenario.devices {
                device.model = device.model.without_controller();
            }
        }
        Ablation::Quantum => {
            for device in &mut scenario.devices {
                device.scheduling.depth = CFQ_QUANTUM;
            }
        }
        Ablation::ShortWindows => {
            // DRR has no windows.
            if key.scheduler == "vcup_pi" {
                set_param(scenario, "window_max", SHORT_WINDOW.0)?;
                set_param(scenario, "window_min", SHORT_WINDOW.0)?;
            }
            for device in &mut scenario.devices {
                device.scheduling.max_io = FILM_REQUEST;
                device.scheduling.merge_limit = FILM_REQUEST;
            }
        }
        Ablation::CostlyCuts => {
            let array = match key.case {
                Case::Keys => ARRAY_BARE,
                _ => ARRAY_2_BARE,
            };
            for device in &mut scenario.devices {
                device.model = folder::model_with(array, &[])?;
                device.scheduling.depth = CFQ_QUANTUM;
            }
        }
        Ablation::Ticks => {
            set_param(scenario, "tick", TICK.0)?;
            set_param(scenario, "carry_throttled", 1)?;
        }
        Ablation::LastWindow => set_param(scenario, "carry_error", 0)?,
        Ablation::MovesFirst => set_param(scenario, "goal_keeps_window", 0)?,
        Ablation::DrrAlone => {
            for vm in &mut scenario.vms {
                let limit = vm.objective.limit.total.bytes_per_s;
                vm.objective.weight = (limit.unwrap_or(MB) / MB) as u32;
                vm.objective.limit = Limit::NONE;
            }
        }
        _ => {}
    }
    for workload in workloads(scenario) {
        change_workload(workload, key.without);
    }
    Ok(())
}

/// Applies an ablation to a workload.
fn change_workload(workload: &mut Workload, without: Ablation) {
    let closed = |iodepth, think| Flow::Closed { iodepth, think };
    match without {
        // Sequential workloads read films, which have places of their own.
        Ablation::WholeDisk if workload.rw.random => workload.size = None,
        Ablation::DirectReads => workload.flow = closed(DIRECT_READS, None),
        Ablation::GreedyVideo if !workload.rw.random => workload.flow = closed(1, None),
        Ablation::PausingMail => {
            let pause = Think {
                time: TimeDistribution::Fixed(MAIL_PAUSE),
                blocks: 1,
            };
            workload.flow = closed(1, Some(pause));
        }
        Ablation::CutRequests => {
            workload.sizes = workload.sizes.clone().map(|sizes| on_the_ring(&sizes));
        }
        Ablation::ShortWindows => {
            if let Flow::Open { iodepth, .. } = &mut workload.flow {
                *iodepth = READ_AHEAD;
            }
        }
        _ => {}
    }
}

/// Sizes of the pieces of at most [`RING_PAGES`] that requests of these sizes are cut into.
fn on_the_ring(sizes: &Sizes) -> Sizes {
    let most = RING_PAGES * 4 * KIB;
    let mut pieces: Vec<SizeShare> = Vec::new();
    let mut add = |bytes: u32, weight| match pieces.iter_mut().find(|piece| piece.bytes == bytes) {
        Some(piece) => piece.weight += weight,
        None => pieces.push(SizeShare { bytes, weight }),
    };
    for size in &sizes.0 {
        add(most, size.weight * (size.bytes / most));
        add(size.bytes % most, size.weight);
    }
    pieces.retain(|piece| piece.bytes > 0 && piece.weight > 0);
    Sizes(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::File;
    use crate::vcup::setup::{ARRAY, ARRAY_2, Change, scenario};
    use tidegate_core::policy::Policy;
    use tidegate_device::Spec;
    use tidegate_device::catalogue::Entry;

    #[test]
    fn requests_on_the_ring_have_the_bytes_of_whole_ones_in_at_most_11_pages() {
        let weigh = |sizes: &Sizes| -> (u64, u64) {
            let of = |share: &SizeShare| u64::from(share.bytes) * u64::from(share.weight);
            let bytes = sizes.0.iter().map(of).sum();
            (
                bytes,
                sizes.0.iter().map(|share| u64::from(share.weight)).sum(),
            )
        };
        let whole = Sizes(
            (1..=32)
                .map(|pages| SizeShare {
                    bytes: pages * 4 * KIB,
                    weight: 1,
                })
                .collect(),
        );
        let cut = on_the_ring(&whole);
        assert!(
            cut.0
                .iter()
                .all(|share| (1..=44 * KIB).contains(&share.bytes))
        );
        let ((bytes, requests), (cut_bytes, pieces)) = (weigh(&whole), weigh(&cut));
        assert_eq!(cut_bytes, bytes);
        // One piece up to 11 pages, two up to 22, three above.
        assert_eq!((requests, pieces), (32, 11 + 2 * 11 + 3 * 10));
    }

    #[test]
    fn bare_arrays_are_those_of_the_paper_but_for_controller_and_read_ahead() {
        for (whole, bare) in [(ARRAY, ARRAY_BARE), (ARRAY_2, ARRAY_2_BARE)] {
            let model = |file| {
                folder::model_with(file, &[])
                    .expect("a model")
                    .without_controller()
            };
            let (whole, bare) = (model(whole), model(bare));
            let unnamed = |model: &Entry| Spec {
                name: String::new(),
                ..model.spec().clone()
            };
            assert_eq!(unnamed(&whole), unnamed(&bare));
        }
        let chunk = |(_, text): File| -> String {
            let root: toml::Table = text.parse().expect("TOML");
            root["raid0"]["chunk"].to_string()
        };
        assert_eq!(chunk(ARRAY), chunk(ARRAY_BARE));
        assert_eq!(chunk(ARRAY_2), chunk(ARRAY_2_BARE));
    }

    #[test]
    fn each_ablation_changes_the_runs_that_it_is_about_alone() {
        let pi = Key::new(Case::Throughput, "vcup_pi");
        let drr = Key::new(Case::Throughput, "drr").with(Change::Limits);
        let keys = Key::new(Case::Keys, "vcup");
        assert_eq!(pi.without(Ablation::DrrAlone), pi);
        assert_eq!(pi.without(Ablation::Ticks), pi);
        assert_eq!(
            Key::new(Case::Keys, "fq").without(Ablation::Ticks).without,
            Ablation::Unchanged
        );
        assert_ne!(pi.without(Ablation::ShortWindows), pi);
        let with = |key: Key, without| scenario(&key.without(without)).expect("a scenario");
        let alone = with(drr, Ablation::DrrAlone);
        let weights: Vec<u32> = alone.vms.iter().map(|vm| vm.objective.weight).collect();
        // Their bandwidths in MB/s.
        assert_eq!(weights, [10, 15, 30]);
        assert!(alone.vms.iter().all(|vm| vm.objective.limit == Limit::NONE));
        let param = |key, without, name| {
            let scenario = with(key, without);
            let params = scenario.devices[0].scheduling.policy.params();
            let all = params.iter().copied();
            all.map(|(info, value)| (info.name, value))
                .find(|(of, _)| *of == name)
                .map(|(_, value)| value)
        };
        assert_eq!(param(keys, Ablation::Ticks, "tick"), Some(TICK.0));
        let load = crate::vcup::windows::key_of("SWvar").expect("a load");
        assert_eq!(keys.without(Ablation::LastWindow), keys);
        for (without, values) in [
            (Ablation::Unchanged, [1, 1]),
            (Ablation::LastWindow, [0, 1]),
            (Ablation::MovesFirst, [1, 0]),
        ] {
            let names = ["carry_error", "goal_keeps_window"];
            assert_eq!(
                names.map(|name| param(load, without, name)),
                values.map(Some)
            );
        }
        assert_eq!(load.without(Ablation::PerIo), load);
        assert_ne!(keys.without(Ablation::PerIo), keys);
        let cuts = with(keys, Ablation::CostlyCuts);
        assert_eq!(cuts.devices[0].scheduling.depth, 4);
        assert_ne!(
            cuts.devices[0].model.spec(),
            with(keys, Ablation::Unchanged).devices[0].model.spec()
        );
    }
}
