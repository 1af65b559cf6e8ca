//! Writes that a flash disk answers from its buffer, beside promised reads.

use crate::common::{run, vm};

/// Three writers beside a log that waits for each write to be durable, and reads with a bound of
/// 4 ms.
const SCENARIO: &str = "
    duration = \"6 s\"
    warm_up = \"2 s\"
    [[device]]
    name = \"disk\"
    model = \"nvme-1tb\"
    policy = \"slo\"
    [[vm]]
    name = \"writer\"
    count = 3
    disk = [{ size = \"10 GiB\" }]
    [[vm.workload]]
    rw = \"randwrite\"
    bs = \"16 KiB\"
    iodepth = 16
    [[vm]]
    name = \"log\"
    disk = [{ size = \"20 GiB\" }]
    objective = { reservation = \"1400 IOPS\" }
    [[vm.workload]]
    rw = \"write\"
    bs = \"4 KiB\"
    fsync = 1
    rate_iops = \"450 IOPS\"
    rate_process = \"poisson\"
    [[vm]]
    name = \"db\"
    disk = [{ size = \"20 GiB\" }]
    objective = { reservation = \"4000 IOPS\", latency = \"4 ms\" }
    [[vm.workload]]
    rw = \"randread\"
    bs = \"16 KiB\"
    rate_iops = \"2000 IOPS\"
    rate_process = \"poisson\"
";

#[test]
fn promised_reads_do_not_wait_for_what_others_have_in_the_buffer() {
    let report = run(SCENARIO);
    let p99 = |name| vm(&report, name).rates.latency_p99_ns.expect("answers");
    // Without a pace of the writers: 30 ms, and 97 ms of the log.
    assert!(p99("db") < 4_000_000, "{} ns", p99("db"));
    assert!(p99("log") < 20_000_000, "{} ns", p99("log"));
    let names = ["writer-1", "writer-2", "writer-3"];
    let written: f64 = names
        .map(|name| vm(&report, name).rates.bytes_per_s)
        .iter()
        .sum();
    // The disk programs 1.7 GB/s.
    assert!(written > 0.8e9, "{written} B/s");
}
