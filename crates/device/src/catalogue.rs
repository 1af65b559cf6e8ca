//! Catalogue of device models, described in TOML; some entries are built in.
//!
//! An entry has a name, a description and one table with the figures of its model: `[hdd]`, `[ssd]`
//! or `[raid0]`. The members of an array are a built-in entry given by name, or a table inside
//! `[raid0]`. A table `[controller]` puts an array controller in front of the model, and `[cap]` a
//! token bucket in front of that; the model may then be a built-in entry that the key `model` names
//! instead of a table. The built-in entries are the files of `devices/` in the source tree. A
//! user's own file is read by the caller and given to [`parse`].

use crate::cap::{CapFigures, Capped};
use crate::controller::{Controller, ControllerFigures};
use crate::figures::FigureError;
use crate::hdd::{Hdd, HddFigures};
use crate::model::{Model, Spec};
use crate::raid0::{Member, Raid0, Raid0Figures};
use crate::ssd::{Ssd, SsdFigures};
use serde::Deserialize;
use tidegate_core::names::nearest;
use tidegate_units::{Bytes, Duration};
use toml::Spanned;

mod syntax;

macro_rules! built_in {
    ($($name:literal)*) => {
        &[$((
            $name,
            include_str!(concat!("../../../devices/", $name, ".toml")),
            include_str!(concat!("../../../devices/profiles/", $name, ".toml")),
        )),*]
    };
}

/// Name, description (TOML) and saturation profile (TOML) of each built-in entry.
const BUILT_IN: &[(&str, &str, &str)] = built_in! {
    "hdd-7200-1tb"
    "hdd-7200-1tb-cached"
    "hdd-7200-250gb"
    "ssd-sata-300gb"
    "nvme-1tb"
    "raid0-16x250gb"
};

/// Checked device description, from which models can be built.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name of the device; also that of its [`Spec`].
    pub name: String,
    /// Description in one line.
    pub description: String,
    /// Cap in front of the device; `None`: no cap.
    pub cap: Option<CapFigures>,
    /// Controller in front of the device, behind the cap; `None`: no controller.
    pub controller: Option<ControllerFigures>,
    pub(crate) prototype: Prototype,
    spec: Spec,
}

/// Model at time zero, from which each [`Entry::build`] makes a copy.
#[derive(Clone, Debug)]
pub(crate) enum Prototype {
    Single(Box<Member>),
    Raid0(Raid0),
}

impl Entry {
    /// Returns the properties of the device.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Returns the same device without the controller in front of it, if it has one.
    pub fn without_controller(&self) -> Entry {
        Entry {
            controller: None,
            spec: self.prototype.spec().clone(),
            ..self.clone()
        }
    }

    /// Builds a model at time zero.
    pub fn build(&self) -> Box<dyn Model> {
        let device = self.prototype.build();
        let device = match &self.controller {
            Some(figures) => Box::new(Controller::new(device, figures).expect("it was checked")),
            None => device,
        };
        match &self.cap {
            Some(cap) => Box::new(Capped::new(device, cap).expect("it was checked")),
            None => device,
        }
    }
}

impl Prototype {
    fn spec(&self) -> &Spec {
        match self {
            Prototype::Single(member) => member.spec(),
            Prototype::Raid0(array) => array.spec(),
        }
    }

    fn build(&self) -> Box<dyn Model> {
        let depth = self.spec().queue_depth;
        match self {
            Prototype::Single(member) => match &**member {
                Member::Hdd(hdd) => Box::new(hdd.fresh(depth)),
                Member::Ssd(ssd) => Box::new(ssd.fresh(depth)),
            },
            Prototype::Raid0(array) => Box::new(array.fresh()),
        }
    }
}

/// Reason why a device description was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// No built-in entry has the name that was given.
    #[error("{}", unknown("device", .name, *.nearest, .known))]
    UnknownName {
        /// Name that was given.
        name: String,
        /// Built-in name that differs only by a typing mistake, if any.
        nearest: Option<&'static str>,
        /// All built-in names.
        known: Vec<&'static str>,
    },
    /// The text does not have the form of a device description: a TOML mistake, or an unknown,
    /// missing or mistyped field.
    #[error("{origin}, line {line}: {message}")]
    Syntax {
        /// Name of the text: a file's path.
        origin: String,
        /// Line of the mistake, counted from 1; of a missing field, that of its table.
        line: usize,
        /// Mistake, and what would be right.
        message: String,
    },
    /// The description names no model, or more than one.
    #[error("{origin}, line {line}: found {found}, allowed: {allowed}")]
    Kind {
        /// Name of the text: a file's path.
        origin: String,
        /// Line of the second model, or the last line if there is no model; counted from 1.
        line: usize,
        /// Models that were found.
        found: String,
        /// Models that are allowed.
        allowed: &'static str,
    },
    /// The members of an array are not a built-in single device.
    #[error("{origin}, line {line}: raid0.member: {message}")]
    Member {
        /// Name of the text: a file's path.
        origin: String,
        /// Line of the members' name, counted from 1.
        line: usize,
        /// Name that was found, and the names that are allowed.
        message: String,
    },
    /// The key `model` beside a cap or a controller does not name a built-in device.
    #[error("{origin}, line {line}: model: {message}")]
    Model {
        /// Name of the text: a file's path.
        origin: String,
        /// Line of the key, counted from 1.
        line: usize,
        /// Name that was found, and the names that are allowed.
        message: String,
    },
    /// A figure is out of range.
    #[error("{origin}, line {line}: {source}")]
    Figure {
        /// Name of the text: a file's path.
        origin: String,
        /// Line of the figure, counted from 1.
        line: usize,
        /// Figure, and its allowed range.
        source: FigureError,
    },
}

fn unknown(what: &str, name: &str, nearest: Option<&str>, known: &[&str]) -> String {
    let hint = nearest.map(|n| format!(", did you mean \"{n}\"?"));
    let (hint, known) = (hint.unwrap_or_default(), known.join(", "));
    format!("no {what} is called \"{name}\"{hint}; known are: {known}")
}

/// Device description as deserialized, before any check.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    name: String,
    description: String,
    hdd: Option<Spanned<HddFigures>>,
    ssd: Option<Spanned<SsdFigures>>,
    raid0: Option<Spanned<RawRaid0>>,
    model: Option<Spanned<String>>,
    cap: Option<CapFigures>,
    controller: Option<ControllerFigures>,
}

/// Table `[raid0]`: the figures of [`Raid0Figures`], and the members' model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRaid0 {
    members: u32,
    chunk: Bytes,
    queue_depth: u32,
    command_overhead: Duration,
    member: Option<Spanned<String>>,
    hdd: Option<Spanned<HddFigures>>,
    ssd: Option<Spanned<SsdFigures>>,
}

/// Iterates over the names of the built-in entries, in the catalogue's order.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, ..)| *name)
}

/// Returns the description of a built-in entry, as TOML.
pub fn text(name: &str) -> Option<&'static str> {
    let found = BUILT_IN.iter().find(|(known, ..)| *known == name)?;
    Some(found.1)
}

/// Returns the saturation profile of a built-in entry, as TOML that `tidegate profile` wrote.
pub fn profile(name: &str) -> Option<&'static str> {
    let found = BUILT_IN.iter().find(|(known, ..)| *known == name)?;
    Some(found.2)
}

/// Iterates over the built-in entries in the catalogue's order, for listings.
///
/// # Panics
/// Never: a test parses them all.
pub fn entries() -> impl Iterator<Item = Entry> {
    BUILT_IN.iter().map(|(name, text, _)| {
        parse(text, name).unwrap_or_else(|e| panic!("a built-in device is wrong: {e}"))
    })
}

/// Returns a built-in entry by name.
///
/// # Errors
/// If there is none; the error lists all names, and the nearest one.
pub fn load(name: &str) -> Result<Entry, CatalogueError> {
    if let Some((_, text, _)) = BUILT_IN.iter().find(|(known, ..)| *known == name) {
        return parse(text, name);
    }
    Err(CatalogueError::UnknownName {
        name: name.to_owned(),
        nearest: nearest(name, names()),
        known: names().collect(),
    })
}

/// Parses a device description. `origin` names the text in errors: a file's path.
///
/// # Errors
/// If the text is not TOML, a field is missing, unknown or without its unit, a figure is out of
/// range, there is not exactly one model, or the members of an array are not built in.
pub fn parse(text: &str, origin: &str) -> Result<Entry, CatalogueError> {
    let raw: RawEntry = toml::from_str(text).map_err(|error| {
        let (line, message) = syntax::explain(text, &error);
        CatalogueError::Syntax {
            origin: origin.to_owned(),
            line,
            message,
        }
    })?;
    let source = Source { text, origin };
    // Byte offsets locate a second model in the text.
    let tables = [
        raw.hdd.as_ref().map(|t| ("[hdd]", t.span().start)),
        raw.ssd.as_ref().map(|t| ("[ssd]", t.span().start)),
        raw.raid0.as_ref().map(|t| ("[raid0]", t.span().start)),
        raw.model.as_ref().map(|m| ("model", m.span().start)),
    ];
    let fronted = raw.cap.is_some() || raw.controller.is_some();
    let allowed = if fronted {
        "exactly one of [hdd], [ssd], [raid0] and model"
    } else {
        "exactly one of [hdd], [ssd] and [raid0]"
    };
    source.exactly_one(&tables, allowed)?;
    let prototype = match (raw.raid0, &raw.model) {
        (Some(raid0), _) => source.array(&raw.name, raid0.into_inner())?,
        (None, Some(model)) => source.fronted_model(model, fronted)?,
        (None, None) => {
            let (hdd, ssd) = (raw.hdd.as_ref(), raw.ssd.as_ref());
            let single = single(
                &raw.name,
                hdd.map(Spanned::get_ref),
                ssd.map(Spanned::get_ref),
            );
            Prototype::Single(Box::new(single.map_err(|e| source.figure(e))?))
        }
    };
    // Checked here, so that `build` cannot fail.
    if let Some(cap) = &raw.cap {
        cap.check().map_err(|e| source.figure(e))?;
    }
    let mut spec = prototype.spec().clone();
    if let Some(controller) = &raw.controller {
        controller.check(&spec).map_err(|e| source.figure(e))?;
        spec = controller.spec(&spec);
    }
    Ok(Entry {
        name: raw.name,
        description: raw.description,
        cap: raw.cap,
        controller: raw.controller,
        prototype,
        spec,
    })
}

/// Builds a single device from the one table that is present.
fn single(
    name: &str,
    hdd: Option<&HddFigures>,
    ssd: Option<&SsdFigures>,
) -> Result<Member, FigureError> {
    match (hdd, ssd) {
        (Some(figures), _) => Hdd::new(name, figures).map(Member::Hdd),
        (None, Some(figures)) => Ssd::new(name, figures).map(Member::Ssd),
        // `exactly_one` was called before.
        (None, None) => unreachable!("exactly one was found"),
    }
}

/// Text of a description with its name, which locates mistakes in it.
struct Source<'a> {
    text: &'a str,
    origin: &'a str,
}

impl Source<'_> {
    fn line_at(&self, offset: usize) -> usize {
        // Lines count from 1.
        self.text[..offset].matches('\n').count() + 1
    }

    fn figure(&self, source: FigureError) -> CatalogueError {
        CatalogueError::Figure {
            origin: self.origin.to_owned(),
            line: line_of(self.text, &source.field),
            source,
        }
    }

    /// Refuses anything but exactly one of the alternatives, each given with its byte offset.
    fn exactly_one(
        &self,
        tables: &[Option<(&str, usize)>],
        allowed: &'static str,
    ) -> Result<(), CatalogueError> {
        let mut found: Vec<(usize, &str)> = tables.iter().flatten().map(|t| (t.1, t.0)).collect();
        // By position in the text, so that the second one is the one too many.
        found.sort_unstable();
        if found.len() == 1 {
            return Ok(());
        }
        let names: Vec<&str> = found.iter().map(|t| t.1).collect();
        let end = self.text.trim_end().len();
        Err(CatalogueError::Kind {
            origin: self.origin.to_owned(),
            line: self.line_at(found.get(1).map_or(end, |t| t.0)),
            found: if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(" and ")
            },
            allowed,
        })
    }

    /// Returns the built-in device that the key `model` names; a cap or a controller must be in
    /// front of it.
    fn fronted_model(
        &self,
        model: &Spanned<String>,
        fronted: bool,
    ) -> Result<Prototype, CatalogueError> {
        let line = self.line_at(model.span().start);
        if !fronted {
            return Err(CatalogueError::Kind {
                origin: self.origin.to_owned(),
                line,
                found: "model without [cap] or [controller]".to_owned(),
                allowed: "exactly one of [hdd], [ssd] and [raid0], or model beside [cap] or \
                          [controller]",
            });
        }
        let refuse = |error: CatalogueError| CatalogueError::Model {
            origin: self.origin.to_owned(),
            line,
            message: error.to_string(),
        };
        Ok(load(model.get_ref()).map_err(refuse)?.prototype)
    }

    fn array(&self, name: &str, raw: RawRaid0) -> Result<Prototype, CatalogueError> {
        let tables = [
            raw.member.as_ref().map(|m| ("member", m.span().start)),
            raw.hdd.as_ref().map(|t| ("[raid0.hdd]", t.span().start)),
            raw.ssd.as_ref().map(|t| ("[raid0.ssd]", t.span().start)),
        ];
        self.exactly_one(
            &tables,
            "exactly one of member, [raid0.hdd] and [raid0.ssd] in [raid0]",
        )?;
        let member = match &raw.member {
            Some(member) => self.member(member)?,
            None => {
                let (hdd, ssd) = (raw.hdd.as_ref(), raw.ssd.as_ref());
                single(name, hdd.map(Spanned::get_ref), ssd.map(Spanned::get_ref))
                    .map_err(|e| self.figure(e.within("raid0")))?
            }
        };
        let figures = Raid0Figures {
            members: raw.members,
            chunk: raw.chunk,
            queue_depth: raw.queue_depth,
            command_overhead: raw.command_overhead,
        };
        let array = Raid0::new(name, &figures, &member).map_err(|e| self.figure(e))?;
        Ok(Prototype::Raid0(array))
    }

    /// Returns the built-in single device with this name.
    fn member(&self, name: &Spanned<String>) -> Result<Member, CatalogueError> {
        let refuse = |message| CatalogueError::Member {
            origin: self.origin.to_owned(),
            line: self.line_at(name.span().start),
            message,
        };
        // Arrays are recognised by name, so that looking for members never builds one.
        let known = || names().filter(|known| !known.starts_with("raid"));
        let name = name.get_ref();
        if !known().any(|known| known == name) {
            let known_names: Vec<&str> = known().collect();
            let nearest = nearest(name, known());
            let what = "built-in single device";
            return Err(refuse(unknown(what, name, nearest, &known_names)));
        }
        match load(name)?.prototype {
            Prototype::Single(member) => Ok(*member),
            Prototype::Raid0(_) => Err(refuse(format!("{name} is an array itself"))),
        }
    }
}

/// Returns the line, counted from 1, of a field given by its dotted path in a text that parses.
fn line_of(text: &str, path: &str) -> usize {
    let Ok(document) = toml::de::DeTable::parse(text) else {
        return 1;
    };
    let mut start = document.span().start;
    let mut table = Some(document.get_ref());
    for key in path.split('.') {
        // A figure that is absent is reported at its table.
        let Some(value) = table.and_then(|t| t.get(key)) else {
            break;
        };
        start = value.span().start;
        table = value.get_ref().as_table();
    }
    text[..start].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> &'static str {
        BUILT_IN[0].1
    }

    #[test]
    fn every_built_in_entry_parses_under_its_own_name() {
        for (name, entry) in names().zip(entries()) {
            assert_eq!(entry.name, name);
            assert_eq!(entry.spec().name, name);
            assert!(!entry.description.is_empty());
            assert_eq!(entry.build().in_flight(), 0);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones_and_the_nearest() {
        let message = load("hdd-7200-1t").unwrap_err().to_string();
        assert_eq!(
            message,
            "no device is called \"hdd-7200-1t\", did you mean \"hdd-7200-1tb\"?; \
             known are: hdd-7200-1tb, hdd-7200-1tb-cached, hdd-7200-250gb, ssd-sata-300gb, \
             nvme-1tb, raid0-16x250gb"
        );
        let message = load("floppy").unwrap_err().to_string();
        assert!(
            message.starts_with("no device is called \"floppy\"; known are: hdd-7200-1tb, "),
            "{message}"
        );
    }

    #[test]
    fn a_figure_out_of_range_is_refused_with_its_line() {
        let refuse = |from: &str, to: &str, expected: &str| {
            assert!(text().contains(from));
            let wrong = text().replace(from, to);
            let line = 1 + wrong[..wrong.find(to).unwrap()].matches('\n').count();
            let message = parse(&wrong, "my.toml").unwrap_err().to_string();
            let start = format!("my.toml, line {line}: {expected}");
            assert!(message.starts_with(&start), "{message}\nnot\n{start}");
        };
        refuse(
            "average = \"8.5 ms\"",
            "average = \"14 ms\"",
            "hdd.seek.average: found 14 ms, ",
        );
        refuse(
            "inner_rate = \"83 MB/s\"",
            "inner_rate = \"200 MB/s\"",
            "hdd.inner_rate: found 200 MB/s, allowed: 1 MB/s to outer_rate (175 MB/s)",
        );
        refuse(
            "queue_depth = 32",
            "queue_depth = 0",
            "hdd.queue_depth: found 0, allowed: 1 to 256",
        );
        refuse(
            "interface_rate = \"600 MB/s\"",
            "interface_rate = \"100 MB/s\"",
            "hdd.interface_rate: found 100 MB/s, allowed: ",
        );
        refuse(
            "capacity = \"1000204886016 B\"",
            "capacity = \"1000 B\"",
            "hdd.capacity: found ",
        );
    }

    /// The text of a built-in entry.
    fn built_in(name: &str) -> &'static str {
        let found = BUILT_IN.iter().find(|(known, ..)| *known == name);
        found.expect("built in").1
    }

    fn array(members: &str) -> String {
        format!(
            "name = \"my\"\ndescription = \"mine\"\n\n[raid0]\nmembers = 4\n\
             chunk = \"64 KiB\"\nqueue_depth = 64\ncommand_overhead = \"0 ns\"\n{members}"
        )
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let message = parse(text, "my.toml").unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}\nnot\n{expected}");
    }

    #[test]
    fn an_entry_has_exactly_one_model() {
        refused(
            "name = \"my\"\ndescription = \"mine\"\n",
            "my.toml, line 2: found none, allowed: exactly one of [hdd], [ssd] and [raid0]",
        );
        let ssd = built_in("nvme-1tb");
        let both = format!("{}\n{}", text(), &ssd[ssd.find("[ssd]").unwrap()..]);
        let line = 1 + both[..both.find("[ssd]").unwrap()].matches('\n').count();
        refused(
            &both,
            &format!(
                "my.toml, line {line}: found [hdd] and [ssd], allowed: exactly one of [hdd], [ssd] \
                 and [raid0]"
            ),
        );
    }

    #[test]
    fn a_bad_figure_of_a_flash_disk_is_refused_with_its_line() {
        let text = built_in("ssd-sata-300gb");
        for (from, to, expected) in [
            (
                "channels = 10",
                "channels = 100",
                "ssd.channels: found 100, allowed: 1 to 64",
            ),
            (
                "page = \"8 KiB\"",
                "page = \"2 KiB\"",
                "ssd.page: found 2 KiB, allowed: a power of two from physical_block (4 KiB)",
            ),
            (
                "spare = \"21.7 GB\"",
                "spare = \"1 GB\"",
                "ssd.garbage_collection.spare: found 1 GB, allowed: 6.001 GB to ",
            ),
            (
                "size = \"8 MiB\"",
                "size = \"4 KiB\"",
                "ssd.write_buffer.size: found 4 KiB, allowed: what is programmed at a time",
            ),
        ] {
            assert!(text.contains(from));
            let wrong = text.replace(from, to);
            let line = 1 + wrong[..wrong.find(to).unwrap()].matches('\n').count();
            refused(&wrong, &format!("my.toml, line {line}: {expected}"));
        }
        let wrong = text.replace("\"write\"", "\"skip\"");
        let message = parse(&wrong, "my.toml").unwrap_err().to_string();
        assert!(
            message.contains("expected `deallocate` or `write`"),
            "{message}"
        );
    }

    #[test]
    fn members_are_built_in_or_a_table_inside() {
        let named = parse(&array("member = \"nvme-1tb\"\n"), "my.toml").unwrap();
        assert_eq!(named.spec().name, "my");
        for (name, table) in [("hdd-7200-1tb", "hdd"), ("nvme-1tb", "ssd")] {
            let one = built_in(name);
            let inside = &one[one.find(&format!("\n[{table}]")).unwrap()..];
            let inside = inside.replace(&format!("\n[{table}"), &format!("\n[raid0.{table}"));
            let entry = parse(&array(&inside), "my.toml").unwrap();
            let named = parse(&array(&format!("member = \"{name}\"\n")), "my.toml").unwrap();
            assert_eq!(entry.spec(), named.spec());
            // A bad figure is found where it is.
            let wrong = array(&inside).replace("queue_depth = 32", "queue_depth = 0");
            if wrong != array(&inside) {
                let line = 1 + wrong[..wrong.find("= 0\n").unwrap()].matches('\n').count();
                refused(
                    &wrong,
                    &format!("my.toml, line {line}: raid0.{table}.queue_depth: found 0, "),
                );
            }
        }
    }

    #[test]
    fn a_wrong_member_is_refused_with_the_nearest_name() {
        refused(
            &array("member = \"nvme-2tb\"\n"),
            "my.toml, line 9: raid0.member: no built-in single device is called \"nvme-2tb\", did \
             you \
             mean \"nvme-1tb\"?; known are: hdd-7200-1tb, hdd-7200-1tb-cached, hdd-7200-250gb, \
             ssd-sata-300gb, nvme-1tb",
        );
        refused(
            &array("member = \"raid0-16x250gb\"\n"),
            "my.toml, line 9: raid0.member: no built-in single device is called \"raid0-16x250gb\"",
        );
        refused(
            &array(""),
            "my.toml, line 8: found none, allowed: exactly one of member, [raid0.hdd] and \
             [raid0.ssd] in [raid0]",
        );
        let two = array("member = \"nvme-1tb\"\n").replace("members = 4", "members = 1");
        refused(
            &two,
            "my.toml, line 5: raid0.members: found 1, allowed: 2 to 64",
        );
        let odd = array("member = \"nvme-1tb\"\n").replace("64 KiB", "1 KiB");
        refused(
            &odd,
            "my.toml, line 6: raid0.chunk: found 1 KiB, allowed: a power of two from the members' \
             physical block (4 KiB)",
        );
    }

    #[test]
    fn built_in_arrays_are_known_by_their_names() {
        for entry in entries() {
            let array = matches!(entry.prototype, Prototype::Raid0(_));
            assert_eq!(array, entry.name.starts_with("raid"), "{}", entry.name);
        }
    }
}
