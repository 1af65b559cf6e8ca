//! `[[device]]`: medium of the disks, and scheduling.

use tidegate_config::device::limit_groups::{self, LimitGroup};
use tidegate_config::device::{self, Scheduling, keys as shared};
use tidegate_config::{Field, Names, Section, library};
use tidegate_device::catalogue::Entry;
use tidegate_policies::policy::PolicySpec;

use super::context::Context;
use super::keys::device as keys;
pub(crate) use super::keys::device::Kind;
use super::{DeviceConfig, DeviceKind, array};

/// Device as far as it could be read: enough to check its VMs even if the section has errors.
#[derive(Clone, Default)]
pub(crate) struct DeviceSummary {
    pub(crate) name: Option<String>,
    pub(crate) kind: Option<Kind>,
    pub(crate) policy: Option<PolicySpec>,
    pub(crate) capacity: Option<u64>,
    pub(crate) limit_groups: Vec<String>,
}

impl DeviceSummary {
    /// Returns the summary of a device that is served. The policy is left out, because it may have
    /// been replaced meanwhile.
    pub(crate) fn from_config(device: &DeviceConfig) -> DeviceSummary {
        let (kind, capacity) = match &device.kind {
            DeviceKind::File => (Kind::File, None),
            DeviceKind::Memory => (Kind::Memory, None),
            DeviceKind::Nbd => (Kind::Nbd, None),
            DeviceKind::Emulated { model } => (Kind::Emulated, Some(model.spec().capacity)),
        };
        DeviceSummary {
            name: Some(device.name.clone()),
            kind: Some(kind),
            policy: None,
            capacity,
            limit_groups: (device.limit_groups.iter())
                .map(|group| group.name.clone())
                .collect(),
        }
    }
}

/// Device section as far as it could be read.
pub(crate) struct Draft<'a> {
    pub(crate) known: DeviceSummary,
    pub(crate) config: Option<DeviceConfig>,
    pub(crate) field: Field<'a>,
}

/// Reads every device.
pub(crate) fn read_all<'a>(fields: &[Field<'a>], context: &Context<'_>) -> Vec<Draft<'a>> {
    let mut names = Names::default();
    fields
        .iter()
        .map(|field| read(field, &mut names, context))
        .collect()
}

fn read<'a>(field: &Field<'a>, names: &mut Names, context: &Context<'_>) -> Draft<'a> {
    let field = field.labelled("device");
    let mut draft = Draft {
        known: DeviceSummary::default(),
        config: None,
        field: field.clone(),
    };
    let Some(mut section) = Section::with_keys(&field, &keys::DEVICE) else {
        return draft;
    };
    let known = &mut draft.known;
    known.name = section.unique_name(&keys::NAME, "device", names);
    known.kind = section.word(&keys::KIND, &keys::KINDS);
    let model = model(&mut section, known.kind, context);
    let spec = model.as_ref().and_then(Option::as_ref).map(Entry::spec);
    known.capacity = spec.map(|spec| spec.capacity);
    let groups = limit_groups::read(&mut section, &mut known.limit_groups);
    known.policy = device::policy(&mut section);
    let policy = known.policy.clone();
    let mut scheduling = Scheduling::read(&mut section, policy, spec, context.library);
    let array = array::read(&mut section, scheduling.as_mut());
    section.finish();
    draft.config = complete(&draft, model, scheduling, groups);
    if let Some(config) = &mut draft.config {
        match array {
            Some(array) => config.array = array,
            None => draft.config = None,
        }
    }
    draft
}

fn complete(
    draft: &Draft<'_>,
    model: Option<Option<Entry>>,
    scheduling: Option<Scheduling>,
    limit_groups: Option<Vec<LimitGroup>>,
) -> Option<DeviceConfig> {
    let known = &draft.known;
    let kind = match (known.kind?, model?) {
        (Kind::File, _) => DeviceKind::File,
        (Kind::Memory, _) => DeviceKind::Memory,
        (Kind::Nbd, _) => DeviceKind::Nbd,
        (Kind::Emulated, model) => DeviceKind::Emulated {
            model: Box::new(model?),
        },
    };
    Some(DeviceConfig {
        name: known.name.clone()?,
        kind,
        names_policy: draft.field.find(shared::POLICY.name).is_some(),
        array: None,
        scheduling: scheduling?,
        limit_groups: limit_groups?,
        place: draft.field.place(),
    })
}

/// Returns the model of an emulated device, or `Some(None)` for other kinds. `None` if there was an
/// error, which has been reported.
fn model(
    section: &mut Section<'_>,
    kind: Option<Kind>,
    context: &Context<'_>,
) -> Option<Option<Entry>> {
    let field = match kind {
        Some(Kind::Emulated) => section.need(
            keys::MODEL.name,
            "a model of the catalogue: model = \"hdd-7200-1tb\"",
        )?,
        kind => {
            let field = section.field(&keys::MODEL);
            // Not reported for an unknown kind, which has its own error.
            if let (Some(field), Some(_)) = (field, kind) {
                field.error(
                    "only emulated devices have a model",
                    "kind = \"emulated\", or leave it out",
                );
                return None;
            }
            return Some(None);
        }
    };
    library::model_from(&field, context.library).map(Some)
}
