//! Reader of `[[device]]`.

use tidegate_config::device::{self, Scheduling, keys as shared};
use tidegate_config::{Field, Names, Section, library};
use tidegate_device::catalogue::Entry;
use tidegate_policies::policy::PolicySpec;

use super::context::Context;
use super::keys::device as keys;
pub(crate) use super::keys::device::Kind;
use super::{DeviceConfig, DeviceKind};

/// Properties of a device that the check of its VMs needs, known even if the device has errors.
#[derive(Clone, Default)]
pub(crate) struct DeviceInfo {
    pub(crate) name: Option<String>,
    pub(crate) kind: Option<Kind>,
    pub(crate) policy: Option<PolicySpec>,
    pub(crate) capacity: Option<u64>,
}

impl DeviceInfo {
    /// Returns the properties of a device that is served, without the policy, which may have
    /// changed.
    pub(crate) fn from_config(device: &DeviceConfig) -> DeviceInfo {
        let (kind, capacity) = match &device.kind {
            DeviceKind::File => (Kind::File, None),
            DeviceKind::Memory => (Kind::Memory, None),
            DeviceKind::Emulated { model } => (Kind::Emulated, Some(model.spec().capacity)),
        };
        DeviceInfo {
            name: Some(device.name.clone()),
            kind: Some(kind),
            policy: None,
            capacity,
        }
    }
}

/// Device as far as it could be read.
pub(crate) struct Draft<'a> {
    pub(crate) info: DeviceInfo,
    pub(crate) config: Option<DeviceConfig>,
    pub(crate) field: Field<'a>,
}

/// Reads all devices.
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
        info: DeviceInfo::default(),
        config: None,
        field: field.clone(),
    };
    let Some(mut section) = Section::with_keys(&field, &keys::DEVICE) else {
        return draft;
    };
    let info = &mut draft.info;
    info.name = section.unique_name(&keys::NAME, "device", names);
    info.kind = section.word(&keys::KIND, &keys::KINDS);
    let model = model(&mut section, info.kind, context);
    let spec = model.as_ref().and_then(Option::as_ref).map(Entry::spec);
    info.capacity = spec.map(|spec| spec.capacity);
    info.policy = device::policy(&mut section);
    let policy = info.policy.clone();
    let scheduling = Scheduling::read(&mut section, policy, spec, context.library);
    section.finish();
    draft.config = complete(&draft, model, scheduling);
    draft
}

fn complete(
    draft: &Draft<'_>,
    model: Option<Option<Entry>>,
    scheduling: Option<Scheduling>,
) -> Option<DeviceConfig> {
    let info = &draft.info;
    let kind = match (info.kind?, model?) {
        (Kind::File, _) => DeviceKind::File,
        (Kind::Memory, _) => DeviceKind::Memory,
        (Kind::Emulated, model) => DeviceKind::Emulated {
            model: Box::new(model?),
        },
    };
    Some(DeviceConfig {
        name: info.name.clone()?,
        kind,
        names_policy: draft.field.find(shared::POLICY.name).is_some(),
        scheduling: scheduling?,
        place: draft.field.place(),
    })
}

/// Reads the model of an emulated device; `None` if there were errors, which were reported.
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
