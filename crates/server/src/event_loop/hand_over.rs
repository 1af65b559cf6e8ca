//! Hand-over of a loop's connections to another daemon, and back if it does not take them.
//!
//! ```text
//!   Running --Begin----> HandingOver: each connection is sent off once it is at rest
//!      ^                       |  all are sent, nothing is in flight: the channel is closed
//!      |                       v
//!      +---- Resume -------- at rest --GiveUpDisks--> Ended, with the locks of the files held
//! ```

use tokio::sync::{mpsc, oneshot};

use super::{Loop, Phase, limit_use, respond};
use crate::command::{HandOverStep, HandedOver, NewConnection};
use crate::ring::FileId;

/// Hand-over that is under way in a loop.
#[derive(Debug, Default)]
pub(super) struct HandOver {
    /// Channel of the connections; closed once all were sent and nothing is in flight.
    handed: Option<mpsc::UnboundedSender<HandedOver>>,
    /// File that is in the table of the ring until its last I/O has ended.
    kept: Option<FileId>,
    /// Answered once no connection over TLS is left.
    tunnelled: Option<oneshot::Sender<()>>,
    /// Connections that have come after all others were sent off, for the case that this loop goes
    /// on.
    late: Vec<NewConnection>,
    /// True once the files of the disks are another daemon's, with their locks.
    pub(super) gave_up_disks: bool,
}

/// Takes a step of a hand-over.
pub(super) fn step(event_loop: &mut Loop, step: HandOverStep) {
    match step {
        HandOverStep::CloseTunnelled { reply } => {
            event_loop.hand_over.tunnelled = Some(reply);
            let (frontends, mut ctx) = event_loop.frontends_and_context();
            frontends.close_tunnelled(&mut ctx);
        }
        HandOverStep::Keep { file, reply } => {
            let kept = event_loop.ring.add_file(file);
            let kept = kept.map(|file| event_loop.hand_over.kept.replace(file));
            let kept = kept.map(|before| {
                if let Some(before) = before {
                    drop(event_loop.ring.remove_file(before));
                }
            });
            respond(reply, kept);
        }
        HandOverStep::ListClients { reply } => {
            let disks: Vec<_> = event_loop.device.disks.iter().map(|(at, _)| at).collect();
            let clients = event_loop.frontends.peers_on(&disks).map(|(peer, disk)| {
                let export = event_loop.device.disks[disk].disk.export.clone();
                (peer.to_owned(), export)
            });
            respond(reply, clients.collect());
        }
        HandOverStep::ExportLimitUse { reply } => respond(reply, limit_use::export(event_loop)),
        HandOverStep::ImportLimitUse { at, limits } => limit_use::import(event_loop, at, &limits),
        HandOverStep::Begin { handed } => begin(event_loop, handed),
        // Connections that were not sent off yet are sent as they come to rest.
        HandOverStep::Resume => {
            if event_loop.phase == Phase::HandingOver {
                event_loop.phase = Phase::Running;
                for new in std::mem::take(&mut event_loop.hand_over.late) {
                    add_connection(event_loop, new);
                }
                event_loop.frontends.go_on();
            }
        }
        HandOverStep::GiveUpDisks => {
            event_loop.hand_over.gave_up_disks = true;
            event_loop.phase = Phase::Ended;
        }
    }
}

/// Adds a connection, or drops it if the loop ends. During a hand-over it is handed over as well.
pub(super) fn add_connection(event_loop: &mut Loop, new: NewConnection) {
    match event_loop.phase {
        Phase::Running | Phase::HandingOver => {}
        Phase::Draining | Phase::Ended => return,
    }
    let hands_over = event_loop.phase == Phase::HandingOver;
    if hands_over && event_loop.hand_over.handed.is_none() {
        event_loop.hand_over.late.push(new);
        return;
    }
    let (frontends, mut ctx) = event_loop.frontends_and_context();
    frontends.add_connection(&mut ctx, new);
    if hands_over {
        frontends.begin_hand_over(&mut ctx);
        frontends.go_on();
    }
}

/// Begins to hand the connections over.
fn begin(event_loop: &mut Loop, handed: mpsc::UnboundedSender<HandedOver>) {
    if event_loop.phase != Phase::Running {
        // The channel is closed: a loop that ends has nothing to hand over.
        return;
    }
    event_loop.phase = Phase::HandingOver;
    event_loop.hand_over.handed = Some(handed);
    // Requests that fault rules stall count as in flight.
    event_loop.end_stalls(None);
    let (frontends, mut ctx) = event_loop.frontends_and_context();
    frontends.begin_hand_over(&mut ctx);
    frontends.go_on();
}

/// Sends connections off that have come to rest. Called once a turn; does nothing unless there is a
/// hand-over.
pub(super) fn go_on(event_loop: &mut Loop) {
    if event_loop.hand_over.tunnelled.is_some()
        && !event_loop.frontends.has_tunnelled()
        && let Some(reply) = event_loop.hand_over.tunnelled.take()
    {
        respond(reply, ());
    }
    let Some(handed) = event_loop.hand_over.handed.take() else {
        return;
    };
    let (frontends, mut ctx) = event_loop.frontends_and_context();
    // A receiver that is gone has the connections closed.
    let all = frontends.hand_over_rested(&mut ctx, |one| drop(handed.send(one)));
    let at_rest = event_loop.engine.is_idle() && event_loop.device.is_at_rest();
    let is_over = match event_loop.phase {
        Phase::HandingOver => all && at_rest && event_loop.frontends.len() == 0,
        _ => all,
    };
    if !is_over {
        event_loop.hand_over.handed = Some(handed);
    }
}
