//! Tables of a plan.

use tidegate_config::objective::access_word;
use tidegate_core::fit::{Assumed, Bound, Load, Need, Streams, changed_parts};
use tidegate_core::policy::Policy;
use tidegate_report::{Align, Bars, Cell, Page, Style, Table, Tone};
use tidegate_server::control::view;
use tidegate_units::Thousandths;
use tidegate_units::human::{duration, exact_bytes};

use super::nearest::NearestOfAll;
use super::{Found, Plan, resource, thousandths};
use crate::objective_line;

/// Returns the plans of all devices as text.
pub(super) fn plans_text(plans: &[Plan<'_>], assumed: &Assumed, style: Style) -> String {
    let texts: Vec<String> = plans
        .iter()
        .map(|plan| plan_text(plan, assumed, style))
        .collect();
    texts.join("\n")
}

fn plan_text(plan: &Plan<'_>, assumed: &Assumed, style: Style) -> String {
    let site = plan.site;
    let mut text = format!(
        "Device {}: policy {}, queue depth {}\n\n",
        site.name,
        site.scheduling.policy.name(),
        site.scheduling.depth
    );
    let Some(found) = &plan.found else {
        text.push_str(&format!("  {}.\n", unknown(plan)));
        return text;
    };
    text.push_str(&vm_table(plan, found).render(style));
    text.push_str(&format!("\n{}", totals(plan, found, assumed).render(style)));
    text.push_str(&nearest_text(plan, found));
    text
}

/// Returns why the plan of a device is not known.
fn unknown(plan: &Plan<'_>) -> String {
    let known = if plan.promises() {
        "cannot tell whether the promises fit"
    } else {
        "nothing is promised on it"
    };
    match plan.site.imprecision() {
        Some(what) => format!("{what}; {known}"),
        None => format!("no profile; {known}"),
    }
}

/// Returns the plans of all devices as a page for a browser. `file` is the planned configuration.
pub(super) fn page(plans: &[Plan<'_>], assumed: &Assumed, file: &str) -> String {
    let mut page = Page::new(&format!("Plan of {file}"));
    for (n, plan) in plans.iter().enumerate() {
        let site = plan.site;
        page.section(
            &format!("device-{}", n + 1),
            &format!("Device {}", site.name),
        );
        let mut facts = Table::properties();
        facts.property("policy", site.scheduling.policy.name());
        facts.property("queue depth", site.scheduling.depth.to_string());
        page.table("", &facts);
        let Some(found) = &plan.found else {
            page.paragraph(&format!("{}.", unknown(plan)));
            continue;
        };
        page.table("", &totals(plan, found, assumed));
        let times = device_times(plan, found, assumed);
        if !times.is_empty() {
            page.bars(&times);
        }
        page.heading("VMs").table("", &vm_table(plan, found));
        let nearest = nearest_text(plan, found);
        if !nearest.is_empty() {
            page.heading("What would fit").preformatted(nearest.trim());
        }
    }
    page.finish()
}

/// Returns a chart of the device time that VMs need at most, beside what may be promised.
fn device_times(plan: &Plan<'_>, found: &Found, assumed: &Assumed) -> Bars {
    let mut bars = Bars::new("Device time promised", ["share of the device's time"]);
    let part = |ps: u64| f64::from(thousandths(ps).0);
    let needs = plan.site.vms.iter().zip(&found.fit.needs);
    for (vm, need) in needs.filter(|(_, need)| need.time_ps > 0) {
        let written = thousandths(need.time_ps).to_string();
        bars.row(&vm.name, [part(need.time_ps)], written);
    }
    if !bars.is_empty() {
        let all = found.fit.time_ps;
        bars.row("all together", [part(all)], thousandths(all).to_string());
        let allowed = f64::from(assumed.headroom);
        bars.row(
            "may be promised",
            [allowed],
            Thousandths(assumed.headroom).to_string(),
        );
    }
    bars
}

fn vm_table(plan: &Plan<'_>, found: &Found) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("OBJECTIVE", Align::Left),
        ("ASSUMED LOAD", Align::Left),
        ("DEVICE TIME", Align::Right),
        ("LATENCY", Align::Left),
    ]);
    for (vm, need) in plan.site.vms.iter().zip(&found.fit.needs) {
        let promised = objective_line::in_words(vm.background, &view::objective(&vm.objective));
        let asked = plan.site.asked.as_ref() == Some(&vm.name);
        let name = if asked {
            format!("{} (what if)", vm.name)
        } else {
            vm.name.clone()
        };
        table.row([
            Cell::from(name).tone(Tone::Strong),
            promised.into(),
            assumed_load(need).into(),
            match need.time_ps {
                0 => "-".into(),
                time => thousandths(time).to_string().into(),
            },
            need.bound
                .map_or_else(|| Cell::from("-"), |bound| latency_cell(&bound)),
        ]);
    }
    table
}

/// Returns the assumed load: `84 reads/s and 36 writes/s, random, 16 KiB`.
fn assumed_load(need: &Need) -> String {
    let Load {
        reads,
        writes,
        sequential,
        size,
        ..
    } = need.load;
    let count = |rate: u64, what: &str| {
        // Millionths of a request per second; one decimal, and none where it is 0.
        let rate = format!("{:.1}", rate as f64 / 1e6);
        let rate = rate.strip_suffix(".0").unwrap_or(&rate);
        format!("{rate} {what}/s")
    };
    let rates = match (reads, writes) {
        (0, 0) => return "none".to_owned(),
        (reads, 0) => count(reads, "reads"),
        (0, writes) => count(writes, "writes"),
        (reads, writes) => format!("{} and {}", count(reads, "reads"), count(writes, "writes")),
    };
    let size = exact_bytes(size.into());
    format!("{rates}, {}, {size}", access_word(sequential))
}

fn latency_cell(bound: &Bound) -> Cell {
    let asked = duration(bound.asked.0);
    match bound.takes {
        None => Cell::from("not known: no latencies in the profile").tone(Tone::Warn),
        Some(takes) if takes.0 == u64::MAX => {
            Cell::from(format!("unbounded, of {asked}")).tone(Tone::Bad)
        }
        Some(takes) => {
            let tone = if bound.holds() { Tone::Good } else { Tone::Bad };
            let alone = bound.alone.map_or_else(String::new, |alone| {
                format!("; {} without other VMs", duration(alone.0))
            });
            let effort = if bound.best_effort {
                "; best effort"
            } else {
                ""
            };
            let text = format!("up to {} of {asked}{alone}{effort}", duration(takes.0));
            Cell::from(text).tone(tone)
        }
    }
}

fn totals(plan: &Plan<'_>, found: &Found, assumed: &Assumed) -> Table {
    let fit = &found.fit;
    let mut table = Table::properties();
    let tone = |good: bool| if good { Tone::Good } else { Tone::Bad };
    let time = format!(
        "{} of the {} that may be promised",
        thousandths(fit.time_ps),
        Thousandths(assumed.headroom)
    );
    table.property(
        "device time",
        Cell::from(time).tone(tone(fit.time_ps <= fit.budget_ps)),
    );
    if let Some(capacity) = fit.capacity {
        let text = format!(
            "{} of {}",
            tidegate_units::human::bytes(fit.disk_bytes),
            tidegate_units::human::bytes(capacity)
        );
        table.property(
            "capacity",
            Cell::from(text).tone(tone(fit.disk_bytes <= capacity)),
        );
    }
    let streams = match assumed.streams {
        // Streams are blended by other VMs, of which there are none.
        _ if plan.site.vms.len() < 2 => "sequential: only one VM",
        Streams::Blended => "blended: sequential requests cost as much as random ones",
        Streams::Kept => "kept: sequential requests stay sequential",
    };
    table.property("streams", streams);
    let (what, used) = fit.tightest();
    let tightest = format!(
        "{}: {} of the allowed part is used",
        resource(what),
        Thousandths(used)
    );
    table.property("tightest", tightest);
    if fit.needs.iter().any(|need| need.bound.is_some()) {
        let evenly = "for 99 % of requests, evenly spaced and served by deadline (EDF)";
        table.property("latencies", evenly);
        let longer = "requests that are due within a bound may go first: a longer one takes longer";
        table.property("", longer);
        if writes_are_not_known(plan, found) {
            let early = "reads may take longer on a device that caches writes";
            table.property("", Cell::from(early).tone(Tone::Warn));
        }
    }
    table.property("blocking", blocking_cell(found));
    for near in &found.near_limits {
        let name = &plan.site.vms[near.vm].name;
        let text = format!("VM {name}: {}; {}", near.reason(), near.instead());
        table.property("limit", Cell::from(text).tone(Tone::Warn));
    }
    if fit.depth_bound < plan.site.scheduling.depth {
        let depth = format!(
            "{} for the latency bounds in the worst case; more while requests take less",
            fit.depth_bound
        );
        table.property("queue depth", depth);
    }
    let verdict = if plan.fits() {
        Cell::from("all promises fit").tone(Tone::Good)
    } else {
        Cell::from("the promises do not fit").tone(Tone::Bad)
    };
    table.property("feasibility", verdict);
    table
}

/// Returns true if bounds leave out how long reads wait for writes that the device has answered.
fn writes_are_not_known(plan: &Plan<'_>, found: &Found) -> bool {
    let profile = plan.site.scheduling.profile.as_ref();
    let unknown = profile.is_none_or(|profile| profile.beside_writes().is_empty());
    unknown && found.fit.needs.iter().any(|need| need.load.may_write)
}

/// Returns the device's blocking time with its causes.
fn blocking_cell(found: &Found) -> Cell {
    let fit = &found.fit;
    let by = &fit.blocked_by;
    let causes = [
        (by.in_flight, "in flight"),
        (by.held_up, "held up behind writes"),
        (by.background_excess(), "background"),
        (by.service, "service"),
    ];
    let causes = causes.into_iter().filter(|cause| cause.0 > 0);
    // Picoseconds to nanoseconds, rounded up as bounds are.
    let causes = causes.map(|(ps, what)| format!("{} {what}", duration(ps.div_ceil(1000))));
    let causes: Vec<_> = causes.collect();
    let whole = duration(fit.blocking.0);
    Cell::from(format!(
        "a request within its reservation may be up to {whole} late: {}",
        causes.join(", ")
    ))
}

/// Returns the nearest promises that would fit, as lines of a configuration.
fn nearest_text(plan: &Plan<'_>, found: &Found) -> String {
    let vms = &plan.site.vms;
    let lines = |at: usize, near: &_| {
        let parts = changed_parts(&vms[at].objective, near);
        let line = |part| format!("    {part}\n");
        parts.into_iter().map(line).collect::<String>()
    };
    let mut ways = Vec::new();
    if let Some((at, near)) = &found.nearest.of_one {
        ways.push(format!(
            "nearest objective that fits, with all others unchanged: [vm.objective] of {}\n\n{}",
            vms[*at].name,
            lines(*at, near)
        ));
    }
    if let Some(all) = &found.nearest.of_all {
        let mut text = format!("{}:\n\n", changed_alike(all));
        for (at, near) in all.objectives.iter().enumerate() {
            let table = vms[at].table.as_ref();
            // One table stands for all of its VMs.
            let is_said = at > 0 && table.is_some() && table == vms[at - 1].table.as_ref();
            if *near != vms[at].objective && !is_said {
                let name = table.unwrap_or(&vms[at].name);
                text.push_str(&format!("    # {name}\n{}", lines(at, near)));
            }
        }
        ways.push(text);
    }
    if !found.nearest.counts.is_empty() {
        let mut text = "fewer VMs, with all others unchanged:\n\n".to_owned();
        for (table, count) in &found.nearest.counts {
            text.push_str(&format!("    # {table}\n    count = {count}\n"));
        }
        ways.push(text);
    }
    let mut text = String::new();
    for (n, way) in ways.iter().enumerate() {
        if n > 0 {
            text.push_str(&format!("\nOr {way}"));
        } else {
            let (first, rest) = way.split_at(1);
            text.push_str(&format!("\n{}{rest}", first.to_uppercase()));
        }
    }
    text
}

/// Returns what is changed alike for all VMs: `47.9 % of all reservations and targets`.
fn changed_alike(all: &NearestOfAll) -> String {
    let floors = format!(
        "{} of all reservations and targets",
        Thousandths(all.floors)
    );
    let bounds = format!("{} % of all latency bounds", all.bounds);
    match (all.floors, all.bounds) {
        (1000, _) => bounds,
        (_, 100) => floors,
        _ => format!("{floors}, and {bounds}"),
    }
}
