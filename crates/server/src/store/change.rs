//! Changes of a store, which are applied alone or together in one transaction.

use std::collections::BTreeSet;

use redb::{ReadableTable, Table, WriteTransaction};

use super::schema::{DEVICES, DISKS, LEARNT, LearntKey, TOKENS, TRANSFERS, VMS};
use super::token_record::TokenRecord;
use super::{KnownDisk, VmRecord};

/// Change of the store's records.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Writes a VM's record, replacing one of the same name.
    PutVm(&'a VmRecord),
    /// Deletes the record of the VM of this name, but not its learnt states.
    RemoveVm(&'a str),
    /// Writes the state that a policy's controller has learnt of a VM on a device.
    PutLearnt {
        /// Name of the device.
        device: &'a str,
        /// Name of the policy.
        policy: &'a str,
        /// Name of the VM.
        vm: &'a str,
        /// State as the controller exported it.
        state: &'a [u8],
    },
    /// Writes the states that a policy's controller has learnt on a device, and deletes those of
    /// VMs that are not among them.
    ReplaceLearnt {
        /// Name of the device.
        device: &'a str,
        /// Name of the policy.
        policy: &'a str,
        /// States by name of the VM.
        states: &'a [(&'a str, &'a [u8])],
    },
    /// Writes a learnt state of a device itself, or deletes it.
    PutDevice {
        /// Name of the device.
        device: &'a str,
        /// Name of the state, such as `costs`.
        part: &'a str,
        /// Identity of the block devices on which it was learnt.
        identity: &'a str,
        /// State; `None` to delete it.
        state: Option<&'a [u8]>,
    },
    /// Writes the deadline transfers of a device's VMs, and deletes those of other VMs.
    ReplaceTransfers {
        /// Name of the device.
        device: &'a str,
        /// Transfers as JSON, by name of the VM.
        transfers: &'a [(String, String)],
    },
    /// Deletes the deadline transfer of a VM on every device.
    ForgetTransfer {
        /// Name of the VM.
        vm: &'a str,
    },
    /// Stores that a disk was created or served; replaces the record of the same path.
    PutDisk(&'a KnownDisk),
    /// Deletes the records of disks with this export name or path.
    ForgetDisk {
        /// NBD export name, or absolute path of the file.
        name: &'a str,
    },
    /// Writes a token of the control API, replacing one of the same name.
    PutToken(&'a TokenRecord),
    /// Writes the time of last use of a token, unless it was revoked or replaced meanwhile.
    UseToken(&'a TokenRecord),
    /// Deletes the token of this name.
    RemoveToken(&'a str),
    /// Deletes the learnt states of a VM on every device and of every policy.
    ForgetLearnt {
        /// Name of the VM.
        vm: &'a str,
    },
}

/// Applies one change within a transaction. Returns true if it changed a record.
pub(super) fn make_change(
    write: &WriteTransaction,
    change: &Change<'_>,
) -> Result<bool, redb::Error> {
    match *change {
        Change::PutVm(vm) => put_vm(write, vm),
        Change::PutToken(token) => put_token(write, token),
        Change::UseToken(token) => use_token(write, token),
        Change::RemoveToken(name) => Ok(write.open_table(TOKENS)?.remove(name)?.is_some()),
        Change::RemoveVm(name) => Ok(write.open_table(VMS)?.remove(name)?.is_some()),
        Change::PutLearnt {
            device,
            policy,
            vm,
            state,
        } => put_learnt(&mut write.open_table(LEARNT)?, (vm, device, policy), state),
        Change::ReplaceLearnt {
            device,
            policy,
            states,
        } => replace_learnt(write, (device, policy), states),
        Change::PutDevice {
            device,
            part,
            identity,
            state,
        } => put_device(write, (device, part), state.map(|state| (identity, state))),
        Change::ReplaceTransfers { device, transfers } => {
            replace_transfers(write, device, transfers)
        }
        Change::ForgetTransfer { vm } => {
            let mut forgotten = false;
            (write.open_table(TRANSFERS)?).retain(|(_, of), _| {
                forgotten |= of == vm;
                of != vm
            })?;
            Ok(forgotten)
        }
        Change::PutDisk(disk) => put_disk(write, disk),
        Change::ForgetDisk { name } => {
            let mut forgotten = false;
            (write.open_table(DISKS)?).retain(|path, (export, _)| {
                let is = path == name || export == name;
                forgotten |= is;
                !is
            })?;
            Ok(forgotten)
        }
        Change::ForgetLearnt { vm } => forget_learnt(write, vm),
    }
}

fn put_vm(write: &WriteTransaction, vm: &VmRecord) -> Result<bool, redb::Error> {
    let mut vms = write.open_table(VMS)?;
    let name = vm.name.as_str();
    // An unchanged record is not written, so that `apply` can skip the fsync.
    if (vms.get(name)?).is_some_and(|there| there.value() == vm.row()) {
        return Ok(false);
    }
    vms.insert(name, vm.row())?;
    Ok(true)
}

fn replace_learnt(
    write: &WriteTransaction,
    (device, policy): (&str, &str),
    states: &[(&str, &[u8])],
) -> Result<bool, redb::Error> {
    let mut learnt = write.open_table(LEARNT)?;
    let names: BTreeSet<&str> = states.iter().map(|(vm, _)| *vm).collect();
    assert_eq!(names.len(), states.len(), "a VM has two learnt states");
    let mut changed = false;
    // Only obsolete rows are removed: rewriting the others would dirty their pages.
    learnt.retain(|(vm, on, by), _| {
        let stays = (on, by) != (device, policy) || names.contains(vm);
        changed |= !stays;
        stays
    })?;
    for (vm, state) in states {
        changed |= put_learnt(&mut learnt, (vm, device, policy), state)?;
    }
    Ok(changed)
}

/// Writes or deletes a row of [`DEVICES`]; the row is an identity and a state.
fn put_device(
    write: &WriteTransaction,
    key: (&str, &str),
    row: Option<(&str, &[u8])>,
) -> Result<bool, redb::Error> {
    let mut devices = write.open_table(DEVICES)?;
    let kept = (devices.get(key)?).is_some_and(|there| Some(there.value()) == row);
    match row {
        _ if kept => return Ok(false),
        Some(row) => devices.insert(key, row)?,
        None => return Ok(devices.remove(key)?.is_some()),
    };
    Ok(true)
}

fn replace_transfers(
    write: &WriteTransaction,
    device: &str,
    transfers: &[(String, String)],
) -> Result<bool, redb::Error> {
    let mut kept = write.open_table(TRANSFERS)?;
    let names: BTreeSet<&str> = transfers.iter().map(|(vm, _)| vm.as_str()).collect();
    assert_eq!(names.len(), transfers.len(), "a VM has two transfers");
    let mut changed = false;
    kept.retain(|(on, vm), _| {
        let stays = on != device || names.contains(vm);
        changed |= !stays;
        stays
    })?;
    for (vm, words) in transfers {
        let key = (device, vm.as_str());
        if (kept.get(key)?).is_none_or(|there| there.value() != words) {
            kept.insert(key, words.as_str())?;
            changed = true;
        }
    }
    Ok(changed)
}

fn put_disk(write: &WriteTransaction, disk: &KnownDisk) -> Result<bool, redb::Error> {
    let mut disks = write.open_table(DISKS)?;
    let (path, row) = (disk.path.as_str(), (disk.export.as_str(), disk.vm.as_str()));
    if (disks.get(path)?).is_some_and(|there| there.value() == row) {
        return Ok(false);
    }
    disks.insert(path, row)?;
    Ok(true)
}

fn put_token(write: &WriteTransaction, token: &TokenRecord) -> Result<bool, redb::Error> {
    let mut tokens = write.open_table(TOKENS)?;
    tokens.insert(token.name.as_str(), token.to_row())?;
    Ok(true)
}

fn use_token(write: &WriteTransaction, token: &TokenRecord) -> Result<bool, redb::Error> {
    let there = (write.open_table(TOKENS)?)
        .get(token.name.as_str())?
        .is_some_and(|there| there.value().1 == token.hash);
    Ok(there && put_token(write, token)?)
}

fn forget_learnt(write: &WriteTransaction, vm: &str) -> Result<bool, redb::Error> {
    let mut learnt = write.open_table(LEARNT)?;
    let mut forgotten = false;
    // A name followed by NUL is the next one in order; no VM's name has one in it.
    let next = format!("{vm}\0");
    learnt.retain_in((vm, "", "")..(next.as_str(), "", ""), |_, _| {
        forgotten = true;
        false
    })?;
    Ok(forgotten)
}

fn put_learnt(
    learnt: &mut Table<'_, LearntKey, &'static [u8]>,
    key: (&str, &str, &str),
    state: &[u8],
) -> Result<bool, redb::Error> {
    if (learnt.get(key)?).is_some_and(|there| there.value() == state) {
        return Ok(false);
    }
    learnt.insert(key, state)?;
    Ok(true)
}
