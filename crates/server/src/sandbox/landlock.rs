//! Landlock for a thread that opens nothing: all that the kernel's version can refuse is refused.

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr, RulesetError, Scope,
};

/// Newest version whose rights are asked for; of an older kernel those that it has.
const NEWEST: ABI = ABI::V10;

/// First version that refuses TCP.
const TCP_SINCE: u32 = 4;
/// First version that refuses `ioctl(2)` on devices.
const DEVICES_SINCE: u32 = 5;
/// First version that refuses signals and abstract sockets.
const SCOPES_SINCE: u32 = 6;

/// Refuses the calling thread everything that Landlock knows of. Returns the version of the
/// interface in force.
///
/// # Errors
/// The reason why the kernel refuses nothing.
pub(super) fn refuse_all() -> Result<u32, String> {
    let applied = apply().map_err(|error| error.to_string())?;
    match applied {
        LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi as u32),
        LandlockStatus::NotEnabled => {
            Err("it is not enabled (boot with `lsm=landlock,...`)".to_owned())
        }
        LandlockStatus::NotImplemented => Err("this kernel does not have it".to_owned()),
    }
}

fn apply() -> Result<LandlockStatus, RulesetError> {
    // Without a rule nothing is allowed.
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    Ok(rules.restrict_self()?.landlock)
}

/// Returns what is refused by a version of the interface, for the log.
pub(super) fn refused(version: u32) -> String {
    let mut refused = "files cannot be opened".to_owned();
    let mut add = |since, what| {
        if version >= since {
            refused.push_str(what);
        }
    };
    add(TCP_SINCE, ", no TCP connections");
    add(DEVICES_SINCE, ", no ioctls of devices opened later");
    add(SCOPES_SINCE, ", no signals to other processes");
    refused
}
