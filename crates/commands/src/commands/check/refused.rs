//! Files that `tidegate serve` would refuse until they or the configuration change, or warn of.

use tidegate_server::backing::inspect;
use tidegate_server::config::{Config, Diagnostic, ListenAddress, NbdTlsConfig};
use tidegate_server::listener::check_owner;
use tidegate_server::tls;

use super::warning;
use crate::commands::serve;
use crate::problem;

/// Returns an error for each file that `serve` would refuse.
pub(super) fn by_serve(config: &Config) -> Vec<Diagnostic> {
    let mut refused = disks(config);
    refused.extend(tls_files(config));
    refused.extend(owners(config));
    refused.extend(cluster(config));
    refused
}

/// Returns an error if the files of `[cluster]` cannot be used, or this build has no etcd.
fn cluster(config: &Config) -> Option<Diagnostic> {
    let error = serve::check_cluster(config).err()?;
    let problem = problem::for_api(&error);
    let mut refusal = Diagnostic::error(problem.what).located_at("cluster", &(0..0));
    if let Some(help) = problem.allowed {
        refusal = refusal.allowing(help);
    }
    refusal.place = (config.cluster.as_ref()).and_then(|cluster| cluster.place.clone());
    Some(refusal)
}

/// Returns an error for each disk whose file `serve` would refuse until the file or the
/// configuration changes. Changes no file, and does not block on FIFOs or leases.
fn disks(config: &Config) -> Vec<Diagnostic> {
    let disks = (config.vms.iter()).flat_map(|vm| vm.disks.iter().map(move |disk| (vm, disk)));
    let refused = disks.filter_map(|(vm, disk)| {
        // An error that may pass on its own becomes a warning in `missing_paths`.
        let error = inspect(disk).err().filter(|error| !error.may_pass())?;
        let field = format!("vm {:?}: export {:?}", vm.name, disk.export);
        let mut refusal = Diagnostic::error(error.to_string()).located_at(field, &(0..0));
        if let Some(help) = error.help() {
            refusal = refusal.allowing(help);
        }
        refusal.place = disk.place.clone();
        Some(refusal)
    });
    refused.collect()
}

/// Returns an error for each listener whose socket would belong to a user or group that is not
/// there.
fn owners(config: &Config) -> Vec<Diagnostic> {
    let refused = config
        .listeners
        .iter()
        .enumerate()
        .filter_map(|(i, listen)| {
            let socket = match &listen.address {
                ListenAddress::Unix { path, .. } => path.clone(),
                ListenAddress::VhostUser { path, .. } => path.to_string().into(),
                ListenAddress::Tcp(_) => return None,
            };
            let error = check_owner(&listen.owner, &socket).err()?;
            let mut refusal =
                Diagnostic::error(error.to_string()).located_at(format!("listen[{i}]"), &(0..0));
            if let Some(help) = error.help() {
                refusal = refusal.allowing(help);
            }
            refusal.place = listen.owner.place.clone();
            Some(refusal)
        });
    refused.collect()
}

/// Returns an error for each listener, and each disk on a server, whose files of TLS `serve` would
/// refuse.
fn tls_files(config: &Config) -> Vec<Diagnostic> {
    let refused = config.tls().filter_map(|(field, tls)| {
        let error = tls::check(tls).err()?;
        let mut refusal = Diagnostic::error(error.to_string())
            .located_at(field, &(0..0))
            .allowing(error.help());
        refusal.place = tls.place.clone();
        Some(refusal)
    });
    let to_servers = disk_tls(config).filter_map(|(field, tls)| {
        let error = tls::check_server(tls).err()?;
        let mut refusal = Diagnostic::error(error.to_string())
            .located_at(field, &(0..0))
            .allowing(error.help());
        refusal.place = tls.place.clone();
        Some(refusal)
    });
    refused.chain(to_servers).collect()
}

/// Iterates over the TLS of all disks on servers, each with its place in words.
fn disk_tls(config: &Config) -> impl Iterator<Item = (String, &NbdTlsConfig)> {
    let disks = (config.vms.iter()).flat_map(|vm| vm.disks.iter().map(move |disk| (vm, disk)));
    disks.filter_map(|(vm, disk)| {
        let tls = disk.nbd.as_ref()?.tls.as_ref()?;
        let field = format!("vm {:?}: export {:?}: tls", vm.name, disk.export);
        Some((field, tls))
    })
}

/// Returns a warning for each private key that every user can read.
pub(super) fn exposed_keys(config: &Config) -> Vec<Diagnostic> {
    let exposed = config.tls().filter_map(|(field, tls)| {
        let what = tls::exposed_key(&tls.private_key)?;
        let help = format!("chmod 600 {}", tls.private_key.display());
        Some(warning(
            format!("{field}.private_key"),
            what,
            help,
            &tls.place,
        ))
    });
    let of_disks = disk_tls(config).filter_map(|(field, tls)| {
        let key = tls.private_key()?;
        let what = tls::exposed_key(key)?;
        let help = format!("chmod 600 {}", key.display());
        Some(warning(
            format!("{field}.private_key"),
            what,
            help,
            &tls.place,
        ))
    });
    exposed.chain(of_disks).collect()
}
