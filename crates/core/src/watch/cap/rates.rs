//! What is known of a cap, and what a queue in front of the device shows of it.

use crate::watch::meter::Window;

/// What passes in a second: I/Os in thousandths, and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Point {
    pub(super) ios: u64,
    pub(super) bytes: u64,
}

impl Point {
    pub(super) fn of(window: &Window) -> Point {
        Point {
            ios: window.iops_milli(),
            bytes: window.bytes_per_s(),
        }
    }

    fn most(self, other: Point) -> Point {
        Point {
            ios: self.ios.max(other.ios),
            bytes: self.bytes.max(other.bytes),
        }
    }
}

/// `a` is at least 97 % of `b`.
pub(super) fn reaches(a: u64, b: u64) -> bool {
    a as u128 * 100 >= b as u128 * 97
}

/// `a` is more than 106 % of `b`.
pub(super) fn exceeds(a: u64, b: u64) -> bool {
    a as u128 * 100 > b as u128 * 106
}

/// `a` is `b`, but for an I/O at either end of a second, and for 1 %.
pub(super) fn near(a: u64, b: u64, one: u64) -> bool {
    a.abs_diff(b) <= one + b / 100
}

/// What a queue in front of the device shows of a cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// What was known.
    Same,
    /// More of what was known.
    More,
    /// More than was known passes: out of what was saved up in the bucket, or it is another cap.
    Over,
    /// Something else: it is another cap, or none.
    Other,
}

/// What is known of a cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rates {
    pub(super) ios: Option<u64>,
    pub(super) bytes: Option<u64>,
    /// One of the two it is.
    pub(super) either: bool,
    /// The most that has passed of each.
    pub(super) reach: Point,
}

impl Rates {
    /// Of a queue in front of the device, of which this passed in a second.
    pub(super) fn pinned(at: Point, ios: bool, bytes: bool) -> Rates {
        Rates {
            ios: ios.then_some(at.ios),
            bytes: bytes.then_some(at.bytes),
            either: ios && bytes,
            reach: at,
        }
    }

    /// More of one has passed than it is known for: that one is not the cap.
    pub(super) fn narrow(&mut self, at: Point) {
        if self.either && self.ios.is_some_and(|cap| exceeds(at.ios, cap)) {
            (self.ios, self.either) = (None, false);
        } else if self.either && self.bytes.is_some_and(|cap| exceeds(at.bytes, cap)) {
            (self.bytes, self.either) = (None, false);
        }
        self.reach = self.reach.most(at);
    }

    /// I/Os queued up while this passed in a second, where the rates have been raised from what
    /// they were `before`: what passed then may have been saved up in the bucket.
    pub(super) fn measured_after(
        &mut self,
        before: Option<Rates>,
        at: Point,
        largest: u64,
    ) -> Found {
        let Some(before) = before else {
            return self.measured(at, largest);
        };
        *self = before;
        let over = |cap: Option<u64>, rate| cap.is_some_and(|cap| exceeds(rate, cap));
        if over(self.ios, at.ios) || over(self.bytes, at.bytes) {
            return Found::Over;
        }
        match self.measured(at, largest) {
            Found::Same => Found::More,
            found => found,
        }
    }

    /// The same: one of the two rates is at its cap. The largest I/O had so many bytes.
    fn measured(&mut self, at: Point, largest: u64) -> Found {
        self.narrow(at);
        if self.either
            && let (Some(ios), Some(bytes)) = (self.ios, self.bytes)
        {
            // Where one is at its cap and the other is not, it is the one.
            match (near(at.ios, ios, 1000), near(at.bytes, bytes, largest)) {
                (true, false) => (self.bytes, self.either) = (None, false),
                (false, true) => (self.ios, self.either) = (None, false),
                (true, true) | (false, false) => {}
            }
        }
        let mut known = false;
        for (cap, rate) in [(&mut self.ios, at.ios), (&mut self.bytes, at.bytes)] {
            if let Some(cap) = cap.as_mut().filter(|cap| reaches(rate, **cap)) {
                // As far as it was a little too much, it is no more.
                (*cap, known) = (rate.min(*cap), true);
            }
        }
        if known {
            return Found::Same;
        }
        // What has passed before cannot be capped below it.
        let by_ios = !exceeds(self.reach.ios, at.ios);
        let by_bytes = !exceeds(self.reach.bytes, at.bytes);
        match (by_ios, by_bytes) {
            (true, false) => self.ios = Some(at.ios),
            (false, true) => self.bytes = Some(at.bytes),
            (true, true) | (false, false) => return Found::Other,
        }
        Found::More
    }

    /// More has passed without a queue.
    pub(super) fn raise(&mut self, at: Point) {
        self.ios = self.ios.map(|cap| cap.max(at.ios));
        self.bytes = self.bytes.map(|cap| cap.max(at.bytes));
        self.reach = self.reach.most(at);
    }
}
