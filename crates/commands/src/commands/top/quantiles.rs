//! Choice of the VMs whose histograms are asked for with their buckets.

use tidegate_api::query::{BUCKETS_OF_MAX, StatsQuery};

/// Number of VMs up to which the buckets of all are asked for, as every VM may be shown soon.
const FEW_VMS: usize = 64;

/// VMs whose quantiles the screen needs; where there are few, those of all are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Quantiles {
    /// Quantiles of every VM, by which the rows are sorted.
    All,
    /// Quantiles of the VMs that are shown.
    Of(Vec<String>),
}

impl Quantiles {
    /// Returns the query of counters where `vms` VMs are served. Each has seven histograms, so that
    /// of thousands of VMs buckets would be most of all that is asked for.
    pub(super) fn query(&self, vms: usize) -> StatsQuery {
        let mut query = StatsQuery::default();
        match self {
            Quantiles::Of(names) if vms > FEW_VMS => {
                let most = names.iter().take(BUCKETS_OF_MAX);
                query.buckets_of = most.cloned().collect();
            }
            Quantiles::All | Quantiles::Of(_) => query.buckets = true,
        }
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_vms_only_those_that_are_shown_are_asked_for_with_buckets() {
        let names = |n: usize| (0..n).map(|i| format!("vm {i}")).collect();
        let shown = Quantiles::Of(names(20));
        let query = shown.query(5000);
        assert!(!query.buckets);
        assert_eq!(query.buckets_of, names(20) as Vec<String>);
        assert!(
            query.to_string().ends_with("&buckets_of=vm%2019"),
            "{query}"
        );
        assert_eq!(shown.query(FEW_VMS).to_string(), "?buckets=true");
        assert_eq!(Quantiles::All.query(5000).to_string(), "?buckets=true");
        assert_eq!(Quantiles::Of(Vec::new()).query(5000).to_string(), "");
        let tall = Quantiles::Of(names(BUCKETS_OF_MAX + 1)).query(5000);
        assert_eq!(
            tall.buckets_of.len(),
            BUCKETS_OF_MAX,
            "what the daemon takes"
        );
    }
}
