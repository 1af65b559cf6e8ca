//! `tidegate interference`: the matrix of VMs that delay each other on a device.

use anyhow::Result;
use tidegate_api::interference::{InterferenceTimes, InterferenceView};
use tidegate_api::query::percent_encode;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::{count, duration, percent};

use super::device;
use crate::args::InterferenceArgs;
use crate::client::{Client, read};
use crate::output::Output;

/// Smallest part of a VM's time behind another one that tables have.
const BEHIND_MIN: f64 = 0.01;
/// Smallest part of a VM's time that makes a class worth a column: it is shown as 1 %.
const VISIBLE_MIN: f64 = 0.005;

/// Most rows of pairs of VMs that a table has.
const PAIRS_MAX: usize = 40;
/// Most VMs that a row names of those behind which a VM was.
const BEHIND_MAX: usize = 5;

pub(super) fn run(args: &InterferenceArgs, client: &Client, out: Output) -> Result<()> {
    let device = match &args.device {
        Some(device) => device.clone(),
        None => device::only("tidegate interference", client)?,
    };
    let path = format!("/v1/devices/{}/interference", percent_encode(&device));
    let answer = client.get(&path)?;
    if out.is_json() {
        return out.json(&answer);
    }
    Ok(out.table(&matrix(&read(answer)?))?)
}

/// Column of a class of time, with the time that it has.
type ClassColumn = (&'static str, fn(&InterferenceTimes) -> u64);

/// Columns of classes of time.
const CLASSES: [ClassColumn; 9] = [
    ("LIMIT", |times| times.own_limit_ns),
    ("OTHERS", |times| times.others_ns),
    ("OWN", |times| times.own_requests_ns + times.admission_ns),
    ("MERGED", |times| times.merged_wait_ns),
    ("POLICY", |times| times.deliberate_ns),
    ("DEVICE", |times| times.service_ns),
    ("SLOW", |times| times.slow_device_ns),
    ("UNKNOWN", |times| times.unknown_ns),
    ("REPLY", |times| times.reply_ns),
];

/// Returns a row for each VM: its time by class, and the VMs behind which it was. Classes of which
/// no VM has a visible part are left out.
fn matrix(view: &InterferenceView) -> Table {
    let share = |ns: u64, times: &InterferenceTimes| match times.total_ns() {
        0 => "-".to_owned(),
        all => percent(ns as f64, all as f64),
    };
    let is_visible = |(_, ns): &ClassColumn| {
        view.vms
            .iter()
            .any(|vm| ns(&vm.times) as f64 >= vm.times.total_ns().max(1) as f64 * VISIBLE_MIN)
    };
    let classes: Vec<_> = CLASSES.into_iter().filter(is_visible).collect();
    let columns = classes.iter().map(|&(name, _)| (name, Align::Right));
    let mut table = Table::new(
        [("VM", Align::Left), ("REQUESTS", Align::Right)]
            .into_iter()
            .chain(columns)
            .chain([("BEHIND", Align::Left)]),
    );
    for vm in &view.vms {
        let times = &vm.times;
        let all = times.total_ns();
        let named = times
            .behind
            .iter()
            .map(|it| (it.vm.as_str(), it.total_ns()));
        let behind = named.chain([("others", times.unnamed_ns)]);
        let behind = behind.filter(|(_, ns)| *ns as f64 >= all.max(1) as f64 * BEHIND_MIN);
        let mut behind: Vec<_> = behind.collect();
        behind.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
        let rest = behind.split_off(BEHIND_MAX.min(behind.len()));
        let part = |ns: u64| percent(ns as f64, all as f64);
        let named = behind.iter().map(|&(vm, ns)| format!("{vm} {}", part(ns)));
        let more = (!rest.is_empty()).then(|| {
            let sum = rest
                .iter()
                .fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns));
            format!("{} more {}", rest.len(), part(sum))
        });
        let behind: Cell = named.chain(more).collect::<Vec<_>>().join(", ").into();
        let shares = classes.iter().map(|(_, ns)| share(ns(times), times).into());
        table.row(
            [
                Cell::from(vm.vm.as_str()).tone(Tone::Strong),
                count(times.requests).into(),
            ]
            .into_iter()
            .chain(shares)
            .chain([behind]),
        );
    }
    table
}

/// Returns the VMs behind which others were, a row for each pair; of more than [`PAIRS_MAX`] those
/// with the largest parts of the VM's time, and a row that counts the rest.
pub(super) fn pairs<'a>(vms: impl Iterator<Item = (&'a str, &'a InterferenceTimes)>) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("BEHIND", Align::Left),
        ("WAITED", Align::Right),
        ("INSIDE", Align::Right),
        ("OF ITS TIME", Align::Right),
    ]);
    let mut rows = Vec::new();
    for (vm, times) in vms {
        let all = times.total_ns() as f64;
        let mean = |ns: u64| duration(ns / times.requests.max(1));
        for behind in &times.behind {
            let part = behind.total_ns() as f64;
            if part < all * BEHIND_MIN {
                continue;
            }
            let row: [Cell; 5] = [
                Cell::from(vm).tone(Tone::Strong),
                behind.vm.as_str().into(),
                mean(behind.waited_ns).into(),
                mean(behind.inside_ns).into(),
                percent(part, all).into(),
            ];
            rows.push((part / all, row));
        }
    }
    let more = rows.len().saturating_sub(PAIRS_MAX);
    let mut parts: Vec<f64> = rows.iter().map(|(part, _)| *part).collect();
    parts.sort_by(|a, b| b.total_cmp(a));
    let least = parts.get(PAIRS_MAX - 1).copied().unwrap_or_default();
    // In the order of the VMs; of equal parts the first ones.
    let large = rows.into_iter().filter(|(part, _)| *part >= least);
    for (_, row) in large.take(PAIRS_MAX) {
        table.row(row);
    }
    if more > 0 {
        let rest = format!("and {} pairs with less", count(more as u64));
        table.row([rest.as_str(), "", "", "", ""]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_api::interference::{BehindTimes, VmInterferenceView};
    use tidegate_report::Style;

    #[test]
    fn a_row_divides_the_time_and_names_the_vms_behind_which_it_was() {
        let behind = |vm: &str, waited_ns| BehindTimes {
            vm: vm.to_owned(),
            waited_ns,
            inside_ns: 0,
        };
        let vm = |vm: &str, times| VmInterferenceView {
            vm: vm.to_owned(),
            background: false,
            times,
        };
        let times = InterferenceTimes {
            requests: 10,
            others_ns: 740,
            service_ns: 200,
            own_limit_ns: 60,
            behind: vec![behind("backup", 700), behind("web", 5)],
            unnamed_ns: 35,
            ..InterferenceTimes::default()
        };
        let view = InterferenceView {
            device: "disk0".to_owned(),
            vms: vec![
                vm("db", times.clone()),
                vm("idle", InterferenceTimes::default()),
            ],
        };
        let text = matrix(&view).render(Style::Plain);
        assert!(text.contains("74 %") && text.contains("20 %"), "{text}");
        assert!(text.contains("backup 70 %, others 4 %"), "{text}");
        assert!(!text.contains("web"), "{text}");
        assert!(
            text.starts_with("VM    REQUESTS  LIMIT  OTHERS  DEVICE  BEHIND"),
            "{text}"
        );
        let text = pairs([("db", &times)].into_iter()).render(Style::Plain);
        assert!(text.contains("backup   70 ns"), "{text}");
    }

    #[test]
    fn many_pairs_and_many_names_are_counted_instead_of_shown() {
        let behind = |vm: String, waited_ns| BehindTimes {
            vm,
            waited_ns,
            inside_ns: 0,
        };
        let times = |first: u64| InterferenceTimes {
            requests: 1,
            others_ns: 1000,
            behind: (0..10)
                .map(|n| behind(format!("b{n}"), first - n))
                .collect(),
            ..InterferenceTimes::default()
        };
        let (large, small) = (times(90), times(80));
        let all = ["v0", "v1", "v2", "v3", "v4"].map(|vm| (vm, &large));
        let text = pairs(all.into_iter().take(4)).render(Style::Plain);
        assert_eq!(text.lines().count(), 41, "{text}");
        // The VM with the smaller parts is the one whose pairs are counted.
        let with_small = [("small", &small)].into_iter().chain(all);
        let text = pairs(with_small).render(Style::Plain);
        assert_eq!(text.lines().count(), 42, "{text}");
        assert!(text.ends_with("and 20 pairs with less\n"), "{text}");
        assert!(!text.contains("small"), "{text}");
        let view = InterferenceView {
            device: "disk0".to_owned(),
            vms: vec![VmInterferenceView {
                vm: "db".to_owned(),
                background: false,
                times: large,
            }],
        };
        let text = matrix(&view).render(Style::Plain);
        assert!(text.contains("b4 9 %, 5 more 42 %"), "{text}");
    }
}
