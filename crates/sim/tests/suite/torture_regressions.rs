//! Seeds that found something.
//!
//! A seed names a run only as long as the swarm draws the same from it, so each of them also has
//! a test of its own where the bug was, which is named beside it.

use tidegate_policies::policy::PolicySpec;
use tidegate_sim::torture::{self, Options};

fn passes(seeds: &[u64], policies: &[&str]) {
    let policies = policies.iter().map(|name| PolicySpec::named(name));
    let policies: Vec<PolicySpec> = policies.map(|p| p.expect("registered")).collect();
    for &seed in seeds {
        let options = Options {
            policies: &policies,
            ..Options::default()
        };
        if let Err(failure) = torture::run_with(seed, options) {
            panic!("{failure}");
        }
    }
}

/// A profile that was wrong by more than the scale's bound left the device idle with requests
/// waiting.
///
/// `policies/tests/suite/vfair.rs`:
/// `a_profile_that_is_wrong_beyond_all_bounds_does_not_leave_the_device_idle`.
#[test]
fn vfair_serves_whatever_the_profile_says() {
    passes(&[888], &["vfair", "vfair-bops", "vfair-bsps"]);
}

/// Beyond the last size that a profile has, an I/O cost less than the profile says.
///
/// `core/src/dispatch/cost.rs`: `costs_never_fall_and_are_no_less_than_the_time`.
#[test]
fn the_largest_cost_is_what_was_stated() {
    passes(&[417], &["sfq", "mclock", "drr"]);
}

/// A VM woke at the tag of the next one that was ready, far ahead of one that its limit held;
/// and one whose limit was lifted kept the place it had when its limit shut.
///
/// `policies/tests/suite/mclock_guarantees.rs`:
/// `a_waking_vm_is_not_passed_by_one_whose_limit_is_lifted`,
/// `a_limit_that_is_lifted_does_not_give_back_the_share_it_held`.
#[test]
fn a_vm_that_waits_under_mclock_is_passed_over_no_longer_than_its_bound() {
    passes(&[147, 276, 417, 1000, 1066, 1984], &["mclock"]);
}

/// The checker went on with a bound of shares when a deadline transfer began, whose help goes
/// before shares.
#[test]
fn shares_have_no_bound_while_a_transfer_is_helped() {
    passes(&[115, 243], &["slo"]);
}

/// A read of which the beginning had gone along with another was not known to hold payload memory:
/// reads that lacked some shut its lane for good.
///
/// `policies/tests/suite/intake.rs`:
/// `a_read_of_which_the_beginning_went_along_with_another_is_not_kept_from_its_memory`.
#[test]
fn no_read_waits_behind_others_that_lack_its_memory() {
    passes(&[2408, 3537, 4464, 5348], &[]);
}

/// I/Os that left the depth count as their disk hung were counted as having passed without a byte:
/// the learnt cap was none.
///
/// `core/src/watch/meter.rs`: `what_is_taken_out_as_its_disk_hangs_has_not_passed`.
#[test]
fn no_cap_is_learnt_of_a_disk_that_hangs() {
    passes(&[3965], &[]);
}

/// A read that began to go in parts ended its VM's wait for memory: those shelved behind it were
/// not asked again when the VM's part grew.
#[test]
fn reads_that_are_shelved_are_asked_again_when_their_part_grows() {
    passes(&[11321], &[]);
}

/// The bound on draining did not count ticks that a throttle waits for, which a parameter of the
/// regulator `merge-limit` states: up to an hour for each I/O of a VM with a target.
///
/// `policies/tests/suite/merge_limit.rs`:
/// `with_a_tick_a_page_goes_in_each_and_a_late_slot_is_lost`.
#[test]
fn throttles_with_ticks_drain_within_a_tick_for_each_of_their_ios() {
    passes(&[409], &[]);
    passes(&[127, 491], &["vcup-drr"]);
    passes(&[16, 619], &["vcup"]);
}
