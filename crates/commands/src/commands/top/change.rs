//! Change of an objective from the screen: the line that is edited and what it means.

use serde_json::Value;
use tidegate_api::objective::ObjectiveView;
use tidegate_api::query::{ChangeQuery, percent_encode};

use clap::Parser as _;

use super::line::Line;
use crate::args::{ObjectiveLine, PartArgs};
use crate::shell;

/// Objective that is being edited.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    pub(super) vm: String,
    pub(super) line: Line,
    /// Objective in force when the line was opened.
    before: PartArgs,
}

/// Change of an objective that the daemon is to make.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Change {
    pub(super) vm: String,
    /// Path and query of the request.
    pub(super) path: String,
    /// Body of the request.
    pub(super) body: Value,
}

impl Edit {
    /// Creates a line with the present objective in the options of `vm set`.
    pub(super) fn new(vm: &str, objective: &ObjectiveView) -> Edit {
        let before = PartArgs::of(objective);
        let words = before.words();
        let words: Vec<String> = words.iter().map(|word| shell::quoted(word)).collect();
        Edit {
            vm: vm.to_owned(),
            line: Line::new(&words.join(" ")),
            before,
        }
    }

    /// Returns the change that makes the objective the one of the line; parts that were removed
    /// from the line are removed from the objective.
    ///
    /// # Errors
    /// A message if the line is wrong, as the command line has it, or if it changes nothing.
    pub(super) fn change(&self) -> Result<Change, String> {
        let words = shell::words(&self.line.text())?;
        let typed = ObjectiveLine::try_parse_from(words).map_err(|error| first_line(&error))?;
        let body = typed.parts.change_from(&self.before);
        if body.is_null() && !typed.persist {
            return Err("nothing to change: that objective is in force".to_owned());
        }
        let query = ChangeQuery {
            force: typed.force,
            persist: typed.persist,
        };
        Ok(Change {
            vm: self.vm.clone(),
            path: format!("/v1/vms/{}/objective{query}", percent_encode(&self.vm)),
            // An empty change with --persist persists the objective in force.
            body: if body.is_null() {
                serde_json::json!({})
            } else {
                body
            },
        })
    }
}

/// Returns an error of the command line without its usage.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate_api::objective::{BurstView, GroupView, LimitView, RatesView};

    fn rates(total: &str) -> RatesView {
        RatesView {
            total: Some(total.to_owned()),
            ..RatesView::default()
        }
    }

    fn objective() -> ObjectiveView {
        ObjectiveView {
            reservation: Some("120 IOPS @ 16 KiB".to_owned()),
            limit: Some(LimitView {
                rates: rates("500 IOPS"),
                burst: Some(BurstView {
                    rates: rates("2000 IOPS"),
                    length: "10 s".to_owned(),
                }),
            }),
            weight: 100,
            group: Some(GroupView {
                name: "web".to_owned(),
                weight: 200,
            }),
            priority: "best-effort 4".to_owned(),
            ..ObjectiveView::default()
        }
    }

    fn edited(text: &str) -> Result<Value, String> {
        let mut edit = Edit::new("a/b", &objective());
        edit.line = Line::new(text);
        edit.change().map(|change| change.body)
    }

    const WHOLE: &str = "--reservation '120 IOPS @ 16 KiB' --limit '500 IOPS' \
                         --burst '2000 IOPS' --burst-length '10 s' --group web --group-weight 200";

    #[test]
    fn a_line_begins_with_the_options_of_the_objective_in_force() {
        let edit = Edit::new("a/b", &objective());
        assert_eq!(edit.line.text(), WHOLE);
        assert_eq!(
            edit.change(),
            Err("nothing to change: that objective is in force".to_owned())
        );
    }

    #[test]
    fn only_what_differs_is_changed_and_what_is_left_out_is_removed() {
        let with = |from: &str, to: &str| edited(&WHOLE.replace(from, to));
        assert_eq!(
            with("120 IOPS @ 16 KiB", "200 IOPS"),
            Ok(json!({ "reservation": "200 IOPS" }))
        );
        assert_eq!(
            with("--reservation '120 IOPS @ 16 KiB'", "--weight 50"),
            Ok(json!({ "reservation": "none", "weight": 50 }))
        );
        assert_eq!(
            with("--group web --group-weight 200", ""),
            Ok(json!({ "group": null }))
        );
        assert_eq!(
            with(" --group-weight 200", ""),
            Ok(json!({ "group": { "weight": 100 } }))
        );
        assert_eq!(
            with("--burst '2000 IOPS' --burst-length '10 s'", ""),
            Ok(json!({ "limit": { "burst": null } }))
        );
        let no_limit = "--limit '500 IOPS' --burst '2000 IOPS' --burst-length '10 s'";
        assert_eq!(with(no_limit, ""), Ok(json!({ "limit": null })));
        assert_eq!(
            edited(""),
            Ok(json!({ "reservation": "none", "limit": null, "group": null }))
        );
    }

    #[test]
    fn options_of_the_change_are_those_of_vm_set() {
        let mut edit = Edit::new("a/b", &objective());
        edit.line = Line::new(&format!("{WHOLE} --weight 7 --force --persist"));
        let change = edit.change().expect("well-formed");
        assert_eq!(
            change.path,
            "/v1/vms/a%2Fb/objective?force=true&persist=true"
        );
        edit.line = Line::new(&format!("{WHOLE} --persist"));
        assert_eq!(edit.change().expect("well-formed").body, json!({}));
    }

    #[test]
    fn mistakes_are_those_of_the_command_line() {
        for (line, message) in [
            ("--wait 5", "unexpected argument '--wait' found"),
            ("--weight 0", "invalid value '0' for '--weight <N>'"),
            ("--limit 'x", "no closing '"),
        ] {
            let error = edited(line).expect_err("wrong");
            assert!(error.contains(message), "{line}: {error}");
        }
    }
}
