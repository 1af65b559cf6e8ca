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
    let control = &config.control;
    sockets.row([
        format!("{} ({:04o})", control.socket.display(), control.mode),
        "control API".to_owned(),
    ]);
    for metrics in &config.metrics {
        sockets.row([metrics.description(), "metrics and health".to_owned()]);
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
    let control = &config.control;
    let control = nowhere("control.socket".to_owned(), &control.socket, &control.place);
    let metrics = (config.metrics.iter().enumerate())
        .filter_map(|(i, metrics)| of(format!("metrics[{i}]"), &metrics.address, &metrics.place));
    listeners.chain(control).chain(metrics).collect()
}
