//! `tidegate policy`: lists and shows policies and parts, and sets the policy of a device.

use anyhow::Result;
use hyper::Method;
use serde_json::Value;
use tidegate_api::policy::{ParamView, PolicyInfoView, PolicyPartView, PolicyRequest};
use tidegate_api::query::percent_encode;
use tidegate_policies::policy::PolicySpec;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_server::control::view;

use super::device;
use super::wording::{enforces, parts};
use crate::args::{Global, PolicyCommand, parse_policy};
use crate::client::{Client, read};
use crate::output::{self, Output};
use crate::problem::Problem;

pub(super) fn run(command: PolicyCommand, global: &Global, out: Output) -> Result<()> {
    match command {
        PolicyCommand::List => list(out),
        PolicyCommand::Show { name } => show_one(&name, out),
        PolicyCommand::Set {
            device,
            policy,
            params,
        } => set(&device, &policy, &params, &global.client()?, out),
    }
}

fn list(out: Output) -> Result<()> {
    let all = view::policies();
    if out.is_json() {
        return out.json(&all);
    }
    let mut table = Table::new([
        ("POLICY", Align::Left),
        ("ENFORCES", Align::Left),
        ("DESCRIPTION", Align::Left),
    ]);
    for info in &all {
        table.row([
            Cell::from(info.name.as_str()).tone(Tone::Strong),
            enforces(&info.enforces).into(),
            info.summary.as_str().into(),
        ]);
    }
    let mut parts = Table::new([
        ("PART", Align::Left),
        ("ROLE", Align::Left),
        ("DESCRIPTION", Align::Left),
    ]);
    for part in view::policy_parts() {
        parts.row([part.name, part.role, part.summary]);
    }
    let tables = [table, parts].map(|mut table| {
        if let Some(width) = output::terminal_width() {
            table.wrap_width(width, &["ENFORCES", "DESCRIPTION"], out.style());
        }
        table.render(out.style())
    });
    Ok(out.text(&tables.join("\n"))?)
}

fn show_one(name: &str, out: Output) -> Result<()> {
    let policies = view::policies();
    if let Some(info) = policies.iter().find(|info| info.name == name) {
        return show_policy(info, out);
    }
    let parts = view::policy_parts();
    if let Some(part) = parts.iter().find(|part| part.name == name) {
        return show_part(part, out);
    }
    // Only parsed for its error, which lists the policies.
    let spec = parse_policy(name).map_err(|what| {
        let parts: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        Problem::new(what).help(format!("or one of the parts: {}", parts.join(", ")))
    })?;
    show_composed(&spec, out)
}

fn show_policy(info: &PolicyInfoView, out: Output) -> Result<()> {
    if out.is_json() {
        return out.json(info);
    }
    let controller = info.controller.as_deref();
    let mut properties = Table::properties();
    properties
        .property("policy", Cell::from(info.name.as_str()).tone(Tone::Strong))
        .property("summary", info.summary.as_str())
        .property("source", info.source.as_str())
        .property(
            "parts",
            parts(controller, &info.regulator, &info.dispatcher),
        )
        .property("enforces", enforces(&info.enforces));
    let about = format!("\n{}", wrap(&info.about, 90));
    let text = properties.render(out.style()) + &about + &parameters(&info.params, out);
    Ok(out.text(&text)?)
}

fn show_part(part: &PolicyPartView, out: Output) -> Result<()> {
    if out.is_json() {
        return out.json(part);
    }
    let mut properties = Table::properties();
    properties
        .property("part", Cell::from(part.name.as_str()).tone(Tone::Strong))
        .property("role", part.role.as_str())
        .property("summary", part.summary.as_str())
        .property("enforces", enforces(&part.enforces))
        .property(
            "configure",
            format!("policy = {{ {} = \"{}\" }}", part.role, part.name),
        );
    let text = properties.render(out.style()) + &parameters(&part.params, out);
    Ok(out.text(&text)?)
}

fn show_composed(spec: &PolicySpec, out: Output) -> Result<()> {
    let policy = view::policy(spec);
    if out.is_json() {
        return out.json(&policy);
    }
    let controller = policy.controller.as_deref();
    let mut properties = Table::properties();
    properties
        .property(
            "policy",
            Cell::from(policy.name.as_str()).tone(Tone::Strong),
        )
        .property(
            "parts",
            parts(controller, &policy.regulator, &policy.dispatcher),
        )
        .property("enforces", enforces(&policy.enforces));
    let text = properties.render(out.style()) + &parameters(&view::params(spec), out);
    Ok(out.text(&text)?)
}

/// Returns the table of parameters with a blank line before it; empty if there are none.
fn parameters(params: &[ParamView], out: Output) -> String {
    if params.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        ("PARAMETER", Align::Left),
        ("DEFAULT", Align::Right),
        ("MIN", Align::Right),
        ("MAX", Align::Right),
        ("DESCRIPTION", Align::Left),
    ]);
    for param in params {
        let (default, min, max) = (&param.default, &param.min, &param.max);
        let help = match param.choices.as_slice() {
            [] => param.help.clone(),
            words => format!("{}: {}", param.help, words.join(", ")),
        };
        table.row([&param.name, default, min, max, &help].map(String::as_str));
    }
    format!("\n{}", table.render(out.style()))
}

fn set(
    device: &str,
    policy: &str,
    params: &[(String, String)],
    client: &Client,
    out: Output,
) -> Result<()> {
    let path = format!("/v1/devices/{}/policy", percent_encode(device));
    let answer = client.change(Method::PUT, &path, &request(policy, params))?;
    if out.is_json() {
        return out.json(&answer);
    }
    let keep = format!("set the policy of [[device]] {device:?} in the configuration to keep it");
    Ok(out.table(&device::describe_change(&read(answer)?, &keep))?)
}

/// Returns the request for a policy: a name, or two or three parts joined by `+`.
pub(super) fn request(policy: &str, params: &[(String, String)]) -> PolicyRequest {
    let part = |name: &&str| Some((*name).to_owned());
    let mut request = match policy.split('+').collect::<Vec<_>>().as_slice() {
        [regulator, dispatcher] => PolicyRequest {
            regulator: part(regulator),
            dispatcher: part(dispatcher),
            ..PolicyRequest::default()
        },
        [controller, regulator, dispatcher] => PolicyRequest {
            controller: part(controller),
            regulator: part(regulator),
            dispatcher: part(dispatcher),
            ..PolicyRequest::default()
        },
        _ => PolicyRequest {
            name: Some(policy.to_owned()),
            ..PolicyRequest::default()
        },
    };
    for (name, value) in params {
        // Numbers and flags become JSON values; everything else carries a unit and stays text.
        let value = match serde_json::from_str(value) {
            Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
            _ => Value::from(value.as_str()),
        };
        request.params.insert(name.clone(), value);
    }
    request
}

/// Wraps a paragraph at `width` columns.
fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_typed_becomes_a_policy() {
        let request = |policy: &str, params: &[(String, String)]| {
            serde_json::to_value(request(policy, params)).expect("plain data")
        };
        let params = [("cost_size", "64 KiB"), ("n", "5"), ("on", "true")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            request("mclock", &params),
            json!({ "name": "mclock", "cost_size": "64 KiB", "n": 5, "on": true })
        );
        assert_eq!(
            request("token-bucket+mclock", &[]),
            json!({ "regulator": "token-bucket", "dispatcher": "mclock" })
        );
    }

    #[test]
    fn paragraphs_are_wrapped_between_words() {
        assert_eq!(wrap("a bb  ccc dddd", 6), "a bb\nccc\ndddd\n");
    }
}
