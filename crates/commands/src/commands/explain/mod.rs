//! `tidegate explain`: why a VM was slow, and what would have helped.

mod counterfactual;
mod recorded;
mod source;

use anyhow::Result;
use serde_json::Value;
use tidegate_api::explain::ExplainView;
use tidegate_api::query::{ExplainQuery, percent_encode};

use self::recorded::Attempt;
use self::source::{Source, replay_of};
use crate::args::ExplainArgs;
use crate::client::{Client, read};
use crate::output::Output;
use crate::recording_file::ReplayDevice;

/// Returns the device on which changes are tried.
fn simulated_device(args: &ExplainArgs) -> ReplayDevice<'_> {
    ReplayDevice {
        model: args.device.as_deref(),
        profile: args.profile.as_deref(),
    }
}

pub(super) fn run(args: &ExplainArgs, client: &Client, out: Output) -> Result<()> {
    let query = ExplainQuery {
        from: args.from.map(|from| from.to_string()),
        to: args.to.map(|to| to.to_string()),
    };
    let path = format!("/v1/vms/{}/explain{query}", percent_encode(&args.vm));
    let mut answer = client.get(&path)?;
    let view: ExplainView = read(answer.clone())?;
    let attempt = match &args.recording {
        Some(file) => {
            let source = Source::of_file(file, args.allow_gaps)?;
            let replay = replay_of(&source, simulated_device(args), view.explained)?;
            Attempt::Tried(Box::new(counterfactual::tried(&source, replay, &view)?))
        }
        None if args.no_simulate => Attempt::Nothing,
        None => recorded::attempt(args, &view, client),
    };
    if out.is_json() {
        let field = match attempt {
            Attempt::Tried(tried) => Some(("simulated", serde_json::to_value(tried)?)),
            Attempt::Lacking(why) => Some(("not_simulated", Value::String(why))),
            Attempt::Nothing => None,
        };
        // Fields of a newer daemon stay.
        if let (Some((name, value)), Value::Object(fields)) = (field, &mut answer) {
            fields.insert(name.to_owned(), value);
        }
        return out.json(&answer);
    }
    let mut lines = view.sentences;
    match attempt {
        Attempt::Tried(tried) => lines.extend(tried.sentences()),
        Attempt::Lacking(why) => lines.push(why),
        Attempt::Nothing => {}
    }
    Ok(out.text(&format!("{}\n", lines.join("\n")))?)
}
