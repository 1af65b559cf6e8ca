//! Lists of export names in the sections of a listener.

use tidegate_config::{Field, Names};
use tidegate_core::names::nearest;

/// Reads names of exports that a listener offers.
pub(super) fn read(field: &Field<'_>, exports: &Names) -> Option<Vec<String>> {
    let mut seen = Names::default();
    let mut offered = Some(Vec::new());
    for field in field.elements()? {
        let Some(name) = field.text() else {
            // Goes on, so that further wrong names are reported as well.
            offered = None;
            continue;
        };
        seen.claim(name, "export", &field);
        if !exports.contains(name) {
            let allowed = match nearest(name, exports.iter()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => "it is offered here once a disk with this name was added".to_owned(),
            };
            field.warn(format!("no disk has the export name {name:?}"), &allowed);
        }
        if let Some(offered) = &mut offered {
            offered.push(name.to_owned());
        }
    }
    offered
}

/// Reads names of exports, each of which has to be among those of a listener, `offered_here`; no
/// names there are all.
pub(super) fn read_some(
    field: &Field<'_>,
    exports: &Names,
    offered_here: &[String],
) -> Option<Vec<String>> {
    let names = read(field, exports)?;
    are_offered(field, &names, offered_here).then_some(names)
}

/// Reports names that the listener is not to offer; returns true if there are none.
fn are_offered(field: &Field<'_>, names: &[String], offered_here: &[String]) -> bool {
    let offers = |name: &String| offered_here.is_empty() || offered_here.contains(name);
    let missing = names.iter().find(|name| !offers(name));
    if let Some(name) = missing {
        field.error(
            format!("{name:?} is not among the exports of this listener"),
            "add it to exports of [[listen]], or leave it out here",
        );
    }
    missing.is_none()
}
