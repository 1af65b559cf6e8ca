//! Facts of a device for recordings of requests.

use std::collections::BTreeMap;

use tidegate_core::queue_depth::DepthTuning;
use tidegate_core::splitting::MaxIoShared;
use tidegate_device::catalogue;
use tidegate_recording::DeviceFacts;
use tidegate_units::format_bytes;

use crate::device::{Scheduling, keys};
use crate::policy_view;

/// Returns the facts of a device whose disks are of `kind`.
pub fn device(
    (name, kind): (&str, &str),
    model: Option<&catalogue::Entry>,
    scheduling: &Scheduling,
) -> DeviceFacts {
    let profile = scheduling.profile.as_deref();
    DeviceFacts {
        name: name.to_owned(),
        kind: kind.to_owned(),
        model: model.map(|model| model.name.clone()),
        size_bytes: model.map(|model| model.spec().capacity),
        profile_digest: profile.map(|it| DeviceFacts::digest(format!("{it:?}").as_bytes())),
        depth: scheduling.depth,
        max_io_bytes: scheduling.max_io,
        policy: policy_view::policy(&scheduling.policy),
        keys: scheduling_keys(scheduling),
    }
}

/// Returns the keys of scheduling beside policy, profile, depth and largest I/O, as the
/// configuration spells their values.
fn scheduling_keys(scheduling: &Scheduling) -> BTreeMap<String, String> {
    let bytes = |bytes: u64| format_bytes(bytes);
    let word_of_sharing = |shared: MaxIoShared| {
        let mut words = keys::SHARED_WORDS.iter();
        words
            .find(|(_, other)| *other == shared)
            .map(|(word, _)| (*word).to_owned())
    };
    let sharing = match scheduling.max_io_shared {
        MaxIoShared::Bytes(size) => bytes(size.into()),
        word => word_of_sharing(word).expect("every sharing without a size has a word"),
    };
    let mut tunings = DepthTuning::ALL.iter();
    let tuning = tunings.find(|(_, tuning)| *tuning == scheduling.tuning);
    let (tuning, _) = tuning.expect("every tuning has a name");
    let values = [
        (keys::LEARN_CAP, scheduling.learn_cap.to_string()),
        (keys::MERGE_LIMIT, bytes(scheduling.merge_limit.into())),
        (keys::MAX_REQUESTS, scheduling.max_requests.to_string()),
        (
            keys::MAX_REQUESTS_PER_VM,
            scheduling.max_pending_per_vm.to_string(),
        ),
        (keys::BUFFER_MEMORY, bytes(scheduling.buffer_memory)),
        (
            keys::BUFFER_MEMORY_PER_VM,
            bytes(scheduling.buffer_memory_per_vm),
        ),
        (keys::ADAPTIVE_DEPTH, scheduling.adaptive_depth.to_string()),
        (keys::MAX_IO_SHARED, sharing),
        (keys::TUNING, (*tuning).to_owned()),
    ];
    let named = values.map(|(key, value)| (key.name.to_owned(), value));
    named.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use tidegate_policies::policy::PolicySpec;

    #[test]
    fn every_key_of_scheduling_is_a_fact() {
        let scheduling = Scheduling::new(PolicySpec::named("slo").expect("registered"));
        let facts = device(("disk0", "file"), None, &scheduling);
        assert_eq!(
            (facts.name.as_str(), facts.kind.as_str()),
            ("disk0", "file")
        );
        assert_eq!((facts.depth, facts.max_io_bytes), (32, 1 << 20));
        assert_eq!((facts.model, facts.size_bytes), (None, None));
        // Policy, profile, depth and largest I/O have fields of their own.
        assert_eq!(facts.keys.len(), keys::SCHEDULING - 4);
        assert_eq!(facts.keys["merge_limit"], "128 KiB");
        assert_eq!(facts.keys["max_io_shared"], "auto");
        assert_eq!(facts.keys["tuning"], "balanced");
        let sized = Scheduling {
            max_io_shared: MaxIoShared::Bytes(65536),
            ..scheduling
        };
        let facts = device(("disk0", "file"), None, &sized);
        assert_eq!(facts.keys["max_io_shared"], "64 KiB");
    }

    #[test]
    fn an_emulated_device_has_its_model_and_size() {
        let scheduling = Scheduling::new(PolicySpec::named("fifo").expect("registered"));
        let model = model::built_in("nvme-1tb").expect("of the catalogue");
        let facts = device(("disk0", "emulated"), Some(&model), &scheduling);
        assert_eq!(facts.model.as_deref(), Some("nvme-1tb"));
        assert_eq!(facts.size_bytes, Some(model.spec().capacity));
        assert_eq!(facts.profile_digest, None);
    }
}
