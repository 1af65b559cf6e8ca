//! Layout of a hard disk: the track of each byte, and the time at which it passes under the head.
//!
//! A cylinder is the set of tracks, one per surface, that the arm reaches without moving. Tracks
//! are numbered head by head within a cylinder, then in the next cylinder inwards. Cylinders form
//! zones of equal numbers of cylinders, whose track capacity falls in equal steps: the linear
//! density is the same everywhere, so the capacity of a track is proportional to its radius. Each
//! track begins a skew later than the one before, which is the time of switching heads or
//! cylinders.
//!
//! The skews make the whole disk one stream: `stream(x)` is the time at which byte `x` passes the
//! head if everything before it is read without a pause. A model needs two things, and the stream
//! gives both: reading from `x` to `y` takes `stream(y) - stream(x)`, and byte `x` is under the
//! head whenever the time is congruent to `stream(x)` modulo a revolution.
//!
//! ```text
//!   head 0  |=======data=======|-head skew-|
//!   head 1                                 |=======data=======|-cylinder skew-|
//!   head 0, next cylinder                                                     |=======data==
//!           '--- revolution ---'
//!           '--------------------------- pitch of a cylinder ------------------'
//! ```
//!
//! The data of a cylinder per pitch is the sustained rate of its zone, as Hitachi defines it
//! (Deskstar 7K500 specification, 4.4.4). All arithmetic is in integers, so that every machine
//! computes the same times.

use crate::reciprocal::Divisor;

/// Group of adjacent cylinders whose tracks have equal capacity.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Zone {
    first_byte: u64,
    first_cylinder: u64,
    track_bytes: Divisor,
}

/// Layout of a drive. Times are in nanoseconds, addresses in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    zones: Box<[Zone]>,
    /// Number of cylinders in each zone.
    per_zone: Divisor,
    heads: Divisor,
    /// Zone of the first byte of each `1 << index_shift` bytes. Without the index, a random read
    /// would spend most of its time on looking up the zone.
    index: Box<[u16]>,
    index_shift: u32,
    revolution: Divisor,
    /// Time from the begin of a track to that of the next one on its cylinder: revolution plus head
    /// skew.
    head_pitch: Divisor,
    cylinder_skew: u64,
    /// Time from the begin of a cylinder to that of the next one.
    pitch: Divisor,
    block: u64,
    capacity: u64,
    cylinders: u64,
}

/// Physical position at which a block begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    pub(super) cylinder: u64,
    pub(super) head: u64,
    /// Time in the stream, in nanoseconds.
    pub(super) stream: u64,
}

/// Approximate number of entries of the zone index; a choice: 2 KB, and mostly one zone per entry.
const INDEX_ENTRIES: u64 = 1024;

/// Input of [`Geometry::new`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) capacity: u64,
    /// Physical block size in bytes; tracks hold whole blocks.
    pub(super) block: u64,
    /// Time of a revolution in nanoseconds.
    pub(super) revolution: u64,
    /// Number of surfaces, each with a head.
    pub(super) heads: u64,
    /// Skew between the tracks of a cylinder in nanoseconds.
    pub(super) head_skew: u64,
    /// Skew between the last track of a cylinder and the first of the next in nanoseconds.
    pub(super) cylinder_skew: u64,
    /// Sustained rate of the outermost zone in bytes per second.
    pub(super) outer_rate: u64,
    /// Sustained rate of the innermost zone in bytes per second.
    pub(super) inner_rate: u64,
    pub(super) zones: u64,
}

impl Geometry {
    /// Lays the tracks out; `None` if a track would not hold one block.
    pub(super) fn new(layout: &Layout) -> Option<Geometry> {
        let Layout {
            capacity,
            block,
            revolution,
            heads,
            head_skew,
            cylinder_skew,
            outer_rate,
            inner_rate,
            zones,
        } = *layout;
        let head_pitch = revolution + head_skew;
        let pitch = (heads - 1) * head_pitch + revolution + cylinder_skew;
        // A track holds what makes the sustained rate over a whole cylinder, skews included.
        let track_bytes = |zone: u64| {
            let steps = zones.saturating_sub(1).max(1);
            let rate = outer_rate - (outer_rate - inner_rate) / steps * zone;
            let bytes = u128::from(rate) * u128::from(pitch) / 1_000_000_000 / u128::from(heads);
            u64::try_from(bytes).unwrap_or(u64::MAX) / block * block
        };
        if track_bytes(zones - 1) == 0 {
            return None;
        }
        // Bytes of one cylinder of each zone; all zones have as many cylinders.
        let column: u128 = (0..zones)
            .map(|z| u128::from(heads) * u128::from(track_bytes(z)))
            .sum();
        let per_zone = u64::try_from(u128::from(capacity).div_ceil(column)).ok()?;
        let mut first_byte = 0;
        let zones: Box<[Zone]> = (0..zones)
            .map(|z| {
                let zone = Zone {
                    first_byte,
                    first_cylinder: z * per_zone,
                    track_bytes: Divisor::new(track_bytes(z)),
                };
                first_byte += per_zone * heads * track_bytes(z);
                zone
            })
            .collect();
        let index_shift = (capacity / INDEX_ENTRIES).ilog2();
        let index = (0..=(capacity - 1) >> index_shift)
            .map(|bucket| {
                let byte = bucket << index_shift;
                // Figures allow at most 1000 zones.
                (zones.partition_point(|z| z.first_byte <= byte) - 1) as u16
            })
            .collect();
        Some(Geometry {
            per_zone: Divisor::new(per_zone),
            heads: Divisor::new(heads),
            index,
            index_shift,
            revolution: Divisor::new(revolution),
            head_pitch: Divisor::new(head_pitch),
            cylinder_skew,
            pitch: Divisor::new(pitch),
            block,
            capacity,
            cylinders: per_zone * zones.len() as u64,
            zones,
        })
    }

    pub(super) fn cylinders(&self) -> u64 {
        self.cylinders
    }

    pub(super) fn revolution(&self) -> u64 {
        self.revolution.get()
    }

    /// Returns the angle of the platter at `time`, in nanoseconds of a revolution (at most 1 s).
    pub(super) fn angle(&self, time: u64) -> u32 {
        self.revolution.remainder(time) as u32
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn block(&self) -> u64 {
        self.block
    }

    /// Rate of the medium in bytes per second while an outermost track passes under the head, skews
    /// not included.
    pub(super) fn peak_rate(&self) -> u64 {
        self.zones[0].track_bytes.get() * 1_000_000_000 / self.revolution.get()
    }

    fn zone_of(&self, byte: u64) -> &Zone {
        // The index has the zone of the bucket's first byte; further zones may begin in the bucket.
        let mut zone = usize::from(self.index[(byte >> self.index_shift) as usize]);
        while self
            .zones
            .get(zone + 1)
            .is_some_and(|next| next.first_byte <= byte)
        {
            zone += 1;
        }
        &self.zones[zone]
    }

    /// Returns the position at which the block that contains `byte` begins.
    pub(super) fn begin(&self, byte: u64) -> Position {
        self.place(self.block_of(byte), 0).0
    }

    /// Returns the position at which the block that contains the last byte before `end` ends, and
    /// the stream time at which the next block begins. They differ by the skew at the end of a
    /// track.
    pub(super) fn end(&self, end: u64) -> (Position, u64) {
        assert!(end > 0, "nothing ends at the first byte");
        let (place, last) = self.place(self.block_of(end - 1), self.block);
        let skew = if !last {
            0
        } else if place.head + 1 < self.heads.get() {
            self.head_pitch.get() - self.revolution.get()
        } else {
            self.cylinder_skew
        };
        (place, place.stream + skew)
    }

    fn block_of(&self, byte: u64) -> u64 {
        byte & !(self.block - 1)
    }

    /// Returns the position `past` bytes after `byte` on the same track, and whether that is the
    /// end of the track.
    ///
    /// Angles are rounded up at both ends of a block. The next block then begins exactly when this
    /// one ends; if it began a nanosecond earlier, a sequential read would wait for a revolution.
    fn place(&self, byte: u64, past: u64) -> (Position, bool) {
        let zone = self.zone_of(byte);
        let (track, offset) = zone.track_bytes.split(byte - zone.first_byte);
        let offset = offset + past;
        let angle = zone.track_bytes.ceil(offset * self.revolution.get());
        let (inward, head) = self.heads.split(track);
        let cylinder = zone.first_cylinder + inward;
        let place = Position {
            cylinder,
            head,
            stream: cylinder * self.pitch.get() + head * self.head_pitch.get() + angle,
        };
        (place, offset == zone.track_bytes.get())
    }

    /// Returns the first byte, in whole blocks, that has not passed the head at time `stream` of
    /// the stream, with the cylinder and the head of that time.
    pub(super) fn byte_at(&self, stream: u64) -> (u64, u64, u64) {
        let (cylinder, within) = self.pitch.split(stream);
        if cylinder >= self.cylinders {
            let last = self.cylinders - 1;
            return (self.capacity, last, self.heads.get() - 1);
        }
        // The skew at the end of a cylinder counts to its last track.
        let head = self.head_pitch.floor(within).min(self.heads.get() - 1);
        let zone = &self.zones[self.per_zone.floor(cylinder) as usize];
        // In the skew behind a track all of it has passed.
        let angle = (within - head * self.head_pitch.get()).min(self.revolution.get());
        let bytes = zone.track_bytes.get();
        let offset = self.block_of(self.revolution.floor(angle * bytes));
        let track = (cylinder - zone.first_cylinder) * self.heads.get() + head;
        let byte = zone.first_byte + track * bytes + offset;
        (byte.min(self.capacity), cylinder, head)
    }

    /// Returns the first time from `now` on at which the position `stream` passes the head.
    pub(super) fn next_pass(&self, now: u64, stream: u64) -> u64 {
        now + self.turn(self.angle(now), self.angle(stream))
    }

    /// Returns the time in which the platter turns from one angle to another.
    pub(super) fn turn(&self, from: u32, to: u32) -> u64 {
        // Adds a revolution if negative, without a branch: the sign is random and would be
        // mispredicted.
        let ahead = i64::from(to) - i64::from(from);
        (ahead + (self.revolution.get() as i64 & (ahead >> 63))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Four heads; the skews differ, so that mistaking one for the other shows.
    fn geometry() -> Geometry {
        with_heads(4)
    }

    fn with_heads(heads: u64) -> Geometry {
        Geometry::new(&Layout {
            capacity: 1_000_204_886_016,
            block: 4_096,
            revolution: 8_333_333,
            heads,
            head_skew: 1_200_000,
            cylinder_skew: 1_500_000,
            outer_rate: 175_000_000,
            inner_rate: 83_000_000,
            zones: 30,
        })
        .unwrap()
    }

    #[test]
    fn streams_at_the_rates_of_its_outer_and_inner_zone() {
        for heads in [1, 2, 5] {
            let g = with_heads(heads);
            let rate = |from: u64, to: u64| {
                (to - from) as f64 * 1e9 / (g.begin(to).stream - g.begin(from).stream) as f64
            };
            let outer = rate(0, 1 << 30) / 175e6;
            let inner = rate(g.capacity - (1 << 30), g.capacity - 4_096) / 83e6;
            assert!((outer - 1.0).abs() < 0.005, "{heads} heads: {outer}");
            assert!((inner - 1.0).abs() < 0.005, "{heads} heads: {inner}");
        }
    }

    #[test]
    fn zones_cover_the_capacity_and_leave_little_over() {
        let g = geometry();
        let last = g.begin(g.capacity - 1).cylinder;
        assert!(
            last < g.cylinders && last + 60 > g.cylinders,
            "{last} of {}",
            g.cylinders
        );
    }

    #[test]
    fn a_cylinder_is_passed_head_by_head() {
        let g = geometry();
        let track = g.zones[0].track_bytes.get();
        for n in 0..9 {
            let place = g.begin(n * track);
            assert_eq!((place.cylinder, place.head), (n / 4, n % 4));
        }
    }

    proptest! {
        #[test]
        fn blocks_follow_each_other_to_the_nanosecond(block in 1_u64..244_190_646) {
            let g = geometry();
            let byte = block * 4_096;
            let (end, next) = g.end(byte);
            prop_assert_eq!(next, g.begin(byte).stream);
            let (before, after) = (g.begin(byte - 1), g.begin(byte));
            let gap = if before.cylinder != after.cylinder {
                1_500_000
            } else if before.head != after.head {
                1_200_000
            } else {
                0
            };
            prop_assert_eq!(next - end.stream, gap);
        }

        #[test]
        fn at_inverts_the_stream(block in 1_u64..244_190_646) {
            let g = geometry();
            let byte = block * 4_096;
            prop_assert_eq!(g.byte_at(g.end(byte).0.stream).0, byte);
            prop_assert_eq!(g.byte_at(g.end(byte).0.stream - 1).0, byte - 4_096);
            prop_assert_eq!(g.byte_at(g.begin(byte).stream).0, byte);
        }

        #[test]
        fn the_index_finds_the_zone(byte in 0_u64..1_000_204_886_016) {
            let g = geometry();
            let slow = g.zones.iter().rev().find(|z| z.first_byte <= byte).unwrap();
            prop_assert_eq!(g.zone_of(byte), slow);
        }

        #[test]
        fn a_pass_is_never_more_than_a_turn_away(now in 0_u64..1 << 60, stream in 0_u64..1 << 44) {
            let g = geometry();
            let at = g.next_pass(now, stream);
            prop_assert!(at >= now && at < now + g.revolution());
            prop_assert_eq!(at % g.revolution(), stream % g.revolution());
        }
    }
}
