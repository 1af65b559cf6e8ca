//! Shares of device time by weight, among VMs with requests waiting throughout a second.

/// Claim of a VM on the device time of a second; all times in one unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) weight: f64,
    /// Device time that the floor takes.
    pub(super) floor: f64,
    /// Device time that the VM had.
    pub(super) had: f64,
}

/// Device time due to each VM, out of the total of all: by weight, but at least its floor. Service
/// by floor counts against the share.
pub(super) fn shares(claims: &[Claim]) -> Vec<f64> {
    let mut left: f64 = claims.iter().map(|claim| claim.had).sum();
    let mut due = vec![None; claims.len()];
    loop {
        let open: Vec<usize> = (0..claims.len()).filter(|&vm| due[vm].is_none()).collect();
        let weights: f64 = open.iter().map(|&vm| claims[vm].weight).sum();
        let by_weight = |vm: usize| left * claims[vm].weight / weights;
        // A VM whose floor exceeds its part by weight gets the floor; the others share the rest.
        let bound: Vec<usize> = (open.iter().copied())
            .filter(|&vm| claims[vm].floor > by_weight(vm))
            .collect();
        if bound.is_empty() {
            let rest: Vec<(usize, f64)> = open.iter().map(|&vm| (vm, by_weight(vm))).collect();
            rest.into_iter().for_each(|(vm, part)| due[vm] = Some(part));
            return due.into_iter().map(Option::unwrap_or_default).collect();
        }
        for vm in bound {
            // Floors may exceed what is left in all; the first ones get it.
            let part = claims[vm].floor.min(left.max(0.0));
            due[vm] = Some(part);
            left -= part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_floors_leave_is_shared_by_weight() {
        let claim = |weight, floor, had| Claim { weight, floor, had };
        let by_weight = [claim(400.0, 0.0, 1.0), claim(100.0, 0.0, 9.0)];
        assert_eq!(shares(&by_weight), [8.0, 2.0]);
        let floored = [
            claim(100.0, 6.0, 1.0),
            claim(100.0, 1.0, 5.0),
            claim(300.0, 0.0, 4.0),
        ];
        assert_eq!(shares(&floored), [6.0, 1.0, 3.0]);
    }
}
