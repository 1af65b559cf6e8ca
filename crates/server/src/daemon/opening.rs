//! Opening of what a configuration names: disks, sockets, history and store.

use std::path::Path;
use std::sync::Arc;

use super::{StartError, persistence};
use crate::config::{Config, ListenAddress, ListenConfig, StoreConfig, VmConfig};
use crate::event_loop::{Files, Prepared, SetupError};
use crate::exchange::Exchange;
use crate::history::{History, Settings};
use crate::listener::{
    BindError, Bound, ExportCatalogue, ExportList, InheritedSockets, VhostUserListener,
};
use crate::storage_identity::IdentitySource;
use crate::store::Store;
use crate::tls::Configured;

/// Returns the name of the VM that has a disk.
pub(super) fn vm_of(vms: &[VmConfig], export: &str) -> String {
    let has = |vm: &&VmConfig| vm.disks.iter().any(|disk| disk.export == export);
    let vm = vms.iter().find(has);
    vm.expect("a volume is a disk of a VM").name.clone()
}

/// Returns the error for a listener that cannot be bound, at the key that is to blame.
fn not_bound(listen: &ListenConfig, source: BindError) -> StartError {
    let owner = listen.owner.place.as_ref();
    let owner = owner.filter(|_| source.is_about_owner());
    let place = owner.or(listen.place.as_ref()).cloned().map(Box::new);
    StartError::Bind { place, source }
}

/// Binds the sockets of NBD, each with the index of its listener.
pub(super) fn bind_nbd(
    config: &Config,
    inherited: &InheritedSockets,
) -> Result<Vec<(Arc<Bound>, usize)>, StartError> {
    let mut bound = Vec::new();
    for (at, listen) in config.listeners.iter().enumerate() {
        if let ListenAddress::VhostUser { .. } = listen.address {
            continue;
        }
        let socket = Bound::new_or_inherited(&listen.address, &listen.owner, inherited);
        let socket = socket.map_err(|error| not_bound(listen, error))?;
        bound.push((Arc::new(socket), at));
    }
    Ok(bound)
}

/// Returns the listeners of NBD with TLS.
pub(super) fn tls_of(config: &Config) -> Vec<Configured<'_>> {
    let listeners = config.listeners.iter().enumerate();
    let with_tls = listeners.filter_map(|(at, listen)| {
        Configured::new(
            at,
            &listen.address,
            listen.description(),
            listen.tls.as_ref(),
        )
    });
    with_tls.collect()
}

/// Binds the sockets of vhost-user for the disks that there are.
pub(super) fn bind_vhost_user(
    config: &Config,
    catalogue: &Arc<ExportCatalogue>,
    inherited: &InheritedSockets,
) -> Result<Vec<Arc<VhostUserListener>>, StartError> {
    let mut listeners = Vec::new();
    for listen in &config.listeners {
        if let ListenAddress::VhostUser { path, mode } = &listen.address {
            let list = ExportList::new(listen, catalogue.clone());
            let listener = VhostUserListener::new(path.clone(), *mode, &listen.owner, list)
                .and_then(|listener| listener.bind(inherited).map(|()| listener))
                .map_err(|error| not_bound(listen, error))?;
            listeners.push(Arc::new(listener));
        }
    }
    Ok(listeners)
}

/// Opens the disks of all devices, and records that they are served.
pub(super) fn open_disks(
    config: &Config,
    store: Option<&Store>,
    files: &Files,
) -> Result<Vec<Prepared>, SetupError> {
    let devices = 0..config.devices.len();
    let prepared = devices.map(|device| Prepared::open(config, device, files));
    let prepared = prepared.collect::<Result<Vec<_>, _>>()?;
    if let Some(store) = store {
        // Only disks that were opened are recorded.
        persistence::record_disks(store, files, &config.vms);
    }
    Ok(prepared)
}

/// Opens the exchange that the configuration names, and links the devices that are arrays with it.
pub(super) fn open_exchange(
    config: &Config,
    prepared: Vec<Prepared>,
) -> Result<(Option<Exchange>, Vec<Prepared>), StartError> {
    let (exchange, links) = Exchange::open(config)?;
    assert_eq!(links.len(), prepared.len(), "a link, or none, a device");
    let linked = prepared.into_iter().zip(links);
    let linked = linked.map(|(prepared, link)| prepared.with_exchange(link));
    Ok((exchange, linked.collect()))
}

/// Starts the history, unless the configuration turns it off.
pub(super) fn start_history(config: &Config) -> Result<Option<Arc<History>>, StartError> {
    if !config.history.enabled {
        return Ok(None);
    }
    let settings = Settings::new(config.history.directory.clone(), config.history.max_size);
    let sources = config.devices.iter().enumerate().map(|(index, device)| {
        let vms = config.vms.iter().filter(|vm| vm.device == index);
        let vms: Vec<VmConfig> = vms.cloned().collect();
        let source = IdentitySource::of_device(&device.kind, &vms);
        (device.name.clone(), source)
    });
    let sources: Vec<_> = sources.collect();
    let served = move |directory: &Path| {
        let own = IdentitySource::Files(vec![directory.to_owned()]).identity();
        let on_it = sources
            .iter()
            .filter(|(_, source)| source.identity().overlaps(&own));
        on_it.map(|(device, _)| device.clone()).collect()
    };
    let history = History::start(&settings, served).map_err(StartError::History)?;
    Ok(Some(history))
}

pub(super) fn open_store(config: &Config) -> Result<Option<Arc<Store>>, StartError> {
    let open = |store: &StoreConfig| match Store::open(&store.path) {
        Ok(opened) => Ok(Arc::new(opened)),
        Err(source) => Err(StartError::Store {
            place: store.place.clone().map(Box::new),
            source,
        }),
    };
    config.store.as_ref().map(open).transpose()
}
