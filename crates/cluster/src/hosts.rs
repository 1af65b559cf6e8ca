//! Hosts of a cluster in their order, found by name without a search.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::record::HostRecord;

/// Hosts in the order in which they were added. Each is found by its name in constant time; one
/// that is not there costs a search, and so does each host after changes of the order in place.
#[derive(Clone, Default)]
pub struct Hosts {
    records: Vec<HostRecord>,
    /// Index of each name when it was added. An entry counts only if the host there has the name.
    indices: HashMap<String, usize>,
}

impl Hosts {
    /// Returns the index of the host with a name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        let is_it = |at: &usize| self.records.get(*at).is_some_and(|host| host.name == name);
        let known = self.indices.get(name).copied().filter(is_it);
        known.or_else(|| self.records.iter().position(|host| host.name == name))
    }

    /// Adds a host as the last one.
    pub fn push(&mut self, host: HostRecord) {
        let at = self.records.len();
        self.indices.entry(host.name.clone()).or_insert(at);
        self.records.push(host);
    }

    /// Removes the host at an index.
    ///
    /// # Panics
    /// There are not as many hosts.
    pub fn remove(&mut self, at: usize) {
        self.records.remove(at);
        self.rebuild();
    }

    /// Removes the hosts that `stays` does not hold for.
    pub fn retain(&mut self, stays: impl FnMut(&HostRecord) -> bool) {
        self.records.retain(stays);
        self.rebuild();
    }

    fn rebuild(&mut self) {
        // The first one of a name is found, so it is inserted last.
        let names = self.records.iter().enumerate().rev();
        self.indices = names.map(|(at, host)| (host.name.clone(), at)).collect();
    }
}

impl Deref for Hosts {
    type Target = [HostRecord];

    fn deref(&self) -> &[HostRecord] {
        &self.records
    }
}

impl DerefMut for Hosts {
    fn deref_mut(&mut self) -> &mut [HostRecord] {
        &mut self.records
    }
}

impl From<Vec<HostRecord>> for Hosts {
    fn from(records: Vec<HostRecord>) -> Hosts {
        let mut hosts = Hosts {
            records,
            ..Hosts::default()
        };
        hosts.rebuild();
        hosts
    }
}

impl FromIterator<HostRecord> for Hosts {
    fn from_iter<I: IntoIterator<Item = HostRecord>>(records: I) -> Hosts {
        records.into_iter().collect::<Vec<_>>().into()
    }
}

impl<'a> IntoIterator for &'a Hosts {
    type Item = &'a HostRecord;
    type IntoIter = std::slice::Iter<'a, HostRecord>;

    fn into_iter(self) -> Self::IntoIter {
        self.records.iter()
    }
}

impl PartialEq for Hosts {
    fn eq(&self, other: &Hosts) -> bool {
        self.records == other.records
    }
}

impl Eq for Hosts {}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.records.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_by_its_name_after_every_change() {
        let host = |name: &str| HostRecord::new(name.to_owned(), 60, Vec::new(), 4);
        let mut hosts: Hosts = ["a", "b", "c", "d"].map(host).into_iter().collect();
        let check = |hosts: &Hosts, names: &[&str]| {
            let there: Vec<_> = hosts.iter().map(|host| host.name.as_str()).collect();
            assert_eq!(there, names);
            for (at, name) in names.iter().enumerate() {
                assert_eq!(hosts.index_of(name), Some(at), "{name}");
            }
            assert_eq!(hosts.index_of("x"), None);
        };
        check(&hosts, &["a", "b", "c", "d"]);
        hosts.remove(1);
        check(&hosts, &["a", "c", "d"]);
        hosts.rotate_left(1);
        check(&hosts, &["c", "d", "a"]);
        hosts.push(host("b"));
        check(&hosts, &["c", "d", "a", "b"]);
        hosts.retain(|host| host.name != "d");
        check(&hosts, &["c", "a", "b"]);
        assert_eq!(hosts.index_of("d"), None);
    }
}
