//! `tidegate check` of a file of hosts for `tidegate place --hosts`.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use tidegate_cluster::HostRecord;
use tidegate_config::ConfigErrors;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::bytes_per_s;

use super::{Report, refused};
use crate::commands::place::hosts;
use crate::output::Output;

/// Host as JSON, in the words of `tidegate place host list`.
#[derive(Serialize)]
pub(super) struct PlaceHost {
    host: String,
    bandwidth_bytes_per_s: u64,
    /// Bandwidth lost with one job, two jobs and so on.
    loss_bytes_per_s: Vec<u64>,
    jobs_at_most: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

impl From<HostRecord> for PlaceHost {
    fn from(host: HostRecord) -> PlaceHost {
        PlaceHost {
            host: host.name,
            bandwidth_bytes_per_s: host.bandwidth,
            loss_bytes_per_s: host.loss,
            jobs_at_most: host.max_transfers,
            socket: host.socket,
            device: host.device,
        }
    }
}

/// Checks a file of hosts and prints them, or its mistakes. No database and no daemon is asked.
pub(super) fn check(file: &Path, out: Output) -> Result<()> {
    let read = match hosts::read(file) {
        Ok(read) => read,
        Err(error) => {
            return match error.downcast::<ConfigErrors>() {
                Ok(errors) => refused(errors, out),
                Err(error) => Err(error),
            };
        }
    };
    let hosts: Vec<PlaceHost> = read.hosts.into_iter().map(PlaceHost::from).collect();
    if out.is_json() {
        return out.json(&Report {
            hosts,
            ..Report::good(&[])
        });
    }
    let mut table = Table::new([
        ("HOST", Align::Left),
        ("BANDWIDTH", Align::Right),
        ("LOSS", Align::Right),
        ("MOST JOBS", Align::Right),
        ("SOCKET", Align::Left),
        ("DEVICE", Align::Left),
    ]);
    for host in hosts {
        let loss = host.loss_bytes_per_s.iter();
        let loss: Vec<_> = loss.map(|&loss| bytes_per_s(loss as f64)).collect();
        // Without a socket the host has no daemon, and so no device of one.
        let device = host.device.unwrap_or_else(|| match host.socket {
            Some(_) => "all".to_owned(),
            None => String::new(),
        });
        table.row([
            Cell::from(host.host).tone(Tone::Strong),
            bytes_per_s(host.bandwidth_bytes_per_s as f64).into(),
            loss.join(", ").into(),
            host.jobs_at_most.to_string().into(),
            host.socket.unwrap_or_default().into(),
            device.into(),
        ]);
    }
    Ok(out.table(&table)?)
}
