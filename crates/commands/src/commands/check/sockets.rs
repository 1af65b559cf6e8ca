//! Sockets and addresses of a configuration.

use tidegate_report::{Align, Table};
use tidegate_server::config::{Config, Diagnostic, ListenAddress, Place};

use super::nowhere;

/// Returns the table of all sockets and addresses with what they serve.
pub(super) fn table(config: &Config) -> Table {
    let mut sockets = Table::new([("SOCKET", Align::Left), ("SERVES", Align::Left)]);
    for listen in &config.listeners {
        let offers = match listen.exports.as_slice() {
            [] => "all exports".to_owned(),
            exports => exports.join(", "),
        };
        sockets.row([listen.description(), offers]);
    }
    for control in config.control.listeners() {
        let serves = format!("control API: {}", control.roles());
        sockets.row([control.description(), serves]);
    }
    for metrics in &config.metrics {
        sockets.row([metrics.description(), "metrics and health".to_owned()]);
    }
    for dashboard in &config.dashboards {
        let address = dashboard.description();
        let serves = match &config.store {
            Some(_) => "page for browsers; changes need a token",
            None => "page for browsers, which only reads: tokens need a [store]",
        };
        sockets.row([format!("http://{address}"), serves.to_owned()]);
    }
    sockets
}

/// Returns a warning for each socket whose directory does not exist yet.
pub(super) fn missing_directories(config: &Config) -> Vec<Diagnostic> {
    let of = |section: String, address: &ListenAddress, place: &Option<Place>| match address {
        ListenAddress::Unix { path, .. } => nowhere(format!("{section}.unix"), path, place),
        // An address has no directory that could be missing.
        ListenAddress::Tcp(_) => None,
        ListenAddress::VhostUser { path, .. } => {
            let path = path.in_one_directory()?;
            nowhere(format!("{section}.vhost_user"), path, place)
        }
    };
    let listeners = (config.listeners.iter().enumerate())
        .filter_map(|(i, listen)| of(format!("listen[{i}]"), &listen.address, &listen.place));
    let control = (config.control.listeners())
        .enumerate()
        .filter_map(|(i, control)| {
            // The first is that of the section itself.
            let ListenAddress::Unix { path, .. } = &control.address else {
                return None;
            };
            let field = match i.checked_sub(1) {
                None => "control.socket".to_owned(),
                Some(i) => format!("control.listen[{i}].unix"),
            };
            nowhere(field, path, &control.place)
        });
    let metrics = (config.metrics.iter().enumerate())
        .filter_map(|(i, metrics)| of(format!("metrics[{i}]"), &metrics.address, &metrics.place));
    listeners.chain(control).chain(metrics).collect()
}
