//! Results of a run: a sample per VM and second, and the response time of each request with a
//! deadline.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;
use tidegate_sim::report::{self, Report, VmReport};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;

/// Sample of a VM in one second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Second {
    /// Bytes answered per second.
    pub(super) bytes_per_s: f64,
    /// Class of its transfer at the end of the second; `None` without a transfer.
    pub(super) class: Option<Class>,
}

/// Request with a deadline, or whole application.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Response {
    /// Begin, in seconds.
    pub(super) at: f64,
    /// Response time, in seconds.
    pub(super) took: f64,
    /// Allowed time, in seconds.
    pub(super) deadline: f64,
}

impl Response {
    /// Converts a completed transfer; `None` if it has no deadline.
    fn from_report(done: &report::Response) -> Option<Response> {
        Some(Response {
            at: done.begun_s,
            took: done.response_ns as f64 / 1e9,
            deadline: done.deadline_ns? as f64 / 1e9,
        })
    }

    pub(super) fn is_late(&self) -> bool {
        self.took > self.deadline
    }
}

/// Results of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) report: Report,
    /// Samples by VM.
    seconds: Vec<Vec<Second>>,
    /// Responses by VM, in the order of their begin.
    responses: Vec<Vec<Response>>,
    /// Number of unfinished requests past their deadlines at the end, by VM.
    overdue: Vec<u32>,
}

impl Run {
    pub(super) fn simulate(scenario: Scenario) -> Run {
        let vms = scenario.vms.len();
        let mut seconds = vec![Vec::new(); vms];
        let names: Vec<String> = scenario.vms.iter().map(|vm| vm.name.clone()).collect();
        let mut world = World::new(scenario, Some(Nanos::SECOND));
        world.keep_responses();
        while !world.is_over() {
            let mut rows = Vec::new();
            world.step(&mut |row| rows.push(row.rates.bytes_per_s));
            // Rows come in the order of VMs.
            for (vm, bytes_per_s) in rows.into_iter().enumerate() {
                let served = world.served(vm);
                let class =
                    served.and_then(|(engine, id)| engine.transfers().transfer(world.now(), id));
                seconds[vm].push(Second {
                    bytes_per_s,
                    class: class.map(|job| job.class),
                });
            }
        }
        let mut responses = vec![Vec::new(); vms];
        for done in world.take_responses() {
            if let Some(vm) = names.iter().position(|name| *name == done.vm) {
                responses[vm].extend(Response::from_report(&done));
            }
        }
        let report = world.report();
        let of_each = report.vms.iter().zip(&responses);
        let overdue = of_each.map(|(of, all)| overdue(of, all)).collect();
        Run {
            report,
            seconds,
            responses,
            overdue,
        }
    }

    pub(super) fn vms(&self) -> &[VmReport] {
        &self.report.vms
    }

    pub(super) fn seconds(&self, vm: usize) -> &[Second] {
        self.seconds.get(vm).map_or(&[], Vec::as_slice)
    }

    pub(super) fn responses(&self, vm: usize) -> &[Response] {
        self.responses.get(vm).map_or(&[], Vec::as_slice)
    }

    /// Time for which a VM was active, in seconds.
    pub(super) fn took(&self, vm: usize) -> Option<f64> {
        Some(self.vms().get(vm)?.time_s)
    }

    /// Bytes per second of a VM while it was active.
    pub(super) fn rate(&self, vm: usize) -> Option<f64> {
        Some(self.vms().get(vm)?.rates.bytes_per_s)
    }

    /// Bytes per second of all VMs together.
    pub(super) fn total(&self) -> f64 {
        self.vms().iter().map(|vm| vm.rates.bytes_per_s).sum()
    }

    /// Missed deadlines of a VM's requests, in percent.
    pub(super) fn missed_pct(&self, vm: usize) -> Option<f64> {
        self.missed_pct_since(vm, 0.0)
    }

    /// Missed deadlines of the requests that began from `since` seconds on, in percent.
    pub(super) fn missed_pct_since(&self, vm: usize, since: f64) -> Option<f64> {
        let all = self.responses(vm).iter().filter(|of| of.at >= since);
        late_pct(all, *self.overdue.get(vm)?)
    }

    /// Missed deadlines of all VMs, in percent.
    pub(super) fn all_missed_pct(&self) -> Option<f64> {
        late_pct(self.responses.iter().flatten(), self.overdue.iter().sum())
    }

    /// Number of class changes between consecutive seconds of a VM's transfer.
    pub(super) fn turns(&self, vm: usize) -> usize {
        let classes = self.seconds(vm).iter().filter_map(|second| second.class);
        let classes: Vec<Class> = classes.collect();
        classes.windows(2).filter(|two| two[0] != two[1]).count()
    }
}

/// Number of a VM's requests that the report counts as missed and that are not in `done`.
fn overdue(of: &VmReport, done: &[Response]) -> u32 {
    let deadlines = of.responses.as_ref().and_then(|all| all.deadlines.as_ref());
    let missed = deadlines.map_or(0, |deadlines| deadlines.missed);
    let late = done.iter().filter(|response| response.is_late()).count();
    // The report counts from the end of the warm-up, the responses from the begin.
    u32::try_from(missed.saturating_sub(late as u64)).unwrap_or(u32::MAX)
}

/// Late requests in percent, where `overdue` more were never done; `None` if there were none.
pub(super) fn late_pct<'a>(
    all: impl IntoIterator<Item = &'a Response>,
    overdue: u32,
) -> Option<f64> {
    let count = |(late, all): (u32, u32), of: &Response| (late + u32::from(of.is_late()), all + 1);
    // Requests that were never done count among all, too.
    match all.into_iter().fold((overdue, overdue), count) {
        (_, 0) => None,
        (late, all) => Some(100.0 * f64::from(late) / f64::from(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(took: f64) -> Response {
        Response {
            at: 0.0,
            took,
            deadline: 1.0,
        }
    }

    #[test]
    fn what_was_never_done_counts_as_missed_once_it_is_overdue() {
        let all = [response(0.5), response(1.0), response(1.5)];
        assert_eq!(late_pct(&all[..2], 0), Some(0.0));
        assert_eq!(late_pct(&all[1..], 0), Some(50.0));
        assert_eq!(late_pct(&all, 1), Some(50.0));
        assert_eq!(late_pct(&[], 1), Some(100.0));
        assert_eq!(late_pct(&[], 0), None);
    }
}
