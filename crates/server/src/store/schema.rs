//! Tables of the store, and upgrades from the schemas of older builds.
//!
//! The file holds the number of its schema. Each step turns one schema into the next; a new file
//! has schema 0 and passes through the same steps. All steps of an upgrade are one transaction, so
//! that a crash leaves either the old schema or the new one.

use redb::{Database, ReadableDatabase, TableDefinition, TableError, WriteTransaction};

/// Table that marks a store of Tidegate: the number of its schema under [`SCHEMA_KEY`].
const SCHEMA_TABLE: TableDefinition<'_, &str, u64> = TableDefinition::new("tidegate");
const SCHEMA_KEY: &str = "schema";

/// VMs by name: version of the record, scope (what the record holds of the VM), JSON.
pub(super) const VMS: TableDefinition<'_, &str, (u32, u8, &str)> = TableDefinition::new("vms");

/// States that controllers have learnt, by VM, device and policy.
pub(super) const LEARNT: TableDefinition<'_, LearntKey, &[u8]> = TableDefinition::new("learnt");

/// Learnt states of devices, by device and name of the state: identity of the block devices, state.
pub(super) const DEVICES: TableDefinition<'_, (&str, &str), (&str, &[u8])> =
    TableDefinition::new("devices");

/// Running deadline transfers as JSON, by device and VM. The table has the name that the first
/// release gave it; renaming it would need a step.
pub(super) const TRANSFERS: TableDefinition<'_, (&str, &str), &str> = TableDefinition::new("jobs");

/// Disks that were created or served: absolute path of the file to NBD export name and VM name.
pub(super) const DISKS: TableDefinition<'_, &str, (&str, &str)> = TableDefinition::new("disks");

/// Tokens of the control API by name.
pub(super) const TOKENS: TableDefinition<'_, &str, TokenRow> = TableDefinition::new("tokens");

/// Row of [`TOKENS`]: version of the row, SHA-256 of the secret, role, and times in seconds since
/// 1970: created, expires, last used.
pub(super) type TokenRow = (
    u32,
    &'static [u8],
    &'static str,
    i64,
    Option<i64>,
    Option<i64>,
);

/// Key of [`LEARNT`]: VM, device, policy.
pub(super) type LearntKey = (&'static str, &'static str, &'static str);

/// Upgrade from one schema to the next.
pub(super) type Step = fn(&WriteTransaction) -> Result<(), redb::Error>;

/// Upgrades in order: the step at index `n` turns schema `n` into schema `n + 1`. Steps of released
/// builds never change; a new schema appends a step.
pub(super) const STEPS: &[Step] = &[
    create_vms_and_learnt,
    add_devices,
    add_transfers,
    add_disks,
    add_tokens,
];

fn create_vms_and_learnt(write: &WriteTransaction) -> Result<(), redb::Error> {
    write.open_table(VMS)?;
    write.open_table(LEARNT)?;
    Ok(())
}

fn add_devices(write: &WriteTransaction) -> Result<(), redb::Error> {
    write.open_table(DEVICES)?;
    Ok(())
}

fn add_transfers(write: &WriteTransaction) -> Result<(), redb::Error> {
    write.open_table(TRANSFERS)?;
    Ok(())
}

fn add_disks(write: &WriteTransaction) -> Result<(), redb::Error> {
    write.open_table(DISKS)?;
    Ok(())
}

fn add_tokens(write: &WriteTransaction) -> Result<(), redb::Error> {
    write.open_table(TOKENS)?;
    Ok(())
}

/// Reason for which a file's schema cannot be upgraded; the file is unchanged.
#[derive(Debug)]
pub(super) enum SchemaError {
    /// Database of another program.
    Foreign,
    /// Schema of a newer Tidegate: its number, and the newest that this build knows.
    Newer(u64, u64),
    Database(redb::Error),
}

impl<E: Into<redb::Error>> From<E> for SchemaError {
    fn from(error: E) -> SchemaError {
        SchemaError::Database(error.into())
    }
}

/// Upgrades a database to the last schema of `steps`.
pub(super) fn upgrade(database: &Database, steps: &[Step]) -> Result<(), SchemaError> {
    let known = steps.len() as u64;
    let found = current_version(database)?;
    if found > known {
        return Err(SchemaError::Newer(found, known));
    }
    if found == known {
        return Ok(());
    }
    let write = database.begin_write()?;
    for step in &steps[found as usize..] {
        step(&write)?;
    }
    write.open_table(SCHEMA_TABLE)?.insert(SCHEMA_KEY, known)?;
    write.commit()?;
    // The next start would apply steps twice, or refuse the store.
    assert_eq!(
        current_version(database)?,
        known,
        "the store is not of the schema it was upgraded to"
    );
    // A new store passes through the same steps, which is no upgrade.
    if found > 0 {
        tracing::info!("store upgraded from schema {found} to {known}");
    }
    Ok(())
}

/// Returns the number of a database's schema; 0 for an empty one.
fn current_version(database: &Database) -> Result<u64, SchemaError> {
    let read = database.begin_read()?;
    match read.open_table(SCHEMA_TABLE) {
        Ok(mark) => match mark.get(SCHEMA_KEY)? {
            Some(schema) => Ok(schema.value()),
            // A table of this name without the key is another program's.
            None => Err(SchemaError::Foreign),
        },
        Err(TableError::TableDoesNotExist(_)) => {
            // A database without tables was just created; any table of another name makes it
            // foreign.
            let empty = read.list_tables()?.next().is_none()
                && read.list_multimap_tables()?.next().is_none();
            empty.then_some(0).ok_or(SchemaError::Foreign)
        }
        Err(TableError::Storage(error)) => Err(error.into()),
        Err(_) => Err(SchemaError::Foreign),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::InMemoryBackend;
    use redb::{ReadableTable, TableHandle};

    fn database() -> Database {
        let made = Database::builder().create_with_backend(InMemoryBackend::new());
        made.expect("in memory")
    }

    fn tables(database: &Database) -> Vec<String> {
        let read = database.begin_read().expect("reads");
        let mut names: Vec<_> = (read.list_tables().expect("reads"))
            .map(|table| table.name().to_owned())
            .collect();
        names.sort();
        names
    }

    const OLD: TableDefinition<'_, &str, &str> = TableDefinition::new("guests");

    /// First schema of a fictitious history: a table `guests`.
    fn made_up(write: &WriteTransaction) -> Result<(), redb::Error> {
        write.open_table(OLD)?;
        Ok(())
    }

    /// Second schema: renames guests to VMs.
    fn guests_become_vms(write: &WriteTransaction) -> Result<(), redb::Error> {
        let mut vms = write.open_table(VMS)?;
        for guest in write.open_table(OLD)?.iter()? {
            let (name, word) = guest?;
            vms.insert(name.value(), (1, 0, word.value()))?;
        }
        write.delete_table(OLD)?;
        Ok(())
    }

    #[test]
    fn an_older_schema_is_brought_to_the_last_one_step_by_step() {
        let database = database();
        upgrade(&database, &[made_up]).expect("new");
        let write = database.begin_write().expect("writes");
        let mut guests = write.open_table(OLD).expect("is there");
        guests.insert("oltp", "fast").expect("writes");
        drop(guests);
        write.commit().expect("writes");
        assert_eq!(current_version(&database).expect("reads"), 1);

        upgrade(
            &database,
            &[made_up, guests_become_vms, create_vms_and_learnt],
        )
        .expect("older");
        assert_eq!(current_version(&database).expect("reads"), 3);
        assert_eq!(tables(&database), ["learnt", "tidegate", "vms"]);
        let read = database.begin_read().expect("reads");
        let vms = read.open_table(VMS).expect("is there");
        let kept = vms.get("oltp").expect("reads").expect("is there");
        assert_eq!(kept.value(), (1, 0, "fast"));

        // The upgraded store is newer than a build that knows only the first schema.
        let refused = upgrade(&database, &[made_up]).expect_err("newer");
        assert!(matches!(refused, SchemaError::Newer(3, 1)), "{refused:?}");
    }

    /// Upgrades a store of each older schema, and finds its records afterwards.
    #[test]
    fn records_survive_upgrades_from_every_schema() {
        for release in 1..STEPS.len() {
            let database = database();
            upgrade(&database, &STEPS[..release]).expect("new");
            let write = database.begin_write().expect("writes");
            let mut vms = write.open_table(VMS).expect("is there");
            vms.insert("oltp", (1, 0, "{}")).expect("writes");
            drop(vms);
            let mut learnt = write.open_table(LEARNT).expect("is there");
            (learnt.insert(("oltp", "disk0", "vcup"), &[7][..])).expect("writes");
            drop(learnt);
            write.commit().expect("writes");

            upgrade(&database, STEPS).expect("older");
            assert_eq!(
                current_version(&database).expect("reads"),
                STEPS.len() as u64
            );
            let every = [
                "devices", "disks", "jobs", "learnt", "tidegate", "tokens", "vms",
            ];
            assert_eq!(tables(&database), every);
            let read = database.begin_read().expect("reads");
            let vms = read.open_table(VMS).expect("is there");
            let kept = vms.get("oltp").expect("reads").expect("is there");
            assert_eq!(kept.value(), (1, 0, "{}"));
            let learnt = read.open_table(LEARNT).expect("is there");
            let kept = learnt.get(("oltp", "disk0", "vcup")).expect("reads");
            assert_eq!(kept.expect("is there").value(), [7]);
        }
    }

    #[test]
    fn a_step_that_fails_leaves_the_older_schema_whole() {
        fn fails(write: &WriteTransaction) -> Result<(), redb::Error> {
            guests_become_vms(write)?;
            Err(redb::Error::Io(std::io::Error::other("disk on fire")))
        }
        let database = database();
        upgrade(&database, &[made_up]).expect("new");
        let failed =
            upgrade(&database, &[made_up, create_vms_and_learnt, fails]).expect_err("fails");
        assert!(matches!(failed, SchemaError::Database(redb::Error::Io(_))));
        assert_eq!(current_version(&database).expect("reads"), 1);
        assert_eq!(tables(&database), ["guests", "tidegate"]);
    }

    #[test]
    fn the_database_of_somebody_else_is_left_alone() {
        let database = database();
        let write = database.begin_write().expect("writes");
        made_up(&write).expect("writes");
        write.commit().expect("writes");
        let refused = upgrade(&database, STEPS).expect_err("foreign");
        assert!(matches!(refused, SchemaError::Foreign), "{refused:?}");
        assert_eq!(tables(&database), ["guests"]);
    }
}
