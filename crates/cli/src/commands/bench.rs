//! `tidegate bench engine`: prints what [`crate::bench`] measures.

use anyhow::Result;
use tidegate_config as config;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;
use tidegate_report::{Align, Table, count};

use crate::args::{BenchArgs, all_policies};
use crate::bench::{Measured, Workload, measure};
use crate::commands::policy::request;
use crate::output::Output;

/// A policy with the parameters that were asked for.
fn named(policy: &PolicySpec, params: &[(String, String)]) -> String {
    let params: Vec<String> = params.iter().map(|(n, v)| format!("{n}={v}")).collect();
    format!("{} {}", policy.name(), params.join(" "))
}

pub(super) fn engine(args: BenchArgs, out: Output) -> Result<()> {
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
            params => Some(config::policy::read(&request(policy.name(), params))?),
        };
        contenders.push((policy.name().to_owned(), policy));
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
    let mut table = Table::new([
        ("POLICY", Align::Left),
        ("VMS", Align::Right),
        ("DEPTH", Align::Right),
        ("NS/REQUEST", Align::Right),
        ("FROM", Align::Right),
        ("TO", Align::Right),
        ("OF IT LOOP", Align::Right),
        ("SUBMIT", Align::Right),
        ("DISPATCH", Align::Right),
        ("COMPLETE", Align::Right),
        ("WAKE NS", Align::Right),
        ("BYTES/VM", Align::Right),
        ("BYTES/REQUEST", Align::Right),
    ]);
    for m in &measured {
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
    Ok(out.table(&table)?)
}
