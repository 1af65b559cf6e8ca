//! Live figures: what devices and VMs did between two snapshots.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use tidegate_api::live::{LiveAttainmentView, LiveDeviceView, LiveView, LiveVmView};
use tidegate_api::stats::AccountView;
use tidegate_core::attainment::PartAttainment;
use tidegate_core::request::{Op, VmId};
use tidegate_core::stats::{Histogram, VmStats};
use tidegate_core::time::Nanos;

use super::{objective, unenforced_parts};
use crate::command::{DeviceSnapshot, VmSnapshot};

/// Returns the live figures of all devices. `before` has their last snapshots, `None` for the
/// first event, which has no rates.
pub(crate) fn live<D: Borrow<DeviceSnapshot>>(
    before: Option<&[D]>,
    now: &[D],
    at: Timestamp,
) -> LiveView {
    let (mut devices, mut vms) = (Vec::new(), Vec::new());
    for device in now.iter().map(Borrow::borrow) {
        let mut others = before.unwrap_or_default().iter().map(Borrow::borrow);
        let earlier = others.find(|it| it.name == device.name);
        devices.push(live_device(device, earlier));
        vms.extend(live_vms(device, earlier));
    }
    LiveView {
        at_ms: u64::try_from(at.as_millisecond()).unwrap_or(0),
        devices,
        vms,
    }
}

fn live_device(device: &DeviceSnapshot, earlier: Option<&DeviceSnapshot>) -> LiveDeviceView {
    let stats = &device.stats;
    let adapted = device.adapted_depth.map(|adapted| adapted.depth);
    LiveDeviceView {
        name: device.name.clone(),
        backing: device.backing.clone(),
        policy: device.policy.name().to_owned(),
        depth: adapted.unwrap_or(stats.spec.depth),
        in_flight: stats.in_flight,
        queued: stats.queued,
        oldest_io_ns: device.oldest_io.map(|age| age.0),
        ios_per_s: earlier.map(|earlier| {
            let seconds = seconds_between(earlier, device);
            per_second(stats.ended - earlier.stats.ended, seconds)
        }),
        errors: stats.errors,
        fits: device.feasibility.map(|found| found.fits),
    }
}

fn live_vms(device: &DeviceSnapshot, earlier: Option<&DeviceSnapshot>) -> Vec<LiveVmView> {
    // A map, because there may be thousands of VMs.
    let known: BTreeMap<VmId, &VmSnapshot> = (earlier.iter())
        .flat_map(|earlier| earlier.vms.iter().map(|vm| (vm.id, vm)))
        .collect();
    let seconds = earlier.map(|earlier| seconds_between(earlier, device));
    let view = |vm: &VmSnapshot| {
        let still = live_state(vm);
        // A VM that was added since has all its counters from this interval.
        match seconds {
            Some(seconds) => {
                let was = known.get(&vm.id).map(|was| &*was.stats);
                with_rates(still, &vm.stats, was, seconds)
            }
            None => still,
        }
    };
    device.vms.iter().map(view).collect()
}

/// Returns the state of a VM without rates.
fn live_state(vm: &VmSnapshot) -> LiveVmView {
    let errors = Op::ALL.map(|op| vm.stats.op(op).errors);
    LiveVmView {
        vm: vm.name.clone(),
        device: vm.device.clone(),
        background: vm.background,
        objective: objective(&vm.objective),
        attainment: vm.attainment.iter().map(attainment).collect(),
        unenforced: !unenforced_parts(&vm.objective, &vm.enforces, vm.background).is_empty(),
        failed_disks: vm.disks.iter().filter(|disk| disk.failed.is_some()).count() as u32,
        clients: vm.clients,
        pending: vm.pending,
        in_flight: vm.in_flight,
        errors: errors.iter().sum(),
        requests_per_s: None,
        reads_per_s: None,
        writes_per_s: None,
        read_bytes_per_s: None,
        write_bytes_per_s: None,
        p50_ns: None,
        p99_ns: None,
        account: None,
    }
}

/// Adds the rates and times of `seconds` seconds to the state of a VM.
fn with_rates(vm: LiveVmView, now: &VmStats, before: Option<&VmStats>, seconds: f64) -> LiveVmView {
    let ops = |op| now.op(op).ops - before.map_or(0, |was| was.op(op).ops);
    let requests = now.total_ops() - before.map_or(0, VmStats::total_ops);
    let bytes = |op| now.op(op).bytes - before.map_or(0, |was| was.op(op).bytes);
    let since = |of: fn(&VmStats) -> Nanos| of(now).0 - before.map_or(0, |was| of(was).0);
    let buckets = buckets_since(&now.latency, before.map(|was| &was.latency));
    let bytes_per_s = |op| (bytes(op) as f64 / seconds).round() as u64;
    LiveVmView {
        requests_per_s: Some(per_second(requests, seconds)),
        reads_per_s: Some(per_second(ops(Op::Read), seconds)),
        writes_per_s: Some(per_second(ops(Op::Write), seconds)),
        read_bytes_per_s: Some(bytes_per_s(Op::Read)),
        write_bytes_per_s: Some(bytes_per_s(Op::Write)),
        p50_ns: quantile(&buckets, 0.5),
        p99_ns: quantile(&buckets, 0.99),
        account: (!buckets.is_empty()).then(|| AccountView {
            regulated_ns: since(|stats| stats.account.regulated),
            // Clients know no time before admission: it counts as queued here.
            queued_ns: since(|stats| stats.account.admission + stats.account.queued),
            merged_wait_ns: since(|stats| stats.account.merged_wait),
            deliberate_ns: since(|stats| stats.account.deliberate),
            device_ns: since(|stats| stats.account.device),
        }),
        ..vm
    }
}

fn attainment(part: &PartAttainment) -> LiveAttainmentView {
    LiveAttainmentView {
        part: part.part.name().to_owned(),
        kept: part.is_kept(),
        kept_percent: part.share().map(|share| share * 100.0),
        missed_lately_s: part.last_5_minutes.missed,
        best_effort: part.best_effort,
    }
}

/// Returns the time between two snapshots in seconds, at least a millisecond.
fn seconds_between(earlier: &DeviceSnapshot, later: &DeviceSnapshot) -> f64 {
    let between = later.taken_at.since(earlier.taken_at);
    between.max(Nanos::from_millis(1)).0 as f64 / Nanos::SECOND.0 as f64
}

/// Returns a rate, to a tenth: more digits would only make events longer.
fn per_second(count: u64, seconds: f64) -> f64 {
    (count as f64 / seconds * 10.0).round() / 10.0
}

/// Returns the buckets that were entered since `before`, in order: exclusive upper bound and count.
fn buckets_since(now: &Histogram, before: Option<&Histogram>) -> Vec<(Nanos, u64)> {
    let mut earlier = before.into_iter().flat_map(Histogram::iter).peekable();
    let new = now.iter().map(|(upper, n)| {
        // Counts only grow, so every bucket of before is there now.
        let was = earlier.next_if(|(bound, _)| *bound == upper);
        (upper, n - was.map_or(0, |(_, n)| n))
    });
    new.filter(|(_, n)| *n > 0).collect()
}

/// Returns an upper bound of the `q`-quantile in nanoseconds; `None` without times.
fn quantile(buckets: &[(Nanos, u64)], q: f64) -> Option<u64> {
    let total: u64 = buckets.iter().map(|(_, n)| n).sum();
    let rank = ((q * total as f64).ceil() as u64).max(1);
    let mut seen = 0;
    let mut reached = buckets.iter().skip_while(|(_, n)| {
        seen += n;
        seen < rank
    });
    reached.next().map(|(upper, _)| upper.0)
}

#[cfg(test)]
mod tests {
    use tidegate_core::engine::{DiskSpec, Engine, EngineConfig};
    use tidegate_core::objective::Objective;
    use tidegate_core::request::Request;
    use tidegate_policies::policy::PolicySpec;

    use super::*;
    use crate::command::sample_snapshot::snapshot;

    fn at(second: u64, latencies_ms: &[u64]) -> DeviceSnapshot {
        let mut device = snapshot("disk0", &["oltp", "idle"]);
        device.taken_at = Nanos::from_secs(second);
        device.stats.ended = latencies_ms.len() as u64;
        let stats = &mut device.vms[0].stats;
        for &ms in latencies_ms {
            stats.latency.record(Nanos::from_millis(ms));
            stats.account.device += Nanos::from_millis(ms);
        }
        device
    }

    fn view(before: Option<&DeviceSnapshot>, now: &DeviceSnapshot) -> LiveView {
        let before = before.map(std::slice::from_ref);
        let at = Timestamp::from_millisecond(1234).expect("a time");
        live(before, std::slice::from_ref(now), at)
    }

    #[test]
    fn the_first_event_has_the_state_and_no_rates() {
        let live = view(None, &at(1, &[5]));
        assert_eq!(live.at_ms, 1234);
        assert_eq!(live.devices[0].ios_per_s, None);
        assert_eq!(live.vms.len(), 2);
        assert_eq!((live.vms[0].reads_per_s, live.vms[0].p50_ns), (None, None));
    }

    #[test]
    fn rates_and_quantiles_are_those_of_the_interval() {
        let before = at(1, &[100; 50]);
        let mut latencies = vec![100; 50];
        latencies.extend([1; 98]);
        latencies.extend([200; 2]);
        let now = at(3, &latencies);
        let live = view(Some(&before), &now);
        assert_eq!(live.devices[0].ios_per_s, Some(50.0));
        let [oltp, idle] = &live.vms[..] else {
            panic!("{live:?}");
        };
        let p50 = oltp.p50_ns.expect("there were some");
        assert!((1_000_000..1_070_000).contains(&p50), "{p50}");
        let p99 = oltp.p99_ns.expect("there were some");
        assert!((200_000_000..214_000_000).contains(&p99), "{p99}");
        let account = oltp.account.expect("there were some");
        assert_eq!(account.device_ns, 498_000_000);
        assert_eq!(idle.reads_per_s, Some(0.0));
        assert_eq!((idle.p99_ns, idle.account), (None, None));
    }

    #[test]
    fn requests_are_those_of_all_operations() {
        let policy = PolicySpec::named("fifo").expect("it is registered");
        let mut engine = Engine::new(EngineConfig::default(), &policy).expect("defaults are good");
        let vm = engine.vms_mut().add_vm(Nanos::ZERO, &Objective::default());
        let vm = vm.expect("there is room");
        let spec = DiskSpec {
            base: 0,
            size: 1 << 30,
            read_only: false,
        };
        let disk = engine.vms_mut().add_disk(vm, spec).expect("it fits");
        let client = engine.connect(disk).expect("it is there");
        let reads = (0..10).map(|n| Request::read(n * 4096, 4096, n));
        for request in reads.chain((10..16).map(Request::flush)) {
            let taken = engine.handle_request(Nanos::ZERO, client, request);
            taken.expect("there is room");
            while let Some(io) = engine.poll_dispatch(Nanos::ZERO) {
                engine.handle_completion(Nanos::ZERO, io.id, Ok(()));
            }
            while engine.poll_done().is_some() {}
        }
        let before = at(1, &[]);
        let mut now = at(3, &[]);
        *now.vms[0].stats = engine.vms().vm_stats(vm).clone();
        let live = view(Some(&before), &now);
        let oltp = &live.vms[0];
        assert_eq!(
            (oltp.reads_per_s, oltp.writes_per_s),
            (Some(5.0), Some(0.0))
        );
        assert_eq!(oltp.requests_per_s, Some(8.0), "with the flushes");
    }

    #[test]
    fn a_vm_that_was_added_since_has_all_its_requests_in_the_interval() {
        let mut before = at(1, &[]);
        before.vms.clear();
        let live = view(Some(&before), &at(2, &[7; 4]));
        let p50 = live.vms[0].p50_ns.expect("there were some");
        assert!((7_000_000..7_500_000).contains(&p50), "{p50}");
    }
}
