//! What every `[[device]]` says, served or simulated: its policy and how much is in flight.

use std::sync::Arc;

use tidegate_core::profile::Profile;
use tidegate_device::Spec;
use tidegate_policies::policy::PolicySpec;

use crate::field::Field;
use crate::keys::{KeyDefault, KeyInfo};
use crate::library::{self, Library};
use crate::policy;
use crate::section::Section;

pub mod keys;

/// The policy of a device that names none.
pub const DEFAULT_POLICY: &str = match keys::POLICY.default {
    KeyDefault::Text(name) => name,
    _ => panic!("a device has a policy unless it says"),
};
/// Device I/Os are whole pages, whatever the disk's block is.
const IO_UNIT: u32 = 4096;
/// Default of `buffer_memory`: payload memory of all VMs of a device, in bytes.
pub const DEFAULT_BUFFERS: u64 = keys::BUFFER_MEMORY.default_number();
/// Default of `buffer_memory_per_vm`: payload memory of one VM, in bytes.
pub const DEFAULT_BUFFERS_PER_VM: u64 = keys::BUFFER_MEMORY_PER_VM.default_number();

/// What helps where a policy needs a profile that is not there.
pub const NEEDS_PROFILE: &str =
    "profile = \"FILE\" that `tidegate profile` wrote of it, or another cost than device-time";

/// Reads `policy`, `mclock` unless it says. `None`: it was wrong and has been reported.
pub fn policy(section: &mut Section<'_>) -> Option<PolicySpec> {
    match section.field(&keys::POLICY) {
        Some(field) => policy::from_field(&field),
        None => PolicySpec::named(DEFAULT_POLICY).ok(),
    }
}

/// Reads `profile`, the path of a saturation profile; none unless it says. `None`: it was wrong, or
/// is missing where the device's policy needs it, and that has been reported.
pub fn profile(
    section: &mut Section<'_>,
    library: &dyn Library,
    policy: Option<&PolicySpec>,
) -> Option<Option<Arc<Profile>>> {
    let profile = section.value(&keys::PROFILE, None, |field| {
        let profile = library::profile_from(field, library)?;
        Some(Some(Arc::new(profile)))
    })?;
    let fits = policy.map_or(Ok(()), |policy| policy.check_profile(profile.is_some()));
    match fits {
        Ok(()) => Some(profile),
        Err(error) => {
            section.error(error.to_string(), NEEDS_PROFILE);
            None
        }
    }
}

/// Reads `learn_cap`, whether a cap below the device is to be learnt and kept. Unless it says, it
/// is where the device has a profile, which tells a cap from a device that can do no more. `None`:
/// it was wrong and has been reported.
pub fn learn_cap(section: &mut Section<'_>, has_profile: bool) -> Option<bool> {
    section.value(&keys::LEARN_CAP, has_profile, Field::flag)
}

/// How a device is used whatever its policy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Steering {
    /// Its queue is kept only as deep as its throughput needs.
    pub adaptive_depth: bool,
    /// Largest I/O in bytes while other VMs use it, too, at most the largest there is; 0: the same.
    pub max_io_shared: u32,
}

impl Steering {
    /// Reads `adaptive_depth` and `max_io_shared`, the latter against `max_io`. Unless they are
    /// said, nothing is steered. `None`: something was wrong and has been reported.
    pub fn read(section: &mut Section<'_>, max_io: Option<u32>) -> Option<Steering> {
        let adaptive_depth = section.flag(&keys::ADAPTIVE_DEPTH);
        let key = &keys::MAX_IO_SHARED;
        let longest = max_io.map_or(key.max, u64::from);
        let max_io_shared = section.value(key, 0, |field| {
            let bytes = field.number(key)?;
            at_most(field, key, bytes, longest, "max_io")
        });
        Some(Steering {
            adaptive_depth: adaptive_depth?,
            max_io_shared: max_io_shared?,
        })
    }
}

/// How much of everything a device and its engine take at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// I/Os in flight at the device at most, 1 to 1024 and no more than its model queues.
    pub depth: u32,
    /// Largest device I/O in bytes, 4 KiB to 32 MiB; larger guest requests are split.
    pub max_io: u32,
    /// Adjacent requests are merged up to this many bytes, at most `max_io`; 0: never.
    pub merge_limit: u32,
    /// Requests inside the engine at most, over all VMs, 1 to 2^20.
    pub max_requests: u32,
    /// Requests one VM may have pending, at most `max_requests`.
    pub max_pending_per_vm: u32,
    /// Payload memory of all VMs of the device in bytes, 64 MiB to 1 TiB.
    pub buffer_memory: u64,
    /// Payload memory of one VM in bytes, 1 MiB to 1 TiB and at most `buffer_memory`.
    pub buffer_memory_per_vm: u64,
}

impl Bounds {
    /// Reads `depth`, `max_io`, `merge_limit`, `max_requests`, `max_requests_per_vm`,
    /// `buffer_memory` and `buffer_memory_per_vm`, and checks them against each other and against
    /// the model, if there is one. A key that is left out gets its default, or the most that the
    /// other keys allow. Returns `None` if a value was wrong, which has then been reported.
    pub fn read(section: &mut Section<'_>, model: Option<&Spec>) -> Option<Bounds> {
        let queue = model.map_or(u32::MAX, |spec| spec.queue_depth);
        let depth = bounded(section, &keys::DEPTH, queue.into(), "the model's queue");
        let max_io = max_io(section, model);
        let longest = max_io.map_or(u64::MAX, u64::from);
        let merge_limit = bounded(section, &keys::MERGE_LIMIT, longest, "max_io");
        let max_requests = section.number(&keys::MAX_REQUESTS);
        let most = max_requests.unwrap_or(u64::MAX);
        section.renamed("max_pending_per_vm", keys::MAX_REQUESTS_PER_VM.name);
        let pending = bounded(section, &keys::MAX_REQUESTS_PER_VM, most, "max_requests");
        let total = section.number(&keys::BUFFER_MEMORY);
        let most = total.unwrap_or(u64::MAX);
        let per_vm = bounded(section, &keys::BUFFER_MEMORY_PER_VM, most, "buffer_memory");
        Some(Bounds {
            depth: depth?,
            max_io: max_io?,
            merge_limit: merge_limit?,
            max_requests: u32::try_from(max_requests?).ok()?,
            max_pending_per_vm: pending?,
            buffer_memory: total?,
            buffer_memory_per_vm: per_vm?,
        })
    }
}

/// The number of a key that is at most `most`, as `what` says; its default or `most` where it is
/// left out. `None`: it is wrong, which has been reported.
fn bounded<T: TryFrom<u64>>(
    section: &mut Section<'_>,
    key: &KeyInfo,
    most: u64,
    what: &str,
) -> Option<T> {
    match section.field(key) {
        Some(field) => at_most(&field, key, field.number(key)?, most, what),
        None => T::try_from(key.default_number().min(most)).ok(),
    }
}

fn max_io(section: &mut Section<'_>, model: Option<&Spec>) -> Option<u32> {
    let key = &keys::MAX_IO;
    let longest = model.map_or(u32::MAX, |spec| spec.max_io).into();
    let Some(field) = section.field(key) else {
        return u32::try_from(key.default_number().min(longest)).ok();
    };
    let bytes = field.number(key)?;
    let unit = model.map_or(IO_UNIT, |spec| spec.physical_block.max(IO_UNIT));
    if !bytes.is_multiple_of(unit.into()) {
        let what = format!("{} is not in whole blocks", field.describe());
        let unit = key.written(unit.into());
        field.error(what, &format!("a multiple of {unit}"));
        return None;
    }
    at_most(&field, key, bytes, longest, "the model's longest I/O")
}

/// Returns `value`, a number of `key`, unless it is more than `what` allows, which is `most`: then
/// that is reported.
fn at_most<T: TryFrom<u64>>(
    field: &Field<'_>,
    key: &KeyInfo,
    value: u64,
    most: u64,
    what: &str,
) -> Option<T> {
    if value <= most {
        return T::try_from(value).ok();
    }
    let most = key.written(most);
    field.error(
        format!("{} is more than {what}, {most}", key.written(value)),
        &format!("at most {most}"),
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigErrors, document, model};

    fn bounds(text: &str, named: Option<&str>) -> Result<Bounds, ConfigErrors> {
        let model = named.map(|name| model::built_in(name).expect("of the catalogue"));
        let reader = |root: &Field<'_>| {
            let mut section = Section::of(root)?;
            let bounds = Bounds::read(&mut section, model.as_ref().map(|entry| entry.spec()));
            section.finish();
            bounds
        };
        document::read(text, "f.toml", reader).map(|loaded| loaded.config)
    }

    #[test]
    fn what_is_not_said_follows_what_is() {
        let usual = Bounds {
            depth: 32,
            max_io: 1 << 20,
            merge_limit: 128 << 10,
            max_requests: 16_384,
            max_pending_per_vm: 1024,
            buffer_memory: 256 << 20,
            buffer_memory_per_vm: 64 << 20,
        };
        assert_eq!(bounds("", None), Ok(usual));
        let small = Bounds {
            max_io: 64 << 10,
            merge_limit: 64 << 10,
            max_requests: 100,
            max_pending_per_vm: 100,
            ..usual
        };
        let text = "max_io = \"64 KiB\"\nmax_requests = 100";
        assert_eq!(bounds(text, None), Ok(small));
    }

    #[test]
    fn what_goes_while_others_wait_is_no_longer_than_what_goes_at_all() {
        let steering = |text: &str| {
            let reader = |root: &Field<'_>| {
                let mut section = Section::of(root)?;
                let steering = Steering::read(&mut section, Some(64 << 10));
                section.finish();
                steering
            };
            document::read(text, "f.toml", reader).map(|loaded| loaded.config)
        };
        assert_eq!(steering(""), Ok(Steering::default()));
        let all = Steering {
            adaptive_depth: true,
            max_io_shared: 16 << 10,
        };
        let text = "adaptive_depth = true\nmax_io_shared = \"16 KiB\"";
        assert_eq!(steering(text), Ok(all));
        for (text, why) in [
            ("max_io_shared = \"128 KiB\"", "is more than max_io"),
            ("max_io_shared = \"512 B\"", "is out of range"),
            ("max_io_shared = 16384", "is a bare number"),
        ] {
            let said = steering(text).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_model_bounds_the_depth() {
        let spec = model::built_in("hdd-7200-1tb").expect("of the catalogue");
        let more = format!("depth = {}", spec.spec().queue_depth + 1);
        assert!(bounds(&more, None).is_ok());
        let said = bounds(&more, Some("hdd-7200-1tb")).unwrap_err().to_string();
        assert!(said.contains("is more than the model's queue"), "{said}");
    }
}
