//! Jobs that are started where they go, on their hosts' daemons.

use std::path::Path;

use anyhow::Result;
use hyper::Method;
use serde::Deserialize;
use serde_json::json;
use tidegate_place::{HostId, Request};

use super::exact;
use super::kept::KeptHost;
use super::state::Place;
use crate::client::{Client, escape, read};
use crate::problem::Problem;

#[derive(Deserialize)]
struct VmOfHost {
    name: String,
    device: String,
}

/// Whether a host's daemon serves a VM, on the device that is the host.
fn serves(host: &KeptHost, vm: &str) -> Result<bool> {
    let Some(socket) = &host.socket else {
        return Ok(false);
    };
    let all: Vec<VmOfHost> = read(Client::new(Path::new(socket))?.get("/v1/vms")?)?;
    let is_it = |of: &VmOfHost| {
        let device = host.device.as_ref();
        of.name == vm && device.is_none_or(|device| *device == of.device)
    };
    Ok(all.iter().any(is_it))
}

impl Place {
    /// Only hosts whose daemon serves a VM are asked from now on.
    ///
    /// # Errors
    /// Where none does.
    pub(super) fn only_where_it_is_served(&mut self, vm: &str) -> Result<()> {
        let mut there = 0;
        for (at, host) in self.kept.hosts.iter().enumerate() {
            match !host.drained && serves(host, vm)? {
                true => there += 1,
                false => self.pcos.close_host(self.now, HostId(at)),
            }
        }
        if there > 0 {
            return Ok(());
        }
        let what = format!("no host has a VM {vm:?}, so its job cannot be started");
        let problem = Problem::new(what).at("--start");
        let with_daemon = self.kept.hosts.iter().filter(|host| host.socket.is_some());
        let names: Vec<_> = with_daemon.map(|host| host.name.as_str()).collect();
        Err(match names.as_slice() {
            [] => problem.help("no host names the control socket of a daemon: socket = \"PATH\" in the file of hosts"),
            names => problem.help(format!(
                "a job that is started has the name of a VM of the daemon of {}; without --start it is only placed",
                names.join(", ")
            )),
        }
        .into())
    }

    /// Starts the job of a VM where it was placed.
    pub(super) fn start(&self, host: HostId, vm: &str, request: &Request) -> Result<()> {
        start(&self.kept.hosts[host.0], vm, request)
    }
}

fn start(host: &KeptHost, vm: &str, request: &Request) -> Result<()> {
    let socket = host.socket.as_deref().unwrap_or_default();
    let order = json!({
        "size": format!("{} B", request.bytes()),
        "deadline": exact(request.deadline()),
    });
    let path = format!("/v1/vms/{}/job", escape(vm));
    Client::new(Path::new(socket))?.change(Method::PUT, &path, &order)?;
    Ok(())
}

/// Starts the job of a VM that has waited, and says what came of it.
pub(super) fn said(host: &KeptHost, vm: &str, request: Option<&Request>) -> String {
    let Some(request) = request else {
        return String::new();
    };
    match start(host, vm, request) {
        Ok(()) => ", and is started there".to_owned(),
        Err(error) => format!("; it could not be started there: {error}"),
    }
}
