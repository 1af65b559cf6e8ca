//! `tidegate policy`: which there are, and which is in force.

use std::path::Path;

use anyhow::Result;
use hyper::Method;
use serde_json::{Map, Value, json};
use tidegate_core::policy::{controllers, dispatchers, regulators};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_server::control::view::{PolicyInfoView, PolicyView};

use super::device;
use crate::args::{PolicyCommand, parse_policy};
use crate::client::{Client, escape, read};
use crate::output::Output;
use crate::problem::Problem;

pub(super) fn run(command: PolicyCommand, socket: &Path, out: Output) -> Result<()> {
    match command {
        PolicyCommand::List => list(out),
        PolicyCommand::Show { name } => show_one(&name, out),
        PolicyCommand::Set {
            device,
            policy,
            params,
        } => set(&device, &policy, &params, &Client::new(socket)?, out),
    }
}

fn list(out: Output) -> Result<()> {
    let all = PolicyInfoView::all();
    if out.is_json() {
        return out.json(&all);
    }
    let mut table = Table::new([
        ("POLICY", Align::Left),
        ("ENFORCES", Align::Left),
        ("WHAT IT DOES", Align::Left),
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
        ("WHAT IT DOES", Align::Left),
    ]);
    let controllers = controllers()
        .iter()
        .map(|part| (part.name, "controller", part.summary));
    let regulators = regulators()
        .iter()
        .map(|part| (part.name, "regulator", part.summary));
    let dispatchers = dispatchers()
        .iter()
        .map(|part| (part.name, "dispatcher", part.summary));
    for (name, role, summary) in controllers.chain(regulators).chain(dispatchers) {
        parts.row([name, role, summary]);
    }
    let tables = [table, parts].map(|table| table.render(out.style()));
    Ok(out.text(&tables.join("\n"))?)
}

fn show_one(name: &str, out: Output) -> Result<()> {
    // For its error, which names those there are.
    let spec = parse_policy(name).map_err(Problem::new)?;
    let Some(info) = PolicyInfoView::all()
        .into_iter()
        .find(|info| info.name == spec.name())
    else {
        return show_composed(&PolicyView::new(&spec), out);
    };
    if out.is_json() {
        return out.json(&info);
    }
    let mut facts = Table::facts();
    facts
        .fact("policy", Cell::from(info.name.as_str()).tone(Tone::Strong))
        .fact("in short", info.summary.as_str())
        .fact("from", info.source.as_str())
        .fact(
            "parts",
            parts(
                info.controller.as_deref(),
                &info.regulator,
                &info.dispatcher,
            ),
        )
        .fact("enforces", enforces(&info.enforces));
    let mut text = facts.render(out.style());
    text.push('\n');
    text.push_str(&wrap(&info.about, 90));
    if !info.params.is_empty() {
        let mut table = Table::new([
            ("PARAMETER", Align::Left),
            ("DEFAULT", Align::Right),
            ("FROM", Align::Right),
            ("TO", Align::Right),
            ("WHAT IT DOES", Align::Left),
        ]);
        for param in &info.params {
            let (default, min, max) = (&param.default, &param.min, &param.max);
            let help = match param.choices.as_slice() {
                [] => param.help.clone(),
                words => format!("{}: {}", param.help, words.join(", ")),
            };
            table.row([&param.name, default, min, max, &help].map(String::as_str));
        }
        text.push('\n');
        text.push_str(&table.render(out.style()));
    }
    Ok(out.text(&text)?)
}

fn show_composed(policy: &PolicyView, out: Output) -> Result<()> {
    if out.is_json() {
        return out.json(policy);
    }
    let mut facts = Table::facts();
    facts
        .fact(
            "policy",
            Cell::from(policy.name.as_str()).tone(Tone::Strong),
        )
        .fact("enforces", enforces(&policy.enforces));
    for param in &policy.params {
        facts.fact(&param.name, param.value.as_str());
    }
    Ok(out.table(&facts)?)
}

fn set(
    device: &str,
    policy: &str,
    params: &[(String, String)],
    client: &Client,
    out: Output,
) -> Result<()> {
    let path = format!("/v1/devices/{}/policy", escape(device));
    let answer = client.change(Method::PUT, &path, &request(policy, params))?;
    if out.is_json() {
        return out.json(&answer);
    }
    Ok(out.table(&device::describe(&read(answer)?))?)
}

/// What was typed as the policy that the API takes.
fn request(policy: &str, params: &[(String, String)]) -> Value {
    let mut request = Map::new();
    match policy.split('+').collect::<Vec<_>>().as_slice() {
        [regulator, dispatcher] => {
            request.insert("regulator".to_owned(), json!(regulator));
            request.insert("dispatcher".to_owned(), json!(dispatcher));
        }
        [controller, regulator, dispatcher] => {
            request.insert("controller".to_owned(), json!(controller));
            request.insert("regulator".to_owned(), json!(regulator));
            request.insert("dispatcher".to_owned(), json!(dispatcher));
        }
        _ => {
            request.insert("name".to_owned(), json!(policy));
        }
    }
    for (name, value) in params {
        // A count or a flag is meant where it looks like one; everything else carries a unit.
        let value = match serde_json::from_str(value) {
            Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
            _ => json!(value),
        };
        request.insert(name.clone(), value);
    }
    request.into()
}

/// `mclock (open, then mclock)`.
pub(super) fn with_parts(policy: &PolicyView) -> String {
    let parts = parts(
        policy.controller.as_deref(),
        &policy.regulator,
        &policy.dispatcher,
    );
    format!("{} ({parts})", policy.name)
}

fn parts(controller: Option<&str>, regulator: &str, dispatcher: &str) -> String {
    let controller = controller
        .map(|name| format!("controller {name}, "))
        .unwrap_or_default();
    format!("{controller}regulator {regulator}, dispatcher {dispatcher}")
}

pub(super) fn enforces(parts: &[String]) -> String {
    if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(", ")
    }
}

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
    use super::*;

    #[test]
    fn what_is_typed_becomes_a_policy() {
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
