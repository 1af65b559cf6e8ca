//! Views of deadline transfers, with forecasts in words.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_api::transfer::{
    EndedTransferView, EndedTransfersView, TransferView, VmTransfersView,
};
use tidegate_config::diagnostic::one_of;
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::{self, PolicySpec};
use tidegate_units as units;

use crate::command::VmSnapshot;
use crate::transfer::{
    EndedTransfer, Outlook, RunningTransfer, TransferResult, after, span, to_the_millisecond,
};

/// Present time and time zone, for times that are shown to people.
#[derive(Clone, Debug)]
pub(crate) struct DisplayTime {
    /// Present time.
    pub(crate) now: Timestamp,
    /// Time zone of the host.
    pub(crate) zone: TimeZone,
}

impl DisplayTime {
    /// Formats a time as `2026-11-22T14:03:10.25+01:00[Europe/Berlin]` (RFC 9557).
    fn rfc9557(&self, time: Timestamp) -> String {
        to_the_millisecond(time)
            .to_zoned(self.zone.clone())
            .to_string()
    }

    /// Formats a time as `14:03:10`, with the date if it is not today.
    fn time_of_day(&self, time: Timestamp) -> String {
        let local = time.to_zoned(self.zone.clone());
        let today = self.now.to_zoned(self.zone.clone()).date();
        let format = if local.date() == today {
            "%H:%M:%S"
        } else {
            "%Y-%m-%d %H:%M:%S"
        };
        local.strftime(format).to_string()
    }
}

/// Returns the deadline transfers of a VM as they stand at a time.
pub(crate) fn vm_transfers(vm: &VmSnapshot, time: &DisplayTime) -> VmTransfersView {
    let ended = vm.transfers.ended;
    VmTransfersView {
        vm: vm.name.clone(),
        device: vm.device.clone(),
        policy: vm.policy.clone(),
        transfer: transfer(vm, time),
        last: vm
            .transfers
            .last
            .as_ref()
            .map(|transfer| ended_transfer(transfer, time)),
        ended: EndedTransfersView {
            met: ended.met,
            missed: ended.missed,
            cancelled: ended.cancelled,
        },
    }
}

/// Returns the deadline transfer of a VM that runs, if it has one.
pub(crate) fn transfer(vm: &VmSnapshot, time: &DisplayTime) -> Option<TransferView> {
    let transfer = vm.transfers.running.as_ref()?;
    let done_in = match transfer.outlook {
        Outlook::In(span) => Some(span),
        Outlook::Never | Outlook::Unknown => None,
    };
    let done = done_in.map(|span| after(time.now, span));
    let to_seconds = |span: Nanos| seconds(i128::from(span.0));
    let earliest_deadline_ns = transfer
        .at_best()
        .map(|rest| elapsed_ns(transfer, time) + i128::from(rest.0));
    Some(TransferView {
        size_bytes: transfer.bytes(),
        moved_bytes: transfer.moved(),
        bytes_per_s: transfer.status.bandwidth,
        begun: time.rfc9557(transfer.since.begun),
        due: time.rfc9557(transfer.since.due),
        due_in_s: seconds(time.now.duration_until(transfer.since.due).as_nanos()),
        forecast_end: done.map(|done| time.rfc9557(done)),
        done_in_s: done_in.map(to_seconds),
        early_s: done.and_then(|_| Some(earliness_s(transfer.early()?, transfer.late()?))),
        class: transfer.status.class.name().to_owned(),
        enforced: transfer.enforced,
        given_up: transfer.status.given_up,
        possible: transfer.status.possible,
        least_deadline_s: earliest_deadline_ns.map(seconds),
        forecast: forecast(transfer, time),
        notes: notes(vm, transfer, time),
    })
}

fn ended_transfer(transfer: &EndedTransfer, time: &DisplayTime) -> EndedTransferView {
    EndedTransferView {
        size_bytes: transfer.bytes,
        moved_bytes: transfer.moved,
        begun: time.rfc9557(transfer.begun),
        due: time.rfc9557(transfer.due),
        ended: time.rfc9557(transfer.ended),
        early_s: earliness_s(transfer.early, transfer.late),
        outcome: transfer.result().name().to_owned(),
        result: result_text(transfer, time),
    }
}

/// Converts nanoseconds to seconds, rounded to the millisecond.
fn seconds(nanos: i128) -> f64 {
    (nanos as f64 / 1e6).round() / 1e3
}

fn earliness_s(early: Nanos, late: Nanos) -> f64 {
    seconds(i128::from(early.0) - i128::from(late.0))
}

/// Returns the time in nanoseconds for which a transfer has run.
fn elapsed_ns(transfer: &RunningTransfer, time: &DisplayTime) -> i128 {
    (transfer.since.begun.duration_until(time.now).as_nanos()).max(0)
}

/// Returns the forecast of a running transfer in words.
fn forecast(transfer: &RunningTransfer, time: &DisplayTime) -> String {
    let due = time.time_of_day(transfer.since.due);
    let done = match transfer.outlook {
        Outlook::Unknown => {
            return format!("unknown until its bandwidth was measured; due at {due}");
        }
        Outlook::Never => return format!("never done at this rate: no data moves; due at {due}"),
        Outlook::In(span) => time.time_of_day(after(time.now, span)),
    };
    match (transfer.early(), transfer.late()) {
        (Some(Nanos::ZERO), Some(Nanos::ZERO)) => format!("done at {done}, just in time"),
        (Some(early), Some(Nanos::ZERO)) => format!("done at {done}, {} early", span(early)),
        // A forecast has both, or neither.
        (_, late) => {
            let late = span(late.unwrap_or_default());
            format!("misses by {late}: done at {done}, due at {due}")
        }
    }
}

/// Returns the result of an ended transfer in words.
fn result_text(transfer: &EndedTransfer, time: &DisplayTime) -> String {
    let (result, when) = (transfer.result().name(), time.time_of_day(transfer.ended));
    match transfer.result() {
        TransferResult::Met => format!("{result} at {when}, {} early", span(transfer.early)),
        TransferResult::Missed => format!("{result} by {}: done at {when}", span(transfer.late)),
        TransferResult::Cancelled => {
            let (moved, bytes) = (transfer.moved, transfer.bytes);
            let [moved, bytes] = [moved, bytes].map(units::format_bytes);
            format!("{result} at {when}, after {moved} of {bytes}")
        }
    }
}

fn notes(vm: &VmSnapshot, transfer: &RunningTransfer, time: &DisplayTime) -> Vec<String> {
    let mut notes = Vec::new();
    if !transfer.enforced {
        notes.push(format!(
            "its deadline is not enforced: policy {} does not enforce deadlines, {} would",
            vm.policy,
            enforced_by()
        ));
    }
    let is_over = transfer.since.due <= time.now;
    if !transfer.status.possible && !is_over {
        notes.push(impossible_note(transfer, time));
    }
    if transfer.status.given_up {
        let what = "its deadline cannot be met at present, so it has no precedence any more: it \
                    gets what other VMs leave until it is late, or another transfer begins or \
                    ends";
        notes.push(what.to_owned());
    } else if is_over {
        notes.push("it is past its deadline".to_owned());
    }
    notes
}

/// Returns a note on a transfer that cannot meet its deadline, with the nearest possible deadline.
fn impossible_note(transfer: &RunningTransfer, time: &DisplayTime) -> String {
    let what = "even with the whole device to itself it would miss its deadline";
    let Some(rest) = transfer.at_best() else {
        return what.to_owned();
    };
    let rate = units::format_bandwidth(floor_to_3_digits(transfer.best_bandwidth()));
    let left = units::format_bytes(transfer.status.transfer.bytes_left());
    // The deadline and the time of day are rounded up, so that what is called possible is possible.
    let second = Nanos::SECOND.0;
    let ran = u64::try_from(elapsed_ns(transfer, time)).unwrap_or(u64::MAX);
    let least = ran.saturating_add(rest.0).div_ceil(second);
    let least = Nanos(least.saturating_mul(second));
    // The display truncates to seconds.
    let by = after(
        transfer.since.begun,
        Nanos(least.0.saturating_add(second - 1)),
    );
    format!(
        "{what}: at {rate} {left} take {}; the earliest possible deadline is {} from its \
         beginning, {}",
        span(rest),
        span(least),
        time.time_of_day(by)
    )
}

/// Rounds a number down to three significant digits.
fn floor_to_3_digits(figure: u64) -> u64 {
    let step = 10_u64.pow(figure.checked_ilog10().unwrap_or(0).saturating_sub(2));
    figure / step * step
}

/// Returns the names of the policies that enforce deadlines of transfers, in words.
fn enforced_by() -> String {
    let named = policy::registry().iter().map(|info| info.name);
    let all = named.filter(|name| {
        let spec = PolicySpec::named(name).ok();
        spec.is_some_and(|spec| spec.helps_transfers())
    });
    format!("policy {}", one_of(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_down_to_three_digits() {
        let all = [0, 7, 999, 1_234, 98_765_432].map(floor_to_3_digits);
        assert_eq!(all, [0, 7, 999, 1_230, 98_700_000]);
    }
}
