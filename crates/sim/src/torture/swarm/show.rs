//! Description of a torture run in words.

use super::{Swarm, Timing, models};
use core::fmt;
use tidegate_core::profile::{Access, Direction};

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Timing::Random { least, most, tail } => {
                write!(f, "{least} to {most} an I/O, now and then {tail}")
            }
            Timing::Catalogue(model) => f.write_str(&models()[*model].name),
        }
    }
}

impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (config, device) = (&self.config, &self.config.device);
        writeln!(f, "policy     {:?}", self.policy)?;
        if let Some(profile) = &self.profile {
            let curves = [Direction::Read, Direction::Write].map(|direction| {
                [Access::Sequential, Access::Random].map(|a| profile.curve(direction, a).points())
            });
            writeln!(
                f,
                "profile    sequential and random, reads and writes: {curves:?}"
            )?;
        }
        if let Some(most) = self.window {
            writeln!(
                f,
                "admission  {most} units a VM, where the regulator is open"
            )?;
        }
        if self.transfers {
            writeln!(
                f,
                "transfers  of VMs begin, replace each other and are cancelled"
            )?;
        }
        if self.limited_disks {
            writeln!(f, "limits     of disks, their own and shared ones")?;
        }
        if self.fickle {
            writeln!(f, "merging    limits of VMs rise and fall at random")?;
        }
        writeln!(
            f,
            "device     {}; depth {}, blocks of {}, I/Os up to {}, zeroes are {}",
            self.timing,
            device.depth,
            device.physical_block,
            device.max_io,
            if device.zeroes_are_writes {
                "written"
            } else {
                "free"
            }
        )?;
        writeln!(
            f,
            "engine     {} requests, {} a VM, {} VMs, merging up to {}",
            config.max_requests, config.max_pending_per_vm, config.max_vms, config.merge_limit
        )?;
        fmt_load(self, f)?;
        write!(f, "faults     {}", self.plan)?;
        for (n, vm) in self.vms.iter().enumerate() {
            write!(f, "\nVM {n}       {:?}", vm.objective)?;
            for disk in &vm.disks {
                let read_only = if disk.read_only { ", read-only" } else { "" };
                write!(f, "\n  disk     {} sectors{read_only}", disk.sectors)?;
                for work in &disk.clients {
                    write!(f, "\n    client {work:?}")?;
                }
            }
        }
        Ok(())
    }
}

/// Writes the requests of a run, and the scheduling of its device.
fn fmt_load(swarm: &Swarm, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(payload) = &swarm.payload {
        writeln!(
            f,
            "payload    {} bytes, {} a VM, requests up to {}; replies take up to {}",
            payload.total, payload.per_vm, payload.largest, swarm.replies
        )?;
    }
    writeln!(f, "requests   {}, in about {}", swarm.requests, swarm.span)?;
    if let Some(cap) = &swarm.cap {
        writeln!(f, "cap        {cap:?}")?;
    }
    if swarm.adapts_depth || swarm.shared_io > 0 {
        let (adapts, shared) = (swarm.adapts_depth, swarm.shared_io);
        writeln!(
            f,
            "control    adapts its depth: {adapts}, I/Os beside others up to {shared}"
        )?;
    }
    Ok(())
}
