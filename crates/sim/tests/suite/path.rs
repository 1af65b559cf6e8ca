//! Network between a device and its hosts.

use crate::common::{good, refused, run, vm};
use tidegate_core::time::Nanos;
use tidegate_workload::time::TimeDistribution;

/// Scenario with one VM's workload on each of several hosts, in front of one device with these
/// keys.
fn scenario(hosts: usize, device: &str, workload: &str) -> String {
    let mut text = format!(
        "duration = \"2 s\"\n[[device]]\nname = \"disk\"\nmodel = \"ssd-sata-300gb\"\n\
         policy = \"fifo\"\nmerge_limit = \"0 B\"\n{device}\n"
    );
    for host in 0..hosts {
        text.push_str(&format!(
            "[[vm]]\nname = \"vm-{host}\"\nhost = {host}\ndisk = [{{ size = \"20 GiB\" }}]\n\
             [[vm.workload]]\n{workload}\n"
        ));
    }
    text
}

const NEAR: &str = "transport = { submit = \"100 us\", complete = \"250 us\" }";
const UNEVEN: &str = "transport = { \
                      submit = { distribution = \"uniform\", from = \"0 ms\", to = \"5 ms\" }, \
                      complete = { distribution = \"uniform\", from = \"0 ms\", to = \"5 ms\" } }";

#[test]
fn every_io_takes_the_way_there_and_back() {
    for rw in ["randread", "randwrite"] {
        let workload = format!("rw = \"{rw}\"\nbs = \"4 KiB\"\niodepth = 1");
        let at = |device: &str| {
            let report = run(&scenario(1, device, &workload));
            let vm = vm(&report, "vm-0").clone();
            (
                vm.rates.latency_mean_ns.expect("answered"),
                vm.waits.device_ns,
            )
        };
        let (latency, device) = at("");
        assert_eq!(at(NEAR), (latency + 350_000, device + 350_000), "{rw}");
        assert_eq!(
            at("transport = { complete = \"1 ms\" }").0,
            latency + 1_000_000
        );
    }
}

/// The queue in front of the device keeps what the hosts send; the device is as busy as without a
/// network.
#[test]
fn many_ios_are_on_the_way_at_once() {
    let workload = "rw = \"randread\"\nbs = \"64 KiB\"\niodepth = 32";
    let rates = |hosts: usize, device: &str| -> f64 {
        let report = run(&scenario(hosts, device, workload));
        report.vms.iter().map(|vm| vm.rates.iops).sum()
    };
    for hosts in [1, 3] {
        let (at_hand, far) = (rates(hosts, ""), rates(hosts, NEAR));
        assert!(
            (0.99..1.01).contains(&(far / at_hand)),
            "{far} of {at_hand}, {hosts} hosts"
        );
    }
}

#[test]
fn nothing_of_one_host_overtakes_anything_on_its_way() {
    let workload = "rw = \"read\"\nbs = \"4 KiB\"\niodepth = 32";
    let report = run(&scenario(1, UNEVEN, workload));
    let next = &report.devices[0].distances[0];
    let ios: u64 = report.devices[0].distances.iter().map(|d| d.ios).sum();
    // The first one comes from nowhere.
    assert!(ios > 1000 && next.ios + 1 >= ios, "{} of {ios}", next.ios);
}

/// I/Os in transit in both directions at the end are dropped with the simulation, and a VM that
/// leaves leaves nothing behind.
#[test]
fn a_run_may_end_with_ios_on_their_way() {
    let workload = "rw = \"randrw\"\nbs = \"16 KiB\"\niodepth = 32";
    for hosts in [1, 3] {
        let text = scenario(hosts, UNEVEN, workload);
        let text = text.replacen("[[vm.workload]]", "leaves = \"1 s\"\n[[vm.workload]]", 1);
        let bytes = || serde_json::to_string(&run(&text)).expect("plain data");
        assert_eq!(bytes(), bytes());
    }
}

#[test]
fn a_path_is_read_and_nothing_else() {
    let workload = "rw = \"read\"";
    let path = good(&scenario(1, NEAR, workload)).devices[0].path;
    assert_eq!(path.submit, Some(TimeDistribution::Fixed(Nanos(100_000))));
    assert_eq!(path.complete, Some(TimeDistribution::Fixed(Nanos(250_000))));
    let text = scenario(
        1,
        "transport = { submit = \"1 ms\", processor = \"1 ms\" }",
        workload,
    );
    let said = refused(&text);
    assert!(
        said.contains("processor") && said.contains("complete"),
        "{said}"
    );
}
