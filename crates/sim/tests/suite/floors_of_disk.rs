//! Floors under the default policy on a hard disk that orders its queue by itself: I/Os of a floor
//! that the disk passes over hold back what is not promised, and not the floors themselves.

use crate::common::{run, vm};
use tidegate_sim::report::VmReport;

/// Returns the reports of the VMs `others`, and of one beside them that sends random reads of
/// 64 KiB, on a hard disk: 60 s after 10 s of warm-up.
fn beside_random_reads(profile: bool, others: &[(&str, &str)]) -> Vec<VmReport> {
    let mut text = "duration = \"70 s\"\nwarm_up = \"10 s\"\n[[device]]\nname = \"disk\"\n\
                    model = \"hdd-7200-1tb\"\n"
        .to_string();
    if profile {
        text += "profile = \"hdd-7200-1tb\"\n";
    }
    let noisy = ("", "rw = \"randread\", bs = \"64 KiB\", iodepth = 16");
    for (n, (objective, workload)) in others.iter().chain([&noisy]).enumerate() {
        text += &format!(
            "[[vm]]\nname = \"{n}\"\ndisk = [{{ size = \"100 GiB\" }}]\nobjective = {{ \
             {objective} }}\nworkload = [{{ {workload} }}]\n"
        );
    }
    let report = run(&text);
    let names = 0..=others.len();
    let reports = names.map(|n| vm(&report, &n.to_string()).clone());
    reports.collect()
}

const READS: &str = "rw = \"randread\", bs = \"4 KiB\", iodepth = 8";

#[test]
fn a_reservation_at_its_own_limit_is_kept() {
    for profile in [true, false] {
        for iops in [20, 45, 60] {
            let objective = format!("reservation = \"{iops} IOPS\", limit = \"{iops} IOPS\"");
            let vms = beside_random_reads(profile, &[(&objective, READS)]);
            let (got, beside) = (vms[0].rates.iops, vms[1].rates.iops);
            assert!(got >= 0.99 * f64::from(iops), "{got} of {iops} IOPS");
            assert!(beside >= 100.0, "{beside} IOPS beside {iops}");
        }
    }
}

#[test]
fn a_reservation_near_its_own_limit_is_kept() {
    for limit in [47, 50] {
        let objective = format!("reservation = \"45 IOPS\", limit = \"{limit} IOPS\"");
        let vms = beside_random_reads(true, &[(&objective, READS)]);
        let promises = &vms[0].promises;
        assert!(
            promises.iter().all(|promise| promise.kept == Some(true)),
            "{promises:?}"
        );
    }
}

#[test]
fn reservations_at_their_own_limits_are_kept_beside_each_other() {
    let floor = "reservation = \"20 IOPS\", limit = \"20 IOPS\"";
    let vms = beside_random_reads(true, &[(floor, READS), (floor, READS)]);
    for vm in &vms[..2] {
        let got = vm.rates.iops;
        assert!(got >= 19.8, "{got} of 20 IOPS");
        assert!(
            vm.promises.iter().all(|promise| promise.kept == Some(true)),
            "{:?}",
            vm.promises
        );
    }
}

#[test]
fn a_reservation_at_its_own_limit_is_kept_beside_a_latency_bound() {
    let floor = "reservation = \"30 IOPS\", limit = \"30 IOPS\"";
    let bounded = "reservation = \"20 IOPS\", latency = \"300 ms\"";
    let rare = "rw = \"randread\", bs = \"4 KiB\", iodepth = 1, rate_iops = \"18 IOPS\", \
                rate_process = \"poisson\"";
    let vms = beside_random_reads(true, &[(floor, READS), (bounded, rare)]);
    let got = vms[0].rates.iops;
    assert!(got >= 29.7, "{got} of 30 IOPS");
    for vm in &vms[..2] {
        assert!(
            vm.promises.iter().all(|promise| promise.kept == Some(true)),
            "{:?}",
            vm.promises
        );
    }
}
