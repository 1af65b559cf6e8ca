//! Policies: named compositions of the three roles, with their parameters.
//!
//! A policy is one entry of the table in `registry`; configuration, help, conformance tests,
//! torture, sweeps and benchmarks iterate the registry. The parts it is composed of say everything
//! about themselves where they are implemented, and are known by being in a policy. Roles can also
//! be combined by name ([`PolicySpec::composed`]).

mod registry;
mod spec;

use registry::REGISTRY;

pub use spec::{PolicyError, PolicySpec};

use std::sync::LazyLock;
use tidegate_core::part::Part;
use tidegate_core::roles::{Controller, Dispatcher, Regulator};

/// Returns all registered policies.
pub fn registry() -> &'static [PolicyInfo] {
    REGISTRY
}

/// Returns every controller that a policy has, in the order of the registry.
pub fn controllers() -> &'static [Part<dyn Controller>] {
    static ALL: LazyLock<Vec<Part<dyn Controller>>> =
        LazyLock::new(|| distinct_parts(|info| info.controller));
    &ALL
}

/// Returns every regulator that a policy has, in the order of the registry.
pub fn regulators() -> &'static [Part<dyn Regulator>] {
    static ALL: LazyLock<Vec<Part<dyn Regulator>>> =
        LazyLock::new(|| distinct_parts(|info| Some(info.regulator)));
    &ALL
}

/// Returns every dispatcher that a policy has, in the order of the registry.
pub fn dispatchers() -> &'static [Part<dyn Dispatcher>] {
    static ALL: LazyLock<Vec<Part<dyn Dispatcher>>> =
        LazyLock::new(|| distinct_parts(|info| Some(info.dispatcher)));
    &ALL
}

/// Returns each part once, though several policies may share it.
fn distinct_parts<R: ?Sized>(of: fn(&PolicyInfo) -> Option<Part<R>>) -> Vec<Part<R>> {
    let mut all: Vec<Part<R>> = Vec::new();
    for part in REGISTRY.iter().filter_map(of) {
        if all.iter().all(|known| known.name != part.name) {
            all.push(part);
        }
    }
    all
}

/// Named composition of a controller, a regulator and a dispatcher.
#[derive(Debug)]
pub struct PolicyInfo {
    /// Name in the configuration.
    pub name: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// Paper or system that the policy is from.
    pub source: &'static str,
    /// Paragraph on the policy's purpose, costs and limits.
    pub about: &'static str,
    /// Controller; `None` for none.
    pub controller: Option<Part<dyn Controller>>,
    /// Regulator.
    pub regulator: Part<dyn Regulator>,
    /// Dispatcher.
    pub dispatcher: Part<dyn Dispatcher>,
    /// Parameter values that differ from the parts' defaults.
    pub presets: &'static [(&'static str, u64)],
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tidegate_core::part::ParamInfo;

    #[test]
    fn a_name_means_one_thing() {
        let mut names: Vec<&str> = registry().iter().map(|info| info.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "two policies have one name");
        // Parts may share a parameter; a composition then has one of it, so they must agree.
        let lists = || {
            let controllers = controllers().iter().map(|part| part.params);
            let regulators = regulators().iter().map(|part| part.params);
            let dispatchers = dispatchers().iter().map(|part| part.params);
            controllers.chain(regulators).chain(dispatchers).flatten()
        };
        let mut known: BTreeMap<&str, &ParamInfo> = BTreeMap::new();
        for info in lists() {
            let first = known.entry(info.name).or_insert(info);
            assert_eq!(*first, info, "two parameters have one name");
        }
        for part in dispatchers() {
            let same = REGISTRY.iter().filter(|i| i.dispatcher.name == part.name);
            for info in same {
                assert!(core::ptr::eq(info.dispatcher, *part), "{}", part.name);
            }
        }
    }
}
