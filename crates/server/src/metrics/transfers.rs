//! Metrics of deadline transfers.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

use super::{Metric, Read, bytes, plain, renamed, seconds};
use crate::command::VmSnapshot;
use crate::transfer::RunningTransfer;

pub(super) static VM_METRICS: &[Metric<VmSnapshot>] = &[
    renamed(
        "job_size",
        bytes(
            "transfer_size",
            "Size of the VM's deadline transfer; absent without one, as all metrics of transfers \
             but transfers_ended",
            Read::OptionalGauge(|vm| Some(running(vm)?.bytes() as f64)),
        ),
    ),
    renamed(
        "job_moved",
        bytes(
            "transfer_moved",
            "Bytes of the VM's deadline transfer that have moved",
            Read::OptionalGauge(|vm| Some(running(vm)?.moved() as f64)),
        ),
    ),
    renamed(
        "job_early",
        seconds(
            "transfer_early",
            "Time by which the VM's transfer is forecast to end before its deadline; 0: late, \
             absent: unknown",
            Read::OptionalGauge(|vm| Some(running(vm)?.early()?.as_secs_f64())),
        ),
    ),
    renamed(
        "job_late",
        seconds(
            "transfer_late",
            "Time by which the VM's transfer is forecast to end after its deadline; 0: in time, \
             infinite: never",
            Read::OptionalGauge(|vm| Some(lateness(running(vm)?.late()?))),
        ),
    ),
    renamed(
        "job_class",
        plain(
            "transfer_class",
            "The priority class of a VM with a deadline transfer has the value 1",
            Read::Gauges("class", |vm| {
                let class_of = |transfer: &RunningTransfer| {
                    let is = |class| f64::from(u8::from(transfer.status.class == class));
                    Class::ALL.map(|class| (class.name().to_owned(), is(class)))
                };
                running(vm).map(class_of).into_iter().flatten().collect()
            }),
        ),
    ),
    renamed(
        "job_given_up",
        plain(
            "transfer_given_up",
            "1 if the deadline of the VM's transfer cannot be met and the policy has given it up",
            Read::OptionalGauge(|vm| Some(f64::from(u8::from(running(vm)?.status.given_up)))),
        ),
    ),
    renamed(
        "jobs_ended",
        plain(
            "transfers_ended",
            "Ended deadline transfers of the VM: met, missed or cancelled",
            Read::Counters("outcome", |vm| {
                let ended = vm.transfers.ended;
                vec![
                    ("met", ended.met as f64),
                    ("missed", ended.missed as f64),
                    ("cancelled", ended.cancelled as f64),
                ]
            }),
        ),
    ),
];

fn running(vm: &VmSnapshot) -> Option<&RunningTransfer> {
    vm.transfers.running.as_ref()
}

fn lateness(late: Nanos) -> f64 {
    match late {
        Nanos::MAX => f64::INFINITY,
        late => late.as_secs_f64(),
    }
}
