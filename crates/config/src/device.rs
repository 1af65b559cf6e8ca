//! Scheduling of a device: policy, profile, queue depth and related keys, which every `[[device]]`
//! has, served or simulated.

use std::sync::Arc;

use tidegate_core::engine::{DeviceSpec, Engine, EngineConfig, EngineError, PayloadBounds};
use tidegate_core::fit::{self, Queueing};
use tidegate_core::policy::Policy;
use tidegate_core::profile::Profile;
use tidegate_core::queue_depth::DepthTuning;
use tidegate_core::splitting::MaxIoShared;
use tidegate_core::time::Nanos;
use tidegate_device::Spec;
use tidegate_policies::policy::PolicySpec;

use crate::field::Field;
use crate::keys::{KeyDefault, KeyInfo};
use crate::library::{self, Library};
use crate::node::Value;
use crate::policy;
use crate::section::Section;

pub mod keys;
pub mod limit_groups;

/// Name of the default policy.
pub const DEFAULT_POLICY: &str = match keys::POLICY.default {
    KeyDefault::Text(name) => name,
    _ => panic!("`policy` must have a default"),
};
/// Unit of device I/Os in bytes: whole pages, whatever the disk's block size.
const IO_UNIT: u32 = 4096;
/// Largest request with a payload, in bytes: NBD carries no more.
pub const LARGEST_PAYLOAD: u32 = 32 << 20;

/// Help text where a policy needs a profile and the device has none.
pub const NEEDS_PROFILE: &str = "add profile = \"FILE\" with a file from `tidegate profile`, or \
                                 use another cost than device-time";

/// Reads `policy`, by default [`DEFAULT_POLICY`]. `None`: it was wrong, which has been reported.
pub fn policy(section: &mut Section<'_>) -> Option<PolicySpec> {
    match section.field(&keys::POLICY) {
        Some(field) => policy::from_field(&field),
        None => PolicySpec::named(DEFAULT_POLICY).ok(),
    }
}

/// Reads `profile`, by default none. `None`: it was wrong, or is missing although the policy needs
/// it, which has been reported.
fn profile(
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

/// Reads `learn_cap`, by default true if the device has a profile. `None`: it was wrong, which has
/// been reported.
fn learn_cap(section: &mut Section<'_>, has_profile: bool) -> Option<bool> {
    section.value(&keys::LEARN_CAP, has_profile, Field::flag)
}

/// Scheduling of a device: the keys that every `[[device]]` has, served or simulated.
///
/// Reads and checks these keys, and creates an engine configured with them.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheduling {
    /// Policy in force at the start.
    pub policy: PolicySpec,
    /// Saturation profile; `None`: not measured.
    pub profile: Option<Arc<Profile>>,
    /// True to learn a throughput limit that something outside (a hypervisor, a cloud volume)
    /// imposes below the device's own, and to schedule within it.
    pub learn_cap: bool,
    /// Maximum number of I/Os in flight at the device, 1 to 1024 and at most the model's queue.
    pub depth: u32,
    /// Largest device I/O in bytes, 4 KiB to 32 MiB; larger guest requests are split.
    pub max_io: u32,
    /// Size in bytes up to which adjacent requests are merged, at most `max_io`; 0: no merging.
    pub merge_limit: u32,
    /// Maximum number of requests inside the engine, over all VMs, 1 to 2^20.
    pub max_requests: u32,
    /// Maximum number of requests of one VM inside the engine, at most `max_requests`.
    pub max_pending_per_vm: u32,
    /// Payload memory of all VMs of the device in bytes, 64 MiB to 1 TiB.
    pub buffer_memory: u64,
    /// Payload memory of one VM in bytes, 1 MiB to 1 TiB and at most `buffer_memory`.
    pub buffer_memory_per_vm: u64,
    /// True to keep the queue only as deep as full throughput needs, at most `depth`.
    pub adaptive_depth: bool,
    /// Largest device I/O while several VMs use the device, at most `max_io`.
    pub max_io_shared: MaxIoShared,
    /// Trade of throughput for a shorter queue when the depth is adapted.
    pub tuning: DepthTuning,
}

impl Scheduling {
    /// Creates scheduling by a policy, with every other key at its default.
    pub fn new(policy: PolicySpec) -> Scheduling {
        Scheduling {
            policy,
            profile: None,
            learn_cap: false,
            depth: keys::DEPTH.default_number() as u32,
            max_io: keys::MAX_IO.default_number() as u32,
            merge_limit: keys::MERGE_LIMIT.default_number() as u32,
            max_requests: keys::MAX_REQUESTS.default_number() as u32,
            max_pending_per_vm: keys::MAX_REQUESTS_PER_VM.default_number() as u32,
            buffer_memory: keys::BUFFER_MEMORY.default_number(),
            buffer_memory_per_vm: keys::BUFFER_MEMORY_PER_VM.default_number(),
            adaptive_depth: keys::ADAPTIVE_DEPTH.default == KeyDefault::Flag(true),
            max_io_shared: default_sharing(),
            tuning: DepthTuning::Balanced,
        }
    }

    /// Reads all keys except `policy`, which [`policy()`] reads, and checks them against each other
    /// and against the model, if there is one. A bound that is left out gets its default, lowered
    /// to the maximum that the other keys allow. `None`: a value was wrong, which has been
    /// reported.
    pub fn read(
        section: &mut Section<'_>,
        policy: Option<PolicySpec>,
        model: Option<&Spec>,
        library: &dyn Library,
    ) -> Option<Scheduling> {
        let profile = profile(section, library, policy.as_ref());
        let has_profile = profile.as_ref().is_some_and(Option::is_some);
        let learn_cap = learn_cap(section, has_profile);
        // Each bound is read after those that limit it. If one of these was wrong, u64::MAX avoids
        // a second error that only follows from the first. Without a model only the key's own
        // range bounds the depth.
        let queue = model.map_or(u32::MAX, |spec| spec.queue_depth);
        let depth = bounded(section, &keys::DEPTH, queue.into(), "the model's queue");
        let max_io = max_io(section, model);
        let longest = max_io.map_or(u64::MAX, u64::from);
        let merge_limit = bounded(section, &keys::MERGE_LIMIT, longest, "max_io");
        let max_requests = section.number(&keys::MAX_REQUESTS);
        let limit = max_requests.unwrap_or(u64::MAX);
        section.renamed("max_pending_per_vm", keys::MAX_REQUESTS_PER_VM.name);
        let pending = bounded(section, &keys::MAX_REQUESTS_PER_VM, limit, "max_requests");
        let total = section.number(&keys::BUFFER_MEMORY);
        let limit = total.unwrap_or(u64::MAX);
        let per_vm = bounded(section, &keys::BUFFER_MEMORY_PER_VM, limit, "buffer_memory");
        let adaptive_depth = section.flag(&keys::ADAPTIVE_DEPTH);
        let max_io_shared = max_io_shared(section, max_io);
        let tuning = section.word(&keys::TUNING, &DepthTuning::ALL);
        Some(Scheduling {
            policy: policy?,
            profile: profile?,
            learn_cap: learn_cap?,
            depth: depth?,
            max_io: max_io?,
            merge_limit: merge_limit?,
            max_requests: u32::try_from(max_requests?).ok()?,
            max_pending_per_vm: pending?,
            buffer_memory: total?,
            buffer_memory_per_vm: per_vm?,
            adaptive_depth: adaptive_depth?,
            max_io_shared: max_io_shared?,
            tuning: tuning?,
        })
    }

    /// Lowers depth, largest I/O and merge limit to what a model supports.
    pub fn fit_model(&mut self, model: &Spec) {
        self.depth = self.depth.min(model.queue_depth);
        self.max_io = self.max_io.min(model.max_io);
        self.merge_limit = self.merge_limit.min(self.max_io);
    }

    /// Returns true if queue depth and I/O size are adapted automatically, as by default.
    pub fn is_automatic(&self) -> bool {
        self.adaptive_depth && self.max_io_shared == MaxIoShared::Auto
    }

    /// Returns the queueing that feasibility checks of latency bounds assume, from configuration
    /// and profile.
    pub fn queueing(&self) -> Queueing {
        let shared = self.max_io_shared;
        let profile = self.profile.as_ref();
        Queueing {
            // An adapted depth goes as low as the tightest bound needs.
            least_depth: self.adaptive_depth.then_some(1),
            part: profile.and_then(|profile| shared.longest_part(profile, self.max_io)),
            background_part: profile.and_then(|profile| self.policy.background_part(profile)),
        }
    }

    /// Returns a device of `capacity` bytes for the planner; `None`: it has no profile, or one too
    /// imprecise to plan with, which would admit or refuse objectives wrongly.
    pub fn planned(&self, capacity: Option<u64>) -> Option<fit::Device<'_>> {
        let profile = self.profile.as_deref()?;
        profile.imprecision().is_none().then(|| fit::Device {
            profile,
            depth: self.depth,
            max_io: self.max_io,
            merge_limit: self.merge_limit,
            capacity,
            queueing: self.queueing(),
        })
    }

    /// Returns the bounds of payload memory in bytes.
    pub fn payload(&self) -> PayloadBounds {
        PayloadBounds {
            total: self.buffer_memory,
            per_vm: self.buffer_memory_per_vm,
            largest: LARGEST_PAYLOAD,
        }
    }

    /// Returns the configuration of an engine for at most `max_vms` VMs in front of `device`.
    pub fn engine_config(&self, device: DeviceSpec, max_vms: u32) -> EngineConfig {
        EngineConfig {
            max_requests: self.max_requests,
            max_pending_per_vm: self.max_pending_per_vm,
            merge_limit: self.merge_limit.min(device.max_io),
            max_vms,
            device,
        }
    }

    /// Creates an engine with this scheduling whose time begins at `now`. Payload memory is left
    /// unbounded; see [`Scheduling::payload`].
    ///
    /// # Errors
    /// If the engine refuses `config`.
    pub fn engine(&self, config: EngineConfig, now: Nanos) -> Result<Engine, EngineError> {
        let mut engine = Engine::new(config, &self.policy)?;
        let mut device = engine.device_mut();
        // First, because it sets the engine's time.
        device.tune_depth(now, self.tuning);
        device.set_profile(self.profile.clone());
        device.learn_cap(self.learn_cap);
        device.adapt_depth(now, self.adaptive_depth);
        device.set_max_io_shared(self.max_io_shared);
        Ok(engine)
    }
}

/// Reads a number of at most `limit`, a bound that messages call `limit_name`. Where the key is
/// left out, returns its default or `limit`, whichever is less. `None`: it was wrong, which has
/// been reported.
fn bounded<T: TryFrom<u64>>(
    section: &mut Section<'_>,
    key: &KeyInfo,
    limit: u64,
    limit_name: &str,
) -> Option<T> {
    match section.field(key) {
        Some(field) => at_most(&field, key, field.number(key)?, limit, limit_name),
        None => T::try_from(key.default_number().min(limit)).ok(),
    }
}

/// Returns the default of `max_io_shared`.
fn default_sharing() -> MaxIoShared {
    let default = keys::MAX_IO_SHARED.default;
    let mut words = keys::SHARED_WORDS.iter();
    let found = words.find(|&&(word, _)| default == KeyDefault::Text(word));
    found.expect("the default is one of the words").1
}

/// Reads `max_io_shared`: a word, or a size that is checked against `max_io`.
fn max_io_shared(section: &mut Section<'_>, max_io: Option<u32>) -> Option<MaxIoShared> {
    let key = &keys::MAX_IO_SHARED;
    let longest = max_io.map_or(key.max, u64::from);
    section.value(key, default_sharing(), |field| {
        if let Value::Text(text) = &field.node().value
            // A text that begins with a digit is a size; words are left to `choice`, which suggests
            // near ones.
            && !text.starts_with(|first: char| first.is_ascii_digit())
        {
            return field.choice(&keys::SHARED_WORDS);
        }
        let bytes = field.number(key)?;
        at_most(field, key, bytes, longest, "max_io").map(MaxIoShared::Bytes)
    })
}

/// Reads `max_io` and checks it against the model. `None`: it was wrong, which has been reported.
fn max_io(section: &mut Section<'_>, model: Option<&Spec>) -> Option<u32> {
    let key = &keys::MAX_IO;
    let longest = model.map_or(u32::MAX, |spec| spec.max_io).into();
    let Some(field) = section.field(key) else {
        // The default is lowered to the model's maximum instead of being refused.
        return u32::try_from(key.default_number().min(longest)).ok();
    };
    let bytes = field.number(key)?;
    let unit = model.map_or(IO_UNIT, |spec| spec.physical_block.max(IO_UNIT));
    if !bytes.is_multiple_of(unit.into()) {
        let what = format!("{} is not a whole number of blocks", field.describe());
        let unit = key.written(unit.into());
        field.error(what, &format!("a multiple of {unit}"));
        return None;
    }
    at_most(&field, key, bytes, longest, "the model's largest I/O")
}

/// Returns `value` if it is at most `limit`, a bound that messages call `limit_name`; reports it
/// otherwise.
fn at_most<T: TryFrom<u64>>(
    field: &Field<'_>,
    key: &KeyInfo,
    value: u64,
    limit: u64,
    limit_name: &str,
) -> Option<T> {
    if value <= limit {
        return T::try_from(value).ok();
    }
    let limit = key.written(limit);
    field.error(
        format!("{} is more than {limit_name}, {limit}", key.written(value)),
        &format!("at most {limit}"),
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{document, model};

    fn read(text: &str, named: Option<&str>) -> Result<Scheduling, String> {
        let model = named.map(|name| model::built_in(name).expect("of the catalogue"));
        let library = |name: &str| Err(format!("no model {name:?}"));
        let reader = |root: &Field<'_>| {
            let mut section = Section::open(root)?;
            let policy = policy(&mut section);
            let spec = model.as_ref().map(|entry| entry.spec());
            let scheduling = Scheduling::read(&mut section, policy, spec, &library);
            section.finish();
            scheduling
        };
        let read = document::read(text, "f.toml", reader);
        (read.map(|loaded| loaded.config)).map_err(|refused| refused.to_string())
    }

    fn usual() -> Scheduling {
        Scheduling::new(PolicySpec::named(DEFAULT_POLICY).expect("registered"))
    }

    #[test]
    fn omitted_keys_get_defaults_bounded_by_given_ones() {
        let usual = usual();
        assert_eq!(read("", None), Ok(usual.clone()));
        assert_eq!((usual.depth, usual.max_io), (32, 1 << 20));
        assert_eq!(usual.merge_limit, 128 << 10);
        assert_eq!(
            (usual.max_requests, usual.max_pending_per_vm),
            (16_384, 1024)
        );
        let memory = (usual.buffer_memory, usual.buffer_memory_per_vm);
        assert_eq!(memory, (256 << 20, 64 << 20));
        let small = Scheduling {
            max_io: 64 << 10,
            merge_limit: 64 << 10,
            max_requests: 100,
            max_pending_per_vm: 100,
            ..usual
        };
        let text = "max_io = \"64 KiB\"\nmax_requests = 100";
        assert_eq!(read(text, None), Ok(small));
    }

    #[test]
    fn max_io_shared_is_at_most_max_io() {
        let automatic = usual();
        assert!(automatic.is_automatic());
        assert_eq!(automatic.tuning, DepthTuning::Balanced);
        let off = Scheduling {
            adaptive_depth: false,
            max_io_shared: MaxIoShared::Off,
            ..automatic
        };
        assert!(!off.is_automatic());
        let text = "adaptive_depth = false\nmax_io_shared = \"off\"";
        assert_eq!(read(text, None), Ok(off));
        let all = Scheduling {
            max_io: 64 << 10,
            merge_limit: 64 << 10,
            adaptive_depth: true,
            max_io_shared: MaxIoShared::Bytes(16 << 10),
            tuning: DepthTuning::Latency,
            ..usual()
        };
        let max_io = "max_io = \"64 KiB\"";
        let text = "adaptive_depth = true\nmax_io_shared = \"16 KiB\"\ntuning = \"latency\"";
        assert_eq!(read(&format!("{max_io}\n{text}"), None), Ok(all));
        for (text, why) in [
            ("max_io_shared = \"128 KiB\"", "is more than max_io"),
            ("max_io_shared = \"512 B\"", "is out of range"),
            ("max_io_shared = 16384", "is a bare number"),
        ] {
            let message = read(&format!("{max_io}\n{text}"), None).unwrap_err();
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn an_engine_is_scheduled_as_the_keys_say() {
        let text = "policy = \"fifo\"\ndepth = 4\nmax_requests = 70\nmerge_limit = \"32 KiB\"\n\
                    learn_cap = true\nadaptive_depth = true\nmax_io_shared = \"8 KiB\"";
        let scheduling = read(text, None).expect("good");
        let device = DeviceSpec {
            depth: scheduling.depth,
            max_io: 16 << 10,
            ..EngineConfig::default().device
        };
        let config = scheduling.engine_config(device, 5);
        assert_eq!((config.max_requests, config.max_pending_per_vm), (70, 70));
        // No more than the device takes at once.
        assert_eq!((config.merge_limit, config.max_vms), (16 << 10, 5));
        let engine = scheduling
            .engine(config, Nanos::ZERO)
            .expect("it can do with that");
        assert_eq!(engine.policy().name(), "fifo");
        assert_eq!(engine.config().device.depth, 4);
        let none = DeviceSpec { depth: 0, ..device };
        assert!(
            scheduling
                .engine(scheduling.engine_config(none, 5), Nanos::ZERO)
                .is_err()
        );
    }

    #[test]
    fn a_model_bounds_the_depth() {
        let spec = model::built_in("hdd-7200-1tb").expect("of the catalogue");
        let more = format!("depth = {}", spec.spec().queue_depth + 1);
        assert!(read(&more, None).is_ok());
        let message = read(&more, Some("hdd-7200-1tb")).unwrap_err();
        assert!(
            message.contains("is more than the model's queue"),
            "{message}"
        );
        let mut deep = read(&more, None).expect("good");
        deep.fit_model(spec.spec());
        assert_eq!(deep.depth, spec.spec().queue_depth);
    }
}
