//! Platter of a hard disk by itself: the angle at which each byte passes the head.

use super::figures::HddFigures;
use super::geometry::Geometry;
use super::layout;
use tidegate_core::time::Nanos;

/// Angles at which the bytes of a hard disk pass the head. An access ends when its last byte has
/// passed, whatever the arm did before, so that the times at which accesses end tell where bytes
/// are.
#[derive(Clone, Debug)]
pub struct Platter(Geometry);

impl Platter {
    /// Lays out the platter of a drive; `None` if its figures contradict each other.
    pub fn new(figures: &HddFigures) -> Option<Platter> {
        figures.check().ok()?;
        Geometry::new(&layout(figures)).map(Platter)
    }

    /// Returns the time of a revolution.
    pub fn revolution(&self) -> Nanos {
        Nanos(self.0.revolution())
    }

    /// Returns the angle at which the block that contains the last byte before `end` has passed the
    /// head, as a part of the time of a revolution: the angle at time zero is zero.
    ///
    /// # Panics
    /// If `end` is 0 or beyond the capacity.
    pub fn angle_behind(&self, end: u64) -> Nanos {
        Nanos(self.0.angle(self.0.end(end).0.stream).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::model::ModelIo;
    use tidegate_core::request::Op;

    #[test]
    fn accesses_end_at_the_angles_of_their_last_bytes() {
        let text = catalogue::text("hdd-7200-1tb").expect("built in");
        let table: toml::Table = text.parse().expect("TOML");
        let figures: HddFigures = table["hdd"].clone().try_into().expect("figures");
        let platter = Platter::new(&figures).expect("right");
        let revolution = platter.revolution().0;
        assert_eq!(revolution, 8_333_333);
        let mut model = catalogue::load("hdd-7200-1tb").expect("built in").build();
        let mut now = Nanos::ZERO;
        for (id, addr) in [0, 700_000_000_000, 5_000_000_000, 999_999_995_904]
            .into_iter()
            .enumerate()
        {
            let io = ModelIo {
                id: id as u64,
                op: Op::Write,
                addr,
                len: 4096,
                fua: false,
            };
            model.submit(now, io);
            let done = model.next_completion().expect("it was submitted");
            model.pop_completed(done);
            assert_eq!(
                done.0 % revolution,
                platter.angle_behind(addr + 4096).0,
                "{addr}"
            );
            now = done + Nanos(3_000_000);
        }
    }
}
