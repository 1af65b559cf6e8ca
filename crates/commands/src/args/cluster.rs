//! Options of `tidegate cluster`.

use clap::{Args as ClapArgs, Subcommand};

use super::StoreArgs;

/// Commands of `tidegate cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the store, the hosts and the jobs of a cluster in figures
    #[command(
        after_help = "With --etcd each member is asked, and --watch prints a new table whenever \
                      something changes, and says when etcd is away and back. Exits with 1 if the \
                      cluster cannot be read, or if a member of etcd does not answer.\n\nExamples:
  tidegate cluster status --db place.redb
  tidegate cluster status --etcd https://10.0.0.1:2379 --etcd-ca ca.pem
  tidegate cluster status --watch"
    )]
    Status(ClusterStatusArgs),
    /// List hosts, their jobs and their free capacity
    Hosts {
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Place no more jobs on a host; running jobs go on, its daemon need not answer
    #[command(after_help = "Example: before maintenance of host c
  tidegate cluster drain c
  tidegate place list                    jobs that still run there
  tidegate cluster resume c")]
    Drain {
        /// Host name
        host: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Place jobs on a drained host again; waiting jobs are tried on it
    Resume {
        /// Host name
        host: String,
        #[command(flatten)]
        store: StoreArgs,
    },
}

/// Options of `tidegate cluster status`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ClusterStatusArgs {
    /// Print a new table on each change, until interrupted; needs --etcd
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}
