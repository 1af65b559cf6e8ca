//! Reader of a scenario document.
//!
//! Settings that scenarios share with the daemon's configuration (bounds of devices, policies,
//! objectives) have the same words there and are read by the same code.

mod disk;
mod vms;

use super::cpu;
use super::distances::{self, default_distances};
use super::{Action, Change, Copies, Device, Exchange, Path, Scenario, VmSpec, keys};
use tidegate_config::device::{Scheduling, limit_groups};
use tidegate_config::frame::FrameDraft;
use tidegate_config::keys::KeyInfo;
use tidegate_config::library::{self, Library};
use tidegate_config::{
    ConfigErrors, Diagnostic, Field, Loaded, Names, Section, device, document, objective, policy,
};
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_units::format_duration;
use tidegate_workload::read::times;
use tidegate_workload::time::TimeDistribution;
use vms::Reader;

/// Reads and checks a scenario. `file` is its name in messages; `library` finds device models and
/// profiles. With `policy`, every device uses that policy; a device that already names it keeps its
/// parameters.
///
/// # Errors
/// Returns every mistake with its line, the value found and the allowed values.
pub fn read(
    text: &str,
    file: &str,
    library: &dyn Library,
    policy: Option<&PolicySpec>,
) -> Result<Loaded<Scenario>, ConfigErrors> {
    let loaded = document::read(text, file, |root| from_field(root, library, policy))?;
    // Some mistakes show only in the complete scenario.
    match loaded.config.check() {
        Ok(()) => Ok(loaded),
        Err(error) => {
            let error = Diagnostic::error(format!("{file}: {error}"));
            Err(ConfigErrors(vec![error]))
        }
    }
}

/// Reads the scenario of a document's root, as [`read`] does with a text. Mistakes are reported to
/// the field; [`Scenario::check`] has still to be called.
pub fn from_field(
    root: &Field<'_>,
    library: &dyn Library,
    policy: Option<&PolicySpec>,
) -> Option<Scenario> {
    let mut section = Section::with_keys(root, &keys::SCENARIO)?;
    let frame = FrameDraft::read(&mut section, &keys::FRAME);
    let duration = frame.duration;
    let tables = [
        (
            "device",
            "at least one device is required",
            "name = \"disk\" and model = \"hdd-7200-1tb\"",
        ),
        (
            "vm",
            "at least one VM is required",
            "name = \"oltp\" and a [[vm.workload]]",
        ),
    ];
    for (key, why, example) in tables {
        // Reported here rather than as an empty list, so that the message says what to add.
        if !section.has(key) {
            let what = format!("no [[{key}]] section: {why}");
            section.error(what, &format!("add a [[{key}]] with {example}"));
        }
    }
    let mut names = Names::default();
    // A device with a mistake keeps its index, which VMs refer to.
    let devices: Vec<Option<Device>> = (section.take_tables("device").iter())
        .map(|field| read_device(field, &mut names, library, policy))
        .collect();
    let cpu = section.read("host", None, |field| cpu::read_host(field).map(Some));
    let mut reader = Reader {
        duration,
        cpu,
        devices: &devices,
        library,
        names: Names::default(),
        vms: Some(Vec::new()),
        copies: Copies::new(),
    };
    // VMs first: indices, and so the order of reports, do not depend on the file.
    for (key, background) in [("vm", false), ("background", true)] {
        for field in section.take_tables(key) {
            reader.vms(&field, key, background);
        }
    }
    let Reader { vms, copies, .. } = reader;
    // Events name VMs, so that nothing can be said of them after a mistake in a VM.
    let known = vms.as_deref().map(|all| (all, &copies));
    let events = section.take_tables("event");
    let changes = read_changes(&events, duration, &devices, known);
    section.finish();
    let frame = frame.complete()?;
    Some(Scenario {
        frame,
        devices: devices.into_iter().collect::<Option<_>>()?,
        vms: vms?,
        copies,
        changes: changes?,
        cpu: cpu?,
    })
}

fn read_device(
    field: &Field<'_>,
    names: &mut Names,
    library: &dyn Library,
    instead: Option<&PolicySpec>,
) -> Option<Device> {
    let field = field.labelled("device");
    let mut section = Section::with_keys(&field, &keys::DEVICE)?;
    let name = section.unique_name(&keys::DEVICE_NAME, "device", names);
    let model = section
        .field(&keys::MODEL)
        .and_then(|field| library::model_from(&field, library));
    let policy = device::policy(&mut section).map(|own| match instead {
        // The policy of the command line, unless the file has parameters for that one.
        Some(other) if other.name() != own.name() => other.clone(),
        _ => own,
    });
    let spec = model.as_ref().map(|entry| entry.spec());
    let scheduling = Scheduling::read(&mut section, policy, spec, library);
    let groups = limit_groups::read(&mut section, &mut Vec::new());
    let distances = section.value(&keys::DISTANCES, default_distances(), distances::read);
    let exchange = section.value(&keys::EXCHANGE, Exchange::default(), read_exchange);
    section.renamed("path", "transport");
    let path = section.value(&keys::TRANSPORT, Path::default(), read_transport);
    section.finish();
    Some(Device {
        name: name?,
        model: model?,
        scheduling: scheduling?,
        bounded: true,
        exchange: exchange?,
        path: path?,
        limit_groups: groups?,
        distances: distances?,
    })
}

/// VMs and background processes that an event can name.
type Known<'a> = (&'a [VmSpec], &'a Copies);

/// Index of the device that a VM or an event names; by default the only one.
fn device_index(section: &mut Section<'_>, devices: &[Option<Device>]) -> Option<usize> {
    let name = |device: &Option<Device>| device.as_ref().map(|device| device.name.clone());
    let names: Vec<Option<String>> = devices.iter().map(name).collect();
    let Some(field) = section.field(&keys::ON_DEVICE) else {
        if devices.len() > 1 {
            section.error(
                "does not say which device it is on",
                "device = \"NAME\", one of the [[device]]s' names",
            );
        }
        // Without any device the missing section has been reported.
        return (devices.len() == 1).then_some(0);
    };
    if names.iter().any(Option::is_none) {
        // The list of names is incomplete, because a device was wrong, which is reported already.
        let wanted = field.text()?;
        return names
            .iter()
            .position(|name| name.as_deref() == Some(wanted));
    }
    let wanted = field.reference("device", names.iter().flatten().map(String::as_str))?;
    names
        .iter()
        .position(|name| name.as_deref() == Some(wanted))
}

/// Reads the time of a change, and warns if it lies after the end, where it has no effect.
fn read_event_time(field: &Field<'_>, duration: Option<Nanos>) -> Option<Nanos> {
    let at = field.duration(Nanos::ZERO..=keys::LONGEST)?;
    if let Some(end) = duration.filter(|&end| at >= end) {
        let (at, end) = (format_duration(at), format_duration(end));
        let what = format!("{at} is after the end, at {end}: it never happens");
        field.warn(what, "a time before that, or a longer duration");
    }
    Some(at)
}

/// Reads the delay and loss of messages between hosts.
fn read_exchange(field: &Field<'_>) -> Option<Exchange> {
    let mut section = Section::with_keys(field, &keys::EXCHANGE_TABLE)?;
    let delay = read_time_distribution(&mut section, &keys::MESSAGE_DELAY);
    let loss = section.value(&keys::LOSS, 0, Field::thousandths);
    section.finish();
    Some(Exchange {
        delay: delay?,
        loss: loss?,
    })
}

/// Reads the network between a device and its hosts.
fn read_transport(field: &Field<'_>) -> Option<Path> {
    let mut section = Section::with_keys(field, &keys::TRANSPORT_TABLE)?;
    let submit = read_time_distribution(&mut section, &keys::TRANSPORT_SUBMIT);
    let complete = read_time_distribution(&mut section, &keys::TRANSPORT_COMPLETE);
    section.finish();
    Some(Path {
        submit: submit?,
        complete: complete?,
    })
}

/// Reads an optional time distribution.
fn read_time_distribution(
    section: &mut Section<'_>,
    key: &KeyInfo,
) -> Option<Option<TimeDistribution>> {
    section.value(key, None, |field| times(field).map(Some))
}

/// Reads all changes, in the order of time. Settings that an event does not name stay as earlier
/// events left them.
fn read_changes(
    fields: &[Field<'_>],
    duration: Option<Nanos>,
    devices: &[Option<Device>],
    vms: Option<Known<'_>>,
) -> Option<Vec<Change>> {
    let mut events: Vec<Option<(Nanos, Section<'_>)>> = (fields.iter())
        .map(|field| {
            let mut section = Section::with_keys(field, &keys::EVENT)?;
            let at = section
                .field(&keys::EVENT_AT)
                .and_then(|field| read_event_time(&field, duration));
            // Without a time the rest is still read, to report all mistakes.
            Some((at.unwrap_or(Nanos::MAX), section))
        })
        .collect();
    // Before the objectives are applied: an event changes what the one before it left.
    events.sort_by_key(|event| event.as_ref().map(|(at, _)| *at));
    let mut objectives: Option<Vec<Objective>> =
        vms.map(|(all, _)| all.iter().map(|vm| vm.objective).collect());
    let mut all = Some(Vec::new());
    for event in events {
        let read = event.and_then(|(at, section)| {
            let now = vms.zip(objectives.as_deref_mut());
            Some((at, read_actions(section, devices, now)?))
        });
        match (&mut all, read) {
            // `Nanos::MAX` stands for a time that was wrong, see above.
            (Some(all), Some((at, actions))) if at != Nanos::MAX => {
                all.extend(actions.into_iter().map(|action| Change { at, action }));
            }
            _ => all = None,
        }
    }
    all
}

/// Reads one event. `vms` are all VMs with their objectives at that time, if all were read
/// without mistakes.
fn read_actions(
    mut section: Section<'_>,
    devices: &[Option<Device>],
    vms: Option<(Known<'_>, &mut [Objective])>,
) -> Option<Vec<Action>> {
    let (vm, to_objective) = (
        section.field(&keys::EVENT_VM),
        section.field(&keys::EVENT_OBJECTIVE),
    );
    let to_policy = section.field(&keys::EVENT_POLICY);
    let actions = match (vm, to_objective, to_policy) {
        (Some(vm), Some(to), None) => {
            if let Some(device) = section.field(&keys::EVENT_DEVICE) {
                device.error("an objective is of a VM, not of a device", "leave it out");
            }
            vms.and_then(|(vms, now)| read_objectives(&vm, &to, vms, now))
        }
        (None, None, Some(to)) => {
            let policy = policy::from_field(&to);
            let device = device_index(&mut section, devices);
            device.zip(policy).and_then(|(device, policy)| {
                let on = devices[device].as_ref();
                // A device with a mistake is given the benefit of the doubt.
                let measured = on.is_none_or(|on| on.scheduling.profile.is_some());
                if let Err(error) = policy.check_profile(measured) {
                    to.error(error.to_string(), device::NEEDS_PROFILE);
                    return None;
                }
                Some(vec![Action::Policy { device, policy }])
            })
        }
        _ => {
            // Counts as read, so that it is not reported as an unknown key as well.
            section.field(&keys::EVENT_DEVICE);
            section.error(
                "changes nothing, or too much at once",
                "a vm and its objective, or a policy",
            );
            None
        }
    };
    section.finish();
    actions
}

/// Reads changed objectives. The name of a table with a count stands for all of its VMs.
fn read_objectives(
    vm: &Field<'_>,
    to: &Field<'_>,
    (vms, copies): Known<'_>,
    now: &mut [Objective],
) -> Option<Vec<Action>> {
    let wanted = vm.text()?;
    let alone = || vms.iter().position(|vm| vm.name == wanted);
    let found = match copies.get(wanted) {
        Some(range) => range.clone(),
        None => alone().map_or(0..0, |place| place..place + 1),
    };
    if found.is_empty() {
        let names = vms.iter().map(|vm| vm.name.as_str());
        // Never found here: the call reports the mistake, with the nearest name.
        vm.reference("VM", copies.keys().map(String::as_str).chain(names))?;
    }
    let change = |vm: usize| {
        // On top of the objective in force, as settings that are not named stay.
        now[vm] = objective::from_field(to, &now[vm])?;
        let objective = Box::new(now[vm]);
        Some(Action::Objective { vm, objective })
    };
    found.map(change).collect()
}
