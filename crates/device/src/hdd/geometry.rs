//! Where a byte is: its track, and when it passes under the head.
//!
//! All tracks lie in one line from the outer edge to the inner one, in zones of equally many
//! tracks whose capacity falls in equal steps (the linear density is the same everywhere, so a
//! track holds as much as its radius is long). Each track begins a skew later than the one
//! before, just the time it takes to change tracks.
//!
//! That makes the whole disk one stream: `stream(x)` is the time at which byte `x` passes the
//! head if everything before it is read without a pause. It gives both things that a model
//! needs: reading from `x` to `y` takes the difference of the two, and byte `x` is under the
//! head whenever the time is congruent to `stream(x)` modulo a revolution.
//!
//! ```text
//!   track n      |=======data=======|-skew-|
//!   track n + 1                            |=======data=======|-skew-|
//!                '--- revolution ---'
//! ```
//!
//! The data of a track per revolution and skew is the sustained rate of its zone, so
//! `track bytes = sustained rate · (revolution + skew)`. All arithmetic is in integers.

/// Tracks that hold equally much.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Zone {
    first_byte: u64,
    first_track: u64,
    track_bytes: u64,
}

/// The layout of a drive. Times in nanoseconds, positions in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    zones: Box<[Zone]>,
    /// Tracks in each zone.
    per_zone: u64,
    /// The zone of the first byte of each `1 << index_shift` bytes: looking a zone up is what
    /// a random read would otherwise spend most of its time on.
    index: Box<[u16]>,
    index_shift: u32,
    revolution: u64,
    /// A revolution and a skew.
    pitch: u64,
    block: u64,
    capacity: u64,
    tracks: u64,
}

/// Where a block begins or ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) track: u64,
    /// Its time in the stream.
    pub(super) stream: u64,
}

/// Buckets of the index of zones, about.
const INDEX: u64 = 1024;

/// What [`Geometry::new`] lays out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) capacity: u64,
    /// Bytes: tracks hold whole physical blocks.
    pub(super) block: u64,
    /// Nanoseconds.
    pub(super) revolution: u64,
    /// Nanoseconds.
    pub(super) skew: u64,
    /// Bytes a second, sustained, in the outermost zone.
    pub(super) outer_rate: u64,
    /// Bytes a second, sustained, in the innermost zone.
    pub(super) inner_rate: u64,
    pub(super) zones: u64,
}

impl Geometry {
    /// Lays the tracks out. `None` when a track would not hold one block.
    pub(super) fn new(layout: &Layout) -> Option<Geometry> {
        let Layout {
            capacity,
            block,
            revolution,
            skew,
            outer_rate,
            inner_rate,
            zones,
        } = *layout;
        let pitch = revolution + skew;
        let track_bytes = |zone: u64| {
            let steps = zones.saturating_sub(1).max(1);
            let rate = outer_rate - (outer_rate - inner_rate) / steps * zone;
            let bytes = u128::from(rate) * u128::from(pitch) / 1_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX) / block * block
        };
        let column: u128 = (0..zones).map(|z| u128::from(track_bytes(z))).sum();
        if track_bytes(zones - 1) == 0 {
            return None;
        }
        let per_zone = u64::try_from(u128::from(capacity).div_ceil(column)).ok()?;
        let mut first_byte = 0;
        let zones: Box<[Zone]> = (0..zones)
            .map(|z| {
                let zone = Zone {
                    first_byte,
                    first_track: z * per_zone,
                    track_bytes: track_bytes(z),
                };
                first_byte += per_zone * zone.track_bytes;
                zone
            })
            .collect();
        let tracks = per_zone * zones.len() as u64;
        let index_shift = (capacity / INDEX).ilog2();
        let index = (0..=(capacity - 1) >> index_shift)
            .map(|bucket| {
                let byte = bucket << index_shift;
                // Figures allow no more than 1000 zones.
                (zones.partition_point(|z| z.first_byte <= byte) - 1) as u16
            })
            .collect();
        Some(Geometry {
            zones,
            per_zone,
            index,
            index_shift,
            revolution,
            pitch,
            block,
            capacity,
            tracks,
        })
    }

    pub(super) fn tracks(&self) -> u64 {
        self.tracks
    }

    pub(super) fn revolution(&self) -> u64 {
        self.revolution
    }

    /// Bytes a second while the outermost track passes under the head.
    pub(super) fn peak_rate(&self) -> u64 {
        self.zones[0].track_bytes * 1_000_000_000 / self.revolution
    }

    fn zone_of(&self, byte: u64) -> &Zone {
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

    /// The track that holds `byte`.
    pub(super) fn track(&self, byte: u64) -> u64 {
        let zone = self.zone_of(byte);
        zone.first_track + (byte - zone.first_byte) / zone.track_bytes
    }

    /// Where the block that holds `byte` begins.
    pub(super) fn begin(&self, byte: u64) -> Place {
        self.place(self.block_of(byte), 0).0
    }

    /// Where the block that holds the last byte before `end` ends, and when the one after it
    /// begins to pass the head.
    pub(super) fn end(&self, end: u64) -> (Place, u64) {
        assert!(end > 0, "nothing ends at the first byte");
        let (place, last) = self.place(self.block_of(end - 1), self.block);
        let skew = if last {
            self.pitch - self.revolution
        } else {
            0
        };
        (place, place.stream + skew)
    }

    fn block_of(&self, byte: u64) -> u64 {
        byte & !(self.block - 1)
    }

    /// `past` bytes beyond `byte` on its track, and whether that is the end of the track.
    /// Rounds up at both ends of a block: the next one begins when this one ends, to the
    /// nanosecond, or a continued read would wait for a revolution.
    fn place(&self, byte: u64, past: u64) -> (Place, bool) {
        let zone = self.zone_of(byte);
        let within = byte - zone.first_byte;
        let track = within / zone.track_bytes;
        let offset = within - track * zone.track_bytes + past;
        let angle = (offset * self.revolution).div_ceil(zone.track_bytes);
        let track = zone.first_track + track;
        (
            Place {
                track,
                stream: track * self.pitch + angle,
            },
            offset == zone.track_bytes,
        )
    }

    /// The first byte that has not yet passed the head at `stream`: whole blocks only.
    pub(super) fn byte_at(&self, stream: u64) -> u64 {
        let track = stream / self.pitch;
        if track >= self.tracks {
            return self.capacity;
        }
        let zone = &self.zones[(track / self.per_zone) as usize];
        let angle = (stream - track * self.pitch).min(self.revolution);
        let offset = self.block_of(angle * zone.track_bytes / self.revolution);
        let byte = zone.first_byte + (track - zone.first_track) * zone.track_bytes + offset;
        byte.min(self.capacity)
    }

    /// The first time from `now` at which what is at `stream` passes the head.
    pub(super) fn next_pass(&self, now: u64, stream: u64) -> u64 {
        let turn = self.revolution;
        now + (stream % turn + turn - now % turn) % turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn geometry() -> Geometry {
        Geometry::new(&Layout {
            capacity: 1_000_204_886_016,
            block: 4_096,
            revolution: 8_333_333,
            skew: 1_000_000,
            outer_rate: 175_000_000,
            inner_rate: 83_000_000,
            zones: 30,
        })
        .unwrap()
    }

    #[test]
    fn streams_at_the_rates_of_its_outer_and_inner_zone() {
        let g = geometry();
        let rate = |from: u64, to: u64| {
            (to - from) as f64 * 1e9 / (g.begin(to).stream - g.begin(from).stream) as f64
        };
        let outer = rate(0, 1 << 30) / 175e6;
        let inner = rate(g.capacity - (1 << 30), g.capacity - 4_096) / 83e6;
        assert!((outer - 1.0).abs() < 0.005, "{outer}");
        assert!((inner - 1.0).abs() < 0.005, "{inner}");
    }

    #[test]
    fn zones_cover_the_capacity_and_leave_little_over() {
        let g = geometry();
        let last = g.track(g.capacity - 1);
        assert!(
            last < g.tracks && last + 60 > g.tracks,
            "{last} of {}",
            g.tracks
        );
    }

    proptest! {
        #[test]
        fn blocks_follow_each_other_to_the_nanosecond(block in 1_u64..244_190_646) {
            let g = geometry();
            let byte = block * 4_096;
            let (end, next) = g.end(byte);
            prop_assert_eq!(next, g.begin(byte).stream);
            let gap = next - end.stream;
            prop_assert!(gap == 0 || gap == 1_000_000, "gap of {gap} ns before {byte}");
            prop_assert_eq!(gap == 0, g.track(byte - 1) == g.track(byte));
        }

        #[test]
        fn byte_at_inverts_the_stream(block in 1_u64..244_190_646) {
            let g = geometry();
            let byte = block * 4_096;
            prop_assert_eq!(g.byte_at(g.end(byte).0.stream), byte);
            prop_assert_eq!(g.byte_at(g.end(byte).0.stream - 1), byte - 4_096);
            prop_assert_eq!(g.byte_at(g.begin(byte).stream), byte);
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
            prop_assert!(at >= now && at < now + g.revolution);
            prop_assert_eq!(at % g.revolution, stream % g.revolution);
        }
    }
}
