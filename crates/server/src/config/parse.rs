//! The file as a whole: its sections, references between them, and names that must be unique.

use std::path::Path;
use std::time::Duration;

use tidegate_config::keys::{KeyDefault, KeyInfo};
use tidegate_config::{Field, Names, Section};
use tidegate_core::time::Nanos;

use super::context::Context;
use super::exchange::ExchangeDraft;
use super::listen_address::{AddressKind, ClaimedAddresses, owner, socket_mode, unix_or_tcp};
use super::{
    Config, ControlConfig, DaemonConfig, HistoryConfig, ListenAddress, ListenConfig, PathsConfig,
    RecordingConfig, SocketTemplate, StoreConfig, VmConfig, cluster, context, control, dashboard,
    device, export_names, keys, metrics, nbd, overcommit, recording, tls, vm,
};
use crate::allowed_paths::AllowedPaths;

/// Reads the whole file. `None` if there was an error, which has been reported.
pub(crate) fn document(root: &Field<'_>, context: &Context<'_>) -> Option<Config> {
    let mut section = Section::with_keys(root, &keys::FILE)?;
    let mut sockets = ClaimedAddresses::default();
    let daemon = match section.take("daemon") {
        Some(field) => daemon(&field),
        None => Some(DaemonConfig::default()),
    };
    let has_store = section.has("store");
    let control = match section.take("control") {
        Some(field) => control::read(&field, context, &mut sockets, has_store),
        None => Some(ControlConfig::default()),
    };
    let paths = match section.take("paths") {
        Some(field) => paths(&field, context),
        None => Some(PathsConfig::of_directory(context.base)),
    };
    let mut files = Names::default();
    // Before the VMs: no disk may have the file of the store.
    let store = match section.take("store") {
        Some(field) => store(&field, context, &mut sockets, &mut files).map(Some),
        None => Some(None),
    };
    let beside = (store.iter().flatten().next()).map(|store| store.path.as_path());
    let history = match section.take("history") {
        Some(field) => history(&field, context, beside),
        None => Some(HistoryConfig::beside(beside)),
    };
    let recording = section.take("recording");
    let cluster = cluster::read_if_any(&mut section, context);
    let exchange = ExchangeDraft::take(&mut section, context);
    let metrics = metrics::read_all(&mut section, context, &mut sockets);
    let dashboards = dashboard::read_all(&mut section, context, &mut sockets);
    let listen = section.take_tables(keys::LISTENERS.name);
    let device_tables = section.take_tables(keys::DEVICES.name);
    let vm_tables = section.take_tables("vm");
    require_listeners_and_devices(&section);

    // Devices come first, because VMs refer to them; VMs before listeners, which name exports.
    let drafts = device::read_all(&device_tables, context);
    let mut exports = Names::default();
    let known: Vec<_> = drafts.iter().map(|draft| draft.known.clone()).collect();
    let mut vms = vm::read_file(&vm_tables, &known, &mut exports, files, context);
    let known: Vec<&VmConfig> = vms.iter().flatten().collect();
    let listeners = listeners(&listen, (&exports, &known), &mut sockets, context);
    section.finish();
    let recording = recording_config(recording.as_ref(), store.as_ref(), &drafts, context);
    let exchange = exchange.complete(&drafts);
    warn_of_devices(&drafts, &vms);
    Some(Config {
        file: None,
        sections: sections_as_written(root),
        // Errors return only here, after everything was read, so that all are reported together.
        paths: paths?.of_daemon(nbd::set_daemon(&vm_tables, &mut vms, &listeners, &daemon)),
        daemon: daemon?,
        control: control?,
        store: store?,
        history: history?,
        recording: recording?,
        cluster: cluster?,
        exchange: exchange?,
        metrics: metrics.into_iter().collect::<Option<_>>()?,
        dashboards: dashboards.into_iter().collect::<Option<_>>()?,
        listeners: listeners.into_iter().collect::<Option<_>>()?,
        devices: drafts
            .into_iter()
            .map(|draft| draft.config)
            .collect::<Option<_>>()?,
        vms: vms.into_iter().collect::<Option<_>>()?,
    })
}

/// Returns the keys of all sections but `[[vm]]`, as the file writes them.
fn sections_as_written(root: &Field<'_>) -> serde_json::Value {
    let mut sections = root.node().to_json();
    if let Some(sections) = sections.as_object_mut() {
        sections.remove("vm");
    }
    sections
}

/// Returns where recordings are, by the section or by its defaults. `None`: there was an error.
fn recording_config(
    field: Option<&Field<'_>>,
    store: Option<&Option<StoreConfig>>,
    drafts: &[device::Draft<'_>],
    context: &Context<'_>,
) -> Option<Option<RecordingConfig>> {
    let store = store.and_then(Option::as_ref);
    let Some(field) = field else {
        return Some(RecordingConfig::beside(store));
    };
    let name = |draft: &device::Draft<'_>| draft.config.as_ref().map(|it| it.name.clone());
    let names: Vec<Option<String>> = drafts.iter().map(name).collect();
    let names: Vec<Option<&str>> = names.iter().map(Option::as_deref).collect();
    recording::read(field, store, &names, context).map(Some)
}

/// Reports devices without disks, and those that are promised more than they can do.
fn warn_of_devices(drafts: &[device::Draft<'_>], vms: &[Option<VmConfig>]) {
    for (index, draft) in drafts.iter().enumerate() {
        // A VM with an error may belong to this device, so the warning could be wrong.
        if vms.iter().flatten().all(|vm| vm.device != index) && vms.iter().all(Option::is_some) {
            draft.field.warn(
                "no VM has a disk on it",
                "add a [[vm]], or one with `tidegate vm add` while it is served",
            );
        }
        if let Some(device) = &draft.config {
            let vms = vms.iter().flatten().filter(|vm| vm.device == index);
            overcommit::warn(&draft.field, device, &vms.collect::<Vec<_>>());
        }
    }
}

fn require_listeners_and_devices(section: &Section<'_>) {
    let why = "add the unix socket or the address to which NBD clients connect";
    require_tables(section, &keys::LISTENERS, why);
    let why = "add the file, block device or model that stores the disks";
    require_tables(section, &keys::DEVICES, why);
}

fn require_tables(section: &Section<'_>, key: &KeyInfo, why: &str) {
    if let KeyDefault::Required(example) = key.default
        && !section.has(key.name)
    {
        section.error(format!("no [[{}]] section: {why}", key.name), example);
    }
}

fn daemon(field: &Field<'_>) -> Option<DaemonConfig> {
    let mut section = Section::with_keys(field, &keys::DAEMON)?;
    section.renamed("open_within", keys::OPEN_TIMEOUT.name);
    section.renamed("stop_within", keys::STOP_TIMEOUT.name);
    let open_within = section.number(&keys::OPEN_TIMEOUT);
    let stop_within = section.number(&keys::STOP_TIMEOUT);
    let sandbox = section.flag(&keys::SANDBOX);
    let takeover = section.flag(&keys::TAKEOVER);
    let open_key = section.spelling_in_document(keys::OPEN_TIMEOUT.name);
    let stop_key = section.spelling_in_document(keys::STOP_TIMEOUT.name);
    section.finish();
    Some(DaemonConfig {
        open_within: Duration::from_nanos(open_within?),
        stop_within: Duration::from_nanos(stop_within?),
        sandbox: sandbox?,
        takeover: takeover?,
        open_key,
        stop_key,
    })
}

fn paths(field: &Field<'_>, context: &Context<'_>) -> Option<PathsConfig> {
    let mut section = Section::with_keys(field, &keys::PATHS)?;
    let default = PathsConfig::of_directory(context.base);
    let allowed = section.value(&keys::ALLOW, default.allowed, |field| {
        let paths: Vec<_> = (field.elements()?.iter())
            .map(|field| context.path(field))
            .collect();
        Some(AllowedPaths::new(
            paths.into_iter().collect::<Option<Vec<_>>>()?,
        ))
    });
    section.finish();
    Some(PathsConfig {
        base: default.base,
        allowed: allowed?,
        own_listeners: default.own_listeners,
        sandbox: default.sandbox,
    })
}

fn store(
    field: &Field<'_>,
    context: &Context<'_>,
    sockets: &mut ClaimedAddresses,
    files: &mut Names,
) -> Option<StoreConfig> {
    let mut section = Section::with_keys(field, &keys::STORE)?;
    let path = section.field(&keys::STORE_PATH).and_then(|field| {
        let path = context.path(&field)?;
        let name = path.display().to_string();
        sockets.names.claim(&name, "file", &field);
        files.claim(&name, "file", &field);
        Some(path)
    });
    section.renamed("learnt_every", keys::SNAPSHOT_INTERVAL.name);
    let learnt_every = section.number(&keys::SNAPSHOT_INTERVAL);
    section.finish();
    Some(StoreConfig {
        path: path?,
        learnt_every: Nanos(learnt_every?),
        place: field.find("path").unwrap_or_else(|| field.clone()).place(),
    })
}

/// Reads the section `[history]`; `store`: path of the store.
fn history(
    field: &Field<'_>,
    context: &Context<'_>,
    store: Option<&Path>,
) -> Option<HistoryConfig> {
    let mut section = Section::with_keys(field, &keys::HISTORY)?;
    let enabled = section.flag(&keys::HISTORY_ENABLED);
    let directory = section.field(&keys::HISTORY_DIRECTORY);
    let directory = match directory {
        Some(field) => context.path(&field).map(Some),
        None => Some(HistoryConfig::beside(store).directory),
    };
    let max_size = section.number(&keys::HISTORY_MAX_SIZE);
    section.finish();
    Some(HistoryConfig {
        enabled: enabled?,
        directory: directory?,
        max_size: max_size?,
    })
}

fn listeners(
    fields: &[Field<'_>],
    (exports, vms): (&Names, &[&VmConfig]),
    taken: &mut ClaimedAddresses,
    context: &Context<'_>,
) -> Vec<Option<ListenConfig>> {
    let known = tls::Known { exports, vms };
    fields
        .iter()
        .map(|field| {
            let mut section = Section::with_keys(field, &keys::LISTEN)?;
            let exports = section.value(&keys::EXPORTS, Vec::new(), |field| {
                export_names::read(field, known.exports)
            });
            let disks = disks_of(known.vms, exports.as_deref().unwrap_or_default());
            let address = address(&mut section, context, &disks, taken);
            let owner = owner(&mut section, address.as_ref());
            let here = exports.as_deref().unwrap_or_default();
            let tls = tls::read(&mut section, context, address.as_ref(), here, known);
            section.finish();
            Some(ListenConfig {
                address: address?,
                owner: owner?,
                exports: exports?,
                tls: tls?,
                place: (["unix", "tcp", "vhost_user"].iter())
                    .find_map(|key| field.find(key))
                    .and_then(|field| field.place()),
            })
        })
        .collect()
}

/// Returns the VM and the name of each disk that a listener offers; all for no names.
fn disks_of<'a>(vms: &[&'a VmConfig], only: &[String]) -> Vec<(&'a str, &'a str)> {
    let of_vm = |vm: &&'a VmConfig| {
        let name = vm.name.as_str();
        let disks = vm.disks.iter().map(|disk| disk.export.as_str());
        disks.map(move |disk| (name, disk)).collect::<Vec<_>>()
    };
    let mut disks: Vec<_> = vms.iter().flat_map(of_vm).collect();
    disks.retain(|(_, disk)| only.is_empty() || only.iter().any(|name| name == disk));
    disks
}

/// Reads the template of vhost-user sockets, which must have another path for each disk.
fn vhost_user(
    field: &Field<'_>,
    context: &Context<'_>,
    disks: &[(&str, &str)],
    taken: &mut ClaimedAddresses,
) -> Option<SocketTemplate> {
    let path = context.path(field)?;
    let template = match SocketTemplate::new(&path) {
        Ok(template) => template,
        Err(what) => {
            field.error(what, "{vm}, the VM's name, or {disk}, the export name");
            return None;
        }
    };
    let mut sound = true;
    let mut paths: Vec<(&str, &str, std::path::PathBuf)> = Vec::new();
    for &(vm, disk) in disks {
        let path = template.expand(vm, disk);
        if let Some((_, other, _)) = paths.iter().find(|(_, _, taken)| *taken == path) {
            field.error(
                format!("disks {other:?} and {disk:?} would have one socket"),
                "add {disk}, the export name, where a VM has several disks",
            );
            return None;
        }
        sound &= context::check_length(&path, field);
        (taken.names).claim(&path.display().to_string(), "socket", field);
        paths.push((vm, disk, path));
    }
    sound.then_some(template)
}

fn address(
    section: &mut Section<'_>,
    context: &Context<'_>,
    disks: &[(&str, &str)],
    taken: &mut ClaimedAddresses,
) -> Option<ListenAddress> {
    let (unix, tcp) = (section.field(&keys::UNIX), section.field(&keys::TCP));
    let vhost = section.field(&keys::VHOST_USER);
    let mode_field = section.field(&keys::LISTEN_MODE);
    let Some(field) = vhost else {
        return unix_or_tcp(section, (unix, tcp, mode_field), context, taken, &NBD);
    };
    if unix.is_some() || tcp.is_some() {
        section.error(
            "vhost_user together with another address",
            "one address each: add a second [[listen]]",
        );
        return None;
    }
    let mode = socket_mode(mode_field.as_ref());
    let path = vhost_user(&field, context, disks, taken)?;
    Some(ListenAddress::VhostUser { path, mode: mode? })
}

const NBD: AddressKind = AddressKind {
    examples: "unix = \"nbd.sock\", tcp = \"127.0.0.1:10809\" or vhost_user = \"{disk}.sock\"",
    heading: "[[listen]]",
};
