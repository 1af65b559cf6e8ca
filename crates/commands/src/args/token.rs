//! Options of `token`.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use tidegate_api::access::Role;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Add a token and print its secret, once
    #[command(after_help = "Examples:
  tidegate token add dashboard --role read > dashboard.token
  tidegate token add ci --role operate --expires 30d")]
    Add(AddTokenArgs),
    /// List the tokens, without their secrets
    List,
    /// Revoke a token: its next request is refused
    Revoke {
        /// Name of the token
        name: String,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AddTokenArgs {
    /// Name of the token: letters, digits, `-`, `_`, `.`
    pub(crate) name: String,
    /// Rights of requests with the token
    #[arg(long, value_enum)]
    pub(crate) role: RoleArg,
    /// Time for which it is valid, such as 30d or 12h [default: for good]
    #[arg(long, value_name = "TIME", value_parser = parse_days)]
    pub(crate) expires: Option<Duration>,
}

/// Role as an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum RoleArg {
    /// See everything
    Read,
    /// Also change objectives, schedules and deadline transfers
    Operate,
    /// Everything
    Admin,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Role {
        match role {
            RoleArg::Read => Role::Read,
            RoleArg::Operate => Role::Operate,
            RoleArg::Admin => Role::Admin,
        }
    }
}

/// Parses a time with its unit, which may be days: `30d`.
fn parse_days(text: &str) -> Result<Duration, String> {
    /// Ten years: the daemon allows no longer time.
    const DAYS_MAX: u64 = 3_653;
    if let Some(days) = text.strip_suffix('d') {
        let days = days.trim().parse().ok().filter(|days| *days <= DAYS_MAX);
        let days: u64 = days.ok_or_else(|| format!("allowed: 1d to {DAYS_MAX}d"))?;
        return Ok(Duration::from_secs(days * 86_400));
    }
    let time = tidegate_units::parse_duration(text).map_err(|error| error.to_string())?;
    Ok(Duration::from_nanos(time.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_be_in_days() {
        let days = |text: &str| parse_days(text).map(|time| time.as_secs());
        assert_eq!(days("30d"), Ok(30 * 86_400));
        assert_eq!(days("1 d"), Ok(86_400));
        assert_eq!(days("12 h"), Ok(12 * 3_600));
        for wrong in ["30", "d", "-1d", "4000d", "99999999999999999999d", "1.5d"] {
            assert!(days(wrong).is_err(), "{wrong}");
        }
    }
}
