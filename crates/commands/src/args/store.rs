//! Options of the store of a cluster, for `tidegate place` and `tidegate cluster`.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as ClapArgs, Command, FromArgMatches, ValueHint};
use tidegate_server::config::{EtcdAccess, etcd_url, key_prefix};

/// Heading of the options of etcd in a command's help.
const ETCD: &str = "Cluster in etcd, in place of --db";

/// Store of a cluster: a file, or etcd.
#[derive(Clone, Debug)]
pub(crate) struct StoreArgs {
    /// Database of a cluster in a file.
    pub(crate) path: PathBuf,
    /// Address of a cluster in etcd; `None`: it is in the file.
    pub(crate) etcd: Option<EtcdAccess>,
}

/// Options as they are written.
#[derive(Debug, ClapArgs)]
struct Options {
    /// Database of hosts, jobs and learnt bandwidths; created if missing
    #[arg(long = "db", value_name = "FILE", env = "TIDEGATE_PLACE_DB",
          value_hint = ValueHint::FilePath, default_value = "tidegate-place.redb")]
    path: PathBuf,
    /// URLs of etcd's members, such as https://10.0.0.1:2379
    #[arg(long, value_name = "URL,...", env = "TIDEGATE_ETCD", value_delimiter = ',',
          value_parser = etcd_url, help_heading = ETCD)]
    etcd: Vec<String>,
    /// Beginning of all keys; a cluster has one of its own
    #[arg(long, value_name = "PREFIX", env = "TIDEGATE_ETCD_PREFIX", value_parser = key_prefix,
          default_value = "/tidegate/", help_heading = ETCD)]
    etcd_prefix: String,
    /// User; the password is in TIDEGATE_ETCD_PASSWORD or a file
    #[arg(long, value_name = "NAME", env = "TIDEGATE_ETCD_USER", help_heading = ETCD)]
    etcd_user: Option<String>,
    /// File whose first line is the user's password
    #[arg(long, value_name = "PATH", env = "TIDEGATE_ETCD_PASSWORD_FILE",
          value_hint = ValueHint::FilePath, help_heading = ETCD)]
    etcd_password_file: Option<PathBuf>,
    /// PEM file with the authority of the members' certificates, for https
    #[arg(long, value_name = "PATH", env = "TIDEGATE_ETCD_CA",
          value_hint = ValueHint::FilePath, help_heading = ETCD)]
    etcd_ca: Option<PathBuf>,
    /// PEM file with the certificate of this client, if etcd asks for one
    #[arg(long, alias = "etcd-cert", value_name = "PATH", env = "TIDEGATE_ETCD_CERTIFICATE",
          value_hint = ValueHint::FilePath, help_heading = ETCD)]
    etcd_certificate: Option<PathBuf>,
    /// PEM file with the private key for --etcd-certificate
    #[arg(long, value_name = "PATH", env = "TIDEGATE_ETCD_KEY",
          value_hint = ValueHint::FilePath, help_heading = ETCD)]
    etcd_key: Option<PathBuf>,
}

/// Options that need `--etcd`, by their identifiers.
const OF_ETCD: [(&str, &str); 6] = [
    ("etcd_prefix", "--etcd-prefix"),
    ("etcd_user", "--etcd-user"),
    ("etcd_password_file", "--etcd-password-file"),
    ("etcd_ca", "--etcd-ca"),
    ("etcd_certificate", "--etcd-certificate"),
    ("etcd_key", "--etcd-key"),
];

impl ClapArgs for StoreArgs {
    fn augment_args(command: Command) -> Command {
        Options::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::augment_args_for_update(command)
    }
}

impl FromArgMatches for StoreArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<StoreArgs, clap::Error> {
        let options = Options::from_arg_matches(matches)?;
        let is_in_etcd = is_in_etcd(|option| matches.value_source(option))
            .map_err(|(kind, what)| clap::Error::raw(kind, format!("{what}\n")))?;
        Ok(StoreArgs {
            path: options.path,
            etcd: is_in_etcd.then_some(EtcdAccess {
                endpoints: options.etcd,
                prefix: options.etcd_prefix,
                user: options.etcd_user,
                password_file: options.etcd_password_file,
                authority: options.etcd_ca,
                certificate: options.etcd_certificate,
                key: options.etcd_key,
            }),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = StoreArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns whether the options name a cluster in etcd. The command line has precedence over the
/// environment, in which options of etcd without its URLs are ignored.
///
/// # Errors
/// The command line, or the environment, names two clusters, or the command line has options of
/// etcd for a file.
fn is_in_etcd(source: impl Fn(&str) -> Option<ValueSource>) -> Result<bool, (ErrorKind, String)> {
    let is_from = |option: &str, wanted| source(option) == Some(wanted);
    let from = |wanted| [is_from("path", wanted), is_from("etcd", wanted)];
    let is_in_etcd = match (
        from(ValueSource::CommandLine),
        from(ValueSource::EnvVariable),
    ) {
        ([true, true], _) => {
            let what = "--db and --etcd name two clusters: give one of them";
            return Err((ErrorKind::ArgumentConflict, what.to_owned()));
        }
        ([false, false], [true, true]) => {
            let what = "TIDEGATE_PLACE_DB and TIDEGATE_ETCD name two clusters: unset one of them, \
                        or give --db or --etcd";
            return Err((ErrorKind::ArgumentConflict, what.to_owned()));
        }
        ([true, false], _) | ([false, false], [_, false]) => false,
        ([false, true], _) | ([false, false], [false, true]) => true,
    };
    let mut of_etcd = OF_ETCD.iter();
    let unused = of_etcd.find(|(option, _)| is_from(option, ValueSource::CommandLine));
    match unused.filter(|_| !is_in_etcd) {
        None => Ok(is_in_etcd),
        Some((_, option)) => {
            let what = format!(
                "{option} is for a cluster in etcd: add --etcd URL,... or set TIDEGATE_ETCD"
            );
            Err((ErrorKind::MissingRequiredArgument, what))
        }
    }
}

impl StoreArgs {
    /// Returns whether the cluster is in etcd.
    pub(crate) fn is_etcd(&self) -> bool {
        self.etcd.is_some()
    }

    /// Returns the place of the cluster for messages: the file, or the URLs.
    pub(crate) fn place(&self) -> String {
        match &self.etcd {
            Some(access) => format!("{} {}", access.endpoints.join(","), access.prefix),
            None => self.path.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the cluster is in etcd, for options of the command line and of the
    /// environment.
    fn chosen(line: &[&str], environment: &[&str]) -> Result<bool, String> {
        let source = |option: &str| match option {
            _ if line.contains(&option) => Some(ValueSource::CommandLine),
            _ if environment.contains(&option) => Some(ValueSource::EnvVariable),
            "path" | "etcd_prefix" => Some(ValueSource::DefaultValue),
            _ => None,
        };
        is_in_etcd(source).map_err(|(_, what)| what)
    }

    #[test]
    fn the_command_line_has_precedence_over_the_environment() {
        assert_eq!(chosen(&[], &[]), Ok(false));
        assert_eq!(chosen(&[], &["etcd", "etcd_user"]), Ok(true));
        assert_eq!(chosen(&["path"], &["etcd", "etcd_user"]), Ok(false));
        assert_eq!(chosen(&["etcd", "etcd_key"], &["path"]), Ok(true));
        assert_eq!(chosen(&[], &["path", "etcd_user"]), Ok(false));
        let two = chosen(&["path", "etcd"], &[]).expect_err("two");
        assert!(two.contains("--db and --etcd"), "{two}");
        let two = chosen(&[], &["path", "etcd"]).expect_err("two");
        assert!(two.contains("unset one"), "{two}");
    }

    #[test]
    fn options_of_etcd_are_refused_where_they_would_be_ignored() {
        for (option, written) in OF_ETCD {
            let refused = chosen(&[option], &["path"]).expect_err(option);
            assert!(
                refused.contains(written) && refused.contains("add --etcd"),
                "{refused}"
            );
            assert_eq!(chosen(&[option], &["etcd"]), Ok(true));
        }
    }
}
