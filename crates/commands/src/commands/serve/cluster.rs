//! Membership of the daemon in the cluster of `[cluster]`, in builds with the feature `cluster`.

use anyhow::Result;
#[cfg(feature = "cluster")]
use tidegate_cluster::joining::MemberThread;
use tidegate_server::config::Config;
use tidegate_server::daemon::{DaemonHandle, Stopped};
use tidegate_server::membership::HandedMembership;

/// Options of the membership, read and checked before anything is opened; `None`: no `[cluster]`.
pub(super) struct Joining(Option<Options>);

#[cfg(not(feature = "cluster"))]
enum Options {}

#[cfg(feature = "cluster")]
struct Options {
    etcd: tidegate_cluster::store::EtcdOptions,
    lease: std::time::Duration,
    /// Socket or address of the control API.
    api: Option<String>,
}

/// Registration of a daemon that serves.
pub(super) struct Member(#[cfg(feature = "cluster")] Option<MemberThread>);

impl Joining {
    /// Reads the files of `[cluster]`.
    ///
    /// # Errors
    /// A file cannot be read or used, or this build has no etcd.
    #[cfg(feature = "cluster")]
    pub(super) fn prepare(config: &Config) -> Result<Joining> {
        use tidegate_server::config::ListenAddress;

        let Some(cluster) = &config.cluster else {
            return Ok(Joining(None));
        };
        let api = config.control.listeners().next();
        Ok(Joining(Some(Options {
            etcd: super::super::place::stores::etcd::options(&cluster.access)?,
            lease: cluster.lease,
            api: api.and_then(|listener| match &listener.address {
                ListenAddress::Unix { path, .. } => Some(path.display().to_string()),
                ListenAddress::Tcp(address) => Some(address.to_string()),
                ListenAddress::VhostUser { .. } => None,
            }),
        })))
    }

    /// Refuses `[cluster]`.
    ///
    /// # Errors
    /// The configuration has it.
    #[cfg(not(feature = "cluster"))]
    pub(super) fn prepare(config: &Config) -> Result<Joining> {
        let Some(cluster) = &config.cluster else {
            return Ok(Joining(None));
        };
        let problem = super::super::place::stores::without_etcd();
        Err(problem.at("cluster").place(cluster.place.as_ref()).into())
    }

    /// Begins to register the daemon, which serves already. `handed` is the registration of the one
    /// that it has taken over from. If there is no thread for it, the daemon serves without, and
    /// its log, health and readiness say so.
    #[cfg(feature = "cluster")]
    pub(super) fn start(self, daemon: &DaemonHandle, handed: Option<HandedMembership>) -> Member {
        use tidegate_cluster::joining::MemberOptions;
        use tidegate_server::daemon::membership_of;
        use tidegate_server::membership::Obstacle;

        let membership = membership_of(daemon);
        let Some((Options { etcd, lease, api }, membership)) = self.0.zip(membership) else {
            return Member(None);
        };
        let options = MemberOptions {
            etcd,
            lease,
            api,
            handed,
        };
        let thread = MemberThread::start(options, membership.clone(), daemon.clone());
        let failed = |error: tidegate_cluster::store::StoreError| {
            membership.obstructed(Obstacle::Refused(format!("no thread for it: {error}")));
        };
        Member(thread.map_err(failed).ok())
    }

    /// Does nothing: this build refuses `[cluster]`.
    #[cfg(not(feature = "cluster"))]
    pub(super) fn start(self, _: &DaemonHandle, _: Option<HandedMembership>) -> Member {
        match self.0 {
            None => Member(),
            Some(never) => match never {},
        }
    }
}

impl Member {
    /// Ends the registration as the daemon has ended: it is left to a daemon that has taken over,
    /// and to the end of its lease if the process has to end at once.
    pub(super) async fn end(self, how: Option<Stopped>) {
        #[cfg(feature = "cluster")]
        if let Some(thread) = self.0 {
            let end = match how {
                Some(Stopped::HandedOver | Stopped::ServiceHandedOver) => MemberThread::hand_over,
                Some(Stopped::AtOnce) => return std::mem::forget(thread),
                Some(Stopped::InOrder) | None => MemberThread::leave,
            };
            // Off the runtime, on which the API sends its last replies meanwhile. A panic is
            // printed, and the lease ends by itself.
            let _ = tokio::task::spawn_blocking(move || end(thread)).await;
        }
        #[cfg(not(feature = "cluster"))]
        let _ = how;
    }
}
