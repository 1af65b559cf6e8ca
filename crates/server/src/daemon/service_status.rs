//! Status of the daemon as the service manager shows it.

use std::time::Duration;

use super::DaemonHandle;
use crate::service_manager;

/// Time between two looks at what is served.
const INTERVAL: Duration = Duration::from_secs(5);

/// Reports that the daemon serves, and then how much whenever that has changed, until the future is
/// dropped.
pub(super) async fn report(handle: DaemonHandle) {
    let mut reported = counts(&handle);
    service_manager::ready(&status(reported));
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = counts(&handle);
        if now != reported {
            service_manager::status(&status(now));
            reported = now;
        }
    }
}

/// Returns the numbers of VMs and of devices.
fn counts(handle: &DaemonHandle) -> (usize, usize) {
    (handle.vms().count(), handle.devices().entries().len())
}

fn status((vms, devices): (usize, usize)) -> String {
    let plural = |count, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    format!(
        "serving {} on {}",
        plural(vms, "VM"),
        plural(devices, "device")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_counts_vms_and_devices() {
        assert_eq!(status((1, 1)), "serving 1 VM on 1 device");
        assert_eq!(status((12, 2)), "serving 12 VMs on 2 devices");
    }
}
