//! Distances between a device's I/Os that the report counts separately.

use super::keys::DISTANCES;
use tidegate_config::Field;

/// Default upper bounds in bytes: no distance, about a track, a zone, and parts of a disk.
pub fn default_distances() -> Vec<u64> {
    vec![0, 1 << 20, 1 << 30, 10 << 30, 100 << 30]
}

/// Reads a device's `distances`.
pub(super) fn read(field: &Field<'_>) -> Option<Vec<u64>> {
    let elements = field.elements()?;
    let bytes = (elements.iter()).map(|field| field.number(&DISTANCES));
    let all: Vec<u64> = bytes.collect::<Option<_>>()?;
    if all.is_empty() || all.len() > 64 || !all.windows(2).all(|two| two[0] < two[1]) {
        let allowed = "1 to 64 distances, each larger than the one before";
        field.error(format!("found {}", field.describe()), allowed);
        return None;
    }
    Some(all)
}
