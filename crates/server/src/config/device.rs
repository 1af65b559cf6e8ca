//! `[[device]]`: what disks are made of, and how much is in flight.

use std::ops::RangeInclusive;

use tidegate_core::policy::PolicySpec;
use tidegate_device::{Spec, catalogue::Entry, units};

use super::field::Field;
use super::parse::{Context, Names, Place, label};
use super::section::Section;
use super::{DeviceConfig, DeviceKind, policy};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const DEFAULT_POLICY: &str = "mclock";
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
/// Room for the largest NBD request, 32 MiB, beside what receives the others.
const BUFFERS: RangeInclusive<u64> = 64 * MIB..=1 << 40;
/// A VM may exceed its own budget by its only request.
const BUFFERS_PER_VM: RangeInclusive<u64> = MIB..=1 << 40;
const DEFAULT_BUFFERS: u64 = 256 * MIB;
const DEFAULT_BUFFERS_PER_VM: u64 = 64 * MIB;

/// What a device's disks are made of, without the particulars.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    File,
    Memory,
    Emulated,
}

const KINDS: [(&str, Kind); 3] = [
    ("file", Kind::File),
    ("memory", Kind::Memory),
    ("emulated", Kind::Emulated),
];

/// A device as far as it could be read: enough to check its VMs even where it is wrong itself.
pub(crate) struct Draft<'a> {
    pub(crate) name: Option<String>,
    pub(crate) kind: Option<Kind>,
    pub(crate) policy: Option<PolicySpec>,
    pub(crate) capacity: Option<u64>,
    pub(crate) config: Option<DeviceConfig>,
    place: Place,
    field: Field<'a>,
}

impl Draft<'_> {
    pub(crate) fn warn(&self, what: &str, allowed: &str) {
        self.field
            .push(self.place.diagnostic(what).allowing(allowed).warning());
    }
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
    let field = field.at(label(field, "device"));
    let place = Place {
        path: field.path.to_string(),
        span: field.node.span.clone(),
    };
    let mut draft = Draft {
        name: None,
        kind: None,
        policy: None,
        capacity: None,
        config: None,
        place,
        field: field.clone(),
    };
    let Some(mut section) = field.section() else {
        return draft;
    };
    if let Some(field) = section.need("name", "a name of its own: name = \"disk0\"") {
        draft.name = field.name();
        if let Some(name) = &draft.name {
            names.claim(name, "device", &field);
        }
    }
    let kind = section.need("kind", "kind = \"file\", \"memory\" or \"emulated\"");
    draft.kind = kind.and_then(|field| field.choice(&KINDS));
    let model = model(&mut section, draft.kind, context);
    let spec = model.as_ref().and_then(Option::as_ref).map(Entry::spec);
    draft.capacity = spec.map(|spec| spec.capacity);
    draft.policy = match section.take("policy") {
        Some(field) => policy::from_field(&field),
        None => PolicySpec::named(DEFAULT_POLICY).ok(),
    };
    let numbers = numbers(&mut section, spec);
    section.finish();
    draft.config = complete(&draft, model, numbers);
    draft
}

fn complete(
    draft: &Draft<'_>,
    model: Option<Option<Entry>>,
    numbers: Option<Numbers>,
) -> Option<DeviceConfig> {
    let numbers = numbers?;
    let kind = match (draft.kind?, model?) {
        (Kind::File, _) => DeviceKind::File,
        (Kind::Memory, _) => DeviceKind::Memory,
        (Kind::Emulated, model) => DeviceKind::Emulated {
            model: Box::new(model?),
        },
    };
    Some(DeviceConfig {
        name: draft.name.clone()?,
        kind,
        policy: draft.policy.clone()?,
        depth: numbers.depth,
        max_io: numbers.max_io,
        merge_limit: numbers.merge_limit,
        max_requests: numbers.max_requests,
        max_pending_per_vm: numbers.max_pending_per_vm,
        buffer_memory: numbers.buffer_memory,
        buffer_memory_per_vm: numbers.buffer_memory_per_vm,
    })
}

/// The model of an emulated device. `None`: something was wrong and has been reported.
fn model(
    section: &mut Section<'_>,
    kind: Option<Kind>,
    context: &Context<'_>,
) -> Option<Option<Entry>> {
    let field = match kind {
        Some(Kind::Emulated) => section.need(
            "model",
            "a model of the catalogue: model = \"hdd-7200-1tb\"",
        )?,
        kind => {
            let field = section.take("model");
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
    match (context.models)(field.text()?, context.base) {
        Ok(entry) => Some(Some(entry)),
        Err(error) => {
            field.error(
                error,
                "a model's name in the catalogue, or the path of a .toml file",
            );
            None
        }
    }
}

/// How much of everything.
struct Numbers {
    depth: u32,
    max_io: u32,
    merge_limit: u32,
    max_requests: u32,
    max_pending_per_vm: u32,
    buffer_memory: u64,
    buffer_memory_per_vm: u64,
}

fn numbers(section: &mut Section<'_>, spec: Option<&Spec>) -> Option<Numbers> {
    let queue = spec.map_or(u32::MAX, |spec| spec.queue_depth);
    let longest = spec.map_or(u32::MAX, |spec| spec.max_io);
    let depth = number(section, "depth", DEFAULT_DEPTH.min(queue), |field| {
        at_most(
            field,
            field.count(DEPTH)?,
            queue.into(),
            "the model's queue",
            |n| n.to_string(),
        )
    });
    let max_io = number(section, "max_io", DEFAULT_MAX_IO.min(longest), |field| {
        let bytes = field.bytes(MAX_IO)?;
        let unit = spec.map_or(IO_UNIT, |spec| spec.physical_block.max(IO_UNIT));
        if !bytes.is_multiple_of(unit.into()) {
            let allowed = format!("a multiple of {}", units::format_bytes(unit.into()));
            field.error(
                format!("{} is not in whole blocks", field.node.describe()),
                &allowed,
            );
            return None;
        }
        at_most(
            field,
            bytes,
            longest.into(),
            "the model's longest I/O",
            units::format_bytes,
        )
    });
    let longest = max_io.unwrap_or(u32::MAX);
    let merge_limit = number(
        section,
        "merge_limit",
        DEFAULT_MERGE_LIMIT.min(longest),
        |field| {
            let bytes = field.bytes(0..=*MAX_IO.end())?;
            at_most(field, bytes, longest.into(), "max_io", units::format_bytes)
        },
    );
    let max_requests = number(section, "max_requests", DEFAULT_MAX_REQUESTS, |field| {
        field.count(REQUESTS).and_then(|n| u32::try_from(n).ok())
    });
    let most = max_requests.unwrap_or(u32::MAX);
    let pending = number(
        section,
        "max_pending_per_vm",
        DEFAULT_MAX_PENDING.min(most),
        |field| {
            at_most(
                field,
                field.count(REQUESTS)?,
                most.into(),
                "max_requests",
                |n| n.to_string(),
            )
        },
    );
    let memory = number(section, "buffer_memory", DEFAULT_BUFFERS, |field| {
        field.bytes(BUFFERS)
    });
    let most = memory.unwrap_or(u64::MAX);
    let memory_per_vm = number(
        section,
        "buffer_memory_per_vm",
        DEFAULT_BUFFERS_PER_VM.min(most),
        |field| {
            at_most(
                field,
                field.bytes(BUFFERS_PER_VM)?,
                most,
                "buffer_memory",
                units::format_bytes,
            )
        },
    );
    Some(Numbers {
        depth: depth?,
        max_io: max_io?,
        merge_limit: merge_limit?,
        max_requests: max_requests?,
        max_pending_per_vm: pending?,
        buffer_memory: memory?,
        buffer_memory_per_vm: memory_per_vm?,
    })
}

fn number<'a, T>(
    section: &mut Section<'a>,
    key: &'static str,
    default: T,
    read: impl FnOnce(&Field<'a>) -> Option<T>,
) -> Option<T> {
    match section.take(key) {
        Some(field) => read(&field),
        None => Some(default),
    }
}

/// `value`, unless it is more than something else allows.
fn at_most<T: TryFrom<u64>>(
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
