//! What every `[[device]]` says, served or simulated: its policy and how much is in flight.

use std::ops::RangeInclusive;
use std::sync::Arc;

use tidegate_core::profile::Profile;
use tidegate_device::{Spec, units};
use tidegate_policies::policy::PolicySpec;

use crate::field::Field;
use crate::library::{self, Library};
use crate::policy;
use crate::section::Section;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The policy of a device that names none.
pub const DEFAULT_POLICY: &str = "mclock";
const DEPTH: RangeInclusive<u64> = 1..=1024;
const DEFAULT_DEPTH: u32 = 32;
/// NBD carries no more in one request.
const MAX_IO: RangeInclusive<u64> = 4 * KIB..=32 * MIB;
const DEFAULT_MAX_IO: u32 = MIB as u32;
/// Device I/Os are whole pages, whatever the disk's block is.
const IO_UNIT: u32 = 4096;
const DEFAULT_MERGE_LIMIT: u32 = 128 * KIB as u32;
const REQUESTS: RangeInclusive<u64> = 1..=1 << 20;
const DEFAULT_MAX_REQUESTS: u32 = 16_384;
const DEFAULT_MAX_PENDING: u32 = 1024;
/// Range of `buffer_memory` in bytes: the minimum holds the largest NBD request, 32 MiB, beside
/// smaller ones.
const BUFFERS: RangeInclusive<u64> = 64 * MIB..=1 << 40;
/// Range of `buffer_memory_per_vm` in bytes. The minimum is below the largest request, because a
/// request that is a VM's only one may exceed its bound.
const BUFFERS_PER_VM: RangeInclusive<u64> = MIB..=1 << 40;
/// Default of `buffer_memory`: payload memory of all VMs of a device, in bytes.
pub const DEFAULT_BUFFERS: u64 = 256 * MIB;
/// Default of `buffer_memory_per_vm`: payload memory of one VM, in bytes.
pub const DEFAULT_BUFFERS_PER_VM: u64 = 64 * MIB;

/// What helps where a policy needs a profile that is not there.
pub const NEEDS_PROFILE: &str =
    "profile = \"FILE\" that `tidegate profile` wrote of it, or another cost than device-time";

/// Reads `policy`, `mclock` unless it says. `None`: it was wrong and has been reported.
pub fn policy(section: &mut Section<'_>) -> Option<PolicySpec> {
    match section.take("policy") {
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
    let profile = section.read("profile", None, |field| {
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

/// Reads `learn_cap`, whether a cap below the device is to be learnt and kept. Unless it says, it is
/// where the device has a profile, which tells a cap from a device that can do no more. `None`: it
/// was wrong and has been reported.
pub fn learn_cap(section: &mut Section<'_>, has_profile: bool) -> Option<bool> {
    section.read("learn_cap", has_profile, Field::flag)
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
        let adaptive_depth = section.read("adaptive_depth", false, Field::flag);
        let longest = max_io.map_or(*MAX_IO.end(), u64::from);
        let max_io_shared = section.read("max_io_shared", 0, |field| {
            let bytes = field.bytes(MAX_IO)?;
            at_most(field, bytes, longest, "max_io", units::format_bytes)
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
    /// Reads `depth`, `max_io`, `merge_limit`, `max_requests`, `max_pending_per_vm`,
    /// `buffer_memory` and `buffer_memory_per_vm`, and checks them against each other and against
    /// the model, if there is one. A key that is left out gets its default, or the most that the
    /// other keys allow. Returns `None` if a value was wrong, which has then been reported.
    pub fn read(section: &mut Section<'_>, model: Option<&Spec>) -> Option<Bounds> {
        let queue = model.map_or(u32::MAX, |spec| spec.queue_depth);
        let depth = section.read("depth", DEFAULT_DEPTH.min(queue), |field| {
            let depth = field.count(DEPTH)?;
            at_most(field, depth, queue.into(), "the model's queue", count)
        });
        let max_io = max_io(section, model);
        let longest = max_io.unwrap_or(u32::MAX);
        let merge_limit = DEFAULT_MERGE_LIMIT.min(longest);
        let merge_limit = section.read("merge_limit", merge_limit, |field| {
            let bytes = field.bytes(0..=*MAX_IO.end())?;
            at_most(field, bytes, longest.into(), "max_io", units::format_bytes)
        });
        let max_requests = section.read("max_requests", DEFAULT_MAX_REQUESTS, |field| {
            field.count(REQUESTS).and_then(|n| u32::try_from(n).ok())
        });
        let most = max_requests.unwrap_or(u32::MAX);
        let pending = DEFAULT_MAX_PENDING.min(most);
        let pending = section.read("max_pending_per_vm", pending, |field| {
            let pending = field.count(REQUESTS)?;
            at_most(field, pending, most.into(), "max_requests", count)
        });
        let total = section.read("buffer_memory", DEFAULT_BUFFERS, |field| {
            field.bytes(BUFFERS)
        });
        let most = total.unwrap_or(u64::MAX);
        let per_vm = DEFAULT_BUFFERS_PER_VM.min(most);
        let per_vm = section.read("buffer_memory_per_vm", per_vm, |field| {
            let bytes = field.bytes(BUFFERS_PER_VM)?;
            at_most(field, bytes, most, "buffer_memory", units::format_bytes)
        });
        Some(Bounds {
            depth: depth?,
            max_io: max_io?,
            merge_limit: merge_limit?,
            max_requests: max_requests?,
            max_pending_per_vm: pending?,
            buffer_memory: total?,
            buffer_memory_per_vm: per_vm?,
        })
    }
}

fn max_io(section: &mut Section<'_>, model: Option<&Spec>) -> Option<u32> {
    let longest = model.map_or(u32::MAX, |spec| spec.max_io);
    section.read("max_io", DEFAULT_MAX_IO.min(longest), |field| {
        let bytes = field.bytes(MAX_IO)?;
        let unit = model.map_or(IO_UNIT, |spec| spec.physical_block.max(IO_UNIT));
        if !bytes.is_multiple_of(unit.into()) {
            let what = format!("{} is not in whole blocks", field.describe());
            let unit = units::format_bytes(unit.into());
            field.error(what, &format!("a multiple of {unit}"));
            return None;
        }
        let what = "the model's longest I/O";
        at_most(field, bytes, longest.into(), what, units::format_bytes)
    })
}

fn count(n: u64) -> String {
    n.to_string()
}

/// `value`, unless it is more than `what` allows, which is `most`: then that is reported, both
/// as `format` shows them.
pub fn at_most<T: TryFrom<u64>>(
    field: &Field<'_>,
    value: u64,
    most: u64,
    what: &str,
    format: impl Fn(u64) -> String,
) -> Option<T> {
    if value <= most {
        return T::try_from(value).ok();
    }
    let most = format(most);
    field.error(
        format!("{} is more than {what}, {most}", format(value)),
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
