//! Figures of recorded and simulated requests, and how well they agree.

use super::RecordedVm;
use crate::report::{Rates, VmReport};
use serde::Serialize;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_workload::trace::Record;

/// Throughput and latencies of a VM.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Figures {
    /// Requests per second.
    pub iops: f64,
    /// Bytes read and written per second.
    pub bytes_per_s: f64,
    /// Median latency, in nanoseconds; 0 without a request.
    pub p50_ns: u64,
    /// 99th percentile of the latency.
    pub p99_ns: u64,
    /// 99.9th percentile of the latency.
    pub p999_ns: u64,
}

impl Figures {
    /// Computes the figures of recorded requests over `span`.
    pub(super) fn of_recorded(requests: &[Record], span: Nanos) -> Figures {
        let mut times: Vec<u64> = (requests.iter())
            .filter_map(|request| Some(request.took.get()?.0))
            .collect();
        times.sort_unstable();
        // The nearest rank, as histograms count.
        let quantile = |q: f64| {
            let rank = libm::ceil(q * times.len() as f64) as usize;
            times.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        let moves = |it: &&Record| matches!(it.op, Op::Read | Op::Write);
        let bytes: u64 = (requests.iter().filter(moves))
            .map(|it| u64::from(it.len))
            .sum();
        let per_s = |amount: f64| match span {
            Nanos::ZERO => 0.0,
            span => amount / span.as_secs_f64(),
        };
        Figures {
            iops: per_s(requests.len() as f64),
            bytes_per_s: per_s(bytes as f64),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
        }
    }

    /// Returns the figures of a simulated VM, over the same span as of its recorded requests.
    pub fn of_simulated(vm: &RecordedVm, report: &VmReport, duration: Nanos) -> Figures {
        let whole = Figures::of_rates(&report.rates);
        let end = vm.leaves.unwrap_or(duration);
        let span = end.since(vm.arrives).as_secs_f64();
        // The report's rates are over the time until the last answer.
        let stretched = if span > 0.0 {
            report.time_s / span
        } else {
            0.0
        };
        Figures {
            iops: whole.iops * stretched,
            bytes_per_s: whole.bytes_per_s * stretched,
            ..whole
        }
    }

    /// Returns the figures of a simulated VM over the time that its report counts.
    pub(super) fn of_rates(rates: &Rates) -> Figures {
        Figures {
            iops: rates.iops,
            bytes_per_s: rates.bytes_per_s,
            p50_ns: rates.latency_p50_ns.unwrap_or(0),
            p99_ns: rates.latency_p99_ns.unwrap_or(0),
            p999_ns: rates.latency_p999_ns.unwrap_or(0),
        }
    }
}

/// Agreement of a replay under the recording's own policy with the recording.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Reproduction {
    /// Median over all VMs of the relative error of requests per second.
    pub throughput_error: f64,
    /// Median over all VMs of the relative errors of the median and of the 99th percentile of the
    /// latency.
    pub latency_error: f64,
}

impl Reproduction {
    /// Compares pairs of recorded and simulated figures, of at least one VM.
    pub fn new(pairs: &[(Figures, Figures)]) -> Reproduction {
        let throughput = pairs.iter().map(|(was, is)| error(was.iops, is.iops));
        let latency = pairs.iter().flat_map(|(was, is)| {
            let p50 = error(was.p50_ns as f64, is.p50_ns as f64);
            [p50, error(was.p99_ns as f64, is.p99_ns as f64)]
        });
        Reproduction {
            throughput_error: median(throughput.collect()),
            latency_error: median(latency.collect()),
        }
    }
}

/// Returns the difference as a part of what was recorded.
fn error(was: f64, is: f64) -> f64 {
    match was {
        0.0 if is == 0.0 => 0.0,
        0.0 => 1.0,
        was => libm::fabs(is - was) / was,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(iops: f64, p50_ns: u64, p99_ns: u64) -> Figures {
        Figures {
            iops,
            p50_ns,
            p99_ns,
            ..Figures::default()
        }
    }

    #[test]
    fn errors_are_medians_over_all_vms() {
        let was = figures(100.0, 1000, 2000);
        let pairs = [
            (was, figures(90.0, 1100, 2000)),
            (was, figures(101.0, 1000, 4000)),
            (was, figures(150.0, 1300, 2400)),
        ];
        let found = Reproduction::new(&pairs);
        // 0.01, 0.1, 0.5, and 0, 0, 0.1, 0.2, 0.3, 1.
        assert!((found.throughput_error - 0.1).abs() < 1e-12);
        assert!((found.latency_error - 0.15).abs() < 1e-12);
        let same = Reproduction::new(&[(was, was)]);
        assert_eq!((same.throughput_error, same.latency_error), (0.0, 0.0));
    }
}
