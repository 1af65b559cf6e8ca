//! What the API says, as JSON. Figures carry their unit in their name; rates and sizes that
//! were configured are text with units, exactly as the configuration takes them.

use serde::{Deserialize, Serialize};
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::policy::{self, Honours, ParamInfo, ParamKind, Part, PolicyInfo, PolicySpec};
use tidegate_core::time::Nanos;
use tidegate_device::units;

use crate::command::{DeviceSnapshot, VmSnapshot};
use crate::config;

/// A device as it stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceView {
    /// Its name.
    pub name: String,
    /// What it is made of, for people.
    pub backing: String,
    /// The policy in force.
    pub policy: PolicyView,
    /// I/Os in flight at most.
    pub depth: u32,
    /// The largest device I/O.
    pub max_io_bytes: u32,
    /// I/Os with the device now.
    pub in_flight: u32,
    /// Guest requests inside the engine.
    pub requests: u32,
    /// Units waiting for the device.
    pub queued: u32,
    /// I/Os handed to the device since the start.
    pub started: u64,
    /// I/Os that ended.
    pub ended: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// Time in which room was left unused on purpose.
    pub deliberate_ns: u64,
    /// How often the policy in force waited for a request that might come; absent where it never
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitsView>,
    /// Its VMs.
    pub vms: Vec<String>,
    /// What was promised to them and is not enforced.
    pub not_enforced: Vec<DevicePart>,
    /// The loop's clock when this was taken.
    pub taken_at_ns: u64,
}

/// Waits for requests that might come, since the policy took over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WaitsView {
    /// Waits begun.
    pub begun: u64,
    /// Those that such a request ended.
    pub succeeded: u64,
}

/// A part of a VM's objective that its device's policy does not enforce.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DevicePart {
    /// The VM.
    pub vm: String,
    /// The part.
    #[serde(flatten)]
    pub part: PartView,
}

/// A part of an objective that is not enforced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartView {
    /// Such as `limit.burst`.
    pub part: String,
    /// What was promised.
    pub value: String,
    /// Policies that would enforce it.
    pub enforced_by: Vec<String>,
}

/// A policy with the values of its parameters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyView {
    /// Its name.
    pub name: String,
    /// Its controller.
    pub controller: Option<String>,
    /// Its regulator.
    pub regulator: String,
    /// Its dispatcher.
    pub dispatcher: String,
    /// Which parts of an objective it enforces.
    pub enforces: Vec<String>,
    /// Its parameters.
    pub params: Vec<ParamValue>,
}

/// A parameter's value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParamValue {
    /// The parameter.
    pub name: String,
    /// Its value with its unit.
    pub value: String,
}

/// A policy there is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyInfoView {
    /// Its name.
    pub name: String,
    /// One line.
    pub summary: String,
    /// Where it comes from.
    pub source: String,
    /// When to use it.
    pub about: String,
    /// Its controller.
    pub controller: Option<String>,
    /// Its regulator.
    pub regulator: String,
    /// Its dispatcher.
    pub dispatcher: String,
    /// Which parts of an objective it enforces.
    pub enforces: Vec<String>,
    /// Its parameters.
    pub params: Vec<ParamView>,
}

/// A part that policies are made of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PolicyPartView {
    /// Its name.
    pub name: String,
    /// `controller`, `regulator` or `dispatcher`.
    pub role: String,
    /// One line.
    pub summary: String,
    /// Which parts of an objective it enforces.
    pub enforces: Vec<String>,
    /// Its parameters.
    pub params: Vec<ParamView>,
}

/// A parameter there is, its values with their units.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParamView {
    /// Its name.
    pub name: String,
    /// `size`, `duration`, `count`, `flag` or `choice`.
    pub kind: String,
    /// Where none is given.
    pub default: String,
    /// The smallest value allowed; empty for a choice.
    pub min: String,
    /// The largest value allowed; empty for a choice.
    pub max: String,
    /// The words there are, of a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// What it does.
    pub help: String,
}

/// A VM as it stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VmView {
    /// Its name.
    pub name: String,
    /// Its device.
    pub device: String,
    /// The policy in force there.
    pub policy: String,
    /// A process of the host, such as a backup: it has what the VMs leave.
    pub background: bool,
    /// The objective in force.
    pub objective: ObjectiveView,
    /// What of it the policy in force does not enforce.
    pub not_enforced: Vec<PartView>,
    /// Its disks.
    pub disks: Vec<DiskView>,
    /// Connected clients.
    pub clients: u32,
    /// Requests waiting.
    pub pending: u32,
    /// Device I/Os in flight.
    pub in_flight: u32,
}

/// A disk as it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskView {
    /// NBD export name.
    pub export: String,
    /// Its size.
    pub size_bytes: u64,
    /// Why it refuses requests; `null` while it is well.
    pub failed: Option<String>,
}

/// An objective: what can be written into a configuration file. What is not promised is `null`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ObjectiveView {
    /// The floor.
    pub reservation: Option<String>,
    /// The cap.
    pub limit: Option<LimitView>,
    /// The rate to be held precisely.
    pub target: Option<String>,
    /// The share.
    pub weight: u32,
    /// The bound on each request's time.
    pub latency: Option<String>,
    /// The class of priority.
    pub priority: String,
}

/// A cap.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LimitView {
    /// On reads and writes together.
    pub total: Option<String>,
    /// On reads.
    pub read: Option<String>,
    /// On writes.
    pub write: Option<String>,
    /// What may pass above it for a while.
    pub burst: Option<BurstView>,
}

/// A burst.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BurstView {
    /// Reads and writes together.
    pub total: Option<String>,
    /// Reads.
    pub read: Option<String>,
    /// Writes.
    pub write: Option<String>,
    /// How long it may last.
    pub length: String,
}

impl DeviceView {
    /// Shows a snapshot.
    pub fn new(snapshot: &DeviceSnapshot) -> DeviceView {
        let facts = &snapshot.facts;
        let not_enforced = snapshot.vms.iter().flat_map(|vm| {
            parts(&vm.objective, &vm.honours, vm.background)
                .into_iter()
                .map(|part| DevicePart {
                    vm: vm.name.clone(),
                    part,
                })
        });
        DeviceView {
            name: snapshot.name.clone(),
            backing: snapshot.backing.clone(),
            policy: PolicyView::new(&snapshot.policy),
            depth: facts.spec.depth,
            max_io_bytes: facts.spec.max_io,
            in_flight: facts.in_flight,
            requests: facts.requests,
            queued: facts.queued,
            started: facts.started,
            ended: facts.ended,
            errors: facts.errors,
            deliberate_ns: facts.deliberate.0,
            waits: snapshot.waits.map(|waits| WaitsView {
                begun: waits.begun,
                succeeded: waits.succeeded,
            }),
            vms: snapshot.vms.iter().map(|vm| vm.name.clone()).collect(),
            not_enforced: not_enforced.collect(),
            taken_at_ns: snapshot.taken_at.0,
        }
    }
}

impl VmView {
    /// Shows a snapshot; `policy` is the name of the one in force on its device.
    pub fn new(snapshot: &VmSnapshot, policy: &str) -> VmView {
        VmView {
            name: snapshot.name.clone(),
            device: snapshot.device.clone(),
            policy: policy.to_owned(),
            background: snapshot.background,
            objective: ObjectiveView::new(&snapshot.objective),
            not_enforced: parts(&snapshot.objective, &snapshot.honours, snapshot.background),
            disks: (snapshot.disks.iter())
                .map(|disk| DiskView {
                    export: disk.export.clone(),
                    size_bytes: disk.size,
                    failed: disk.failed.clone(),
                })
                .collect(),
            clients: snapshot.clients,
            pending: snapshot.pending,
            in_flight: snapshot.in_flight,
        }
    }
}

/// What of an objective is not enforced.
pub(crate) fn parts(objective: &Objective, honours: &Honours, background: bool) -> Vec<PartView> {
    let view = |part: config::Unenforced| PartView {
        part: part.part.to_owned(),
        value: part.value,
        enforced_by: part
            .enforced_by
            .iter()
            .map(|&name| name.to_owned())
            .collect(),
    };
    config::unenforced(objective, honours, background)
        .into_iter()
        .map(view)
        .collect()
}

impl PolicyView {
    /// Shows a policy.
    pub fn new(spec: &PolicySpec) -> PolicyView {
        let (controller, regulator, dispatcher) = spec.parts();
        PolicyView {
            name: spec.name().to_owned(),
            controller: controller.map(str::to_owned),
            regulator: regulator.to_owned(),
            dispatcher: dispatcher.to_owned(),
            enforces: enforces(&spec.honours()),
            params: (spec.params())
                .map(|(info, value)| ParamValue {
                    name: info.name.to_owned(),
                    value: with_unit(info.kind, value),
                })
                .collect(),
        }
    }

    /// Its parameters on one line: `cost_size = 16 KiB, slack = 900 us`.
    pub fn params_in_words(&self) -> String {
        let params = self.params.iter();
        let words: Vec<_> = params
            .map(|p| format!("{} = {}", p.name, p.value))
            .collect();
        words.join(", ")
    }
}

impl PolicyInfoView {
    /// Every policy of the registry, in its order.
    pub fn all() -> Vec<PolicyInfoView> {
        policy::registry()
            .iter()
            .filter_map(PolicyInfoView::new)
            .collect()
    }

    fn new(info: &PolicyInfo) -> Option<PolicyInfoView> {
        let spec = PolicySpec::named(info.name).ok()?;
        Some(PolicyInfoView {
            name: info.name.to_owned(),
            summary: info.summary.to_owned(),
            source: info.source.to_owned(),
            about: info.about.to_owned(),
            controller: info.controller.map(|part| part.name.to_owned()),
            regulator: info.regulator.name.to_owned(),
            dispatcher: info.dispatcher.name.to_owned(),
            enforces: enforces(&spec.honours()),
            params: ParamView::all_of(&spec),
        })
    }
}

impl PolicyPartView {
    /// Every controller, regulator and dispatcher.
    pub fn all() -> Vec<PolicyPartView> {
        fn views<R: ?Sized>(
            role: &'static str,
            parts: &'static [Part<R>],
        ) -> impl Iterator<Item = PolicyPartView> {
            parts.iter().map(move |part| PolicyPartView {
                name: part.name.to_owned(),
                role: role.to_owned(),
                summary: part.summary.to_owned(),
                enforces: enforces(&part.honours),
                params: part.params.iter().map(ParamView::new).collect(),
            })
        }
        views("controller", policy::controllers())
            .chain(views("regulator", policy::regulators()))
            .chain(views("dispatcher", policy::dispatchers()))
            .collect()
    }
}

impl ParamView {
    /// The parameters that a policy has.
    pub fn all_of(spec: &PolicySpec) -> Vec<ParamView> {
        spec.params()
            .map(|(info, _)| ParamView::new(info))
            .collect()
    }

    fn new(info: &ParamInfo) -> ParamView {
        let kind = match info.kind {
            ParamKind::Bytes => "size",
            ParamKind::Duration => "duration",
            ParamKind::Count => "count",
            ParamKind::Flag => "flag",
            ParamKind::Choice(_) => "choice",
        };
        let choices = match info.kind {
            ParamKind::Choice(words) => words.iter().map(|&w| w.to_owned()).collect(),
            _ => Vec::new(),
        };
        let bound = |value| match info.kind {
            ParamKind::Choice(_) => String::new(),
            kind => with_unit(kind, value),
        };
        ParamView {
            name: info.name.to_owned(),
            kind: kind.to_owned(),
            default: with_unit(info.kind, info.default),
            min: bound(info.min),
            max: bound(info.max),
            choices,
            help: info.help.to_owned(),
        }
    }
}

/// A parameter's value as the configuration takes it.
pub fn with_unit(kind: ParamKind, value: u64) -> String {
    match kind {
        ParamKind::Bytes => units::format_bytes(value),
        ParamKind::Duration => units::format_duration(Nanos(value)),
        ParamKind::Count => value.to_string(),
        ParamKind::Flag => (value != 0).to_string(),
        ParamKind::Choice(words) => words[value as usize].to_owned(),
    }
}

fn enforces(honours: &Honours) -> Vec<String> {
    config::honoured(honours)
        .into_iter()
        .map(str::to_owned)
        .collect()
}

impl ObjectiveView {
    /// Shows an objective.
    pub fn new(objective: &Objective) -> ObjectiveView {
        ObjectiveView {
            reservation: said(&objective.reservation),
            limit: (!objective.limit.is_none()).then(|| LimitView::new(&objective.limit)),
            target: said(&objective.target),
            weight: objective.weight,
            latency: objective.latency.map(units::format_duration),
            priority: objective.priority.to_string(),
        }
    }
}

impl LimitView {
    fn new(limit: &Limit) -> LimitView {
        LimitView {
            total: said(&limit.total),
            read: said(&limit.read),
            write: said(&limit.write),
            burst: limit.burst.as_ref().map(|burst| BurstView {
                total: said(&burst.total),
                read: said(&burst.read),
                write: said(&burst.write),
                length: units::format_duration(burst.length),
            }),
        }
    }
}

fn said(rate: &Rate) -> Option<String> {
    (!rate.is_none()).then(|| rate.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_that_was_shown_can_be_given_back() {
        let change = serde_json::json!({
            "reservation": "120 IOPS @ 16 KiB",
            "limit": {
                "total": "500 IOPS, 40 MB/s",
                "write": "20 MB/s",
                "burst": { "total": "2000 IOPS", "length": "10 s" }
            },
            "target": "300 IOPS",
            "weight": 30,
            "latency": "12.5 ms"
        });
        let objective = config::objective::merge(&Objective::default(), &change).expect("good");
        let shown = serde_json::to_value(ObjectiveView::new(&objective)).expect("JSON");
        let again = config::objective::merge(&Objective::default(), &shown).expect("good");
        assert_eq!(again, objective);
    }

    #[test]
    fn every_policy_is_shown_with_units() {
        let all = PolicyInfoView::all();
        assert_eq!(all.len(), policy::registry().len());
        let mclock = all
            .iter()
            .find(|info| info.name == "mclock")
            .expect("registered");
        let cost = mclock
            .params
            .iter()
            .find(|p| p.name == "cost_size")
            .expect("a parameter");
        assert_eq!((cost.kind.as_str(), cost.min.as_str()), ("size", "512 B"));
        assert!(mclock.enforces.iter().any(|part| part == "reservation"));
    }
}
