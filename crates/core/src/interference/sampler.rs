//! Choice of the requests that are sampled: of each VM about as many a second, whatever its rate.
//!
//! A VM's requests are counted, and a random one of the next `2 x stride - 1` is sampled, so short
//! and long waits are found in proportion to their number, wherever in a burst they are. A sample
//! stands for `stride` requests. Strides follow the VMs' rates, such that a VM is sampled once in a
//! *spacing*; the spacing follows the number of samples over all VMs, which is bounded by a credit:
//! [`SAMPLES_PER_S`] and one in [`IOS_A_SAMPLE`] I/Os, and fewer while samples find no room.

use tidegate_base::random::mix;
use tidegate_base::time::Nanos;

/// Samples a second of a device that are taken however few I/Os it does. Each costs about a
/// microsecond.
const SAMPLES_PER_S: u64 = 200;
/// I/Os of the device for each further sample: keeps the cost below 5 ns a request.
const IOS_A_SAMPLE: u64 = 1024;
/// Credit in nanoseconds that a sample costs, and that each ended I/O brings; time brings its own
/// length.
const SAMPLE_COST: u64 = Nanos::SECOND.0 / SAMPLES_PER_S;
const IO_CREDIT: u64 = SAMPLE_COST / IOS_A_SAMPLE;
/// Largest credit, and the credit of a device that begins, in samples.
const CREDIT_MAX: u64 = 64 * SAMPLE_COST;
const CREDIT_FIRST: u64 = 8 * SAMPLE_COST;
/// Stride of a VM that was added.
const STRIDE_FIRST: u32 = 4;
/// Time after which the spacing is adapted.
const WINDOW: Nanos = Nanos::from_millis(250);
/// Bounds of the spacing.
const SPACING_MIN: u64 = Nanos::from_millis(1).0;
/// Spacing of a device that begins; it is halved four times a second where requests are few.
const SPACING_FIRST: u64 = Nanos::from_millis(200).0;
const SPACING_MAX: u64 = Nanos::from_secs(1000).0;
/// Largest stride: rates up to a million requests a second at a spacing of a minute.
const STRIDE_MAX: u64 = 1 << 26;
/// VMs that one call of [`Sampler::catch_up`] visits.
const VISITED: usize = 2;
/// Time since a VM was last seen from which a fall of its rate is taken for one.
const SEEN_MIN: Nanos = Nanos::from_millis(50);

/// Sampling of one VM.
#[derive(Clone, Copy)]
struct OfVm {
    /// Mean number of requests from one sample to the next.
    stride: u32,
    /// Requests for which the next sample stands as well, because samples for them found no room.
    owed: u32,
    /// Time and number of the request that was sampled last, or at which the rate was last seen.
    seen_at: Nanos,
    seen: u32,
}

impl OfVm {
    const NEW: OfVm = OfVm {
        stride: STRIDE_FIRST,
        owed: 0,
        seen_at: Nanos::ZERO,
        seen: 0,
    };
}

/// Chooser of the requests that are sampled.
pub(super) struct Sampler {
    /// Number of the request of each VM that is sampled next, modulo 2^32; apart from the rest,
    /// because it is compared for each request.
    next: Vec<u32>,
    vms: Vec<OfVm>,
    /// Mean time in nanoseconds between samples of a VM.
    spacing: u64,
    /// Begin of the window, with the I/Os that had ended by then and the samples since.
    window: Nanos,
    ios: u32,
    samples: u64,
    /// Samples of these that found no room.
    refused: u64,
    /// Credit for samples in nanoseconds, with the time and the I/Os up to which it was paid.
    credit: u64,
    paid_until: Nanos,
    paid_ios: u32,
    /// Draws of random numbers.
    draws: u64,
    /// VM that [`Sampler::catch_up`] visits next.
    cursor: usize,
}

impl Sampler {
    /// Memory in bytes of a VM.
    pub(super) const BYTES_PER_VM: usize = size_of::<u32>() + size_of::<OfVm>();

    pub(super) fn new() -> Sampler {
        Sampler {
            next: Vec::new(),
            vms: Vec::new(),
            spacing: SPACING_FIRST,
            window: Nanos::ZERO,
            ios: 0,
            samples: 0,
            refused: 0,
            credit: CREDIT_FIRST,
            paid_until: Nanos::ZERO,
            paid_ios: 0,
            draws: 0,
            cursor: 0,
        }
    }

    /// Begins with a VM that was added.
    pub(super) fn add(&mut self, vm: usize) {
        if self.next.len() <= vm {
            self.next.resize(vm + 1, 1);
            self.vms.resize(vm + 1, OfVm::NEW);
        }
        self.vms[vm] = OfVm::NEW;
        self.draws += 1;
        self.next[vm] = 1 + (mix(self.draws) % u64::from(2 * STRIDE_FIRST - 1)) as u32;
    }

    /// Returns whether request number `arrived` of a VM, counted from 1, is to be sampled.
    #[inline(always)]
    pub(super) fn is_due(&self, vm: u32, arrived: u32) -> bool {
        self.next[vm as usize] == arrived
    }

    /// Returns whether there is credit for a sample. `ios`: I/Os that have ended, modulo 2^32.
    fn has_credit(&mut self, now: Nanos, ios: u32) -> bool {
        let earned = u64::from(ios.wrapping_sub(self.paid_ios)) * IO_CREDIT;
        let elapsed = now.since(self.paid_until).0.min(CREDIT_MAX);
        (self.paid_until, self.paid_ios) = (now, ios);
        self.credit = (self.credit + elapsed + earned).min(CREDIT_MAX);
        self.credit >= SAMPLE_COST
    }

    /// Plans the next sample of a VM whose request number `arrived` is due. Returns the number of
    /// requests for which it stands; `None`: there is no room or credit for a sample now, and the
    /// next one stands for those as well. `ios`: I/Os that have ended, modulo 2^32.
    pub(super) fn take(
        &mut self,
        now: Nanos,
        vm: u32,
        arrived: u32,
        ios: u32,
        has_room: impl FnOnce() -> bool,
    ) -> Option<u32> {
        let has_room = self.has_credit(now, ios) && has_room();
        self.credit -= if has_room { SAMPLE_COST } else { 0 };
        let of_vm = &mut self.vms[vm as usize];
        let weight = of_vm.stride.saturating_add(of_vm.owed);
        of_vm.owed = if has_room { 0 } else { weight };
        self.samples += 1;
        self.refused += u64::from(!has_room);
        let stride = u64::from(of_vm.stride);
        // One gap tells little of the rate, so the stride follows it in steps.
        let wanted = self.stride_wanted(now, vm, arrived);
        let stride = if has_room {
            wanted.clamp((stride / 4).max(1), stride * 2)
        } else {
            wanted.clamp(stride * 2, stride * 4)
        };
        self.plan(now, vm, arrived, stride);
        has_room.then_some(weight)
    }

    /// Stride by the requests since a VM was last seen.
    fn stride_wanted(&self, now: Nanos, vm: u32, arrived: u32) -> u64 {
        let of_vm = &self.vms[vm as usize];
        let requests = u128::from(arrived.wrapping_sub(of_vm.seen));
        let elapsed = u128::from(now.since(of_vm.seen_at).0.max(1));
        let stride = requests * u128::from(self.spacing) / elapsed;
        (stride as u64).clamp(1, STRIDE_MAX)
    }

    fn plan(&mut self, now: Nanos, vm: u32, arrived: u32, stride: u64) {
        let stride = stride.min(STRIDE_MAX) as u32;
        self.draws += 1;
        // Uniform from 1 to 2 x stride - 1, whose mean is the stride.
        let gap = 1 + (mix(self.draws) % (2 * u64::from(stride) - 1)) as u32;
        self.next[vm as usize] = arrived.wrapping_add(gap);
        let of_vm = &mut self.vms[vm as usize];
        (of_vm.stride, of_vm.seen_at, of_vm.seen) = (stride, now, arrived);
    }

    /// Adapts the spacing, and visits some VMs: where the rate has fallen, the next sample is
    /// planned anew. To be called every few I/Os. `ios`: I/Os that have ended, modulo 2^32;
    /// `arrived`: requests of a VM that have arrived, modulo 2^32.
    pub(super) fn catch_up(&mut self, now: Nanos, ios: u32, arrived: impl Fn(usize) -> u32) {
        self.adapt_spacing(now, ios);
        for _ in 0..VISITED.min(self.vms.len()) {
            let vm = self.cursor;
            self.cursor = (self.cursor + 1) % self.vms.len();
            let arrived = arrived(vm);
            let elapsed = now.since(self.vms[vm].seen_at);
            if elapsed < SEEN_MIN {
                continue;
            }
            let left = u64::from(self.next[vm].wrapping_sub(arrived));
            let wanted = self.stride_wanted(now, vm as u32, arrived);
            if left > 4 * wanted {
                self.plan(now, vm as u32, arrived, wanted);
            }
        }
    }

    fn adapt_spacing(&mut self, now: Nanos, ios: u32) {
        let elapsed = now.since(self.window);
        if elapsed < WINDOW {
            return;
        }
        let by_time = u128::from(elapsed.0) * u128::from(SAMPLES_PER_S) / 1_000_000_000;
        let ended = u64::from(ios.wrapping_sub(self.ios));
        let allowed = u64::try_from(by_time).unwrap_or(u64::MAX) + ended / IOS_A_SAMPLE;
        let spacing =
            u128::from(self.spacing) * u128::from(self.samples) / u128::from(allowed.max(1));
        // At most twice or half at a time, since strides follow with a delay.
        let spacing = u64::try_from(spacing).unwrap_or(u64::MAX);
        let mut spacing = spacing.clamp(self.spacing / 2, self.spacing.saturating_mul(2));
        if self.refused > self.samples / 4 {
            // Requests are inside for so long that fewer can be sampled at a time.
            spacing = spacing.max(self.spacing + self.spacing / 2);
        }
        self.spacing = spacing.clamp(SPACING_MIN, SPACING_MAX);
        (self.window, self.ios, self.samples, self.refused) = (now, ios, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of each VM and the requests that they stand for, over the last half of `seconds`, of
    /// VMs that send a request every so many nanoseconds.
    fn sampled(every: &[u64], seconds: u64) -> Vec<(u64, u64)> {
        let mut sampler = Sampler::new();
        (0..every.len()).for_each(|vm| sampler.add(vm));
        let mut arrived = vec![0u32; every.len()];
        let mut next: Vec<u64> = every.to_vec();
        let mut taken = vec![(0, 0); every.len()];
        let mut ios = 0u32;
        loop {
            let vm = (0..every.len()).min_by_key(|&vm| next[vm]).expect("some");
            let now = Nanos(next[vm]);
            if now > Nanos::from_secs(seconds) {
                return taken;
            }
            next[vm] += every[vm];
            arrived[vm] += 1;
            if sampler.is_due(vm as u32, arrived[vm]) {
                let weight = sampler.take(now, vm as u32, arrived[vm], ios, || true);
                if let Some(weight) = weight
                    && now > Nanos::from_secs(seconds / 2)
                {
                    taken[vm].0 += 1;
                    taken[vm].1 += u64::from(weight);
                }
            }
            ios += 1;
            if ios.is_multiple_of(16) {
                sampler.catch_up(now, ios, |vm| arrived[vm]);
            }
        }
    }

    #[test]
    fn every_vm_gets_about_as_many_samples_whatever_its_rate() {
        // 50,000, 5,000 and 100 requests a second.
        let taken = sampled(&[20_000, 200_000, 10_000_000], 20);
        let all: u64 = taken.iter().map(|it| it.0).sum();
        // 200 a second, and one in 1024 of 55,100, at most.
        assert!((1800..2650).contains(&all), "{taken:?}");
        for (vm, &(samples, stood_for)) in taken.iter().enumerate() {
            assert!((all / 9..all * 2 / 3).contains(&samples), "{taken:?}");
            let requests = [500_000, 50_000, 1000][vm];
            let ratio = stood_for as f64 / requests as f64;
            assert!((0.8..1.2).contains(&ratio), "{vm}: {ratio}");
        }
    }

    #[test]
    fn a_slow_device_has_all_requests_sampled() {
        let taken = sampled(&[40_000_000, 60_000_000], 20);
        assert_eq!(taken[0].0, 250);
        assert!(taken.iter().all(|it| it.0 == it.1), "{taken:?}");
    }

    #[test]
    fn a_vm_whose_rate_falls_is_sampled_again_soon() {
        let mut sampler = Sampler::new();
        sampler.add(0);
        sampler.plan(Nanos::ZERO, 0, 0, 1 << 20);
        let mut arrived = 0;
        for second in 1..=3 {
            arrived += 1;
            let now = Nanos::from_secs(second);
            if sampler.is_due(0, arrived) {
                return;
            }
            sampler.catch_up(now, 64 * second as u32, |_| arrived);
        }
        panic!("no sample in 3 s at one request a second");
    }

    #[test]
    fn a_sample_stands_for_those_that_found_no_room() {
        let mut sampler = Sampler::new();
        sampler.add(0);
        let seconds = Nanos::from_secs;
        assert_eq!(sampler.take(seconds(5), 0, 1, 0, || false), None);
        // The stride doubles where there is no room.
        let both = STRIDE_FIRST + 2 * STRIDE_FIRST;
        assert_eq!(sampler.take(seconds(9), 0, 2, 0, || true), Some(both));
    }
}
