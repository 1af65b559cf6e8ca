//! `tidegate explain`: why a VM was slow, and what would have helped.

mod counterfactual;

use anyhow::Result;
use serde_json::Value;
use tidegate_api::explain::ExplainView;
use tidegate_api::query::{ExplainQuery, percent_encode};

use crate::args::ExplainArgs;
use crate::client::{Client, read};
use crate::output::Output;

pub(super) fn run(args: &ExplainArgs, client: &Client, out: Output) -> Result<()> {
    let query = ExplainQuery {
        from: args.from.map(|from| from.to_string()),
        to: args.to.map(|to| to.to_string()),
    };
    let path = format!("/v1/vms/{}/explain{query}", percent_encode(&args.vm));
    let mut answer = client.get(&path)?;
    let view: ExplainView = read(answer.clone())?;
    let tried = match &args.recording {
        Some(file) => Some(counterfactual::tried(file, args, &view)?),
        None => None,
    };
    if out.is_json() {
        // Fields of a newer daemon stay.
        if let (Some(tried), Value::Object(fields)) = (tried, &mut answer) {
            fields.insert("simulated".to_owned(), serde_json::to_value(tried)?);
        }
        return out.json(&answer);
    }
    let mut lines = view.sentences;
    if let Some(tried) = tried {
        lines.extend(tried.sentences());
    }
    Ok(out.text(&format!("{}\n", lines.join("\n")))?)
}
