//! `tidegate check`: checks a configuration, scenario, device model, profile or file of hosts, and
//! shows its meaning.

use std::path::Path;
use tidegate_core::policy::Policy;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use tidegate_api::objective::ObjectiveView;
use tidegate_api::policy::PolicyView;
use tidegate_config::device::DEFAULT_POLICY;
use tidegate_config::{document, profile};
use tidegate_device::catalogue;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_server::backing::{inspect, memory};
use tidegate_server::config::{
    self, ByDefault, Config, ConfigErrors, Create, DeviceKind, Diagnostic, DiskConfig, Loaded,
    NewlyEnforced, Place, VmConfig,
};
use tidegate_server::control::view;
use tidegate_server::error_hints::missing_directory;
use tidegate_server::feasibility;
use tidegate_sim::scenario::{HostCpu, VmSpec};
use tidegate_units::human::{bytes, exact_bytes};
use tidegate_vcpu::scenario as vcpu;

use self::persisted_vms::{Part, PersistedVms};
use self::place_hosts::PlaceHost;
use crate::file_kind::FileKind;
use crate::objective_line;
use crate::output::{self, Output};
use crate::simulate::{self, Changes};

mod disk_limits;
mod persisted_vms;
mod place_hosts;
mod refused;
mod sockets;

/// Result as JSON.
#[derive(Serialize)]
struct Report<'a> {
    good: bool,
    errors: &'a [Diagnostic],
    warnings: &'a [Diagnostic],
    vms: Vec<Vm<'a>>,
    /// Limits that disks share.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    limit_groups: Vec<disk_limits::LimitGroup<'a>>,
    /// Devices without a configured policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    default_policy: Vec<DefaultPolicy<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Model<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vcpus: Option<Vcpus<'a>>,
    /// Hosts of `tidegate place`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<PlaceHost>,
}

impl<'a> Report<'a> {
    fn good(warnings: &'a [Diagnostic]) -> Report<'a> {
        Report {
            good: true,
            errors: &[],
            warnings,
            vms: Vec::new(),
            limit_groups: Vec::new(),
            default_policy: Vec::new(),
            model: None,
            profile: None,
            vcpus: None,
            hosts: Vec::new(),
        }
    }
}

#[derive(Serialize)]
struct Vm<'a> {
    name: &'a str,
    device: &'a str,
    policy: PolicyView,
    objective: ObjectiveView,
    /// Entries of the schedule.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    schedule: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    exports: Vec<&'a str>,
    /// Disks with their own limits; a scenario has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disks: Vec<disk_limits::Disk<'a>>,
    /// Persisted part of the VM.
    #[serde(rename = "kept", skip_serializing_if = "Option::is_none")]
    persisted: Option<Part>,
}

/// Device without a configured policy, which gets the default one.
#[derive(Serialize)]
struct DefaultPolicy<'a> {
    device: &'a str,
    policy: &'static str,
    /// Default policy of earlier builds.
    before: &'static str,
    newly_enforced: Vec<NewPart<'a>>,
}

/// Part of an objective that the present default policy enforces and the earlier one did not.
#[derive(Serialize)]
struct NewPart<'a> {
    vm: &'a str,
    part: &'static str,
    value: String,
    /// Times of the schedule's entry that sets the part; absent for the base objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<String>,
}

impl<'a> DefaultPolicy<'a> {
    fn in_config(config: &'a Config) -> Vec<DefaultPolicy<'a>> {
        let unnamed = config::by_default(config).into_iter();
        let part = |new: NewlyEnforced<'a>| NewPart {
            vm: new.vm,
            part: new.part,
            value: new.value,
            when: new.when,
        };
        unnamed
            .map(|of| DefaultPolicy {
                device: of.device,
                policy: DEFAULT_POLICY,
                before: config::DEFAULT_BEFORE,
                newly_enforced: of.newly_enforced.into_iter().map(part).collect(),
            })
            .collect()
    }
}

/// Device model, which has neither VMs nor a policy.
#[derive(Serialize)]
struct Model<'a> {
    name: &'a str,
    description: &'a str,
    /// Capacity in bytes.
    capacity: u64,
    /// Physical block in bytes.
    physical_block: u32,
    queue_depth: u32,
    /// Largest I/O in bytes.
    max_io: u32,
}

/// Saturation profile, which has neither VMs nor a policy.
#[derive(Serialize)]
struct Profile<'a> {
    device: &'a str,
    measured: &'a str,
    /// Requests outstanding at saturation.
    depth: u32,
    curves: usize,
    points: usize,
}

/// Scenario of vCPUs.
#[derive(Serialize)]
struct Vcpus<'a> {
    title: &'a str,
    scheduler: &'static str,
    pcpus: usize,
    vms: usize,
}

/// Checks a file and prints its meaning or its mistakes.
pub(super) fn run(file: &Path, out: Output) -> Result<()> {
    // A fio job file is no TOML, so `FileKind` cannot tell it from its text.
    if file.extension().is_some_and(|ending| ending == "fio") {
        return scenario(file, out);
    }
    let text = match document::read_text(file) {
        Ok(text) => text,
        Err(what) => return refused(ConfigErrors(vec![Diagnostic::error(what)]), out),
    };
    match FileKind::detect(&text) {
        Some(FileKind::Scenario) => scenario(file, out),
        Some(FileKind::Model) => model(&text, file, out),
        Some(FileKind::Profile) => saturation_profile(&text, file, out),
        Some(FileKind::Vcpus) => vcpus(&text, file, out),
        Some(FileKind::PlaceHosts) => place_hosts::check(file, out),
        // A file of no known kind is most likely a configuration with a mistake, so it is read as
        // one.
        Some(FileKind::Configuration) | None => {
            // Relative paths are relative to the file's directory, as in `serve`.
            let base = file.parent().unwrap_or(Path::new(""));
            match config::parse(&text, &file.display().to_string(), base) {
                Ok(loaded) => accepted(loaded, out),
                Err(errors) => refused(errors, out),
            }
        }
    }
}

fn model(text: &str, file: &Path, out: Output) -> Result<()> {
    let entry = match catalogue::parse(text, &file.display().to_string()) {
        Ok(entry) => entry,
        Err(error) => {
            return refused(
                ConfigErrors(vec![Diagnostic::error(error.to_string())]),
                out,
            );
        }
    };
    let spec = entry.spec();
    if out.is_json() {
        return out.json(&Report {
            model: Some(Model {
                name: &entry.name,
                description: &entry.description,
                capacity: spec.capacity,
                physical_block: spec.physical_block,
                queue_depth: spec.queue_depth,
                max_io: spec.max_io,
            }),
            ..Report::good(&[])
        });
    }
    let mut table = Table::new([
        ("MODEL", Align::Left),
        ("CAPACITY", Align::Right),
        ("BLOCK", Align::Right),
        ("QUEUE", Align::Right),
        ("MAX I/O", Align::Right),
        ("DESCRIPTION", Align::Left),
    ]);
    table.row([
        Cell::from(entry.name.clone()).tone(Tone::Strong),
        bytes(spec.capacity).into(),
        exact_bytes(spec.physical_block.into()).into(),
        spec.queue_depth.to_string().into(),
        exact_bytes(spec.max_io.into()).into(),
        entry.description.clone().into(),
    ]);
    Ok(out.table(&table)?)
}

fn saturation_profile(text: &str, file: &Path, out: Output) -> Result<()> {
    let measured = match profile::parse(text, &file.display().to_string()) {
        Ok(measured) => measured,
        Err(errors) => return refused(errors, out),
    };
    let found = Profile {
        device: &measured.device,
        measured: &measured.measured,
        depth: measured.depth,
        curves: measured.curves.len(),
        points: measured.curves.iter().map(|curve| curve.points.len()).sum(),
    };
    if out.is_json() {
        return out.json(&Report {
            profile: Some(found),
            ..Report::good(&[])
        });
    }
    let mut table = Table::new([
        ("PROFILE OF", Align::Left),
        ("MEASURED", Align::Left),
        ("DEPTH", Align::Right),
        ("CURVES", Align::Right),
        ("POINTS", Align::Right),
    ]);
    table.row([
        Cell::from(found.device).tone(Tone::Strong),
        found.measured.into(),
        found.depth.to_string().into(),
        found.curves.to_string().into(),
        found.points.to_string().into(),
    ]);
    Ok(out.table(&table)?)
}

fn vcpus(text: &str, file: &Path, out: Output) -> Result<()> {
    let loaded = match vcpu::read(text, &file.display().to_string(), None) {
        Ok(loaded) => loaded,
        Err(errors) => return refused(errors, out),
    };
    loaded.notes.iter().for_each(tell_note);
    let scenario = &loaded.config;
    let found = Vcpus {
        title: &scenario.frame.title,
        scheduler: scenario.scheduler.name(),
        pcpus: scenario.host.pcpus,
        vms: scenario.vms.len(),
    };
    if out.is_json() {
        return out.json(&Report {
            vcpus: Some(found),
            ..Report::good(&loaded.warnings)
        });
    }
    let mut table = Table::new([
        ("VCPUS OF", Align::Left),
        ("SCHEDULER", Align::Left),
        ("PCPUS", Align::Right),
        ("KINDS OF VM", Align::Right),
    ]);
    table.row([
        Cell::from(found.title).tone(Tone::Strong),
        found.scheduler.into(),
        found.pcpus.to_string().into(),
        found.vms.to_string().into(),
    ]);
    out.table(&table)?;
    for warning in &loaded.warnings {
        output::tell(format_args!("\n{warning}"));
    }
    Ok(())
}

fn scenario(file: &Path, out: Output) -> Result<()> {
    let ready = match simulate::load(file, &Changes::default()) {
        Ok(ready) => ready,
        Err(error) => {
            return match error.downcast::<ConfigErrors>() {
                Ok(errors) => refused(errors, out),
                Err(error) => Err(error),
            };
        }
    };
    ready.old_spellings.iter().for_each(tell_note);
    let devices = &ready.scenario.devices;
    let device = |vm: &VmSpec| &devices[vm.device];
    let vms = || ready.scenario.vms.iter();
    if out.is_json() {
        let vms = vms().map(|vm| Vm {
            name: &vm.name,
            device: &device(vm).name,
            policy: view::policy(&device(vm).scheduling.policy),
            objective: view::objective(&vm.objective),
            // A scenario has no time of day, no exports and no store.
            schedule: Vec::new(),
            timezone: None,
            exports: Vec::new(),
            disks: Vec::new(),
            persisted: None,
        });
        return out.json(&Report {
            vms: vms.collect(),
            ..Report::good(&ready.warnings)
        });
    }
    let mut table = Table::new([
        ("VM", Align::Left),
        ("DEVICE", Align::Left),
        ("POLICY", Align::Left),
        ("DISK", Align::Right),
        ("WORKLOADS", Align::Right),
        ("OBJECTIVE", Align::Left),
    ]);
    for vm in vms() {
        table.row([
            Cell::from(vm.name.clone()).tone(Tone::Strong),
            device(vm).name.clone().into(),
            device(vm).scheduling.policy.name().into(),
            bytes(vm.disk_size).into(),
            vm.workloads.len().to_string().into(),
            objective_line::in_words(vm.background, &view::objective(&vm.objective)).into(),
        ]);
    }
    out.table(&table)?;
    if let Some(cpu) = &ready.scenario.cpu {
        out.text(&processors(cpu))?;
    }
    for warning in &ready.warnings {
        output::tell(format_args!("\n{warning}"));
    }
    for note in &ready.notes {
        output::tell(note);
    }
    Ok(())
}

/// Prints a note about an old spelling on standard error, whatever the output format.
fn tell_note(note: &Diagnostic) {
    output::tell(format_args!("{note}\n"));
}

/// Returns a line on the simulated host CPU.
fn processors(cpu: &HostCpu) -> String {
    let driver = match &cpu.driver {
        Some(driver) => format!("a driver domain of {} vCPUs", driver.cpu.vcpus),
        None => "no driver domain".to_owned(),
    };
    let (scheduler, pcpus) = (cpu.scheduler.name(), cpu.machine.pcpus);
    format!("\n{scheduler} on {pcpus} pCPUs, with {driver}\n")
}

/// Reports mistakes, also as JSON where asked for, and fails.
fn refused(errors: ConfigErrors, out: Output) -> Result<()> {
    if out.is_json() {
        let report = Report {
            good: false,
            errors: &errors.0,
            ..Report::good(&[])
        };
        out.json(&report)?;
    }
    // Printed once more on standard error, so that the command fails in both formats.
    Err(errors.into())
}

/// Checks what only matters for `serve`, and prints the configuration.
fn accepted(loaded: Loaded, out: Output) -> Result<()> {
    let Loaded {
        mut config,
        mut warnings,
        notes,
    } = loaded;
    notes.iter().for_each(tell_note);
    let mut unfit = refused::by_serve(&config);
    // `serve` would refuse these, so they are errors here, and the warnings are shown with them.
    if !unfit.is_empty() {
        unfit.extend(warnings);
        return refused(ConfigErrors(unfit), out);
    }
    warnings.extend(missing_paths(&config));
    warnings.extend(memory::beyond_host(config.disks()).map(|what| {
        let help = "smaller disks, or disks in files: kind = \"file\"".to_owned();
        warning("vm".to_owned(), what, help, &None)
    }));
    warnings.extend(ended_entries(&config));
    warnings.extend(refused::exposed_keys(&config));
    // The store's VMs are added before feasibility is checked, because they share the devices.
    let persisted = PersistedVms::apply_store(&mut config, &mut warnings);
    warnings.extend(feasibility::warnings(&config.devices, &config.vms));
    warnings.extend(feasibility::best_effort_warnings(&config.vms));
    warnings.extend(feasibility::disk_limit_warnings(
        &config.devices,
        &config.vms,
    ));
    warnings.extend(feasibility::near_limit_warnings(
        &config.devices,
        &config.vms,
    ));
    if out.is_json() {
        let vm = |vm: &'_ VmConfig| {
            let device = &config.devices[vm.device];
            (
                view::policy(&device.scheduling.policy),
                view::objective(&vm.objective),
            )
        };
        let vms = config.vms.iter().map(|it| {
            let (policy, objective) = vm(it);
            Vm {
                name: &it.name,
                device: &config.devices[it.device].name,
                policy,
                objective,
                schedule: (it.schedule.as_ref())
                    .map_or_else(Vec::new, |schedule| schedule.entries_to_json()),
                timezone: it.promised().timezone().map(str::to_owned),
                exports: it.disks.iter().map(|disk| disk.export.as_str()).collect(),
                disks: disk_limits::disks(it),
                persisted: persisted.part(&it.name),
            }
        });
        return out.json(&Report {
            vms: vms.collect(),
            limit_groups: disk_limits::groups(&config),
            default_policy: DefaultPolicy::in_config(&config),
            ..Report::good(&warnings)
        });
    }
    out.text(&describe(&config, &persisted, out))?;
    for warning in &warnings {
        output::tell(format_args!("\n{warning}"));
    }
    Ok(())
}

fn describe(config: &Config, persisted: &PersistedVms, out: Output) -> String {
    let mut devices = Table::new([
        ("DEVICE", Align::Left),
        ("KIND", Align::Left),
        ("POLICY", Align::Left),
        ("DEPTH", Align::Right),
        ("MAX I/O", Align::Right),
    ]);
    for device in &config.devices {
        devices.row([
            device.name.clone(),
            kind(&device.kind),
            device.scheduling.policy.name().to_owned(),
            device.scheduling.depth.to_string(),
            exact_bytes(device.scheduling.max_io.into()),
        ]);
    }
    let mut tables = vec![devices, vm_table(config, persisted)];
    tables.extend(disk_limits::table(config));
    tables.push(sockets::table(config));
    if let Some(store) = &config.store {
        let mut place = Table::new([("STORE", Align::Left)]);
        place.row([store.path.display().to_string()]);
        tables.push(place);
    }
    let tables: Vec<_> = (tables.iter())
        .map(|table| table.render(out.style()))
        .collect();
    tables.join("\n") + &by_default(&config::by_default(config), out)
}

fn vm_table(config: &Config, persisted: &PersistedVms) -> Table {
    let mut columns = vec![
        ("VM", Align::Left),
        ("DEVICE", Align::Left),
        ("EXPORT", Align::Left),
        ("SIZE", Align::Right),
        ("BACKED BY", Align::Left),
        ("OBJECTIVE", Align::Left),
    ];
    let has_disk_limits = disk_limits::exist(config);
    if has_disk_limits {
        columns.push(("DISK LIMIT", Align::Left));
    }
    let mut vms = Table::new(columns);
    for vm in &config.vms {
        let device = &config.devices[vm.device];
        for (i, disk) in vm.disks.iter().enumerate() {
            // Columns of the VM are filled only in the row of its first disk.
            let first = |text: String| if i == 0 { text } else { String::new() };
            let mut row = vec![
                Cell::from(first(vm.name.clone())).tone(Tone::Strong),
                first(device.name.clone()).into(),
                disk.export.clone().into(),
                disk.size
                    .map_or("of the file".to_owned(), exact_bytes)
                    .into(),
                backed_by(disk).into(),
                first(promise(vm, persisted)).into(),
            ];
            if has_disk_limits {
                row.push(disk_limits::in_words(disk).into());
            }
            vms.row(row);
        }
    }
    vms
}

/// Returns the devices without a configured policy and the parts that the default policy newly
/// enforces; empty if all devices have a policy.
fn by_default(unnamed: &[ByDefault<'_>], out: Output) -> String {
    if unnamed.is_empty() {
        return String::new();
    }
    let devices: Vec<_> = unnamed
        .iter()
        .map(|of| format!("{:?}", of.device))
        .collect();
    let before = config::DEFAULT_BEFORE;
    let mut text = format!(
        "\nNo policy is configured for {}: the default is {DEFAULT_POLICY} ({before} in earlier \
         builds).\n",
        devices.join(", ")
    );
    let mut parts = Table::new([
        ("NEWLY ENFORCED", Align::Left),
        ("PART", Align::Left),
        ("VALUE", Align::Left),
        ("WHEN", Align::Left),
    ]);
    let newly = unnamed.iter().flat_map(|of| &of.newly_enforced);
    for new in newly {
        let when = new.when.clone().unwrap_or_else(|| "always".to_owned());
        parts.row([
            new.vm.to_owned(),
            new.part.to_owned(),
            new.value.clone(),
            when,
        ]);
    }
    if unnamed.iter().any(|of| !of.newly_enforced.is_empty()) {
        text += &parts.render(out.style());
    }
    text
}

fn promise(vm: &VmConfig, persisted: &PersistedVms) -> String {
    let promise = objective_line::in_words(vm.background, &view::objective(&vm.objective));
    let promise = match vm.promised().entries().len() {
        0 => promise,
        1 => format!("{promise}; 1 schedule entry"),
        n => format!("{promise}; {n} schedule entries"),
    };
    match persisted.part(&vm.name) {
        None => promise,
        Some(Part::Vm) => format!("{promise} (VM persisted)"),
        Some(Part::Objective) => format!("{promise} (persisted)"),
    }
}

fn kind(kind: &DeviceKind) -> String {
    match kind {
        DeviceKind::File => "file".to_owned(),
        DeviceKind::Memory => "memory".to_owned(),
        DeviceKind::Nbd => "NBD servers".to_owned(),
        DeviceKind::Emulated { model } => format!("emulated {}", model.name),
    }
}

fn backed_by(disk: &DiskConfig) -> String {
    let path = disk.path.as_ref();
    let path = path.map_or("memory".to_owned(), |path| path.display().to_string());
    let created = match disk.create {
        Create::No => "",
        Create::Sparse => ", created sparse",
        Create::Preallocated => ", created preallocated",
    };
    let read_only = if disk.read_only { ", read-only" } else { "" };
    let incoming = if disk.incoming { ", incoming" } else { "" };
    format!("{path}{created}{read_only}{incoming}")
}

/// Returns a warning if `serve` could not open the disk's file at the moment, for example for lack
/// of permission, or if the file might be meant otherwise than it is served.
fn unopened(vm: &VmConfig, disk: &DiskConfig, path: &Path) -> Option<Diagnostic> {
    let field = format!("vm {:?}", vm.name);
    let error = match inspect(disk) {
        Ok(found) => {
            let found = found?;
            let what = format!("{}: {}", path.display(), found.what);
            return Some(warning(field, what, found.help.to_owned(), &disk.place));
        }
        Err(error) => error,
    };
    let help = error
        .help()
        .unwrap_or_else(|| format!("`tidegate serve` must be able to open {}", path.display()));
    Some(warning(field, error.to_string(), help, &disk.place))
}

/// Returns warnings for files and directories that `serve` would not find now, but may find later.
fn missing_paths(config: &Config) -> Vec<Diagnostic> {
    let disks = (config.vms.iter()).flat_map(|vm| vm.disks.iter().map(move |disk| (vm, disk)));
    let disks = disks.filter_map(|(vm, disk)| {
        let path = disk.path.as_ref()?;
        if path.exists() {
            return unopened(vm, disk, path);
        }
        let field = format!("vm {:?}", vm.name);
        if disk.create != Create::No {
            return nowhere(field, path, &disk.place);
        }
        let what = format!("{} does not exist yet", path.display());
        let help = "create it before `tidegate serve`, or add create = \"sparse\" and a size";
        Some(warning(field, what, help.to_owned(), &disk.place))
    });
    let store = (config.store.as_ref())
        .and_then(|store| nowhere("store.path".to_owned(), &store.path, &store.place));
    disks
        .chain(sockets::missing_directories(config))
        .chain(store)
        .collect()
}

/// Returns a warning if the directory of a file that `serve` makes does not exist.
fn nowhere(field: String, path: &Path, place: &Option<Place>) -> Option<Diagnostic> {
    let help = missing_directory(path)?;
    let what = format!("{} cannot be created yet", path.display());
    Some(warning(field, what, help, place))
}

/// Returns warnings for schedule entries that are over for good.
fn ended_entries(config: &Config) -> Vec<Diagnostic> {
    let of_vm = |vm: &VmConfig| {
        let field = format!("vm {:?}: objective.schedule", vm.name);
        let warnings = vm.entries_over().into_iter().map(|(number, when)| {
            let what = format!("entry {number} ({when}) is in the past");
            warning(field.clone(), what, "remove it".to_owned(), &None)
        });
        warnings.collect::<Vec<_>>()
    };
    config.vms.iter().flat_map(of_vm).collect()
}

fn warning(field: String, what: String, help: String, place: &Option<Place>) -> Diagnostic {
    let mut warning = (Diagnostic::error(what).warning())
        .located_at(field, &(0..0))
        .allowing(help);
    warning.place = place.clone();
    warning
}
