//! `tidegate bench engine`: prints the measurements of [`tidegate_engine_bench`].

use anyhow::Result;
use tidegate_config as config;
use tidegate_core::policy::Policy;
use tidegate_engine_bench::{Measured, Workload, measure, run_counted};
use tidegate_policies::policy::PolicySpec;
use tidegate_report::{Align, Table};
use tidegate_units::human::count;

use crate::args::{BenchArgs, CountedArgs, all_policies};
use crate::commands::policy::request;
use crate::instructions::{self, Compared, Counts, DEPTH, Run, Verdict};
use crate::output::{Output, tell};
use crate::problem::Problem;

/// Returns the name of a policy with its parameters.
fn named(policy: &PolicySpec, params: &[(String, String)]) -> String {
    let params: Vec<String> = params.iter().map(|(n, v)| format!("{n}={v}")).collect();
    format!("{} {}", policy.name(), params.join(" "))
}

pub(super) fn engine(args: BenchArgs, out: Output) -> Result<()> {
    if args.instructions {
        return count_instructions(&args, out);
    }
    let policies = if args.policies.is_empty() {
        all_policies()
    } else {
        args.policies
    };
    let mut measured: Vec<Measured> = Vec::new();
    let mut contenders = Vec::new();
    for policy in policies {
        let with = match args.params.as_slice() {
            [] => None,
            params => {
                let request = serde_json::to_value(request(policy.name(), params))?;
                Some(config::policy::read(&request)?)
            }
        };
        contenders.push((policy.name().to_owned(), policy));
        // Beside the policy without them, which shows what the parameters cost.
        contenders.extend(with.map(|with| (named(&with, &args.params), with)));
    }
    for (name, policy) in &contenders {
        for &vms in &args.vms {
            for &depth in &args.depths {
                let workload = Workload {
                    vms,
                    depth,
                    runs: args.runs as usize,
                    requests: args.requests,
                    profile: args.profile,
                };
                measured.push(measure(name, policy, workload)?);
            }
        }
    }
    if out.is_json() {
        return out.json(&measured);
    }
    Ok(out.table(&table_of(&measured))?)
}

/// Returns the table of measurements, with a row for each policy, number of VMs and depth.
fn table_of(measured: &[Measured]) -> Table {
    let mut table = Table::new([
        ("POLICY", Align::Left),
        ("VMS", Align::Right),
        ("DEPTH", Align::Right),
        ("NS/REQUEST", Align::Right),
        ("MIN", Align::Right),
        ("MAX", Align::Right),
        ("TEST LOOP", Align::Right),
        ("SUBMIT", Align::Right),
        ("DISPATCH", Align::Right),
        ("COMPLETE", Align::Right),
        ("WAKE NS", Align::Right),
        ("BYTES/VM", Align::Right),
        ("BYTES/REQUEST", Align::Right),
    ]);
    for m in measured {
        let [from, to] = m.ns_per_request_range;
        table.row([
            m.policy.clone(),
            count(m.vms.into()),
            count(m.depth.into()),
            format!("{:.0}", m.ns_per_request),
            format!("{from:.0}"),
            format!("{to:.0}"),
            format!("{:.0}", m.loop_ns),
            format!("{:.0}", m.phases.submit_ns),
            format!("{:.0}", m.phases.dispatch_ns),
            format!("{:.0}", m.phases.complete_ns),
            format!("{:.0}", m.wake_ns),
            m.bytes_per_vm.to_string(),
            m.bytes_per_request.to_string(),
        ]);
    }
    table
}

/// Runs the loop that callgrind counts, and prints the number of completed requests.
pub(super) fn counted(run: &CountedArgs, out: Output) -> Result<()> {
    let workload = Workload {
        vms: run.vms,
        depth: DEPTH,
        runs: 1,
        requests: run.requests,
        profile: false,
    };
    let answered = run_counted(&run.policy, workload)?;
    Ok(out.text(&format!("{answered}\n"))?)
}

fn count_instructions(args: &BenchArgs, out: Output) -> Result<()> {
    // Read first, to find a file that cannot be compared before minutes of counting.
    let against = args.against.as_deref();
    let recorded = against.map(instructions::read).transpose()?;
    if let (Some(path), Some(recorded)) = (against, &recorded) {
        instructions::check_comparable(path, recorded, args.requests)?;
    }
    let policies = match args.policies.as_slice() {
        [] => all_policies(),
        named => named.to_vec(),
    };
    let run = |policy: &PolicySpec, vms| Run {
        policy: policy.name().to_owned(),
        vms,
    };
    let runs: Vec<Run> = (policies.iter())
        .flat_map(|policy| args.vms.iter().map(move |&vms| run(policy, vms)))
        .collect();
    let counts = instructions::count(&runs, args.requests, args.jobs)?;
    if let Some(path) = &args.record {
        instructions::record(path, &counts)?;
    }
    let Some(recorded) = recorded else {
        return show_counts(&counts, out);
    };
    let compared = instructions::compare(&recorded.rows, &counts.rows);
    show_compared(&compared, out)?;
    judge(&compared)
}

fn show_counts(counts: &Counts, out: Output) -> Result<()> {
    if out.is_json() {
        return out.json(counts);
    }
    let mut table = Table::new([
        ("POLICY", Align::Left),
        ("VMS", Align::Right),
        ("INSTRUCTIONS/REQUEST", Align::Right),
    ]);
    for row in &counts.rows {
        let instructions = format!("{:.1}", row.instructions);
        table.row([row.policy.clone(), count(row.vms.into()), instructions]);
    }
    Ok(out.table(&table)?)
}

fn show_compared(compared: &[Compared], out: Output) -> Result<()> {
    if out.is_json() {
        return out.json(&compared);
    }
    let mut table = Table::new([
        ("POLICY", Align::Left),
        ("VMS", Align::Right),
        ("INSTRUCTIONS/REQUEST", Align::Right),
        ("RECORDED", Align::Right),
        ("RATIO", Align::Right),
        ("", Align::Left),
    ]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for Compared {
        row,
        recorded,
        ratio,
        verdict,
    } in compared
    {
        let verdict = match verdict {
            Verdict::Same => "",
            Verdict::Rose => "rose",
            Verdict::Fell => "fell",
            Verdict::New => "not recorded",
        };
        table.row([
            row.policy.clone(),
            count(row.vms.into()),
            format!("{:.1}", row.instructions),
            or_dash(recorded.map(|recorded| format!("{recorded:.1}"))),
            or_dash(ratio.map(|ratio| format!("{ratio:.4}"))),
            verdict.to_owned(),
        ]);
    }
    Ok(out.table(&table)?)
}

/// Fails if a row rose or was never recorded; reports rows that fell.
fn judge(compared: &[Compared]) -> Result<()> {
    let of = |verdict: Verdict| -> Vec<String> {
        let those = compared.iter().filter(|row| row.verdict == verdict);
        those
            .map(|Compared { row, ratio, .. }| {
                let change = ratio.map(|ratio| format!(" by {:+.1} %", (ratio - 1.0) * 100.0));
                let vms = count(row.vms.into());
                format!("{} at {vms} VMs{}", row.policy, change.unwrap_or_default())
            })
            .collect()
    };
    let fell = of(Verdict::Fell);
    if !fell.is_empty() {
        tell(format!(
            "fewer instructions, update the file with --record: {}",
            fell.join(", ")
        ));
    }
    let (rose, new) = (of(Verdict::Rose), of(Verdict::New));
    let mut wrong = Vec::new();
    if !rose.is_empty() {
        wrong.push(format!(
            "instructions per request rose by more than 2 %: {}",
            rose.join(", ")
        ));
    }
    if !new.is_empty() {
        wrong.push(format!("not recorded in the file: {}", new.join(", ")));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Problem::new(wrong.join("; "))
        .help(
            "if the rise is justified, update the file with `tidegate bench engine --instructions \
             --record FILE` and give the reason in the commit",
        )
        .into())
}
