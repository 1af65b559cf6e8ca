//! Section `[control]`: sockets and addresses of the control API, and the roles that they give.

use std::path::PathBuf;

use tidegate_api::access::Role;
use tidegate_config::keys::{KeyDefault, KeyInfo};
use tidegate_config::{Field, Section};

use super::context::Context;
use super::listen_address::{
    AddressKind, ClaimedAddresses, DEFAULT_SOCKET_MODE, is_loopback, owner, unix_or_tcp,
};
use super::socket_owner::is_account;
use super::tls::{describe_tls, read_of_http as read_tls};
use super::{ListenAddress, Place, SocketOwner, TlsConfig, keys};

/// Default path of the control API's socket.
pub const DEFAULT_CONTROL_SOCKET: &str = match keys::SOCKET.default {
    KeyDefault::Text(path) => path,
    _ => panic!("the control API has a socket unless it says"),
};

/// Section `[control]`.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// Listener of the section itself: a unix socket, whose clients are administrators unless the
    /// file says otherwise.
    pub main: ControlListenConfig,
    /// Listeners of `[[control.listen]]`.
    pub others: Vec<ControlListenConfig>,
}

/// Listener of the control API: `[control]` itself, or `[[control.listen]]`.
#[derive(Clone, Debug)]
pub struct ControlListenConfig {
    /// Unix socket, or TCP address: of loopback, unless it has TLS.
    pub address: ListenAddress,
    /// Owner and group of a unix socket.
    pub owner: SocketOwner,
    /// Roles of the clients of a unix socket; those of TCP have a token.
    pub access: AccessConfig,
    /// TLS of a TCP address; `None` without it.
    pub tls: Option<TlsConfig>,
    /// Place in the file; `None` if no file sets it.
    pub place: Option<Place>,
}

/// Roles that a unix socket gives to the processes that connect to it. A process has the highest
/// that applies to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessConfig {
    /// Role of every process that can connect; `None` for none.
    pub everyone: Option<Role>,
    /// Role of root and of the daemon's own user.
    pub root: Role,
    /// Accounts with the role of each.
    pub accounts: Vec<(Account, Role)>,
}

/// User or group, by name or number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Account {
    /// User.
    User(String),
    /// Group: a process's own one, or one of its supplementary groups.
    Group(String),
}

impl ControlConfig {
    /// Returns the control API at one unix socket, whose clients are all administrators.
    pub fn at(socket: PathBuf, mode: u32) -> ControlConfig {
        ControlConfig {
            main: ControlListenConfig {
                address: ListenAddress::Unix { path: socket, mode },
                owner: SocketOwner::default(),
                access: AccessConfig::everyone(Role::Admin),
                tls: None,
                place: None,
            },
            others: Vec::new(),
        }
    }

    /// Iterates over all listeners, the one of the section itself first.
    pub fn listeners(&self) -> impl Iterator<Item = &ControlListenConfig> {
        std::iter::once(&self.main).chain(&self.others)
    }
}

impl Default for ControlConfig {
    fn default() -> ControlConfig {
        ControlConfig::at(DEFAULT_CONTROL_SOCKET.into(), DEFAULT_SOCKET_MODE)
    }
}

impl AccessConfig {
    /// Returns the rule that every process that can connect has a role, and root all rights.
    pub fn everyone(role: Role) -> AccessConfig {
        AccessConfig {
            everyone: Some(role),
            root: Role::Admin,
            accounts: Vec::new(),
        }
    }
}

impl ControlListenConfig {
    /// Returns the address for people, with the mode and owner of a unix socket.
    pub fn description(&self) -> String {
        let address = self.address.description(&self.owner);
        describe_tls(address, self.tls.as_ref())
    }

    /// Returns the roles of the clients for people, such as `control API: operate`.
    pub fn roles(&self) -> String {
        if let ListenAddress::Tcp(_) = self.address {
            return "role of the token".to_owned();
        }
        let AccessConfig {
            everyone,
            root,
            accounts,
        } = &self.access;
        let mut roles: Vec<_> = everyone.iter().map(Role::to_string).collect();
        for (account, role) in accounts {
            let (kind, name) = match account {
                Account::User(name) => ("user", name),
                Account::Group(name) => ("group", name),
            };
            roles.push(format!("{kind} {name} {role}"));
        }
        if everyone.is_none_or(|everyone| everyone < *root) {
            roles.push(format!("root {root}"));
        }
        roles.join(", ")
    }
}

const ADDRESS: AddressKind = AddressKind {
    examples: "unix = \"operate.sock\" or tcp = \"127.0.0.1:9808\"",
    heading: "[[control.listen]]",
};

/// Reads the TLS of a listener, and refuses a TCP address that other hosts reach without it.
fn tls(
    section: &mut Section<'_>,
    context: &Context<'_>,
    address: Option<&ListenAddress>,
) -> Option<Option<TlsConfig>> {
    let section_keys = &keys::tls::CONTROL_TLS;
    let tls = read_tls(section, &keys::CONTROL_TLS, section_keys, context, address);
    let is_open = matches!(address, Some(ListenAddress::Tcp(address)) if !is_loopback(*address));
    if is_open && let (Some(None), Some(field)) = (&tls, section.find(keys::TCP.name)) {
        field.error(
            "the control API on TCP is served to this host alone: it has no TLS, so tokens \
             could be read on the way",
            "an address of loopback, such as \"127.0.0.1:9808\"; for other hosts \
             [control.listen.tls] with certificate and private_key",
        );
        return None;
    }
    tls
}

/// Lists of accounts with the role that each gives.
const LISTS: &[(&KeyInfo, Role)] = &[
    (&keys::READ, Role::Read),
    (&keys::OPERATE, Role::Operate),
    (&keys::ADMIN, Role::Admin),
];

/// Reads `[control]`. `None` if there was an error, which has been reported. `has_store` is true if
/// the file has a section `[store]`, which keeps tokens.
pub(super) fn read(
    field: &Field<'_>,
    context: &Context<'_>,
    taken: &mut ClaimedAddresses,
    has_store: bool,
) -> Option<ControlConfig> {
    let mut section = Section::with_keys(field, &keys::CONTROL)?;
    let path = match section.field(&keys::SOCKET) {
        Some(field) => context.socket_path(&field).inspect(|path| {
            (taken.names).claim(&path.display().to_string(), "socket", &field);
        }),
        None => Some(DEFAULT_CONTROL_SOCKET.into()),
    };
    let mode = section.number(&keys::CONTROL_MODE);
    let address = path.zip(mode).and_then(|(path, mode)| {
        let mode = u32::try_from(mode).ok()?;
        Some(ListenAddress::Unix { path, mode })
    });
    let owner = owner(&mut section, address.as_ref());
    let access = access(&mut section, &keys::CONTROL_ROLE, Some(Role::Admin), false);
    let tables = section.take_tables(keys::CONTROL_LISTENERS.name);
    let others: Vec<_> = (tables.iter())
        .map(|field| listener(field, context, taken, has_store))
        .collect();
    section.finish();
    Some(ControlConfig {
        main: ControlListenConfig {
            address: address?,
            owner: owner?,
            access: access?,
            tls: None,
            place: field
                .find("socket")
                .unwrap_or_else(|| field.clone())
                .place(),
        },
        others: others.into_iter().collect::<Option<_>>()?,
    })
}

/// Reads a section `[[control.listen]]`.
fn listener(
    field: &Field<'_>,
    context: &Context<'_>,
    taken: &mut ClaimedAddresses,
    has_store: bool,
) -> Option<ControlListenConfig> {
    let mut section = Section::with_keys(field, &keys::CONTROL_LISTEN)?;
    let (unix, tcp) = (section.field(&keys::UNIX), section.field(&keys::TCP));
    let keys = (unix, tcp, section.field(&keys::LISTEN_MODE));
    let address = unix_or_tcp(&mut section, keys, context, taken, &ADDRESS);
    let is_tcp = matches!(address, Some(ListenAddress::Tcp(_)));
    if is_tcp && !has_store {
        section.error(
            "the control API on TCP needs tokens, which are kept in the store",
            "add [store] with path = \"/var/lib/tidegate/tidegate.redb\"",
        );
        return None;
    }
    let owner = owner(&mut section, address.as_ref());
    let access = access(&mut section, &keys::LISTEN_ROLE, None, is_tcp);
    if let Some(ListenAddress::Unix { .. }) = address
        && let Some(access) = &access
        && access.everyone.is_none()
        && access.accounts.is_empty()
    {
        field.warn(
            "only root and the daemon's user have a role here",
            "role = \"read\" for all who can connect, or read = [\"group:NAME\"]",
        );
    }
    let tls = tls(&mut section, context, address.as_ref());
    section.finish();
    Some(ControlListenConfig {
        address: address?,
        owner: owner?,
        access: access?,
        tls: tls?,
        place: (["unix", "tcp"].iter())
            .find_map(|key| field.find(key))
            .and_then(|field| field.place()),
    })
}

/// Reads the roles that a socket gives. Without `key` every process has the role `default`, but
/// none where accounts are listed: a list says who has a role, so that others have none.
fn access(
    section: &mut Section<'_>,
    key: &KeyInfo,
    default: Option<Role>,
    is_tcp: bool,
) -> Option<AccessConfig> {
    if is_tcp {
        let mut sound = true;
        for key in [
            key,
            &keys::READ,
            &keys::OPERATE,
            &keys::ADMIN,
            &keys::ROOT_ROLE,
        ] {
            if let Some(field) = section.field(key) {
                field.error(
                    "a client on TCP has the role of its token",
                    "leave it out: `tidegate token add NAME --role ROLE`",
                );
                sound = false;
            }
        }
        // Nobody has a role without a token, whatever this says.
        return sound.then(|| AccessConfig::everyone(Role::Read));
    }
    let role = |field: &Field<'_>| field.choice(&Role::ALL.map(|role| (role.name(), role)));
    let is_listed = LISTS.iter().any(|(key, _)| section.has(key.name));
    let default = default.filter(|_| !is_listed);
    let everyone = section.value(key, default, |field| role(field).map(Some));
    let root = section.value(&keys::ROOT_ROLE, Role::Admin, role);
    let mut accounts = Some(Vec::new());
    for (key, role) in LISTS {
        let listed = section.value(key, Vec::new(), |field| {
            let elements = field.elements()?;
            if let Some(everyone) = everyone.flatten()
                && everyone >= *role
            {
                for element in &elements {
                    warn_without_effect(element, everyone);
                }
            }
            let listed: Vec<_> = elements.iter().map(account).collect();
            listed.into_iter().collect::<Option<_>>()
        });
        // Goes on after an error, so that further wrong names are reported as well.
        accounts = accounts.zip(listed).map(|(mut all, listed)| {
            all.extend(listed.into_iter().map(|account| (account, *role)));
            all
        });
    }
    Some(AccessConfig {
        everyone: everyone?,
        root: root?,
        accounts: accounts?,
    })
}

/// Warns that an account in a list gets no role above `everyone`, the role of every process that
/// can connect: the highest role counts, so a list does not lower it.
fn warn_without_effect(account: &Field<'_>, everyone: Role) {
    let what = format!(
        "{} has no effect: every process that can connect has the role {everyone}",
        account.describe()
    );
    account.warn(
        what,
        "leave `role` out, so that only listed accounts have a role, or leave the account out",
    );
}

/// Reads a user or group, such as `user:alice`.
fn account(field: &Field<'_>) -> Option<Account> {
    let text = field.text()?;
    let account = match text.split_once(':') {
        Some(("user", name)) if is_account(name) => Account::User(name.to_owned()),
        Some(("group", name)) if is_account(name) => Account::Group(name.to_owned()),
        _ => {
            let what = format!("{} is no user and no group", field.describe());
            field.error(what, "\"user:alice\", \"group:storage\" or \"group:107\"");
            return None;
        }
    };
    Some(account)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{errors, parts, with_template};

    const STORE: &str = "[store]\npath = \"s.redb\"\n";

    fn with_control(sections: &str) -> String {
        with_template("unix = \"nbd.sock\"") + sections
    }

    #[test]
    fn without_keys_the_control_socket_is_for_administrators_alone() {
        let (config, _) = parts(&with_control(""));
        let (empty, _) = parts(&with_control("[control]\n"));
        for control in [config.control, empty.control] {
            assert_eq!(control.listeners().count(), 1);
            let ListenAddress::Unix { path, mode } = &control.main.address else {
                panic!("{control:?}");
            };
            assert_eq!(path.to_str(), Some(DEFAULT_CONTROL_SOCKET));
            assert_eq!(*mode, 0o600);
            assert_eq!(control.main.access, AccessConfig::everyone(Role::Admin));
            assert_eq!(control.main.roles(), "admin");
        }
    }

    #[test]
    fn sockets_give_roles_to_all_who_connect_and_to_accounts() {
        let text = "[control]\nsocket = \"c.sock\"\nmode = \"0660\"\ngroup = \"wheel\"\n\
                    role = \"operate\"\nroot_role = \"operate\"\n\
                    [[control.listen]]\nunix = \"people.sock\"\nmode = \"0666\"\n\
                    read = [\"group:staff\"]\noperate = [\"user:alice\", \"group:107\"]\n\
                    admin = [\"user:0\"]\n\
                    [[control.listen]]\ntcp = \"127.0.0.1:9808\"\n";
        let (config, warnings) = parts(&with_control(&(text.to_owned() + STORE)));
        assert!(warnings.is_empty(), "{warnings:?}");
        let control = config.control;
        assert_eq!(control.main.owner.group.as_deref(), Some("wheel"));
        assert_eq!(control.main.access.everyone, Some(Role::Operate));
        assert_eq!(control.main.roles(), "operate");
        let [people, tcp] = &control.others[..] else {
            panic!("{control:?}");
        };
        let accounts = [
            (Account::Group("staff".to_owned()), Role::Read),
            (Account::User("alice".to_owned()), Role::Operate),
            (Account::Group("107".to_owned()), Role::Operate),
            (Account::User("0".to_owned()), Role::Admin),
        ];
        assert_eq!(people.access.everyone, None);
        assert_eq!(people.access.root, Role::Admin);
        assert_eq!(people.access.accounts, accounts);
        let roles = "group staff read, user alice operate, group 107 operate, user 0 admin, \
                     root admin";
        assert_eq!(people.roles(), roles);
        assert_eq!(people.description(), "/etc/tidegate/people.sock (0666)");
        assert!(matches!(tcp.address, ListenAddress::Tcp(_)));
    }

    #[test]
    fn where_accounts_are_listed_others_have_a_role_only_by_the_key_role() {
        let main = |keys: &str| {
            let (config, warnings) = parts(&with_control(&format!("[control]\n{keys}")));
            (config.control.main.access, warnings)
        };
        let ops = "mode = \"0660\"\ngroup = \"ops\"\n";
        for (list, listed) in [
            ("read = [\"group:ops\"]", Some(Role::Read)),
            ("operate = [\"group:ops\"]", Some(Role::Operate)),
            ("admin = [\"group:ops\"]", Some(Role::Admin)),
            ("read = []", None),
        ] {
            let (access, warnings) = main(&format!("{ops}{list}\n"));
            assert_eq!(access.everyone, None, "{list}");
            let roles: Vec<_> = access.accounts.iter().map(|(_, role)| *role).collect();
            assert_eq!(roles, Vec::from_iter(listed), "{list}");
            assert!(warnings.is_empty(), "{list}: {warnings:?}");
        }
        // `role` is a decision, but a list below it does nothing.
        let lists = "read = [\"group:ops\"]\noperate = [\"user:a\", \"user:b\"]\n\
                     admin = [\"user:c\"]\n";
        for (role, without_effect) in [(Role::Read, 1), (Role::Operate, 3), (Role::Admin, 4)] {
            let (access, warnings) = main(&format!("{ops}role = \"{role}\"\n{lists}"));
            assert_eq!(access.everyone, Some(role));
            assert_eq!(warnings.len(), without_effect, "{role}: {warnings:?}");
            for warning in &warnings {
                let what = &warning.what;
                let expected = format!("every process that can connect has the role {role}");
                assert!(what.contains(&expected), "{what}");
            }
        }
    }

    #[test]
    fn other_hosts_reach_the_api_over_tls_alone() {
        let tls = "certificate = \"s.pem\"\nprivate_key = \"/k/s.key\"\nclient_ca = \"ca.pem\"\n";
        let listen = "[[control.listen]]\ntcp = \"0.0.0.0:9808\"\n[control.listen.tls]\n";
        let (config, warnings) = parts(&with_control(&[listen, tls, STORE].concat()));
        assert!(warnings.is_empty(), "{warnings:?}");
        let listen = &config.control.others[0];
        assert_eq!(listen.description(), "0.0.0.0:9808 (TLS)");
        assert_eq!(listen.roles(), "role of the token");
        let tls = listen.tls.as_ref().expect("a section");
        let files: Vec<_> = tls.files().map(|file| file.display().to_string()).collect();
        let expected = ["/etc/tidegate/s.pem", "/k/s.key", "/etc/tidegate/ca.pem"];
        assert_eq!(files, expected);
        let all: Vec<_> = config.tls().map(|(place, _)| place).collect();
        assert_eq!(all, ["control.listen[0].tls"]);
    }

    #[test]
    fn tls_that_would_not_work_is_an_error() {
        let files = "certificate = \"s.pem\"\nprivate_key = \"s.key\"";
        let tcp = "tcp = \"192.0.2.1:9808\"";
        for (address, tls, expected) in [
            (tcp, "certificate = \"s.pem\"", "`private_key` is missing"),
            (
                tcp,
                &format!("{files}\nclient_crl = \"crl.pem\""),
                "add client_ca, the authorities",
            ),
            (
                tcp,
                &format!("{files}\nplain_exports = []"),
                "unknown key `plain_exports`",
            ),
            (
                "unix = \"a\"\nrole = \"read\"",
                files,
                "TLS on a unix socket",
            ),
        ] {
            let listen = format!("[[control.listen]]\n{address}\n[control.listen.tls]\n{tls}\n");
            let said = errors(&with_control(&(listen + STORE)));
            assert!(said.contains(expected), "{tls}: {said}");
        }
        let said = errors(&with_control(&format!(
            "[[control.listen]]\n{tcp}\n{STORE}"
        )));
        assert!(
            said.contains("[control.listen.tls] with certificate"),
            "{said}"
        );
    }

    #[test]
    fn what_would_give_a_role_by_mistake_is_an_error() {
        let listen = |keys: &str| format!("[[control.listen]]\n{keys}\n{STORE}");
        for (text, expected) in [
            (listen("unix = \"a\"\nrole = \"root\""), "\"root\""),
            (
                listen("unix = \"a\"\nread = [\"alice\"]"),
                "is no user and no group",
            ),
            (
                listen("unix = \"a\"\nread = [\"user:\"]"),
                "is no user and no group",
            ),
            (
                listen("unix = \"a\"\nread = [\"group:a:b\"]"),
                "is no user and no group",
            ),
            (
                listen("tcp = \"192.0.2.1:9808\""),
                "is served to this host alone",
            ),
            (
                listen("tcp = \"0.0.0.0:9808\""),
                "is served to this host alone",
            ),
            (
                listen("tcp = \"[::]:9808\""),
                "is served to this host alone",
            ),
            (
                listen("tcp = \"127.0.0.1:9808\"\nrole = \"admin\""),
                "the role of its token",
            ),
            (
                listen("tcp = \"127.0.0.1:9808\"\nadmin = [\"user:alice\"]"),
                "the role of its token",
            ),
            (
                listen("tcp = \"127.0.0.1:9808\"\nmode = \"0600\""),
                "has no file mode",
            ),
            (listen("role = \"read\""), "no address is set"),
            (
                "[[control.listen]]\ntcp = \"127.0.0.1:9808\"\n".to_owned(),
                "needs tokens, which are kept in the store",
            ),
            (
                listen("unix = \"nbd.sock\"\nrole = \"read\""),
                "is there twice",
            ),
        ] {
            let said = errors(&with_control(&text));
            assert!(said.contains(expected), "{text}: {said}");
        }
        let (_, warnings) = parts(&with_control(&listen("unix = \"a\"")));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].what.contains("only root"), "{warnings:?}");
        parts(&with_control(&listen("tcp = \"[::1]:9808\"")));
    }
}
