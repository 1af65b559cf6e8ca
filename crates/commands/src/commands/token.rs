//! `tidegate token`: tokens of the control API on TCP.

use anyhow::Result;
use hyper::Method;
use tidegate_api::access::{NewTokenView, TokenRequest, TokenView};
use tidegate_api::query::percent_encode;
use tidegate_report::{Align, Table};

use crate::args::{AddTokenArgs, TokenCommand};
use crate::client::{Client, read};
use crate::output::{self, Output};

pub(super) fn run(command: &TokenCommand, client: &Client, out: Output) -> Result<()> {
    match command {
        TokenCommand::Add(args) => add(args, client, out),
        TokenCommand::List => list(client, out),
        TokenCommand::Revoke { name } => {
            let path = format!("/v1/tokens/{}", percent_encode(name));
            let answer = client.change(Method::DELETE, &path, &())?;
            if out.is_json() {
                return out.json(&answer);
            }
            Ok(out.text(&format!("token {name:?} revoked\n"))?)
        }
    }
}

fn add(args: &AddTokenArgs, client: &Client, out: Output) -> Result<()> {
    let seconds = args.expires.map(|time| time.as_secs());
    let request = TokenRequest {
        name: args.name.clone(),
        role: args.role.into(),
        expires_after: seconds.map(|seconds| format!("{seconds} s")),
    };
    let answer = client.change(Method::POST, "/v1/tokens", &request)?;
    if out.is_json() {
        return out.json(&answer);
    }
    let new: NewTokenView = read(answer)?;
    // Alone on standard output, so that it can go to a file.
    output::tell(format_args!(
        "note: the secret of token {:?} is shown only now: keep it in a file of mode 0600",
        new.token.name
    ));
    Ok(out.text(&format!("{}\n", new.secret))?)
}

fn list(client: &Client, out: Output) -> Result<()> {
    let answer = client.get("/v1/tokens")?;
    if out.is_json() {
        return out.json(&answer);
    }
    let tokens: Vec<TokenView> = read(answer)?;
    let mut table = Table::new([
        ("TOKEN", Align::Left),
        ("ROLE", Align::Left),
        ("CREATED", Align::Left),
        ("EXPIRES", Align::Left),
        ("LAST USED", Align::Left),
    ]);
    for token in tokens {
        let expires = match token.expires {
            Some(time) if token.expired => format!("{time} (expired)"),
            Some(time) => time,
            None => "never".to_owned(),
        };
        let last_used = token.last_used.unwrap_or_else(|| "never".to_owned());
        table.row([
            token.name,
            token.role.to_string(),
            token.created,
            expires,
            last_used,
        ]);
    }
    Ok(out.table(&table)?)
}
