//! What an operator is told of the device, once for each change.

use tidegate_core::engine::Engine;
use tidegate_core::watch::{LearntCap, Notice, Parting};
use tidegate_units::format_bandwidth;

/// Logs what the engine has found out about the device of this name since the last time.
pub(super) fn tell_notices(engine: &mut Engine, device: &str) {
    while let Some(notice) = engine.device_mut().poll_notice() {
        match notice {
            Notice::Parted(drift) if drift.parted == Some(Parting::Faster) => tracing::info!(
                device,
                ratio = drift.ratio,
                "the device is faster than its profile says: measure it again with \
                     `tidegate profile` unless it serves from a cache"
            ),
            Notice::Parted(drift) => tracing::warn!(
                device,
                ratio = drift.ratio,
                "the device is slower than its profile says: look at its health and at who \
                     else uses it, or measure it again with `tidegate profile`"
            ),
            Notice::Agrees(drift) => tracing::info!(
                device,
                ratio = drift.ratio,
                "the device does what its profile says again"
            ),
            Notice::Capped(cap) => tracing::warn!(
                device,
                cap = cap_in_words(&cap),
                "something in front of the device caps it; I/Os go at 97 % of that, so that \
                     they queue where the policy decides"
            ),
            Notice::Uncapped => {
                tracing::info!(device, "nothing caps the device any more");
            }
        }
    }
}

/// Such as `500 IOPS or 50 MB/s`.
fn cap_in_words(cap: &LearntCap) -> String {
    let iops = cap.iops.map(|iops| format!("{iops:.0} IOPS"));
    let bytes = cap.bytes_per_s.map(format_bandwidth);
    let all: Vec<String> = iops.into_iter().chain(bytes).collect();
    all.join(if cap.either { " or " } else { " and " })
}
